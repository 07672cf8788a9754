"""A study from its first command to its last: what is tried, retried, refused, averaged and kept."""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState
from studies import check_whole, finished, load, runs_of
from trivial_sweep import GRID, LABORATORY, SEARCH

from rapid_lab import names
from rapid_lab.config import Value, read_config, resolve
from rapid_lab.experiment.duration import spoken
from rapid_lab.sweep.driver import main, make_plan
from rapid_lab.sweep.ending import known_reports, read_reports
from rapid_lab.sweep.options import read_options
from rapid_lab.sweep.outcome import hypervolume
from rapid_lab.sweep.space import Interval, Sweep
from rapid_lab.sweep.trial import SeedResult
from rapid_lab.sweep.watching import SeedWatcher
from rapid_lab.tracking.door import client
from rapid_lab.tracking.runs import start_run
from rapid_lab.tracking.spool import left_behind

Run = Callable[..., dict[str, Any]]
STUDY = "search-agnews-trivial"


@pytest.fixture
def run(store: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """The document of a sweep that ends well."""

    def printed(sweep: Sweep, *words: str) -> dict[str, Any]:
        assert main(sweep, [*words, "--json"], LABORATORY) == 0, capsys.readouterr().err
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    return printed


def artifacts(run_id: str) -> set[str]:
    found = set()
    for entry in client().list_artifacts(run_id):
        inside = [part.path for part in client().list_artifacts(run_id, entry.path)] if entry.is_dir else [entry.path]
        found.update(inside)
    return found


def test_a_grid_is_one_run_a_study_a_child_a_trial_and_a_grandchild_a_seed(run: Run, tmp_path: Path) -> None:
    document = run(GRID, "--seeds", "1,2", "--report")
    study = load("trivial-agnews-trivial")
    check_whole(study, num_trials=8, num_seeds=2)
    assert document["is_complete"]
    assert [trial["trial"] for trial in document["trials"]] == list(range(8))

    trial = finished(study)[3]
    row = document["trials"][3]
    assert (row["params"], row["accuracy"]) == (trial.params, trial.value)
    assert row["accuracy"] == pytest.approx(sum(row["accuracies"]) / 2)
    kept = client().get_run(row["run_id"]).data
    assert kept.tags[names.STUDY_NAME] == study.study_name
    assert kept.tags[names.CONFIG_ID] == ",".join(row["config_ids"])
    assert kept.metrics[names.SELECTION_ACCURACY] == pytest.approx(row["accuracy"])
    for run_id, config_id in zip(row["run_ids"], row["config_ids"], strict=True):
        tags = client().get_run(run_id).data.tags
        assert (tags[names.CONFIG_ID], tags[names.TRIAL_NUMBER]) == (config_id, "3")
        assert (tags[names.STUDY_NAME], tags[names.PARENT]) == (study.study_name, row["run_id"])

    assert row["report"] == {"correct": 1603, "total": 2000, "accuracy": 0.8015}
    pages = {f"plots/{name}.html" for name in ("history", "importances", "slice", "contour", "parallel", "budget")}
    assert artifacts(document["run_id"]) == {"best.toml", "study.json", "table.txt", "trials.csv"} | pages
    page = Path(client().download_artifacts(document["run_id"], "plots/importances.html")).read_text(encoding="utf-8")
    assert "PED-ANOVA, 8 trials" in page
    assert "<script src=" not in page

    best = read_config(Path(client().download_artifacts(document["run_id"], "best.toml")))
    settings = resolve(best)
    assert (settings.relation_budget, settings.seed, settings.report) == (496, 1, "once")


def test_a_finished_study_is_found_and_nothing_is_run_again(run: Run) -> None:
    first = run(GRID, "--seeds", "1", "--relation-budget", "16,32")
    second = run(GRID, "--seeds", "1", "--relation-budget", "16,32")
    assert first == second
    check_whole(load("trivial-agnews-trivial"), num_trials=4, num_seeds=1)


def test_trials_are_counted_over_all_commands(run: Run) -> None:
    assert run(GRID, "--seeds", "1", "--trials", "3")["finished"] == 3
    assert run(GRID, "--seeds", "1")["finished"] == 8
    assert run(SEARCH, "--seeds", "1", "--trials", "6")["finished"] == 6
    assert run(SEARCH, "--seeds", "1", "--trials", "8")["finished"] == 8
    check_whole(load(STUDY), num_trials=8, num_seeds=1)


def test_a_search_begins_with_the_paper_and_the_ends_and_never_draws_the_same_twice(run: Run) -> None:
    run(SEARCH, "--seeds", "1", "--trials", "7")
    run(SEARCH, "--seeds", "1", "--trials", "9")
    points = [tuple(trial.params.values()) for trial in load(STUDY).trials]
    assert points[:5] == [(0.5, 0.5), (0.0, 0.5), (1.0, 0.5), (0.5, 0.0), (0.5, 1.0)]
    assert len(set(points)) == 9


def test_a_timeout_begins_no_further_trial_and_is_no_fault(run: Run) -> None:
    document = run(GRID, "--seeds", "1", "--timeout", "0.001")
    assert (document["finished"], document["is_complete"]) == (0, False)
    assert run(GRID, "--seeds", "1")["is_complete"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--relation-budget", "16"], "relation_budget is [16, 32, 64, 'all'], not [16]"),
        (["--dataset", "sst2", "--study", "trivial-agnews-trivial"], "dataset is agnews-trivial, not sst2-trivial"),
        (["--epochs", "3"], "epochs is 10, not 3"),
        (["--seeds", "1,2"], "seeds is [1], not [1, 2]"),
        (["--objective", "nll"], "objectives is ['accuracy'], not ['nll']"),
    ],
)
def test_a_study_asked_for_in_another_way_is_refused_by_name(
    change: list[str], message: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run(GRID, "--seeds", "1", "--trials", "1")
    before = load("trivial-agnews-trivial").trials
    assert main(GRID, ["--seeds", "1", *change], LABORATORY) == 2
    errors = capsys.readouterr().err
    assert "got 'trivial-agnews-trivial'" in errors
    assert message in errors
    assert load("trivial-agnews-trivial").trials == before


def test_a_trial_that_fails_stops_no_other_and_is_tried_again_by_the_next_command(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRIVIAL_FAULT", "1.0")
    assert main(SEARCH, ["--seeds", "1", "--trials", "6"], LABORATORY) == 2
    assert "1 trials failed; the same command tries them again" in capsys.readouterr().err
    (failed,) = load(STUDY).get_trials(states=(TrialState.FAIL,))
    assert failed.user_attrs["fault"] == "seed 1: ValueError: this one always fails"
    assert {run.info.status for run in runs_of(names.STUDY)} == {"FAILED"}
    monkeypatch.delenv("TRIVIAL_FAULT")
    assert run(SEARCH, "--seeds", "1", "--trials", "6")["is_complete"]
    check_whole(load(STUDY), num_trials=6, num_seeds=1)


def test_wilcoxon_gives_up_what_is_surely_worse_and_keeps_its_values(run: Run) -> None:
    document = run(SEARCH, "--seeds", "1,2,3,4,5,6", "--prune", "seeds", "--trials", "3")
    worse = [trial for trial in document["trials"] if trial["state"] == "PRUNED"]
    assert [trial["params"]["gate_strength"] for trial in worse] == [0.0, 1.0]
    for row in worse:
        assert len(row["accuracies"]) == 4  # the first number of seeds whose smallest p is below 0.1
        kept = client().get_run(row["run_id"])
        assert (kept.info.status, kept.data.tags[names.PRUNED]) == ("KILLED", "true")
        assert kept.data.metrics[names.SELECTION_ACCURACY] == pytest.approx(row["accuracy"])
    assert document["best"] == 0
    pruned = load(STUDY).get_trials(states=(TrialState.PRUNED,))
    assert all(len(trial.intermediate_values) == 4 for trial in pruned)


def test_two_objectives_end_with_a_front_and_its_hypervolume(run: Run) -> None:
    joint = replace(
        SEARCH,
        name="joint",
        axes={"gate_strength": Interval(0.0, 1.0), "relation_budget": Interval(16, 256, is_integer=True)},
        objectives=("accuracy", "relations"),
        has_ends=False,
    )
    document = run(joint, "--seeds", "1", "--trials", "6", "--report")
    rows = {row["trial"]: row for row in document["trials"]}
    front = [rows[number] for number in document["front"]]
    for row in rows.values():
        better = [
            other
            for other in rows.values()
            if other["accuracy"] >= row["accuracy"] and other["relations"] <= row["relations"] and other != row
        ]
        assert (row in front) == (not better)
    costs = [(1 - row["accuracy"], row["relations"] / 496) for row in rows.values()]
    assert document["hypervolume"] == pytest.approx(hypervolume(costs, (1, 1)))
    assert {number for number, row in rows.items() if "report" in row} == set(document["front"])
    found = artifacts(document["run_id"])
    assert {f"front/trial-{number}.toml" for number in document["front"]} <= found
    assert "plots/pareto.html" in found


def test_a_run_that_two_studies_share_keeps_its_parent_and_names_both(run: Run) -> None:
    first = run(GRID, "--seeds", "1", "--relation-budget", "16", "--method", "rapid", "--study", "first")
    second = run(GRID, "--seeds", "1", "--relation-budget", "16", "--method", "rapid", "--study", "second")
    (shared,) = first["trials"][0]["run_ids"]
    assert second["trials"][0]["run_ids"] == [shared]
    tags = client().get_run(shared).data.tags
    assert tags[names.PARENT] == first["trials"][0]["run_id"]
    assert tags[names.STUDY_NAME] == "first"
    assert tags[f"{names.USED_BY}.{second['trials'][0]['run_id']}"] == "second/0"


def test_the_winners_report_is_read_once_and_of_nobody_else(run: Run) -> None:
    document = run(SEARCH, "--seeds", "1,2", "--trials", "5", "--report")
    assert [row["trial"] for row in document["trials"] if "report" in row] == [document["best"]]


def test_a_report_that_cannot_be_read_costs_the_study_nothing_else(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    def half(settings: Mapping[str, Value], parent_run_id: str) -> dict[str, Any] | str:
        is_lost = settings["relation_budget"] == 32
        return "DataError: its weights are elsewhere" if is_lost else LABORATORY.report(settings, parent_run_id)

    command = ["--seeds", "1", "--relation-budget", "16,32", "--method", "rapid", "--report"]
    assert main(GRID, [*command, "--json"], replace(LABORATORY, report=half)) == 2
    shown = capsys.readouterr()
    fault = "seed 1: DataError: its weights are elsewhere"
    assert shown.err.endswith(f"trivial_sweep.py: the report of trial 1 could not be read: {fault}\n")
    document = json.loads(shown.out)
    read, lost = document["trials"]
    assert (read["report"]["total"], lost["report_fault"]) == (1000, fault)
    assert document["is_complete"]
    kept = client().get_run(document["run_id"])
    assert (kept.info.status, kept.data.tags[names.COMPLETE], kept.data.tags[names.REPORT]) == (
        "FINISHED",
        "true",
        "once",
    )
    assert {"best.toml", "study.json", "table.txt", "trials.csv", "plots/history.html"} <= artifacts(document["run_id"])
    assert [row["report"]["total"] for row in run(GRID, *command)["trials"]] == [1000, 1000]


def test_reports_are_read_once_logged_once_and_kept_by_later_commands(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--seeds", "1", "--relation-budget", "16", "--method", "rapid"]
    run(GRID, *command)
    before, threads = load("trivial-agnews-trivial"), set(threading.enumerate())
    document = run(GRID, *command, "--report")
    (row,) = document["trials"]

    def never(settings: Mapping[str, Value], parent_run_id: str) -> str:
        raise AssertionError("it was read")

    assert main(GRID, [*command, "--report"], replace(LABORATORY, report=never)) == 0
    assert "80.100" in capsys.readouterr().out
    assert run(GRID, *command) == document
    assert client().get_run(document["run_id"]).data.tags[names.REPORT] == "once"
    # As whoever was killed before the study knew it: the same report once more.
    plan = make_plan(GRID, read_options(GRID, command), LABORATORY, print)
    assert read_reports(plan, before, LABORATORY, print) == {}
    assert known_reports(before) == {0: row["report"]}
    assert len(client().get_metric_history(row["run_id"], names.REPORT_ACCURACY)) == 1
    assert left_behind() == []
    assert set(threading.enumerate()) <= threads


def test_a_study_that_goes_on_is_not_complete_until_it_is_over(run: Run) -> None:
    study = run(SEARCH, "--seeds", "1", "--trials", "5")["run_id"]
    seen = []

    def looking(settings: Mapping[str, Value], parent_run_id: str, watcher: SeedWatcher) -> SeedResult | str:
        seen.append(client().get_run(study).data.tags[names.COMPLETE])
        return LABORATORY.evaluate(settings, parent_run_id, watcher)

    assert main(SEARCH, ["--seeds", "1", "--trials", "6"], replace(LABORATORY, evaluate=looking)) == 0
    assert seen == ["false"]
    assert client().get_run(study).data.tags[names.COMPLETE] == "true"


def test_a_worker_tries_no_failed_trial_again_and_ends_well_where_it_finds_nothing_to_do(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As one that a supervisor starts again after every failure."""
    monkeypatch.setenv("TRIVIAL_FAULT", "1.0")
    command = ["--seeds", "1", "--trials", "6"]
    assert main(SEARCH, [*command, "--worker"], LABORATORY) == 2
    said = "1 trials failed; the same command without --worker tries them again"
    assert said in capsys.readouterr().err
    trials = load(STUDY).trials
    assert main(SEARCH, [*command, "--worker"], LABORATORY) == 0
    assert said in capsys.readouterr().err
    assert load(STUDY).trials == trials
    monkeypatch.delenv("TRIVIAL_FAULT")
    assert run(SEARCH, *command)["is_complete"]


def test_a_plan_without_runs_in_the_store_does_not_know_its_time(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(GRID, ["--seeds", "1", "--dry-run"], LABORATORY) == 0
    assert "time: unknown until the first trial with 1 worker" in capsys.readouterr().out


def test_a_plan_with_runs_in_the_store_tells_its_time(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """The median of whole runs of the same data, epochs and batch size, for sixteen runs on two workers."""
    for dataset, epochs, is_complete, minutes in [
        ("agnews-trivial", 10, "true", 1.0),
        ("agnews-trivial", 10, "true", 3.0),
        ("agnews-trivial", 10, "true", 20.0),
        ("agnews-trivial", 10, "false", 50.0),
        ("agnews-trivial", 3, "true", 50.0),
        ("sst2-trivial", 10, "true", 50.0),
    ]:
        tags = {names.KIND: names.STUDENT, names.COMPLETE: is_complete, names.DATASET: dataset}
        student = start_run("0", "earlier", tags)
        student.log_params({f"{names.PARAM_PREFIX}epochs": epochs, f"{names.PARAM_PREFIX}batch_size": 32})
        student.log_metrics(0, {names.TRAIN_MINUTES: minutes})
        student.finish("FINISHED")
    assert run(GRID, "--seeds", "1,2", "--workers", "2", "--dry-run")["seconds"] == 3 * 60 * 16 / 2
    assert main(GRID, ["--seeds", "1,2", "--workers", "2", "--dry-run"], LABORATORY) == 0
    assert f"time: about {spoken(1440)} with 2 workers" in capsys.readouterr().out
