"""Two trained models on the same examples, from the stored predictions: shown, and deciding nothing."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from rapid_lab.comparison.records import Cell, Details, Setup, Student, Table
from rapid_lab.comparison.statistics import ExampleTest, compare_examples
from rapid_lab.comparison.wording import method_label, p_text, percent
from rapid_lab.harmless import file_name

if TYPE_CHECKING:
    import pandas as pd

# A few seeds show what there is to see in tests that decide nothing.
SHOWN_SEEDS = 10
COLUMNS = (
    "Method",
    "Against",
    "Seed",
    "Only method right",
    "Only other right",
    "McNemar p",
    "Difference (points)",
    "95 % interval over examples",
)
CONDITIONAL = "Conditional on these trained models: says nothing about other seeds, and decides nothing."


@dataclass(frozen=True)
class Answers:
    """Which examples of the report split a student has right."""

    rows: np.ndarray
    labels: np.ndarray
    is_right: np.ndarray


def example_table(setup: Setup, tested: Mapping[str, Sequence[Student]], details: Details) -> Table:
    """McNemar's test and the paired bootstrap for every pair of methods and every seed."""
    shown = setup.seeds[:SHOWN_SEEDS]
    answers = {
        student.run_id: read_answers(student, details.predictions.get(student.run_id))
        for students in tested.values()
        for student in students[:SHOWN_SEEDS]
    }
    rows = tuple(
        (*pair_names(setup, method, reference), Cell(str(seed), seed), *_cells(student, other, answers))
        for reference, method in itertools.combinations(tested, 2)
        for seed, student, other in zip(shown, tested[method], tested[reference], strict=False)
    )
    notes = [CONDITIONAL]
    if len(shown) < len(setup.seeds):
        notes.append(f"The first {len(shown)} of {len(setup.seeds)} seeds.")
    title = f"Tests over examples, conditional on these trained models, {setup.label}"
    return Table(f"examples_{file_name(setup.label)}", title, COLUMNS, rows, tuple(notes))


def pair_names(setup: Setup, method: str, reference: str) -> tuple[Cell, Cell]:
    """The two methods of a line, with their remarks."""
    first, second = (Cell(method_label(name), name, marks=setup.marks.get(name, ())) for name in (method, reference))
    return first, second


def read_answers(student: Student, table: "pd.DataFrame | None") -> Answers | str:
    """In the order of the rows and checked against the student's count; else what is wrong with them."""
    if table is None:
        return f"no stored predictions of run {student.run_id}"
    table = table.sort_values("row")
    rows, labels = table["row"].to_numpy(), table["label"].to_numpy()
    is_right = labels == table["predicted"].to_numpy()
    if (int(is_right.sum()), len(rows)) != (student.correct, student.total):
        return f"the predictions of run {student.run_id} do not add up to its count"
    return Answers(rows, labels, is_right)


def _cells(student: Student, other: Student, answers: Mapping[str, Answers | str]) -> tuple[Cell, ...]:
    first, second, runs = answers[student.run_id], answers[other.run_id], (student.run_id, other.run_id)
    if isinstance(first, str):
        return _untested(first, runs)
    if isinstance(second, str):
        return _untested(second, runs)
    if not np.array_equal(first.rows, second.rows):
        return _untested("the two runs predicted different rows", runs)
    if not np.array_equal(first.labels, second.labels):
        return _untested("the labels of the two runs differ", runs)
    return _tested(compare_examples(first.is_right, second.is_right), runs)


def _untested(reason: str, runs: tuple[str, ...]) -> tuple[Cell, ...]:
    return (Cell(f"not tested: {reason}", run_ids=runs), *[Cell("")] * (len(COLUMNS) - 4))


def _tested(test: ExampleTest, runs: tuple[str, ...]) -> tuple[Cell, ...]:
    difference = test.only_method - test.only_reference
    low, high = (percent(Fraction(bound), 1, is_signed=True) for bound in test.interval)
    return (
        Cell(str(test.only_method), test.only_method, run_ids=runs),
        Cell(str(test.only_reference), test.only_reference, run_ids=runs),
        Cell(p_text(test.p), test.p, run_ids=runs),
        Cell(percent(difference, test.total, is_signed=True), 100 * difference / test.total, run_ids=runs),
        Cell(f"{low} to {high}", run_ids=runs),
    )
