"""A full disk and a read-only folder: one clear message, what was there before intact, and asking again goes on."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from faults.children import TINY, Ended, ask, store_in
from faults.disks import FullDisk, ReadOnly, impatient, small_disk
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


def ends_without_its_spool(folder: Path, prepare: Callable[[], None], reason: str) -> None:
    end = ask(folder, WORDS, prepare)
    message = f"{folder}/cache/spool cannot be written to: {reason}"
    assert (end.code, messages(end)) == (2, [message])
    assert the_failed_run(folder) == f"Failed: {message}"


@pytest.mark.soak
def test_a_spool_on_a_full_disk_ends_the_run_with_one_message(taught: Path, undisturbed: Undisturbed) -> None:
    with small_disk(taught / "cache" / "spool", 8) as enlarge:
        ends_without_its_spool(taught, impatient, "No space left on device")
        enlarge()
        goes_on(taught, undisturbed)


@pytest.mark.soak
def test_a_spool_in_a_read_only_folder_ends_the_run_with_one_message(taught: Path, undisturbed: Undisturbed) -> None:
    ends_without_its_spool(taught, ReadOnly("spool"), "Permission denied")
    goes_on(taught, undisturbed)


def keeps_its_artifacts(folder: Path, prepare: Callable[[], None]) -> None:
    end = ask(folder, WORDS, prepare)
    assert end.code == 0, end.err
    told = [message for message in messages(end) if message.endswith("is kept: `rapid-lab flush` sends it")]
    assert messages(end) == told != []


@pytest.mark.soak
def test_artifacts_on_a_full_disk_are_kept_and_sent_by_a_flush(taught: Path, undisturbed: Undisturbed) -> None:
    with small_disk(taught / "mlruns", 16) as enlarge:
        keeps_its_artifacts(taught, impatient)
        enlarge()
        flush = ask(taught, ["flush"])
        assert (flush.code, flush.err) == (0, "")
        goes_on(taught, undisturbed)


@pytest.mark.soak
def test_artifacts_in_a_read_only_folder_are_kept_and_sent_by_a_flush(taught: Path, undisturbed: Undisturbed) -> None:
    keeps_its_artifacts(taught, ReadOnly("artifact"))
    flush = ask(taught, ["flush"])
    assert (flush.code, flush.err) == (0, "")
    goes_on(taught, undisturbed)


def test_a_cache_in_which_nothing_may_be_written_is_refused_before_a_run_is_made(taught: Path) -> None:
    (taught / "cache").chmod(0o555)
    end = ask(taught, WORDS, ReadOnly("nothing.safetensors"))
    place = taught / "cache"
    message = f"RAPID_CACHE_DIR must be a folder that can be written to, got '{place}': {place} is not"
    assert (end.code, messages(end)) == (2, [message])
    with store_in(taught):
        assert runs() == []
