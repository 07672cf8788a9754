"""Runs of dead processes are closed, and nobody else's."""

import json
import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from mlflow.entities import Run
from tracking.programs import MLFLOW_WARNINGS, start

from rapid_lab import names
from rapid_lab.cli import main
from rapid_lab.tracking.door import client
from rapid_lab.tracking.processes import Process, read_process, this_process
from rapid_lab.tracking.runs import adopt_run, start_run
from rapid_lab.tracking.store import experiment_id

pytestmark = pytest.mark.filterwarnings(MLFLOW_WARNINGS)

SLEEPING = """
import time
from rapid_lab.tracking.runs import start_run
from rapid_lab.tracking.store import experiment_id, prepare_store
prepare_store()
for name in ("half", "whole"):
    run = start_run(experiment_id("reap"), name, {"mlflow.note.content": "A note."})
    print(run.run_id, flush=True)
run.set_tags({"rapid.complete": "true"})
print("ready", flush=True)
time.sleep(600)
"""


def stored(run_id: str) -> Run:
    return client().get_run(run_id)


def dead() -> Process:
    """A process that was here, and is no more."""
    with subprocess.Popen(["sleep", "60"]) as child:
        process = psutil.Process(child.pid)
        gone = Process(
            this_process().host,
            this_process().namespace,
            child.pid,
            process.create_time(),
            process.create_time() - psutil.boot_time(),
        )
        assert gone.is_alive
        child.kill()
    assert not gone.is_alive
    return gone


def test_runs_of_a_killed_process_are_closed_and_those_of_a_living_one_are_not(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    process = start(SLEEPING, store.parent)
    assert process.stdout is not None
    half, whole, ready = (process.stdout.readline().strip() for _ in range(3))
    assert ready == "ready"
    mine = start_run(experiment_id("reap"), "mine", {})

    assert main(["reap", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["closed"] == []
    assert {one["run_id"]: one["reason"] for one in document["left_alone"]} == {
        half: f"process {process.pid} is alive",
        whole: f"process {process.pid} is alive",
        mine.run_id: f"process {os.getpid()} is alive",
    }

    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert main(["reap", "--dry-run"]) == 0
    assert f"would be closed as KILLED: run {half} half (process {process.pid} is gone)" in capsys.readouterr().out
    assert stored(half).info.status == "RUNNING"

    assert main(["reap"]) == 0
    printed = capsys.readouterr().out
    assert f"closed as KILLED: run {half} half (process {process.pid} is gone)\n" in printed
    assert f"closed as FINISHED: run {whole} whole (process {process.pid} is gone)\n" in printed
    assert f"left alone: run {mine.run_id} mine (process {os.getpid()} is alive)\n" in printed
    assert [stored(run_id).info.status for run_id in (half, whole, mine.run_id)] == ["KILLED", "FINISHED", "RUNNING"]
    line = f"Closed by `rapid-lab reap`: process {process.pid} is gone."
    assert stored(half).data.tags[names.DESCRIPTION] == f"A note.\n\n{line}"

    adopt_run(half)
    assert read_process(stored(half).data.tags[names.PROCESS]) == read_process(str(this_process()))
    assert main(["reap"]) == 0
    assert stored(half).info.status == "RUNNING"


@pytest.mark.parametrize("tag", [None, "nonsense", "another-host:1:2.00:3.00:4"])
def test_a_run_that_is_not_known_to_be_of_a_dead_process_here_is_left_alone(
    store: Path, tag: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = client().create_run(experiment_id("reap"), tags={} if tag is None else {names.PROCESS: tag}).info.run_id
    assert main(["reap"]) == 0
    assert capsys.readouterr().out.startswith(f"left alone: run {run_id}")
    assert stored(run_id).info.status == "RUNNING"


def test_a_run_in_a_container_of_the_same_host_name_is_left_alone(store: Path) -> None:
    gone = dead()
    elsewhere = Process(gone.host, "1", gone.pid, gone.started, gone.uptime)
    run_id = client().create_run(experiment_id("reap"), tags={names.PROCESS: str(elsewhere)}).info.run_id
    assert main(["reap"]) == 0
    assert stored(run_id).info.status == "RUNNING"


def test_a_run_is_left_alone_as_long_as_one_below_it_is_at_work(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a study whose driver was killed while a worker of another shell goes on."""
    gone = dead()
    run_id = client().create_run(experiment_id("reap"), tags={names.PROCESS: str(gone)}).info.run_id
    below = start_run(experiment_id("reap"), "below", {}, parent_run_id=run_id)
    assert main(["reap"]) == 0
    assert f"process {gone.pid} is gone, but a run below it may be at work" in capsys.readouterr().out
    assert stored(run_id).info.status == "RUNNING"
    below.finish("FINISHED")
    assert main(["reap"]) == 0
    assert stored(run_id).info.status == "KILLED"


def test_a_process_is_known_by_its_start_whatever_became_of_the_clock() -> None:
    now = this_process()
    assert now.is_alive
    assert Process(now.host, now.namespace, now.pid, now.started - 7200, now.uptime).is_alive
    assert Process(now.host, now.namespace, now.pid, now.started, now.uptime + 7200).is_alive
    assert not Process(now.host, now.namespace, now.pid, now.started - 7200, now.uptime - 7200).is_alive
    assert not dead().is_alive


def test_an_empty_store_has_nothing_to_close(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reap"]) == 0
    assert capsys.readouterr().out == "No run is RUNNING.\n"
    assert main(["reap", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"is_dry_run": False, "closed": [], "left_alone": [], "spools": []}


def test_a_store_that_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/none.db")
    assert main(["reap"]) == 2
    assert "MLFLOW_TRACKING_URI must name a store that can be used" in capsys.readouterr().err
