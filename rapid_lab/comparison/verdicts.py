"""What the paired seeds of a setup prove: tables of every pair of methods, and what they cannot say in words."""

from collections.abc import Sequence
from fractions import Fraction

from rapid_lab.comparison.example_tests import example_table, pair_names
from rapid_lab.comparison.records import Cell, Details, Section, Setup, Student, Table
from rapid_lab.comparison.statistics import (
    ALPHA,
    PairTest,
    compare_methods,
    distinct_resamples,
    seeds_needed,
    smallest_p,
)
from rapid_lab.comparison.wording import method_label, p_text, percent
from rapid_lab.harmless import file_name

PAIR_COLUMNS = (
    "Method",
    "Against",
    "Difference (points)",
    "95 % interval over seeds",
    "Sign-flip p",
    "Holm p",
    "Smallest attainable p",
    "Sign test p",
    "Could have shown (points)",
    "Verdict",
)


def statistics_section(setup: Setup, details: Details) -> Section:
    """Every pair of methods of a setup, tested over seeds; the examples' tests beside, deciding nothing."""
    heading = f"Statistics: {setup.label}"
    tested, left_out = _tested(setup)
    remarks = [f"{method_label(method)} is in no pair: {reason}." for method, reason in left_out.items()]
    if len(tested) < 2:
        what = f"one method ({method_label(next(iter(tested)))})" if tested else "no method"
        return Section(heading, (f"There is nothing to test: {what} has counts for every seed.", *remarks))
    examples = example_table(setup, tested, details)
    if len(setup.seeds) < 2:
        sentence = "There is nothing to test over seeds: there is one, and a difference between two runs may be chance."
        return Section(heading, (sentence, *remarks), (examples,))
    total = next(s.total for students in tested.values() for s in students if s.total)
    pairs = compare_methods({m: [s.correct for s in tested[m] if s.correct is not None] for m in tested})
    return Section(
        heading,
        (seed_power(len(setup.seeds), len(pairs)), outcome(pairs), *remarks),
        (pair_table(setup, pairs, total), difference_table(setup, pairs, total), examples),
    )


def seed_power(num_seeds: int, num_pairs: int) -> str:
    """What so many seeds can and cannot prove over so many pairs, from the numbers alone."""
    best = smallest_p(num_seeds)
    family = f"Holm's correction over {_pairs(num_pairs)}"
    opening = f"With {num_seeds} seeds no two-sided test on signs or sign flips has a p below {_power(num_seeds)}"
    need = f"{seeds_needed(1)} seeds suffice for one comparison, {seeds_needed(num_pairs)} for {family}"
    if num_pairs * best <= ALPHA:
        return (
            f"{opening}, which is {p_text(num_pairs * best)} after {family}: a difference can be shown here. "
            "One that is not shown may still be there."
        )
    if best > ALPHA:
        cannot = f"no seed-level test can reach 0.05 with {num_seeds} seeds, however large the differences"
    else:
        cannot = (
            f"one comparison chosen beforehand could reach 0.05, but after {family} none can with {num_seeds} seeds, "
            "however large the differences"
        )
    return f"{opening}: {cannot}. {need}. Here 'not shown' follows from the number of seeds alone; it is not 'equal'."


def outcome(pairs: Sequence[PairTest]) -> str:
    """Which differences are shown."""
    shown = [
        f"{method_label(pair.method)} is {pair.verdict} than {method_label(pair.reference)}"
        for pair in pairs
        if pair.verdict != "not shown"
    ]
    return f"Shown: {'; '.join(shown)}." if shown else f"Of {_pairs(len(pairs))}, none is shown to differ."


