"""The paper's tables from setups: components, main results, seeds, time and memory, relations."""

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from rapid_lab.comparison.labels import SHORT
from rapid_lab.comparison.marks import marks_of
from rapid_lab.comparison.records import Cell, Setup, Student, Table
from rapid_lab.comparison.rounding import NOTHING, mean, population_variance, rounded, rounded_root, signed
from rapid_lab.objectives import METHODS

DECIMALS = 3
RELATIONS = {
    "Main": "main",
    "Pilot": "pilot",
    "Unique main": "unique_main",
    "Unique pilot": "unique_pilot",
    "Unique union": "unique_union",
}
COMPONENTS = {
    "KD": "has_distillation",
    "Relation": "has_relations",
    "Gate": "has_gate",
    "Static": "has_static_proposal",
    "Adaptive": "is_adaptive",
    "All pairs": "is_exact",
}
ROUNDED_ONCE = "Computed from integer counts and rounded once, halves away from zero."


def paper_tables(setups: Sequence[Setup]) -> tuple[Table, ...]:
    """All of them, in the paper's order."""
    return (
        components_table(setups),
        main_results(setups),
        seed_results(setups),
        compute_table(setups),
        relations_table(setups),
    )


def components_table(setups: Sequence[Setup]) -> Table:
    """What the objective of each method is made of."""
    present = {method for setup in setups for method, _ in cells_of(setup)}
    methods = [method for method in METHODS if method in present]
    has_exact = any(METHODS[method].is_exact for method in methods)
    shown = {title: name for title, name in COMPONENTS.items() if name != "is_exact" or has_exact}
    rows = [(_words(METHODS[method].label), *(_has(method, name) for name in shown.values())) for method in methods]
    return Table("components", "Components of the compared students", ("Method", *shown), tuple(rows))


def _has(method: str, component: str) -> Cell:
    value = bool(getattr(METHODS[method], component))
    return Cell("yes" if value else NOTHING, "yes" if value else "no")


def main_results(setups: Sequence[Setup]) -> Table:
    """Report accuracy of every method: mean and population standard deviation over paired seeds, gain over CE."""
    rows = []
    for setup in setups:
        best = max((mean(accuracies(students)) for students in setup.students.values()), default=None)
        for method, students in cells_of(setup):
            is_best = method in setup.students and mean(accuracies(students)) == best
            seeds = Cell(", ".join(str(student.seed) for student in students), len(students))
            accuracy = accuracy_cell(students, is_best=is_best, marks=setup.marks.get(method, ()))
            rows.append((_words(setup.label), _words(METHODS[method].label), accuracy, gain_cell(setup, method), seeds))
    columns = ("Data", "Method", "Report accuracy (%)", "Gain over CE (points)", "Seeds")
    notes = (
        "Mean and population standard deviation over paired seeds. " + ROUNDED_ONCE,
        "Bold: the highest mean of its setup, which by itself shows no method to be better.",
        "Sweep trials and runs whose report split was never read are not in it.",
        *provenance_notes(setups),
    )
    return Table("main_results", "Accuracy on the report split", columns, tuple(rows), notes)


def cells_of(setup: Setup) -> Iterable[tuple[str, tuple[Student, ...]]]:
    """Method and students of every row, paired or not, in the paper's order."""
    rows = {**setup.students, **setup.unpaired}
    return [(method, rows[method]) for method in METHODS if method in rows]


def accuracies(students: Sequence[Student]) -> list[Fraction]:
    """Exact percentages of the report split."""
    return [
        Fraction(100 * student.correct, student.total)
        for student in students
        if student.correct is not None and student.total
    ]


def accuracy_cell(students: Sequence[Student], *, is_best: bool, marks: tuple[str, ...]) -> Cell:
    """Mean and population standard deviation in percent."""
    values = accuracies(students)
    centre, variance = mean(values), population_variance(values)
    text = f"{rounded(centre, DECIMALS)} ± {rounded_root(variance, DECIMALS)}"
    return Cell(text, float(centre), math.sqrt(variance), is_best, run_ids(students), marks)


def gain_cell(setup: Setup, method: str) -> Cell:
    """The difference of exact means to the CE student on the same seeds."""
    reference, students = setup.students.get("student_ce"), setup.students.get(method)
    if reference is None or students is None or method == "student_ce":
        return Cell(NOTHING)
    gain = mean(accuracies(students)) - mean(accuracies(reference))
    return Cell(signed(gain, DECIMALS), float(gain), run_ids=run_ids((*students, *reference)))


def seed_results(setups: Sequence[Setup]) -> Table:
    """Report accuracy of every run."""
    seeds = sorted({student.seed for setup in setups for _, students in cells_of(setup) for student in students})
    rows = []
    for setup in setups:
        for method, students in cells_of(setup):
            own = {student.seed: student for student in students}
            cells = (_seed_cell(own.get(seed), is_paired=method in setup.students) for seed in seeds)
            rows.append((_words(setup.label), _words(METHODS[method].label), *cells))
    columns = ("Data", "Method", *(f"Seed {seed}" for seed in seeds))
    notes = ("Percent of the report split. " + ROUNDED_ONCE, *provenance_notes(setups))
    return Table("seed_results", "Accuracy by seed", columns, tuple(rows), notes)


