"""A real server goes away in the middle of a run and comes back: nothing is missing, doubled or out of order."""

import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from optuna.trial import TrialState
from studies import check_whole, load
from tracking.programs import MLFLOW_WARNINGS
from tracking.servers import Passage, TrackingServer, passage
from tracking.spools import num_entries, steps, wait_until
from training.lab import EPOCHS, NUM_BATCHES, Store, make_job
from trivial_sweep import GRID, LABORATORY

from rapid_lab import names
from rapid_lab.cli import main
from rapid_lab.config import Value
from rapid_lab.errors import SettingError
from rapid_lab.experiment.follower import Silence
from rapid_lab.experiment.run import Tracker
from rapid_lab.experiment.suite import run_suite
from rapid_lab.sweep.driver import main as sweep
from rapid_lab.sweep.trial import SeedResult
from rapid_lab.sweep.watching import SeedWatcher
from rapid_lab.tracking.door import client
from rapid_lab.tracking.runs import TrackedRun, start_run
from rapid_lab.tracking.signals import Interrupted
from rapid_lab.tracking.spool import left_behind
from rapid_lab.tracking.store import experiment_id, find_runs
from rapid_lab.tracking.waiting import wait_for_store
from rapid_lab.training.loop import train

pytestmark = pytest.mark.filterwarnings(MLFLOW_WARNINGS)


@pytest.fixture(scope="module")
def server(made_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrackingServer]:
    folder = tmp_path_factory.mktemp("server")
    with closing(sqlite3.connect(made_store)) as old, closing(sqlite3.connect(folder / "mlflow.db")) as new:
        old.backup(new)
    running = TrackingServer(folder / "mlflow.db", folder)
    yield running
    running.signal(signal.SIGCONT)
    running.kill()


@pytest.fixture
def before(server: TrackingServer) -> Iterator[Passage]:
    with passage(server.uri) as standing:
        yield standing


