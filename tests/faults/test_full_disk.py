"""A full disk and a read-only folder: one clear message, what was there before intact, and asking again goes on."""

import os
import sys
from pathlib import Path

import pytest
from faults.children import TINY, Ended, ask, store_in
from faults.disks import FullDisk, ReadOnly
from faults.outcomes import Undisturbed, assert_same, assert_whole, outcome, runs
from tracking.programs import MLFLOW_WARNINGS

from rapid_lab import names
from rapid_lab.files import open_tensors

pytestmark = [
    pytest.mark.filterwarnings(MLFLOW_WARNINGS),
    pytest.mark.skipif(sys.platform != "linux" and os.geteuid() == 0, reason="only Linux binds root by permissions"),
]

WORDS = ["run", *TINY]
Fault = FullDisk | ReadOnly


def messages(end: Ended) -> list[str]:
    assert "Traceback" not in end.err, end.err
    return [line.removeprefix("rapid-lab: ") for line in end.err.splitlines() if line.startswith("rapid-lab: ")]


def the_failed_run(folder: Path) -> str:
    """Its description."""
    with store_in(folder):
        (student,) = runs(names.STUDENT)
        assert student.info.status == "FAILED"
        return student.data.tags[names.DESCRIPTION]


def goes_on(folder: Path, undisturbed: Undisturbed) -> None:
    again = ask(folder, WORDS)
    assert again.code == 0, again.err
    assert_whole(folder)
    assert_same(outcome(folder), undisturbed.outcome)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (FullDisk("checkpoint.safetensors", 3), "File too large"),
        pytest.param(ReadOnly("checkpoint.safetensors", 3), "Permission denied", marks=pytest.mark.soak),
    ],
    ids=str,
)
def test_a_checkpoint_that_cannot_be_written_ends_the_run_with_one_message_and_the_earlier_one_stays(
    taught: Path, undisturbed: Undisturbed, fault: Fault, reason: str
) -> None:
    end = ask(taught, WORDS, fault)
    (message,) = messages(end)
    assert end.code == 2
    (checkpoint,) = taught.glob("cache/runs/*/checkpoint.safetensors")
    assert message.startswith(f"{checkpoint} cannot be written: ")
    assert reason in message
    assert the_failed_run(taught) == f"Failed: {message}"
    assert open_tensors(checkpoint)[1]["step"] == 8
    assert [path.name for path in checkpoint.parent.iterdir()] == [checkpoint.name]
    goes_on(taught, undisturbed)


@pytest.mark.soak
@pytest.mark.parametrize(
    "fault",
    [FullDisk("signals.safetensors"), ReadOnly("signals.safetensors"), FullDisk("model.safetensors")],
    ids=str,
)
def test_a_teachers_cache_that_cannot_be_written_ends_the_run_with_one_message(
    cold: Path, undisturbed: Undisturbed, fault: Fault
) -> None:
    end = ask(cold, WORDS, fault)
    (message,) = messages(end)
    assert end.code == 2
    assert f"{fault.at} cannot be written: " in message
    assert the_failed_run(cold) == f"Failed: {message}"
    assert not list(cold.glob(f"cache/teachers/*/{fault.at}"))
    goes_on(cold, undisturbed)


@pytest.mark.soak
@pytest.mark.parametrize("fault", [FullDisk("spool"), ReadOnly("spool")], ids=str)
def test_a_spool_that_cannot_be_written_ends_the_run_with_one_message(
    taught: Path, undisturbed: Undisturbed, fault: Fault
) -> None:
    end = ask(taught, WORDS, fault)
    (message,) = messages(end)
    assert end.code == 2
    assert message.startswith(f"{taught}/cache/spool cannot be written to: ")
    assert the_failed_run(taught) == f"Failed: {message}"
    goes_on(taught, undisturbed)


@pytest.mark.soak
@pytest.mark.parametrize("fault", [FullDisk("artifact"), ReadOnly("artifact")], ids=str)
def test_artifacts_that_cannot_be_written_are_kept_and_sent_by_a_flush(
    taught: Path, undisturbed: Undisturbed, fault: Fault
) -> None:
    end = ask(taught, WORDS, fault)
    assert end.code == 0, end.err
    told = [message for message in messages(end) if message.endswith("is kept: `rapid-lab flush` sends it")]
    assert messages(end) == told != []
    flush = ask(taught, ["flush"])
    assert (flush.code, flush.err) == (0, "")
    goes_on(taught, undisturbed)


def test_a_cache_in_which_nothing_may_be_written_is_refused_before_a_run_is_made(taught: Path) -> None:
    (taught / "cache").chmod(0o555)
    end = ask(taught, WORDS, ReadOnly("nothing.safetensors"))
    assert (end.code, messages(end)) == (2, [f"{taught}/cache/runs cannot be written: Permission denied"])
    with store_in(taught):
        assert runs() == []