def pair_table(setup: Setup, pairs: Sequence[PairTest], total: int) -> Table:
    """One line for each pair of methods."""
    num_seeds = len(setup.seeds)
    rows = tuple(_pair_row(setup, pair, total, len(pairs)) for pair in pairs)
    notes = (
        "A difference is method minus other, mean over paired seeds, in percentage points of accuracy.",
        f"Verdict: the exact two-sided sign-flip test over seeds after Holm over {_pairs(len(pairs))}, at 0.05, "
        "and nothing else.",
        "Could have shown: the smallest mean difference at which that test would have decided, at the spread seen "
        "between these seeds and with the other pairs as they are.",
        f"Interval: percentile bootstrap, {num_seeds} seeds have {distinct_resamples(num_seeds):,} different "
        "resamples; with few seeds it covers less than 95 %.",
    )
    return Table(f"pairs_{file_name(setup.label)}", f"Pairs of methods, {setup.label}", PAIR_COLUMNS, rows, notes)


def _pair_row(setup: Setup, pair: PairTest, total: int, num_pairs: int) -> tuple[Cell, ...]:
    runs = _run_ids(setup, pair)
    attainable = smallest_p(len(pair.differences))
    low, high = (percent(Fraction(bound), total, is_signed=True) for bound in pair.interval)
    return (
        *pair_names(setup, pair.method, pair.reference),
        Cell(percent(pair.mean, total, is_signed=True), float(100 * pair.mean / total), run_ids=runs),
        Cell(f"{low} to {high}", run_ids=runs),
        Cell(p_text(pair.p), float(pair.p), run_ids=runs),
        Cell(p_text(pair.holm_p), float(pair.holm_p), run_ids=runs),
        Cell(p_text(attainable), float(attainable)),
        Cell(p_text(pair.sign_p), pair.sign_p, run_ids=runs),
        _detectable_cell(pair, total, num_pairs),
        Cell(pair.verdict, pair.verdict, run_ids=runs),
    )


def _detectable_cell(pair: PairTest, total: int, num_pairs: int) -> Cell:
    num_seeds = len(pair.differences)
    if pair.detectable is None:
        family = "" if smallest_p(num_seeds) > ALPHA else f" after Holm over {_pairs(num_pairs)}"
        return Cell(f"none: no difference can reach 0.05 with {num_seeds} seeds{family}")
    return Cell(percent(pair.detectable, total), float(100 * pair.detectable / total))


def difference_table(setup: Setup, pairs: Sequence[PairTest], total: int) -> Table:
    """Every pair's difference for every seed."""
    columns = ("Method", "Against", *(f"Seed {seed}" for seed in setup.seeds))
    rows = tuple(
        (
            *pair_names(setup, pair.method, pair.reference),
            *(
                Cell(
                    percent(value, total, is_signed=True),
                    100 * value / total,
                    run_ids=(setup.students[pair.method][at].run_id, setup.students[pair.reference][at].run_id),
                )
                for at, value in enumerate(pair.differences)
            ),
        )
        for pair in pairs
    )
    notes = (f"Percentage points; one example of the {total:,} is {percent(1, total)}.",)
    return Table(f"differences_{file_name(setup.label)}", f"Differences by seed, {setup.label}", columns, rows, notes)


def _tested(setup: Setup) -> tuple[dict[str, tuple[Student, ...]], dict[str, str]]:
    """The methods that can be paired, and why the others cannot."""
    tested: dict[str, tuple[Student, ...]] = {}
    left_out = dict.fromkeys(setup.unpaired, "it lacks some of the seeds")
    totals = [s.total for students in setup.students.values() for s in students if s.total is not None]
    for method, students in setup.students.items():
        if tuple(student.seed for student in students) != setup.seeds:
            left_out[method] = "its seeds are not those of the others"
        elif any(student.correct is None or student.total is None for student in students):
            left_out[method] = "a run has not read the report split"
        elif any(student.total != totals[0] for student in students):
            left_out[method] = "its report split has another size"
        else:
            tested[method] = students
    return tested, left_out


def _pairs(num_pairs: int) -> str:
    return "one pair" if num_pairs == 1 else f"{num_pairs} pairs"


def _power(num_seeds: int) -> str:
    return f"2^(1-{num_seeds}) = {p_text(smallest_p(num_seeds))}"


def _run_ids(setup: Setup, pair: PairTest) -> tuple[str, ...]:
    return tuple(student.run_id for name in (pair.method, pair.reference) for student in setup.students[name])