@pytest.fixture(autouse=True)
def impatient(before: Passage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", before.uri)
    monkeypatch.setenv("RAPID_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "8")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr("rapid_lab.tracking.writer.PAUSES", (0.1, 0.3))
    monkeypatch.setattr("rapid_lab.tracking.writer.BATCH_SECONDS", 0.2)


def log(run: TrackedRun, first: int, last: int) -> None:
    for step in range(first, last):
        run.log_metrics(step, {"loss/total": step + 0.5, "relations/main": 7.0})


def whole(run: TrackedRun, num_steps: int) -> bool:
    keys = ("loss/total", "relations/main")
    return [steps(run.run_id, key) for key in keys] == [list(range(num_steps))] * 2


def goes_and_comes(run: TrackedRun, leave: Callable[[], None], come: Callable[[], None]) -> None:
    """Log on all the while, longer than any buffer in memory, and end after the store is back."""
    log(run, 0, 500)
    leave()
    log(run, 500, 1000)
    wait_until(lambda: run.is_away, "the writer sees that the store does not answer")
    log(run, 1000, 2000)
    wait_until(lambda: num_entries() == 2000, "everything is on disk while the store is away")
    assert run.is_away
    come()
    log(run, 2000, 2500)
    run.finish("FINISHED")
    assert whole(run, 2500)
    assert client().get_run(run.run_id).info.status == "FINISHED"
    assert left_behind() == []


@pytest.mark.parametrize("status", [500, *(pytest.param(code, marks=pytest.mark.soak) for code in (401, 404, 503))])
def test_a_server_that_answers_with_a_fault_gets_everything_later(before: Passage, status: int) -> None:
    run = start_run(experiment_id("fault"), "fault", {})
    goes_and_comes(run, lambda: setattr(before, "status", status), lambda: setattr(before, "status", None))


@pytest.mark.soak
def test_a_server_that_hangs_gets_everything_later(server: TrackingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    run = start_run(experiment_id("hang"), "hang", {})
    goes_and_comes(run, lambda: server.signal(signal.SIGSTOP), lambda: server.signal(signal.SIGCONT))


def test_a_training_whose_server_hangs_from_its_first_step_to_its_last_does_not_wait_for_it(
    server: TrackingServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All of its steps and epochs are done, evaluated and on disk while the server answers nothing."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    run = start_run(experiment_id("hang"), "training", {})
    server.signal(signal.SIGSTOP)
    try:
        trained = train(make_job(tmp_path, observer=Tracker(run, Store())))
        wait_until(lambda: num_entries() == len(trained.table) + EPOCHS, "everything is on disk")
    finally:
        server.signal(signal.SIGCONT)
    run.finish("FINISHED")
    assert steps(run.run_id, names.LOSS_TOTAL) == list(range(1, EPOCHS * NUM_BATCHES + 1))
    assert steps(run.run_id, names.SELECTION_NLL) == [epoch * NUM_BATCHES for epoch in range(1, EPOCHS + 1)]


@pytest.mark.soak
def test_a_server_that_is_killed_in_between_gets_everything_when_it_is_back(
    server: TrackingServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    first = start_run(experiment_id("killed"), "comes back in time", {})
    second = start_run(experiment_id("killed"), "comes back too late", {})
    log(first, 0, 500)
    log(second, 0, 500)
    server.kill()
    log(first, 500, 1000)
    log(second, 500, 1000)
    (tmp_path / names.STEPS).write_bytes(b"PAR1")
    second.log_artifact_file(tmp_path / names.STEPS)
    second.log_params({"cfg.epochs": 3})
    second.set_tags({names.COMPLETE: "true"})
    with monkeypatch.context() as patch:
        patch.setattr("rapid_lab.tracking.writer.STILL_SECONDS", 1.0)
        second.finish("FINISHED")
    said = capsys.readouterr().err
    assert said.startswith("rapid-lab: ")
    assert said.endswith(f"What run {second.run_id} has logged is kept: `rapid-lab flush` sends it\n")
    assert said.count("\n") == 1
    # A store that does not answer is refused as ever, and nothing is lost by asking.
    assert main(["flush"]) == 2
    assert "MLFLOW_TRACKING_URI must name a server that answers" in capsys.readouterr().err

    server.start()
    first.finish("FINISHED")
    assert whole(first, 1000)
    assert main(["flush", "--json"]) == 0
    (sent,) = json.loads(capsys.readouterr().out)["spools"]
    assert (sent["run_id"], sent["outcome"]) == (second.run_id, "sent")
    assert whole(second, 1000)
    found = client().get_run(second.run_id)
    assert (found.info.status, found.data.params) == ("FINISHED", {"cfg.epochs": "3"})
    assert [item.path for item in client().list_artifacts(second.run_id)] == [names.STEPS]


@pytest.mark.soak
def test_a_suite_whose_server_goes_away_after_its_last_run_ends_in_order_and_is_whole_when_asked_again(
    before: Passage,
) -> None:
    given: dict[str, Value] = {"data": "twin", "epochs": 1, "teacher_epochs": 1, "log_model": False}

    def watch(label: str) -> Silence:
        if label == "agnews":  # the teacher's turn, after all students
            before.status = 500
        return Silence()

    first = run_suite(given, ["kd"], [7], watch)
    assert [run["method"] for run in first["runs"]] == ["kd"]
    (fault,) = first["failed"]
    assert fault.startswith("teacher: MLFLOW_TRACKING_URI must name a server that answers")
    before.status = None
    again = run_suite(given, ["kd"], [7], lambda label: Silence())
    assert (again["runs"], again["failed"]) == (first["runs"], [])
    (teacher,) = find_runs("0", {names.KIND: names.TEACHER})
    assert names.TEACHER_REPORT_ACCURACY in client().get_run(teacher.run_id).data.metrics
    assert main(["flush"]) == 0
    assert client().get_run(first["run_id"]).info.status == "FAILED"


class Bringing(Silence):
    """Hears that the store is waited for, and brings it back."""

    def __init__(self, before: Passage, said: list[str]) -> None:
        self.before, self.said = before, said

    def say(self, line: str) -> None:
        self.said.append(line)
        if line.startswith("waiting for the tracking store"):
            self.before.status = None

    def __reduce__(self) -> tuple[type[Silence], tuple[()]]:
        return Silence, ()  # in the run's own process


def test_a_suite_waits_for_its_server_before_the_next_run(before: Passage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rapid_lab.tracking.waiting.POLL_SECONDS", 0.1)
    given: dict[str, Value] = {"data": "twin", "epochs": 1, "log_model": False}
    said: list[str] = []

    def watch(label: str) -> Silence:
        if label == "student_ce seed 8":
            before.status = 500
        return Bringing(before, said)

    done = run_suite(given, ["student_ce"], [7, 8], watch)
    assert ([run["seed"] for run in done["runs"]], done["failed"]) == ([7, 8], [])
    assert [line.partition(":")[0] for line in said] == [
        "waiting for the tracking store",
        "the tracking store answers again",
    ]


def test_a_store_is_waited_for_until_the_deadline_and_with_patience_that_ends(
    before: Passage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rapid_lab.tracking.waiting.POLL_SECONDS", 0.1)
    said: list[str] = []
    assert wait_for_store(said.append)
    assert said == []
    before.status = 503
    assert not wait_for_store(said.append, time.monotonic() + 0.3)
    assert len(said) == 1
    monkeypatch.setattr("rapid_lab.tracking.waiting.PATIENCE_SECONDS", 0.3)
    with pytest.raises(SettingError, match="MLFLOW_TRACKING_URI must name a server that answers"):
        wait_for_store(said.append)


class Ear(io.StringIO):
    """Standard error that somebody listens to."""

    def __init__(self, hear: Callable[[str], None]) -> None:
        super().__init__()
        self.hear = hear

    def write(self, text: str) -> int:
        self.hear(text)
        return super().write(text)


@pytest.mark.parametrize("moment", ["in a trial", "after a trial"])
def test_a_sweep_waits_for_its_server_and_loses_no_trial_to_it(
    moment: str, before: Passage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It goes away before a seed, which fails, or after the last one, whose trial then ends in a spool."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rapid_lab.tracking.waiting.POLL_SECONDS", 0.1)
    monkeypatch.setattr("rapid_lab.tracking.writer.STILL_SECONDS", 1.0)
    ear = Ear(Bringing(before, []).say)
    monkeypatch.setattr(sys, "stderr", ear)
    turns = iter(range(100))

    def evaluate(settings: Mapping[str, Value], parent_run_id: str, watcher: SeedWatcher) -> SeedResult | str:
        turn = next(turns)
        if moment == "in a trial" and turn == 1:
            before.status = 500
        result = LABORATORY.evaluate(settings, parent_run_id, watcher)
        if moment == "after a trial" and turn == 1:
            before.status = 500
        return result

    study, seeds = moment.replace(" ", "-"), f"{len(moment)}0,{len(moment)}1"  # of its own: the store is shared
    command = ["--study", study, "--relation-budget", "16,32", "--method", "rapid", "--seeds", seeds]
    assert sweep(GRID, command, replace(LABORATORY, evaluate=evaluate)) == 0, ear.getvalue()
    assert ear.getvalue().count("waiting for the tracking store") == 1
    assert main(["flush"]) == 0
    found = load(study)
    check_whole(found, num_trials=2, num_seeds=2)
    dead = found.get_trials(states=(TrialState.FAIL,))
    assert [trial.user_attrs.get("fault") for trial in dead] == ([None] if moment == "in a trial" else [])
    assert [trial.user_attrs["earlier"] for trial in found.trials if "earlier" in trial.user_attrs] == [
        [trial.number] for trial in dead
    ]


def test_a_signal_ends_a_sweep_whose_server_is_away(
    before: Passage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rapid_lab.tracking.writer.STILL_SECONDS", 1.0)

    def evaluate(settings: Mapping[str, Value], parent_run_id: str, watcher: SeedWatcher) -> SeedResult | str:
        before.status = 500
        os.kill(os.getpid(), signal.SIGTERM)
        return "it went on"

    command = ["--study", "signalled", "--relation-budget", "16", "--method", "rapid", "--seeds", "3"]
    with pytest.raises(Interrupted):
        sweep(GRID, command, replace(LABORATORY, evaluate=evaluate))
    assert "trial 0 may stay RUNNING until `rapid-lab reap` closes it" in capsys.readouterr().err
    before.status = None
    assert main(["flush"]) == 0
    assert sweep(GRID, command, LABORATORY) == 0
    check_whole(load("signalled"), num_trials=1, num_seeds=1)


ENDLESS = """
import sys
from rapid_lab.tracking.runs import start_run
from rapid_lab.tracking.store import experiment_id, find_runs
run = start_run(experiment_id("endless"), "endless", {})
print(run.run_id, flush=True)
step = 0
for line in sys.stdin:
    for step in range(step, step + int(line)):
        run.log_metrics(step, {"loss/total": step + 0.5, "relations/main": 7.0})
    step += 1
run.finish("FINISHED")
"""


@pytest.mark.soak
def test_a_run_and_its_server_killed_again_and_again_lose_and_repeat_nothing(
    server: TrackingServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    for turn in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", ENDLESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdin is not None
        assert process.stdout is not None
        run_id = process.stdout.readline().strip()
        for number in (500, 1500):
            process.stdin.write(f"{number}\n")
            process.stdin.flush()
            wait_until(lambda at_least=number: num_entries() >= at_least, "entries")  # type: ignore[misc]
            if number == 500:
                server.kill()
        if turn % 2:
            process.kill()
        server.start()
        process.communicate()
        assert main(["flush"]) == 0
        assert capsys.readouterr().err == ""
        assert steps(run_id) == steps(run_id, "relations/main") == list(range(len(steps(run_id))))
        assert len(steps(run_id)) == (2000 if turn % 2 == 0 else len(steps(run_id))) >= 1500
