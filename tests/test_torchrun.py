"""`torchrun -m rapid_lab run`: one run of several processes, whatever becomes of them."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest
from mlflow.artifacts import download_artifacts
from mlflow.entities import Run
from torchrun import start_ranks

from rapid_lab import names
from rapid_lab.cli import main
from rapid_lab.launch import Launch, launch
from rapid_lab.tracking.door import client
from rapid_lab.training.distributed import STEP_PATIENCE

# 1,800 examples: 56 batches of 32, and one of 8, which three ranks share unevenly.
TINY = [
    "--data", "twin", "--method", "static", "--warmup-epochs", "1", "--teacher-epochs", "1", "--log-model", "false",
]  # fmt: skip
TIMEOUT = 300


def start(size: int, folder: Path, *options: str) -> "subprocess.Popen[str]":
    return start_ranks(size, "-m", "rapid_lab", "run", *TINY, *options, folder=folder)


def the_run() -> Run:
    """The one student in the store."""
    (run,) = client().search_runs(["0"], f"tags.`{names.KIND}` = '{names.STUDENT}'")
    return run


def result_of(run: Run) -> dict[str, Any]:
    text = Path(download_artifacts(f"runs:/{run.info.run_id}/{names.RESULT}")).read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def wait_for(process: "subprocess.Popen[str]", words: str) -> None:
    """Read what a person would see until these words come."""
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        if words in line:
            return
        seen.append(line)
    raise AssertionError("".join(seen))


def process_of(rank: int, launcher: "subprocess.Popen[str]") -> psutil.Process:
    children = psutil.Process(launcher.pid).children()
    (found,) = (child for child in children if child.environ().get("RANK") == str(rank))
    return found


def together(size: int, folder: Path, *options: str) -> dict[str, Any]:
    """The summary of a run that ends well: one document, since only the first rank prints."""
    process = start(size, folder, *options, "--json")
    output, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, errors
    document: dict[str, Any] = json.loads(output)
    return document


def alone(capfd: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    capfd.readouterr()
    assert main(["run", *TINY, *options, "--json"]) == 0
    document: dict[str, Any] = json.loads(capfd.readouterr().out)
    return document


def test_two_ranks_make_one_run_and_one_process_finds_it(store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    summary = together(2, store.parent, "--epochs", "1")
    run = the_run()
    assert (run.info.run_id, run.info.status) == (summary["run_id"], "FINISHED")
    assert run.data.tags[names.WORLD_SIZE] == "2"
    assert run.data.tags[names.HARDWARE].startswith("2 x ")
    assert result_of(run)["world_size"] == 2
    steps = client().get_metric_history(run.info.run_id, names.RELATIONS_MAIN)
    assert [metric.step for metric in steps] == list(range(1, 58))
    assert [metric.value for metric in steps] == [256.0] * 56 + [28.0]
    found = alone(capfd, "--epochs", "1")
    assert (found["run_id"], found["is_reused"]) == (run.info.run_id, True)


@pytest.mark.soak
def test_ranks_spend_the_relations_of_one_process_and_find_its_run(
    store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    three = together(3, store.parent, "--epochs", "2")
    one = alone(capfd, "--epochs", "2", "--force")
    assert (one["config_id"], one["relations"]) == (three["config_id"], three["relations"])  # though dropout is on
    assert client().get_run(one["run_id"]).data.tags[names.WORLD_SIZE] == "1"
    assert together(2, store.parent, "--epochs", "2")["is_reused"]


def test_only_run_goes_under_torchrun(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    place = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    assert launch() == Launch()  # somebody else's variables
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "any")
    assert launch() == Launch(1, 2, 1, 2)
    assert main(["suite"]) == 2
    assert capsys.readouterr().err == (
        "rapid-lab: command must be run under torchrun, got 'suite': each rank would do all of it\n"
    )


@pytest.mark.soak
def test_a_bad_setting_is_one_message_and_ends_every_rank_with_2(store: Path) -> None:
    process = start(2, store.parent, "--epochs", "0")
    output, errors = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, output) == (1, "")  # torchrun's own code
    assert errors.count("rapid-lab: epochs must be") == 1
    assert errors.count("exitcode  : 2") >= 1
    assert client().search_runs(["0"]) == []


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.soak)])
def test_a_rank_that_is_killed_ends_the_run_as_failed(size: int, store: Path) -> None:
    process = start(size, store.parent, "--epochs", "40")
    wait_for(process, "epoch 1/40")
    victim = process_of(1, process)
    victim.kill()
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 1
    run, told = the_run(), f"rank 1 (process {victim.pid}) has ended without a word"
    assert (run.info.status, run.data.tags[names.DESCRIPTION]) == ("FAILED", f"Failed: {told}")
    assert errors.count(f"rapid-lab: {told}\n") == 1


@pytest.mark.soak
def test_torchrun_may_start_the_ranks_again_and_the_run_goes_on(store: Path) -> None:
    options = ["-m", "rapid_lab", "run", *TINY, "--epochs", "6"]
    process = start_ranks(2, "--max-restarts=1", *options, folder=store.parent)
    wait_for(process, "epoch 2/6")
    process_of(1, process).kill()
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, errors
    run = the_run()
    assert (run.info.status, run.data.tags[names.RESUMED]) == ("FINISHED", "true")
    assert result_of(run)["parts"] == 2


@pytest.mark.soak
def test_a_rank_that_is_killed_while_the_teacher_is_trained_ends_the_run_as_failed(store: Path) -> None:
    """There is no exchange that could fail: torchrun's SIGTERM is told from one that means the run."""
    process = start(2, store.parent, "--epochs", "1", "--teacher-epochs", "40")
    wait_for(process, "epoch 1/40")
    victim = process_of(1, process)
    victim.kill()
    process.communicate(timeout=TIMEOUT)
    told = f"Failed: rank 1 (process {victim.pid}) has ended without a word"
    assert (the_run().info.status, the_run().data.tags[names.DESCRIPTION]) == ("FAILED", told)


