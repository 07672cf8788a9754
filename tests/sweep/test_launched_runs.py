"""What each command does with a run that `mlflow run` has made for it: takes it, points elsewhere, or fails with it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from comparison.stores import log_student
from mlflow import MlflowClient
from mlflow.entities import Run
from trivial_sweep import GRID, LABORATORY

from rapid_lab import names
from rapid_lab.cli import main
from rapid_lab.sweep.driver import main as sweep

Launch = Callable[[], str]
TEACHER = ["--data", "twin", "--epochs", "1", "--teacher-epochs", "1", "--teacher-batch-size", "200"]


@pytest.fixture
def client(store: Path) -> MlflowClient:
    return MlflowClient(f"sqlite:///{store}")


@pytest.fixture
def launch(client: MlflowClient, monkeypatch: pytest.MonkeyPatch) -> Launch:
    """A new run for the next command."""

    def made() -> str:
        run_id = str(client.create_run("0").info.run_id)
        monkeypatch.setenv("MLFLOW_RUN_ID", run_id)
        monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", "0")
        return run_id

    return made


def runs(client: MlflowClient, kind: str | None = None) -> list[Run]:
    found = client.search_runs(["0"], order_by=["attributes.start_time ASC"])
    return [run for run in found if kind is None or run.data.tags.get(names.KIND) == kind]


def check_points(client: MlflowClient, run_id: str, target: str) -> None:
    pointer = client.get_run(run_id)
    assert (pointer.data.tags[names.KIND], pointer.data.tags[names.POINTS_TO]) == (names.POINTER, target)
    assert (pointer.info.status, pointer.data.metrics) == ("FINISHED", {})


def test_the_teacher_takes_the_first_run_and_the_second_points_to_it(client: MlflowClient, launch: Launch) -> None:
    first = launch()
    assert main(["teacher", "--dataset", "sst2", *TEACHER]) == 0
    run = client.get_run(first)
    assert (run.info.status, run.data.tags[names.KIND]) == ("FINISHED", names.TEACHER)
    second = launch()
    assert main(["teacher", "--dataset", "sst2", *TEACHER]) == 0
    check_points(client, second, first)
    assert len(runs(client)) == 2


def test_a_sweep_takes_the_first_run_and_the_second_points_to_it(client: MlflowClient, launch: Launch) -> None:
    first = launch()
    assert sweep(GRID, ["--seeds", "1", "--trials", "2"], LABORATORY) == 0
    study = client.get_run(first)
    assert (study.info.status, study.data.tags[names.KIND]) == ("FINISHED", names.STUDY)
    assert study.info.run_name == study.data.tags[names.STUDY_NAME]
    assert {run.data.tags[names.PARENT] for run in runs(client, names.TRIAL)} == {first}
    second = launch()
    assert sweep(GRID, ["--seeds", "1", "--trials", "3"], LABORATORY) == 0
    check_points(client, second, first)
    assert len(runs(client)) == len({"first", "second"}) + 3 + 3  # trials and their seeds, and no stray one


def test_a_study_whose_trials_fail_fails_the_launched_run(
    client: MlflowClient, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = launch()
    monkeypatch.setenv("TRIVIAL_FAULT", "0.25")
    assert sweep(GRID, ["--seeds", "1", "--trials", "1", "--gate-strength", "0.25"], LABORATORY) == 2
    run = client.get_run(run_id)
    assert (run.info.status, run.data.tags[names.KIND]) == ("FAILED", names.STUDY)
    assert "1 failed" in run.data.tags[names.DESCRIPTION]
    assert not [one for one in runs(client) if one.info.status == "RUNNING"]


def test_a_comparison_takes_the_run_and_does_not_count_it(
    client: MlflowClient, launch: Launch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (1, 2):
        log_student("rapid", seed=seed, correct=90)
    run_id = launch()
    assert main(["compare", "--output", str(tmp_path / "out"), "--json", "true"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["run_id"], document["excluded"]) == (run_id, [])
    run = client.get_run(run_id)
    assert (run.info.status, run.data.tags[names.KIND]) == ("FINISHED", names.COMPARISON)
    assert [one.info.run_id for one in runs(client, names.COMPARISON)] == [run_id]


def test_a_command_that_records_nothing_leaves_the_run_to_mlflow(client: MlflowClient, launch: Launch) -> None:
    run_id = launch()
    assert sweep(GRID, ["--seeds", "1", "--dry-run", "true"], LABORATORY) == 0
    (run,) = runs(client)
    assert (run.info.run_id, run.info.status) == (run_id, "RUNNING")
    assert names.KIND not in run.data.tags


@pytest.mark.parametrize(
    ("command", "words", "message"),
    [
        ("teacher", ["--teacher_epochs", "0"], "teacher_epochs must be"),
        ("suite", ["--methods", "rapit"], "did you mean rapid?"),
        ("demo", ["--sed", "1"], "sed is no setting: did you mean seed"),
        ("compare", ["--static", "gif"], "argument --static: invalid choice: 'gif'"),
        ("compare", ["--no_log", "perhaps"], "--no-log: must be alone, or followed by true or false, got 'perhaps'"),
        ("sweep", ["--trials", "none"], "trials must be an integer in [1, 1e+09], got 'none'"),
        ("sweep", ["--gpus_per_worker", "-1"], "gpus_per_worker must be a number of at least 0"),
    ],
)
def test_bad_input_is_the_description_of_a_run_that_failed(
    command: str, words: list[str], message: str, client: MlflowClient, launch: Launch
) -> None:
    run_id = launch()
    assert (sweep(GRID, words, LABORATORY) if command == "sweep" else main([command, *words])) == 2
    (run,) = runs(client)
    assert (run.info.run_id, run.info.status) == (run_id, "FAILED")
    assert message in run.data.tags[names.DESCRIPTION]
    assert names.KIND not in run.data.tags
