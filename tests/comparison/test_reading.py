"""The store as a reader sees it: all of what was logged, only what was asked for, and never an empty store made."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from comparison.stores import keep_table, log_student
from tracking.programs import MLFLOW_WARNINGS

from rapid_lab import names
from rapid_lab.errors import SettingError
from rapid_lab.tracking.door import client
from rapid_lab.tracking.reading import Wanted, artifact_path, metric_histories, read_runs
from rapid_lab.tracking.runs import TrackedRun, start_run
from rapid_lab.tracking.store import experiment_id

pytestmark = pytest.mark.filterwarnings(MLFLOW_WARNINGS)


def ids(wanted: Wanted) -> list[str]:
    return [run.run_id for run in read_runs(wanted)]


@pytest.mark.usefixtures("store")
def test_a_run_is_read_with_all_that_was_logged_of_it() -> None:
    run_id = log_student("kd", seed=7, correct=93, total=100, steps=12, minutes=1.5)
    (run,) = read_runs(Wanted())
    assert (run.run_id, run.name, run.status) == (run_id, "kd agnews seed 7", "FINISHED")
    assert run.tags[names.METHOD] == "kd"
    assert run.params["cfg.seed"] == "7"
    assert run.metrics[names.REPORT_CORRECT] == (93.0, 12)
    assert run.end_time is not None
    assert run.end_time >= run.start_time


@pytest.mark.usefixtures("store")
def test_runs_are_chosen_by_experiment_dataset_tag_and_id() -> None:
    first = log_student(experiment="one", dataset="agnews")
    second = log_student(experiment="two", dataset="sst2", tags={"owner": 'it\'s "me"'})
    third = log_student(experiment="two", dataset="agnews", tags={"owner": "you"})
    assert ids(Wanted()) == [first, second, third]
    assert ids(Wanted(experiments=("two",))) == [second, third]
    assert ids(Wanted(datasets=("agnews",))) == [first, third]
    assert ids(Wanted(tags={"owner": 'it\'s "me"'})) == [second]
    assert ids(Wanted(run_ids=(third, first))) == [first, third]
    assert ids(Wanted(experiments=("two",), datasets=("agnews",), tags={"owner": "you"}, run_ids=(third,))) == [third]


@pytest.mark.usefixtures("store")
def test_more_runs_than_a_page_are_all_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rapid_lab.tracking.reading.PAGE_SIZE", 2)
    started = [start_run(experiment_id(f"number {index % 3}"), "empty", {}).run_id for index in range(5)]
    assert sorted(ids(Wanted())) == sorted(started)


@pytest.mark.usefixtures("store")
def test_deleted_runs_are_not_read() -> None:
    run_id = log_student()
    client().delete_run(run_id)
    assert ids(Wanted()) == []
    with pytest.raises(SettingError, match="run must not be deleted"):
        read_runs(Wanted(run_ids=(run_id,)))


@pytest.mark.usefixtures("store")
def test_names_that_the_store_does_not_have_are_refused_with_those_near_to_them() -> None:
    log_student(experiment="budgets")
    with pytest.raises(SettingError, match=r"experiment must be one of the tracking store, got 'budget': .*budgets"):
        read_runs(Wanted(experiments=("budget",)))
    with pytest.raises(SettingError, match="run must be an id of the tracking store, got 'abc'"):
        read_runs(Wanted(run_ids=("abc",)))


@pytest.mark.usefixtures("store")
def test_the_history_of_a_metric_comes_by_step_and_a_later_value_of_a_step_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = start_run("0", "history", {})
    for step, value, time in ((3, 0.3, 30), (1, 0.1, 10), (1, 0.2, 40), (2, 0.5, 20)):
        run.log_metrics(step, {names.SELECTION_ACCURACY: value}, time)
    run.finish("FINISHED")
    other = log_student()
    asked = [run.run_id, other]
    assert metric_histories(asked, names.SELECTION_ACCURACY) == {run.run_id: [(1, 0.2), (2, 0.5), (3, 0.3)]}
    assert metric_histories(asked, names.SELECTION_NLL) == {}
    monkeypatch.setattr("rapid_lab.tracking.reading.RUNS_AT_ONCE", 1)
    assert metric_histories(asked, names.REPORT_TOTAL) == {other: [(4, 100.0)]}


@pytest.mark.usefixtures("store")
def test_an_artifact_is_a_file_where_it_is_one_and_nothing_where_it_is_not(tmp_path: Path) -> None:
    run_id = log_student()
    keep_table(TrackedRun(run_id, "0", client()), names.STEPS, {"step": [1, 2]})
    (run,) = read_runs(Wanted())
    path = artifact_path(run, names.STEPS, tmp_path)
    assert path is not None
    assert path.read_bytes().startswith(b"PAR1")
    assert artifact_path(run, names.PREDICTIONS, tmp_path) is None


def test_a_store_that_is_not_there_is_refused_and_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for uri in ("", "sqlite:///mlflow.db", "sqlite:///some/where/else.db"):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        with pytest.raises(SettingError, match=r"MLFLOW_TRACKING_URI must name a store .* there is no such file"):
            read_runs(Wanted())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("http://127.0.0.1:9", "cannot be reached"),
        ("postgresql://me:open@127.0.0.1:9/runs", "MLFLOW_TRACKING_URI must name a store"),
        ("sqlite://", "there is no such file"),
        ("./mlruns", "MLflow no longer reads folders"),
    ],
)
def test_a_wrong_address_is_told_at_once_and_without_its_password(
    uri: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(SettingError, match=message) as refused:
        read_runs(Wanted())
    assert "open" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_store_is_refused_and_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = tmp_path / "text.db"
    text.write_text("not a database, but long enough to be looked at " * 50, encoding="utf-8")
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE mine (value INTEGER)")
    for path, message in ((text, "file is not a database"), (other, "without the tables of MLflow")):
        content = path.read_bytes()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{path}")
        with pytest.raises(SettingError, match=message):
            read_runs(Wanted())
        assert path.read_bytes() == content