@pytest.mark.soak
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("epoch", ["epoch 1/6", "epoch 1/60"])  # of the teacher, of the student
def test_a_signal_to_torchrun_ends_the_run_as_killed_with_a_checkpoint(
    number: signal.Signals, epoch: str, store: Path
) -> None:
    process = start(2, store.parent, "--epochs", "60", "--teacher-epochs", "6")
    wait_for(process, epoch)
    process.send_signal(number)
    process.communicate(timeout=TIMEOUT)
    assert process.returncode != 0
    assert the_run().info.status == "KILLED"
    kind = "teachers" if epoch == "epoch 1/6" else "runs"
    assert list((store.parent / "cache" / kind).glob("*/checkpoint.safetensors"))


def end_without_a_word(folder: Path, epochs: int) -> None:
    """A run of two ranks, the first of which is killed after a checkpoint."""
    process = start(2, folder, "--epochs", str(epochs))
    wait_for(process, f"epoch 2/{epochs}")  # the first one was saved
    process_of(0, process).kill()
    process.communicate(timeout=TIMEOUT)
    assert the_run().info.status == "RUNNING"


@pytest.mark.soak
def test_a_run_whose_first_rank_was_killed_goes_on_when_it_is_asked_for_again(
    store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    end_without_a_word(store.parent, 4)
    alone(capfd, "--epochs", "4")
    run = the_run()
    assert (run.info.status, run.data.tags[names.RESUMED]) == ("FINISHED", "true")
    result = result_of(run)
    assert (result["parts"], result["relations"]["main"]) == (2, 4 * (56 * 256 + 28))
    steps = [metric.step for metric in client().get_metric_history(run.info.run_id, names.RELATIONS_MAIN)]
    assert steps == list(range(1, 4 * 57 + 1))


@pytest.mark.soak
@pytest.mark.parametrize("is_reaped", [True, False])
@pytest.mark.parametrize("number_after", [1, 3])
def test_a_run_whose_first_rank_was_killed_is_closed_and_goes_on_with_another_number_of_ranks(
    number_after: int, is_reaped: bool, store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    end_without_a_word(store.parent, 6)
    if is_reaped:
        assert main(["reap"]) == 0
        assert the_run().info.status == "KILLED"

    if number_after > 1:
        together(number_after, store.parent, "--epochs", "6")
    else:
        alone(capfd, "--epochs", "6")
    resumed = the_run()
    assert resumed.info.status == "FINISHED"
    assert (resumed.data.tags[names.RESUMED], resumed.data.tags[names.WORLD_SIZE]) == ("true", str(number_after))
    steps = [metric.step for metric in client().get_metric_history(resumed.info.run_id, names.RELATIONS_MAIN)]
    assert steps == list(range(1, 6 * 57 + 1))
    undisturbed = alone(capfd, "--epochs", "6", "--force")
    assert undisturbed["relations"] == result_of(resumed)["relations"]


FAILING = """
import os, sys
from rapid_lab.cli import main
from rapid_lab.experiment import follower

def fail(*_):
    raise MemoryError("no room for the student")

if os.environ["RANK"] == "1":
    follower.train_student = fail
sys.exit(main(["run", *sys.argv[1:]]))
"""


@pytest.mark.soak
def test_the_reason_of_a_rank_that_fails_is_told_by_the_first(store: Path) -> None:
    program = store.parent / "failing.py"
    program.write_text(FAILING, encoding="utf-8")
    process = start_ranks(2, str(program), *TINY, "--epochs", "1", folder=store.parent)
    _, errors = process.communicate(timeout=TIMEOUT)
    told = "rank 1 has failed: MemoryError: no room for the student"
    assert (the_run().info.status, the_run().data.tags[names.DESCRIPTION]) == ("FAILED", f"Failed: {told}")
    assert errors.count(f"rapid-lab: {told}\n") == 1


FAILING_FIRST = """
import os, sys
from pathlib import Path
from faults.disks import FullDisk
from rapid_lab.cli import main
from rapid_lab.errors import DataError
from rapid_lab.experiment import run

def fail(*_):
    raise DataError("the signals cannot be read")

rank, fault, *options = os.environ["RANK"], *sys.argv[1:]
if rank == "0" and fault == "after an epoch":
    FullDisk("checkpoint.safetensors", 2)()  # the first one is the teacher's
elif rank == "0":
    run.train_student = fail
try:
    sys.exit(main(["run", *options]))
except SystemExit as end:
    Path(f"code {rank}").write_text(str(end.code))
    raise
"""


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("after an epoch", "checkpoint.safetensors cannot be written"),
        pytest.param("before the first step", "the signals cannot be read", marks=pytest.mark.soak),
    ],
)
def test_when_the_first_rank_alone_fails_all_end_with_its_code_and_without_waiting_for_it(
    fault: str, reason: str, store: Path
) -> None:
    """The others sit in an exchange of the steps, or in one of all ranks, in which nobody may tell them anything."""
    program = store.parent / "failing.py"
    program.write_text(FAILING_FIRST, encoding="utf-8")
    process = start_ranks(2, str(program), fault, *TINY, "--epochs", "2", folder=store.parent)
    try:
        _, errors = process.communicate(timeout=STEP_PATIENCE.total_seconds() / 2)
    finally:
        process.terminate()  # and with torchrun its ranks, if they still wait
    run = the_run()
    assert run.info.status == "FAILED"
    told = run.data.tags[names.DESCRIPTION].removeprefix("Failed: ")
    assert reason in told
    assert errors.count(f"rapid-lab: {told}\n") == 1
    assert [(store.parent / f"code {rank}").read_text() for rank in range(2)] == ["2", "2"]
