"""Every entry point of MLproject, launched as `mlflow run` launches it: one store, one teacher, tiny settings."""

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow.projects
import pytest
import yaml
from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.exceptions import ExecutionException

from rapid_lab import names
from rapid_lab.config import SETTINGS
from rapid_lab.tracking.provenance import ROOT

PROJECT = yaml.safe_load((ROOT / "MLproject").read_text(encoding="utf-8"))
SWEEPS = ("budget_sweep", "gate_sweep", "proposal_sweep", "joint_sweep")
# As `-P` brings them; nine steps an epoch.
TWIN = {"dataset": "sst2", "data": "twin", "epochs": "1", "teacher_epochs": "1"}
TWIN |= {"batch_size": "200", "teacher_batch_size": "200"}
ONE = {**TWIN, "seeds": "42", "trials": "1"}


class Place:
    """A store and a cache of this module's own, and the project launched in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.client = MlflowClient(f"sqlite:///{folder}/mlflow.db")

    def launch(self, entry_point: str, **params: str) -> Run:
        """The run that MLflow made for the command, when the command is over."""
        before = {run.info.run_id for run in self.runs()}
        with contextlib.suppress(ExecutionException):  # which says no more than that the command failed
            mlflow.projects.run(str(ROOT), entry_point, parameters=params, env_manager="local")
        # What was not there before and says itself that MLflow launched it.
        (launched,) = [
            run
            for run in self.runs()
            if run.info.run_id not in before and run.data.tags.get("mlflow.project.entryPoint") == entry_point
        ]
        return launched

    def runs(self, kind: str | None = None) -> list[Run]:
        found = self.client.search_runs(["0"], order_by=["attributes.start_time ASC"])
        return [run for run in found if kind is None or run.data.tags.get(names.KIND) == kind]

    def check_nothing_is_left(self) -> None:
        """No run is RUNNING, and none is without a kind but those that failed before they had one."""
        for run in self.runs():
            assert run.info.status in ("FINISHED", "FAILED")
            assert names.KIND in run.data.tags or names.DESCRIPTION in run.data.tags


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    from rapid_lab.tracking.store import prepare_store

    folder = tmp_path_factory.mktemp("entry points")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("MLFLOW_", "RAPID_"))]:
            patch.delenv(name)
        patch.chdir(folder)
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        patch.setenv("RAPID_CACHE_DIR", str(folder / "cache"))
        patch.setenv("RAPID_STORAGE", str(folder / "sweeps"))
        patch.setenv("HF_HUB_OFFLINE", "1")
        prepare_store()
        yield Place(folder)


def test_every_command_is_the_laboratorys_own_and_declares_no_default_that_a_dataset_may_change() -> None:
    commands = {"main": "run", "teacher": "teacher", "suite": "suite", "compare": "compare", "demo": "demo"}
    expected = {name: f"python -m rapid_lab {command}" for name, command in commands.items()}
    expected |= {name: f"python sweeps/{name}.py" for name in SWEEPS}
    assert list(PROJECT["entry_points"]) == list(expected)
    for name, entry in PROJECT["entry_points"].items():
        declared = entry.get("parameters", {})
        words = "".join(f" --{parameter} {{{parameter}}}" for parameter in declared)
        assert entry["command"] == expected[name] + words
        assert set(declared) <= {"method", "dataset"}
        for parameter, described in declared.items():
            assert described == {"type": "string", "default": SETTINGS[parameter].default}


def test_the_teacher_is_the_launched_run(place: Place) -> None:
    run = place.launch("teacher", **TWIN)
    assert (run.info.status, run.info.run_name) == ("FINISHED", "teacher sst2-twin")
    assert run.data.tags[names.KIND] == names.TEACHER
    assert names.TEACHER_REPORT_ACCURACY in run.data.metrics


def test_the_main_entry_point_takes_what_the_dataset_asks_for(place: Place) -> None:
    run = place.launch("main", log_model="false", **TWIN)
    assert (run.info.status, run.data.tags[names.KIND]) == ("FINISHED", names.STUDENT)
    params = run.data.params
    assert (params["cfg.dataset"], params["cfg.relation_budget"], params["cfg.max_length"]) == ("sst2", "64", "64")
    assert (params["cfg.epochs"], params["cfg.batch_size"]) == ("1", "200")
    assert run.data.metrics[names.RELATIONS_MAIN] + run.data.metrics[names.RELATIONS_PILOT] == 64


def test_suite_and_demo_make_the_launched_run_the_parent(place: Place) -> None:
    suite = place.launch("suite", methods="student_ce", seeds="42", log_model="false", **TWIN)
    assert (suite.info.status, suite.data.tags[names.KIND]) == ("FINISHED", names.SUITE)
    children = [run for run in place.runs(names.STUDENT) if run.data.tags.get(names.PARENT) == suite.info.run_id]
    assert [run.data.tags[names.METHOD] for run in children] == ["student_ce"]
    before = len(place.runs())
    demo = place.launch("demo", methods="student_ce", seeds="42", **{n: v for n, v in TWIN.items() if n != "data"})
    assert (demo.info.status, demo.data.tags[names.KIND]) == ("FINISHED", names.SUITE)
    assert len(place.runs()) == before + 1  # its one student was found
    place.check_nothing_is_left()


def test_compare_makes_the_launched_run_the_comparison(place: Place, tmp_path: Path) -> None:
    run = place.launch("compare", dataset="sst2-twin", output=str(tmp_path / "out"), json="true")
    assert (run.info.status, run.info.run_name) == ("FINISHED", "comparison sst2-twin")
    assert [one.info.run_id for one in place.runs(names.COMPARISON)] == [run.info.run_id]
    assert (tmp_path / "out" / "report.html").is_file()
    assert "report.html" in {item.path for item in place.client.list_artifacts(run.info.run_id)}
    place.check_nothing_is_left()


def test_a_sweep_makes_the_launched_run_the_study(place: Place) -> None:
    study = place.launch("budget_sweep", **ONE, relation_budget="16,32", method="uniform")
    assert (study.info.status, study.data.tags[names.KIND]) == ("FINISHED", names.STUDY)
    assert study.info.run_name == "budget-sst2-twin"
    assert [run.data.tags[names.PARENT] for run in place.runs(names.TRIAL)] == [study.info.run_id]
    place.check_nothing_is_left()


@pytest.mark.parametrize("name", SWEEPS[1:])
def test_the_other_sweeps_print_their_plan(name: str, place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    before = place.runs()
    launched = place.launch(name, dry_run="true", json="true", **ONE)
    output: dict[str, Any] = json.loads(capfd.readouterr().out)
    assert (launched.info.status, output["study"]) == ("FINISHED", f"{name.removesuffix('_sweep')}-sst2-twin")
    assert len(place.runs()) == len(before) + 1
    place.client.delete_run(launched.info.run_id)


@pytest.mark.soak
@pytest.mark.parametrize("name", SWEEPS[1:])
def test_the_other_sweeps_train(name: str, place: Place) -> None:
    study = place.launch(name, **ONE)
    assert (study.info.status, study.data.tags[names.KIND]) == ("FINISHED", names.STUDY)
    place.check_nothing_is_left()