def _seed_cell(student: Student | None, *, is_paired: bool) -> Cell:
    if student is None:
        return Cell(NOTHING)
    (accuracy,) = accuracies([student])
    marks = (*marks_of([student]), *(() if is_paired else ("unpaired: this method lacks seeds of the others",)))
    return Cell(rounded(accuracy, DECIMALS), float(accuracy), run_ids=(student.run_id,), marks=marks)


def compute_table(setups: Sequence[Setup]) -> Table:
    """Training time and peak memory: a row for each machine, since their figures share no cell."""
    means = [student.train_minutes for setup in setups for _, students in cells_of(setup) for student in students]
    decimals = 1 if all(minutes >= 1 for minutes in means if not math.isnan(minutes)) else DECIMALS
    rows = []
    for setup in setups:
        for method, students in cells_of(setup):
            machines = dict.fromkeys((student.device, student.hardware) for student in students)
            for machine in machines:
                members = [student for student in students if (student.device, student.hardware) == machine]
                marks = (
                    marks_of(members) if len(machines) == 1 else (*marks_of(members), "seeds are spread over machines")
                )
                minutes = measured_cell(members, lambda student: student.train_minutes, decimals, marks)
                memory = measured_cell(members, lambda student: student.peak_mb, 0, marks)
                who = (_words(setup.label), _words(METHODS[method].label), _words(f"{machine[0]}: {machine[1]}"))
                rows.append((*who, _words(str(len(members))), minutes, memory))
    columns = ("Data", "Method", "Machine", "Runs", "Time (minutes)", "Peak memory (MiB)")
    notes = (
        "Mean and population standard deviation over seeds; training alone, without evaluation and logging.",
        "Memory is allocated memory on CUDA and added resident memory on a CPU; machines share no cell.",
        "Times of runs that were not interleaved may differ by the machine's load alone.",
        *provenance_notes(setups),
    )
    return Table("compute", "Training time and peak memory", columns, tuple(rows), notes)


def measured_cell(
    students: Sequence[Student], value: Callable[[Student], float], decimals: int, marks: tuple[str, ...]
) -> Cell:
    """Mean and population standard deviation of a measurement; nothing where a run lacks it."""
    measured = [value(student) for student in students]
    if not all(map(math.isfinite, measured)):
        return Cell(NOTHING, run_ids=run_ids(students), marks=(*marks, "not logged by every run"))
    exact = [Fraction(number) for number in measured]
    centre, variance = mean(exact), population_variance(exact)
    text = f"{rounded(centre, decimals)} ± {rounded_root(variance, decimals)}"
    return Cell(text, float(centre), math.sqrt(variance), run_ids=run_ids(students), marks=marks)


def relations_table(setups: Sequence[Setup]) -> Table:
    """Mean relations a batch, over all batches of all seeds."""
    rows = [
        (
            _words(setup.label),
            _words(METHODS[method].label),
            *(relation_cell(students, name, setup.marks.get(method, ())) for name in RELATIONS.values()),
        )
        for setup in setups
        for method, students in cells_of(setup)
    ]
    notes = (
        "Mean relation evaluations a batch over all batches of all epochs and seeds. " + ROUNDED_ONCE,
        "Unique counts are of different pairs within a batch; the union counts a pair drawn as main and as pilot once.",
        *provenance_notes(setups),
    )
    return Table("relations", "Relation accounting", ("Data", "Method", *RELATIONS), tuple(rows), notes)


def relation_cell(students: Sequence[Student], name: str, marks: tuple[str, ...]) -> Cell:
    """Total relations over total batches."""
    steps = sum(student.steps for student in students)
    if not steps or any(name not in student.relations for student in students):
        return Cell(NOTHING, run_ids=run_ids(students), marks=(*marks, "not logged by every run"))
    share = Fraction(sum(student.relations[name] for student in students), steps)
    return Cell(rounded(share, DECIMALS) if share else "0", float(share), run_ids=run_ids(students), marks=marks)


def run_ids(students: Iterable[Student]) -> tuple[str, ...]:
    """The runs behind a cell."""
    return tuple(student.run_id for student in students)


def provenance_notes(setups: Sequence[Setup]) -> tuple[str, ...]:
    """Where a table's numbers come from, and what its setups need said."""
    students = {s.run_id: s for setup in setups for _, cell in cells_of(setup) for s in cell}.values()
    sources = ", ".join(sorted({student.source_hash[:SHORT] for student in students}))
    schemas = ", ".join(sorted({str(student.schema_version) for student in students}))
    traced = f"{len(students)} runs; source {sources}; schema version {schemas}. "
    said = [f"{setup.label}: {note}" for setup in setups for note in setup.notes]
    return (traced + "The JSON file of this table names the runs and config ids of every cell.", *said)


def _words(text: str) -> Cell:
    return Cell(text, text)
