"""The store is made once, told plainly when it cannot be used, and searched without being tricked."""

import socket
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from tracking.programs import MLFLOW_WARNINGS, outcome, start

from rapid_lab.errors import SettingError
from rapid_lab.tracking.door import client
from rapid_lab.tracking.runs import start_run
from rapid_lab.tracking.store import experiment_id, find_runs, prepare_store

pytestmark = pytest.mark.filterwarnings(MLFLOW_WARNINGS)

FIRST_USE = """
import os, signal, sys, time
from pathlib import Path
from rapid_lab.tracking.store import experiment_id, prepare_store
from rapid_lab.tracking.runs import start_run

def fork(work):
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return child

def first_use():
    prepare_store()
    run = start_run(experiment_id("shared"), "first", {})
    run.log_metrics(0, {"loss/total": 1.0})
    run.finish("FINISHED")
    assert "torch" not in sys.modules

killed = fork(prepare_store)
while not Path("mlflow.db.draft").exists():
    time.sleep(0.01)
time.sleep(0.2)
os.kill(killed, signal.SIGKILL)
os.waitpid(killed, 0)
assert not Path("mlflow.db").exists()
children = [fork(first_use) for _ in range(4)]
print([os.waitpid(child, 0)[1] for child in children])
"""


def test_the_first_use_of_a_fresh_store_is_safe_for_several_processes_after_one_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert outcome(start(FIRST_USE, tmp_path)) == "[0, 0, 0, 0]\n"
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    runs = find_runs(experiment_id("shared"), {})
    assert [run.status for run in runs] == ["FINISHED"] * 4
    assert not list(tmp_path.glob("*.draft"))


def test_the_store_keeps_a_write_ahead_log(store: Path) -> None:
    prepare_store()
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_relative_store_stays_where_it_is_when_the_folder_changes(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = prepare_store()
    assert uri == f"sqlite:///{store}"
    (store.parent / "elsewhere").mkdir()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.chdir(store.parent / "elsewhere")
    assert prepare_store() == uri


@pytest.mark.parametrize("uri", ["mlruns", "file:///nowhere/mlruns", "sqlite://", "sqlite:///:memory:"])
def test_a_store_that_keeps_nothing_or_that_mlflow_refuses_is_refused(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(SettingError, match="MLFLOW_TRACKING_URI must name a store that can be used, got"):
        prepare_store()


def test_a_file_that_is_no_store_is_refused_and_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "thesis.txt"
    path.write_text("not a database, " * 100)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{path}")
    with pytest.raises(SettingError, match="file is not a database"):
        prepare_store()
    assert path.read_text().startswith("not a database")


def test_a_server_that_is_not_there_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:open-sesame@127.0.0.1:{port}")
    expected = rf"MLFLOW_TRACKING_URI .*tracking server http://me:\*\*\*@127.0.0.1:{port} cannot be reached"
    with pytest.raises(SettingError, match=expected) as caught:
        prepare_store()
    assert "sesame" not in str(caught.value)


def test_threads_that_ask_for_an_experiment_together_get_the_same(store: Path) -> None:
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(experiment_id("shared"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_a_deleted_experiment_is_refused_with_the_command_that_mends_it(store: Path) -> None:
    number = experiment_id("gone")
    client().delete_experiment(number)
    with pytest.raises(SettingError, match=f"'gone': `mlflow experiments restore -x {number}`"):
        experiment_id("gone")


def test_an_experiment_needs_a_name(store: Path) -> None:
    with pytest.raises(SettingError, match="experiment must be a name, got ' '"):
        experiment_id(" ")
    with pytest.raises(SettingError, match="experiment must be a name MLflow takes, got 'xxx"):
        experiment_id("x" * 501)


HOSTILE = ["it's", 'a "b"', "x' OR tags.a = 'y", "end\\", "`", "%", "a\nb", " ", "-- c", "ü", "plain"]


@pytest.mark.parametrize("value", HOSTILE)
def test_a_search_finds_exactly_the_runs_with_the_value_whatever_it_holds(store: Path, value: str) -> None:
    number = experiment_id("search")
    wanted = start_run(number, "wanted", {"rapid.dataset": value, "a": "y"})
    start_run(number, "other", {"rapid.dataset": "other", "a": "y"})
    assert [run.run_id for run in find_runs(number, {"rapid.dataset": value, "a": "y"})] == [wanted.run_id]
    assert find_runs(number, {"rapid.dataset": value, "a": "z"}) == []


def test_a_search_reads_every_page(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rapid_lab.tracking.store.PAGE_SIZE", 2)
    number = experiment_id("pages")
    started = [start_run(number, f"run {index}", {"a": "b"}).run_id for index in range(5)]
    runs = find_runs(number, {"a": "b"})
    assert {run.run_id for run in runs} == set(started)
    assert [run.start_time for run in runs] == sorted((run.start_time for run in runs), reverse=True)
    assert all(run.status == "RUNNING" and run.tags["a"] == "b" for run in runs)
