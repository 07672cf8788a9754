"""A run becomes a student by its counts, or is named with the reason why it is in no table."""

import math
from pathlib import Path
from typing import Any

import pytest
from comparison.stores import log_student
from tracking.programs import MLFLOW_WARNINGS

from rapid_lab import names
from rapid_lab.comparison.records import Excluded, Student
from rapid_lab.comparison.students import read_students
from rapid_lab.errors import SettingError
from rapid_lab.tracking.reading import Wanted, read_runs
from rapid_lab.tracking.runs import make_pointer, start_run

pytestmark = [pytest.mark.filterwarnings(MLFLOW_WARNINGS), pytest.mark.usefixtures("store")]
NEWER = str(names.SCHEMA_VERSION + 1)


def students() -> tuple[list[Student], list[Excluded]]:
    return read_students(read_runs(Wanted()))


def test_a_finished_run_is_a_student_of_whole_numbers() -> None:
    relations = (7_938_000, 702_000, 5_990_119, 684_619, 6_100_001)
    run_id = log_student("rapid", seed=43, correct=7161, total=7600, steps=33_750, relations=relations, minutes=62.5)
    (student,), excluded = students()
    assert excluded == []
    assert (student.run_id, student.method, student.dataset, student.seed) == (run_id, "rapid", "agnews", 43)
    assert (student.correct, student.total, student.steps) == (7161, 7600, 33_750)
    assert tuple(student.relations.values()) == relations
    assert student.train_minutes == 62.5
    assert student.settings["relation_budget"] == "256"
    assert (student.schema_version, student.is_biased) == (names.SCHEMA_VERSION, False)


def test_what_a_run_did_not_log_is_missing_and_not_zero() -> None:
    log_student(relations=None)
    (student,), _ = students()
    assert student.relations == {}
    assert math.isnan(student.train_minutes)
    assert math.isnan(student.peak_mb)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"status": None}, "incomplete: it is RUNNING, not FINISHED"),
        ({"status": "FAILED"}, "incomplete: it is FAILED, not FINISHED"),
        ({"status": "KILLED"}, "incomplete: it is KILLED, not FINISHED"),
        ({"tags": {names.COMPLETE: "false"}}, "incomplete: the tag rapid.complete is 'false', not 'true'"),
        ({"tags": {names.COMPLETE: None}}, "incomplete: the tag rapid.complete is 'missing', not 'true'"),
        (
            {"tags": {names.NUMBERS: "0"}},
            f"numbers version 0 is not that of this release, {names.NUMBERS_VERSION}: a change between them",
        ),
        ({"tags": {names.SCHEMA: "0"}}, "schema version 0 is not the one of this table, 1"),
        ({"tags": {names.SCHEMA: NEWER}}, f"schema version {NEWER} is not the one of this table, 1"),
        ({"tags": {names.SCHEMA: None}}, "schema version unknown is not the one of this table, 1"),
        ({"tags": {names.CONFIG_ID: None}}, "the tag rapid.config_id is missing"),
        ({"tags": {names.METHOD: "attention"}}, "its method 'attention' is none that this release knows"),
        ({"tags": {names.DATA_SOURCE: "twin"}}, "twin and real data: agnews came from 'twin'"),
        ({"dataset": "agnews-twin", "tags": {names.DATA_SOURCE: "hub"}}, "twin and real data: agnews-twin came from"),
        ({"correct": None}, "the metric report/correct is missing"),
        ({"correct": 101}, "101 right of 100 is no count"),
        ({"relations": (7.5, 2, 6, 2, 7)}, "relations/mean_main is 1.875 over 4 steps"),
        ({"correct": None, "tags": {names.REPORT: "never"}}, "its report split was never read"),
        ({"tags": {names.KIND: names.TRIAL}}, "a trial of a sweep: trials choose by the selection split"),
    ],
)
def test_a_run_that_no_table_may_show_is_named_with_its_reason(changes: dict[str, Any], reason: str) -> None:
    kept = log_student(seed=1)
    refused = log_student(name="the refused", seed=2, **changes)
    found, (excluded,) = students()
    assert [student.run_id for student in found] == [kept]
    assert (excluded.run_id, excluded.name) == (refused, "the refused")
    assert excluded.reason.startswith(reason)


def test_a_pointer_names_the_run_that_is_counted() -> None:
    target = log_student()
    pointer = start_run("0", "again", {})
    make_pointer(pointer.run_id, target)
    found, (excluded,) = students()
    assert [student.run_id for student in found] == [target]
    assert excluded == Excluded(pointer.run_id, "again", f"a pointer to run {target}, which is counted itself")


def test_teachers_suites_comparisons_and_strangers_are_no_students_and_need_no_reason() -> None:
    for kind in (names.TEACHER, names.SUITE, names.STUDY, names.COMPARISON):
        start_run("0", kind, {names.KIND: kind}).finish("FINISHED")
    start_run("0", "somebody else's", {}).finish("FINISHED")
    assert students() == ([], [])


def test_a_store_that_only_a_newer_release_has_written_is_refused_as_a_whole() -> None:
    log_student(tags={names.SCHEMA: NEWER})
    with pytest.raises(SettingError, match=rf"must be of schema version 1, got {NEWER}: a newer rapid-lab"):
        students()


def test_clipping_biases_an_estimate_and_nothing_that_estimates_nothing(store: Path) -> None:
    for method in ("student_ce", "kd", "uniform", "rapid", "exact"):
        log_student(method, correction_clip=2.0)
    found, _ = students()
    assert [student.method for student in found if student.is_biased] == ["uniform", "rapid"]
