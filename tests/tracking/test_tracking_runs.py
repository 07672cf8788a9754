"""A run says what it is, survives its process, and can be a pointer."""

import signal
from pathlib import Path

import pytest
from mlflow.entities import Run
from tracking.programs import MLFLOW_WARNINGS, start

from rapid_lab import names
from rapid_lab.config import SETTINGS
from rapid_lab.errors import SettingError
from rapid_lab.tracking.door import client
from rapid_lab.tracking.errors import TrackingError
from rapid_lab.tracking.runs import TrackedRun, adopt_run, make_pointer, start_run, written
from rapid_lab.tracking.store import experiment_id
from rapid_lab.tracking.writer import stored_steps

pytestmark = pytest.mark.filterwarnings(MLFLOW_WARNINGS)

KILLED = """
import time
from rapid_lab.tracking.store import experiment_id, prepare_store
from rapid_lab.tracking.runs import start_run
prepare_store()
run = start_run(experiment_id("killed"), "killed", {})
for step in range(50):
    run.log_metrics(step, {"loss/total": float(step), "relations/main": 7.0})
run.flush()
run.log_metrics(50, {"loss/total": 50.0})
print(run.run_id, flush=True)
time.sleep(600)
"""


@pytest.fixture
def run(store: Path) -> TrackedRun:
    return start_run(experiment_id("runs"), "a run", {names.METHOD: "rapid"})


def stored(run: TrackedRun) -> Run:
    return client().get_run(run.run_id)


def test_a_run_has_its_name_its_tags_and_those_of_mlflow(run: TrackedRun) -> None:
    found = stored(run)
    assert (found.info.run_name, found.info.status) == ("a run", "RUNNING")
    assert found.data.tags[names.METHOD] == "rapid"
    assert {"mlflow.user", "mlflow.source.name"} <= set(found.data.tags)


def test_a_child_run_lies_under_its_parent(run: TrackedRun) -> None:
    child = start_run(run.experiment_id, "child", {}, parent_run_id=run.run_id)
    assert stored(child).data.tags["mlflow.parentRunId"] == run.run_id


def test_parameters_are_logged_once_and_a_changed_one_is_refused(run: TrackedRun) -> None:
    params = {f"cfg.p{index}": index for index in range(150)} | {"cfg.long": "x" * 7000}
    run.log_params(params)
    run.log_params(params)
    with pytest.raises(TrackingError, match=r"cfg.p3 of run \w+ must stay '3', got '4'"):
        run.log_params({"cfg.p3": 4, "cfg.new": 1})
    logged = stored(run).data.params
    assert len(logged) == 151
    assert logged["cfg.long"].endswith("x...")


@pytest.mark.parametrize("name", ["learning_rate", "compile", "text_column", "epochs", "method"])
def test_a_logged_setting_reads_back_as_itself(name: str) -> None:
    assert SETTINGS[name].parse(written(SETTINGS[name].default)) == SETTINGS[name].default


def test_a_long_tag_shows_that_it_was_cut(run: TrackedRun) -> None:
    run.set_description("x" * 9000)
    assert stored(run).data.tags["mlflow.note.content"] == "x" * 7997 + "..."


def test_texts_and_files_are_kept_as_artifacts(run: TrackedRun, tmp_path: Path) -> None:
    run.log_artifact_text("result.json", "{}")
    (tmp_path / "steps.parquet").write_bytes(b"PAR1")
    run.log_artifact_file(tmp_path / "steps.parquet", "tables")
    paths = {item.path for item in client().list_artifacts(run.run_id)}
    assert paths == {"result.json", "tables"}
    assert [item.path for item in client().list_artifacts(run.run_id, "tables")] == ["tables/steps.parquet"]


@pytest.mark.parametrize("status", ["FINISHED", "FAILED", "KILLED"])
def test_a_run_ends_flushed_and_silent(run: TrackedRun, status: str, capfd: pytest.CaptureFixture[str]) -> None:
    run.log_metrics(3, {names.LOSS_TOTAL: 0.5})
    run.finish(status)  # type: ignore[arg-type]
    found = stored(run)
    assert (found.info.status, found.data.metrics) == (status, {names.LOSS_TOTAL: 0.5})
    assert capfd.readouterr() == ("", "")


def test_a_run_whose_metrics_cannot_be_stored_does_not_end_as_finished(run: TrackedRun) -> None:
    run.log_metrics(0, {"no % metric name": 1.0})
    with pytest.raises(TrackingError, match=r"storing metrics of run \w+ failed: Invalid value"):
        run.finish("FINISHED")
    assert stored(run).info.status == "FAILED"


def test_a_killed_run_is_adopted_and_no_step_is_logged_twice(store: Path) -> None:
    process = start(KILLED, store.parent)
    assert process.stdout is not None
    run_id = process.stdout.readline().strip()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert client().get_run(run_id).info.status == "RUNNING"
    assert stored_steps(run_id)["loss/total"] == 49

    run = adopt_run(run_id)
    for step in range(30, 60):
        run.log_metrics(step, {"loss/total": float(step), "relations/main": 7.0})
    # Of a metric that the killed process never came to log, no step is stored, however far the others are.
    run.log_metrics(40, {"selection/accuracy": 0.5})
    run.finish("FINISHED")
    for key in ("loss/total", "relations/main"):
        assert [metric.step for metric in client().get_metric_history(run_id, key)] == list(range(60))
    assert client().get_run(run_id).data.metrics["selection/accuracy"] == 0.5
    assert client().get_run(run_id).info.status == "FINISHED"


def test_an_ended_run_runs_again_once_adopted(run: TrackedRun) -> None:
    run.finish("KILLED")
    assert adopt_run(run.run_id).experiment_id == run.experiment_id
    assert stored(run).info.status == "RUNNING"


@pytest.mark.parametrize("run_id", ["0" * 32, "no such'run"])
def test_a_run_that_does_not_exist_cannot_be_adopted(store: Path, run_id: str) -> None:
    with pytest.raises(SettingError, match="run id must name a run of the tracking store"):
        adopt_run(run_id)


def test_a_deleted_run_cannot_be_adopted(run: TrackedRun) -> None:
    client().delete_run(run.run_id)
    with pytest.raises(SettingError, match="run id must not name a deleted run"):
        adopt_run(run.run_id)


@pytest.mark.parametrize("status", ["FINISHED", "FAILED", "KILLED", "RUNNING"])
def test_a_pointer_names_its_target_has_its_status_and_no_metrics(store: Path, status: str) -> None:
    number = experiment_id("pointers")
    target, run = start_run(number, "the [real] one\n", {}), start_run(number, "again", {})
    target.log_metrics(0, {"loss/total": 1.0})
    target.flush()
    if status != "RUNNING":
        target.finish(status)  # type: ignore[arg-type]
    make_pointer(run.run_id, target.run_id)
    found = stored(run)
    assert (found.data.tags[names.KIND], found.data.tags[names.POINTS_TO]) == ("pointer", target.run_id)
    link = f"(#/experiments/{number}/runs/{target.run_id})"
    assert found.data.tags[names.DESCRIPTION] == f"Already run: see [the  real  one ]{link}."
    assert (found.info.status, found.data.metrics) == (status, {})


def test_a_run_with_a_record_of_its_own_cannot_become_a_pointer(run: TrackedRun) -> None:
    other = start_run(run.experiment_id, "other", {})
    run.log_metrics(0, {"loss/total": 1.0})
    run.flush()
    for target in (other, run):
        with pytest.raises(TrackingError, match="it has a record of its own"):
            make_pointer(run.run_id, target.run_id)
