"""Methods x seeds on the twin: resumable, paired, and accounted for."""

import json
from typing import Any

import pytest

from rapid_lab import names
from rapid_lab.cli import main
from rapid_lab.cli.suite import rendered
from rapid_lab.method.budget import relation_account
from rapid_lab.tracking.door import client
from rapid_lab.tracking.store import find_runs

QUICK = ["--data", "twin", "--epochs", "2", "--warmup-epochs", "1", "--teacher-epochs", "1", "--log-model", "false"]


def suite(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["suite", *QUICK, *arguments, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


@pytest.mark.usefixtures("lab")
def test_a_suite_runs_every_method_and_seed_once_under_one_parent(capsys: pytest.CaptureFixture[str]) -> None:
    first = suite(capsys, "--methods", "student_ce,rapid", "--seeds", "7")
    assert [(run["method"], run["seed"]) for run in first["runs"]] == [("student_ce", 7), ("rapid", 7)]
    assert first["failed"] == []
    for run in first["runs"]:
        stored = client().get_run(run["run_id"])
        assert stored.info.status == "FINISHED"
        assert stored.data.tags[names.PARENT] == first["run_id"]
        assert stored.data.tags[names.DATASET] == "agnews-twin"
        history = client().get_metric_history(run["run_id"], names.RELATIONS_MAIN)
        assert sorted(point.step for point in history) == list(range(1, run["steps"] + 1))

    again = suite(capsys, "--methods", "student_ce,rapid", "--seeds", "7")
    assert [run["run_id"] for run in again["runs"]] == [run["run_id"] for run in first["runs"]]

    spent = first["runs"][1]["relations"]
    expected = relation_account(
        train_examples=1800, batch_size=32, relation_budget=256, relation_cap=4096, pilot_fraction=0.1, epochs=2,
        warmup_epochs=1, max_residual_mix=0.5, has_uniform_proposal=False,
    )  # fmt: skip
    steps = first["runs"][1]["steps"]
    assert (spent["main"], spent["pilot"]) == (expected.main * steps, expected.pilot * steps)


@pytest.mark.usefixtures("lab")
def test_the_teacher_has_a_run_of_its_own_logged_once_and_its_report_is_read_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        assert main(["teacher", *QUICK, "--json"]) == 0
        monkeypatch.delattr("rapid_lab.experiment.teacher.report_of", raising=False)
    first, second = (json.loads(part) for part in capsys.readouterr().out.replace("}\n{", "}\0{").split("\0"))
    assert first == second
    (run,) = find_runs("0", {names.KIND: names.TEACHER})
    stored = client().get_run(run.run_id)
    metrics = stored.data.metrics
    assert set(names.TEACHER_METRICS) <= set(metrics)
    assert stored.data.params["cfg.teacher_model"] == "twin-bert"
    assert stored.data.tags[names.DESCRIPTION].startswith("**Teacher** of **agnews-twin**")
    assert {item.path for item in client().list_artifacts(run.run_id)} == {names.CALIBRATION, names.RESULT}
    assert metrics[names.TEACHER_NLL_AFTER] <= metrics[names.TEACHER_NLL_BEFORE]


@pytest.mark.usefixtures("lab")
def test_a_teacher_that_cannot_be_is_refused_before_any_student_is_trained(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--methods", "student_ce,kd", "--seeds", "7", "--teacher-layers", "99"]
    assert main(["suite", *QUICK, *words]) == 2
    assert capsys.readouterr().err.startswith("rapid-lab: teacher_layers must be in [1, 12], got 99")
    assert find_runs("0", {}) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "rapid,rapdi"], "method must be one of"),
        (["--seeds", "1,1"], "seeds must differ"),
        (["--seeds", "a"], "seed must be an integer"),
        (["--methods", "kd", "--method", "rapid"], "method must be given once"),
        (["--epochs", "0"], "epochs must be an integer"),
    ],
)
def test_a_bad_list_is_refused_before_anything_runs(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["suite", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_the_table_has_population_deviations_over_seeds_and_means_over_all_steps() -> None:
    relations = {"main": 40, "pilot": 4, "unique_main": 30, "unique_pilot": 4, "unique_union": 33}
    runs = [
        {
            "dataset": "d", "method": "rapid", "steps": 10, "relations": relations, "train_seconds": 60.0,
            "report": {"correct": correct, "total": 100},
        }
        for correct in (90, 92)
    ]  # fmt: skip
    cells = rendered(runs).splitlines()[2].split()
    assert cells == ["d", "RAPID", "91.000", "+-", "1.000", "2", "4.000", "0.400", "3.000", "0.400", "3.300", "1.00"]
