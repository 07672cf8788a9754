"""The paper's tables from counts: its twelve cells to the last digit, and hand-worked time, memory and relations."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest
from comparison.stores import log_published, make_student, published
from tracking.programs import MLFLOW_WARNINGS

from rapid_lab.comparison.assembly import Comparison, read_comparison
from rapid_lab.comparison.records import Cell, Setup, Table
from rapid_lab.comparison.rounding import rounded, rounded_root
from rapid_lab.comparison.setups import build_setups
from rapid_lab.comparison.tables import (
    components_table,
    compute_table,
    main_results,
    paper_tables,
    relations_table,
    seed_results,
)
from rapid_lab.objectives import METHODS, PAPER_METHODS
from rapid_lab.tracking.reading import Wanted

pytestmark = pytest.mark.filterwarnings(MLFLOW_WARNINGS)
LABELS = {components.label: method for method, components in METHODS.items()}


@pytest.fixture(scope="module")
def paper(made_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Comparison]:
    """The published counts in a real store, read back."""
    folder = tmp_path_factory.mktemp("published")
    with closing(sqlite3.connect(made_store)) as old, closing(sqlite3.connect(folder / "mlflow.db")) as new:
        old.backup(new)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
        log_published()
        yield read_comparison(Wanted())


def rows_of(table: Table) -> dict[tuple[str, str], dict[str, Cell]]:
    """Cells by column, by dataset and method."""
    return {(row[0].text, LABELS[row[1].text]): dict(zip(table.columns, row, strict=True)) for row in table.rows}


def setup_of(*students: object, **changes: object) -> Setup:
    (setup,), _ = build_setups(list(students), **changes)  # type: ignore[arg-type]
    return setup


def test_the_published_counts_give_the_papers_twelve_cells_to_the_last_digit(paper: Comparison) -> None:
    rows = rows_of(paper.table("main_results"))
    printed = {
        (dataset, method): f"{mean:.3f} ± {std:.3f}"
        for dataset, methods in published()["accuracy_mean_std"].items()
        for method, (mean, std) in methods.items()
    }
    assert len(printed) == 12
    assert {key: row["Report accuracy (%)"].text for key, row in rows.items()} == printed
    best = [key for key, row in rows.items() if row["Report accuracy (%)"].is_best]
    assert best == [("agnews", "gated"), ("sst2", "gated")]


def test_gains_subtract_exact_means_and_not_rounded_ones(paper: Comparison) -> None:
    rows = rows_of(paper.table("main_results"))
    gains = {key: row["Gain over CE (points)"].text for key, row in rows.items()}
    assert gains["agnews", "gated"] == "+0.132"
    assert gains["agnews", "rapid"] == "+0.088"
    assert gains["agnews", "student_ce"] == "-"
    assert rounded(Fraction("94.285") - Fraction("94.154"), 3) == "0.131"


def test_the_published_counts_give_every_seeds_printed_accuracy(paper: Comparison) -> None:
    rows = rows_of(paper.table("seed_results"))
    for dataset, methods in published()["accuracy_by_seed"].items():
        for method, values in methods.items():
            cells = [rows[dataset, method][f"Seed {seed}"].text for seed in (42, 43, 44)]
            assert cells == [f"{value:.3f}" for value in values]


def test_what_the_paper_does_not_print_by_seed_is_not_made_up(paper: Comparison) -> None:
    for name, columns in (
        ("compute", ("Time (minutes)", "Peak memory (MiB)")),
        ("relations", ("Main", "Unique union")),
    ):
        cells = [row[column] for row in rows_of(paper.table(name)).values() for column in columns]
        assert {(cell.text, cell.marks) for cell in cells} == {("-", ("not logged by every run",))}


def test_every_cell_of_a_number_names_its_runs(paper: Comparison) -> None:
    for key, row in rows_of(paper.table("main_results")).items():
        runs = [paper.students[run_id] for run_id in row["Report accuracy (%)"].run_ids]
        assert [(run.dataset, run.method, run.seed) for run in runs] == [(*key, seed) for seed in (42, 43, 44)]


def test_equal_means_are_both_the_best() -> None:
    students = [make_student("kd", seed=1, correct=90), make_student("kd", seed=2, correct=92)]
    students += [make_student("rapid", seed=1, correct=91), make_student("rapid", seed=2, correct=91)]
    rows = rows_of(
        main_results(
            [
                setup_of(
                    *students,
                    make_student("student_ce", seed=1, correct=80),
                    make_student("student_ce", seed=2, correct=82),
                )
            ]
        )
    )
    assert [row["Report accuracy (%)"].text for row in rows.values()] == [
        "81.000 ± 1.000",
        "91.000 ± 1.000",
        "91.000 ± 0.000",
    ]
    assert [row["Report accuracy (%)"].is_best for row in rows.values()] == [False, True, True]
    assert [row["Gain over CE (points)"].text for row in rows.values()] == ["-", "+10.000", "+10.000"]


def test_an_unpaired_method_is_shown_with_its_mark_and_is_never_the_best() -> None:
    students = [make_student(method, seed=seed) for method in ("student_ce", "rapid") for seed in (1, 2)]
    setup = setup_of(*students, make_student("exact", seed=1, correct=99))
    row = rows_of(main_results([setup]))["agnews", "exact"]
    assert row["Report accuracy (%)"].text == "99.000 ± 0.000"
    assert not row["Report accuracy (%)"].is_best
    assert row["Report accuracy (%)"].marks == ("unpaired: seed 1 only, without seed 2 of the other methods",)
    assert row["Gain over CE (points)"].text == "-"
    seeds = rows_of(seed_results([setup]))["agnews", "exact"]
    assert seeds["Seed 1"].marks == ("unpaired: this method lacks seeds of the others",)
    assert seeds["Seed 2"].text == "-"


def test_a_biased_estimator_is_marked_in_every_table_with_its_numbers() -> None:
    setup = setup_of(make_student("rapid", correction_clip=3.0))
    for table in paper_tables([setup])[1:]:
        marks = {mark for row in table.rows for cell in row for mark in cell.marks}
        assert marks == {"biased: corrections are clipped at 3.0"}, table.name


def test_time_and_memory_are_means_and_population_deviations_by_hand() -> None:
    # Mean 31 and variance (1 + 1 + 4) / 3 = 2; mean 2001 and variance (1 + 1 + 4) / 3 = 2.
    minutes, peaks = (30.0, 30.0, 33.0), (2000.0, 2000.0, 2003.0)
    students = [make_student("kd", seed=seed, train_minutes=minutes[seed], peak_mb=peaks[seed]) for seed in range(3)]
    row = rows_of(compute_table([setup_of(*students)]))["agnews", "kd"]
    assert row["Time (minutes)"].text == "31.0 ± 1.4"
    assert row["Time (minutes)"].spread == pytest.approx(2**0.5)
    assert row["Peak memory (MiB)"].text == "2001 ± 1"
    assert row["Machine"].text == "cpu: test processor"


def test_cpu_and_cuda_figures_share_no_cell() -> None:
    students = [make_student("kd", seed=1, train_minutes=30.0)]
    students.append(make_student("kd", seed=2, train_minutes=2.0, device="cuda", hardware="test card"))
    table = compute_table([setup_of(*students)])
    assert [(row[2].text, row[4].text) for row in table.rows] == [
        ("cpu: test processor", "30.0 ± 0.0"),
        ("cuda: test card", "2.0 ± 0.0"),
    ]
    assert all(row[4].marks == ("seeds are spread over machines",) for row in table.rows)
    accuracy = main_results([setup_of(*students)]).rows[0][2]
    assert accuracy.marks == ("devices differ: cpu, cuda",)


def test_times_under_a_minute_keep_their_digits() -> None:
    table = compute_table([setup_of(make_student("kd", train_minutes=0.0625))])
    assert table.rows[0][4].text == "0.063 ± 0.000"


def test_relations_are_totals_over_batches_by_hand() -> None:
    names = ("main", "pilot", "unique_main", "unique_pilot", "unique_union")
    first = make_student("rapid", seed=1, steps=3, relations=dict(zip(names, (30, 3, 20, 3, 21), strict=True)))
    second = make_student("rapid", seed=2, steps=5, relations=dict(zip(names, (50, 4, 31, 0, 32), strict=True)))
    row = relations_table([setup_of(first, second)]).rows[0]
    # 80 / 8, 7 / 8, 51 / 8, 3 / 8, 53 / 8; means of the seeds' means would differ.
    assert [cell.text for cell in row[2:]] == ["10.000", "0.875", "6.375", "0.375", "6.625"]
    nothing = dict.fromkeys(names, 0)
    assert relations_table([setup_of(make_student("kd", relations=nothing))]).rows[0][2].text == "0"


def test_the_components_are_the_papers() -> None:
    students = [make_student(method) for method in PAPER_METHODS]
    table = components_table([setup_of(*students)])
    assert table.columns == ("Method", "KD", "Relation", "Gate", "Static", "Adaptive")
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["Student CE", "-", "-", "-", "-", "-"],
        ["KD", "yes", "-", "-", "-", "-"],
        ["Uniform relational", "yes", "yes", "-", "-", "-"],
        ["Reliability-gated", "yes", "yes", "yes", "-", "-"],
        ["Static influence", "yes", "yes", "yes", "yes", "-"],
        ["RAPID", "yes", "yes", "yes", "yes", "yes"],
    ]
    assert components_table([setup_of(make_student("exact"))]).columns[-1] == "All pairs"


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        ("0.0005", 3, "0.001"),
        ("0.0015", 3, "0.002"),
        ("-0.0005", 3, "-0.001"),
        ("2.5", 0, "3"),
        ("99.9995", 3, "100.000"),
    ],
)
def test_halves_are_rounded_away_from_zero_and_once(value: str, decimals: int, text: str) -> None:
    assert rounded(Fraction(value), decimals) == text


@pytest.mark.parametrize("thousandths", [0, 1, 499, 500, 1414, 10**12 + 1])
def test_a_root_is_rounded_exactly_at_its_halves(thousandths: int) -> None:
    half = Fraction(2 * thousandths + 1, 2000)
    tiny = Fraction(1, 10**40)
    expected = rounded(Fraction(thousandths + 1, 1000), 3)
    assert rounded_root(half**2, 3) == rounded_root(half**2 + tiny, 3) == expected
    assert rounded_root(half**2 - tiny, 3) == rounded(Fraction(thousandths, 1000), 3)
