"""What the statistics section says of setups with few and with many seeds."""

import dataclasses

import pandas as pd
import pytest
from comparison.paper_runs import setup

from rapid_lab.comparison.published import published
from rapid_lab.comparison.records import Details, Section, Setup, Table
from rapid_lab.comparison.verdicts import seed_power, statistics_section
from rapid_lab.objectives import PAPER_METHODS


def papers(dataset: str) -> Setup:
    counts = published()["correct_by_seed"][dataset]
    return setup({method: counts[method] for method in PAPER_METHODS}, dataset=dataset)


def table(section: Section, start: str) -> Table:
    return next(table for table in section.tables if table.name.startswith(start))


def line(section: Section, method: str, reference: str, start: str = "pairs") -> dict[str, str]:
    found = table(section, start)
    row = next(row for row in found.rows if (row[0].value, row[1].value) == (method, reference))
    return dict(zip(found.columns, (cell.text for cell in row), strict=True))


def predictions(labels: list[int], predicted: list[int]) -> pd.DataFrame:
    return pd.DataFrame({"row": range(len(labels)), "label": labels, "predicted": predicted})


def test_three_seeds_are_said_to_prove_nothing() -> None:
    section = statistics_section(papers("agnews"), Details())
    assert "no seed-level test can reach 0.05 with 3 seeds, however large the differences" in section.paragraphs[0]
    assert "2^(1-3) = 0.25" in section.paragraphs[0]
    assert "6 seeds suffice for one comparison, 10 for Holm's correction over 15 pairs" in section.paragraphs[0]
    assert section.paragraphs[1] == "Of 15 pairs, none is shown to differ."
    pairs = table(section, "pairs")
    assert len(pairs.rows) == 15
    assert {row[-1].text for row in pairs.rows} == {"not shown"}
    assert {row[-2].text for row in pairs.rows} == {"none: no difference can reach 0.05 with 3 seeds"}


def test_a_pair_of_the_paper_worked_by_hand() -> None:
    """RAPID against the CE student on AG News: 9, -6 and 17 examples of 7,600, mean 20/3."""
    section = statistics_section(papers("agnews"), Details())
    assert line(section, "rapid", "student_ce") == {
        "Method": "RAPID",
        "Against": "Student CE",
        "Difference (points)": "+0.088",
        "95 % interval over seeds": "-0.079 to +0.224",
        "Sign-flip p": "0.5",  # 32, 20, -20, -32 of eight sums are as far as 20
        "Holm p": "1",
        "Smallest attainable p": "0.25",
        "Sign test p": "1",
        "Could have shown (points)": "none: no difference can reach 0.05 with 3 seeds",
        "Verdict": "not shown",
    }
    assert line(section, "rapid", "student_ce", "differences") == {
        "Method": "RAPID",
        "Against": "Student CE",
        "Seed 42": "+0.118",
        "Seed 43": "-0.079",
        "Seed 44": "+0.224",
    }
    assert line(section, "gated", "student_ce")["Difference (points)"] == "+0.132"


def test_a_cell_has_the_runs_it_came_from() -> None:
    given = papers("sst2")
    section = statistics_section(given, Details())
    runs = tuple(student.run_id for method in ("kd", "student_ce") for student in given.students[method])
    assert table(section, "pairs").rows[0][-1].run_ids == runs
    assert table(section, "differences").rows[0][3].run_ids == (runs[1], runs[4])


def test_ten_seeds_show_what_all_of_them_agree_on() -> None:
    ladder = {method: [7000 + 10 * rank + seed for seed in range(10)] for rank, method in enumerate(PAPER_METHODS)}
    section = statistics_section(setup(ladder), Details())
    assert "a difference can be shown here" in section.paragraphs[0]
    assert "0.0293 after Holm's correction over 15 pairs" in section.paragraphs[0]  # 15 / 512
    assert section.paragraphs[1].startswith("Shown: KD is better than Student CE; ")
    assert {row[-1].text for row in table(section, "pairs").rows} == {"better"}
    shown = line(section, "rapid", "student_ce")
    assert (shown["Sign-flip p"], shown["Holm p"], shown["Smallest attainable p"]) == ("0.00195", "0.0293", "0.00195")
    # No spread: a tenth of an example would have been shown.
    assert shown["Could have shown (points)"] == "0.001"


def test_nine_seeds_show_nothing_of_fifteen_pairs_however_large() -> None:
    ladder = {method: [7000 + 10 * rank + seed for seed in range(9)] for rank, method in enumerate(PAPER_METHODS)}
    section = statistics_section(setup(ladder), Details())
    assert "but after Holm's correction over 15 pairs none can with 9 seeds" in section.paragraphs[0]
    found = line(section, "rapid", "student_ce")
    assert found["Verdict"] == "not shown"
    assert found["Could have shown (points)"] == (
        "none: no difference can reach 0.05 with 9 seeds after Holm over 15 pairs"
    )


def test_six_seeds_suffice_for_one_comparison() -> None:
    section = statistics_section(setup({"kd": [10] * 6, "rapid": [9] * 6}), Details())
    assert "0.0312 after Holm's correction over one pair" in section.paragraphs[0]
    assert section.paragraphs[1] == "Shown: RAPID is worse than KD."


@pytest.mark.parametrize(
    ("num_seeds", "num_pairs", "is_possible"), [(5, 1, False), (6, 1, True), (9, 15, False), (10, 15, True)]
)
def test_the_paragraph_says_whether_anything_can_be_shown(num_seeds: int, num_pairs: int, is_possible: bool) -> None:
    said = seed_power(num_seeds, num_pairs)
    assert ("a difference can be shown here" in said) == is_possible
    assert ("however large the differences" in said) != is_possible


def test_one_method_has_nothing_to_test() -> None:
    section = statistics_section(setup({"rapid": [7000, 7001, 7002]}), Details())
    assert section.paragraphs == ("There is nothing to test: one method (RAPID) has counts for every seed.",)
    assert section.tables == ()


def test_one_seed_has_nothing_to_test_over_seeds() -> None:
    section = statistics_section(setup({"kd": [7000], "rapid": [7001]}), Details())
    assert section.paragraphs[0].startswith("There is nothing to test over seeds")
    assert [found.name for found in section.tables] == ["examples_agnews"]


def test_a_method_that_cannot_be_paired_is_named_with_the_reason() -> None:
    given = setup({"student_ce": [5, 6], "kd": [7, None], "uniform": [5, 6], "rapid": [8, 9]})
    lacking = given.students["uniform"][:1]
    other = tuple(dataclasses.replace(student, total=100) for student in given.students["rapid"])
    students = {**given.students, "rapid": other}
    del students["uniform"]
    section = statistics_section(
        dataclasses.replace(given, students=students, unpaired={"uniform": lacking}), Details()
    )
    assert section.paragraphs == (
        "There is nothing to test: one method (Student CE) has counts for every seed.",
        "Uniform relational is in no pair: it lacks some of the seeds.",
        "KD is in no pair: a run has not read the report split.",
        "RAPID is in no pair: its report split has another size.",
    )


def test_a_setups_marks_stand_beside_its_methods() -> None:
    given = dataclasses.replace(papers("agnews"), marks={"rapid": ("clipped",)})
    found = table(statistics_section(given, Details()), "pairs").rows
    assert {row[0].marks for row in found if row[0].value == "rapid"} == {("clipped",)}
    assert {row[0].marks for row in found if row[0].value == "kd"} == {()}


def two_models(first: pd.DataFrame | None, second: pd.DataFrame | None, counts: tuple[int, int]) -> Table:
    given = setup({"kd": [counts[0]], "rapid": [counts[1]]}, total=12)
    kd, rapid = given.students["kd"][0].run_id, given.students["rapid"][0].run_id
    stored = {run: frame for run, frame in ((kd, first), (rapid, second)) if frame is not None}
    return table(statistics_section(given, Details(predictions=stored)), "examples")


def test_predictions_are_paired_by_row_whatever_their_order() -> None:
    labels = [0] * 12
    kd = predictions(labels, [1] * 10 + [0] * 2)  # right on the last two
    rapid = predictions(labels, [0] * 10 + [1] * 2).iloc[::-1]  # right on the first ten
    found = two_models(kd, rapid, (2, 10))
    assert [cell.text for cell in found.rows[0][:7]] == ["RAPID", "KD", "42", "10", "2", "0.0386", "+66.667"]
    assert "onditional on these trained models" in found.title
    assert found.notes[0] == (
        "Conditional on these trained models: says nothing about other seeds, and decides nothing."
    )


@pytest.mark.parametrize(
    ("first", "second", "counts", "reason"),
    [
        (None, ([0, 1], [0, 1]), (2, 2), "no stored predictions of run"),
        (([0, 1], [0, 0]), ([0, 1], [0, 1]), (2, 2), "do not add up to its count"),
    ],
)
def test_predictions_that_cannot_be_used_are_said_to_be(
    first: tuple[list[int], list[int]] | None,
    second: tuple[list[int], list[int]],
    counts: tuple[int, int],
    reason: str,
) -> None:
    given = setup({"kd": [counts[0]], "rapid": [counts[1]]}, total=2)
    runs = [given.students[method][0].run_id for method in ("kd", "rapid")]
    frames = {run: predictions(*frame) for run, frame in zip(runs, (first, second), strict=True) if frame}
    found = table(statistics_section(given, Details(predictions=frames)), "examples")
    assert found.rows[0][3].text.startswith("not tested: ")
    assert reason in found.rows[0][3].text
    assert len(found.rows[0]) == len(found.columns)


def test_predictions_with_other_labels_or_rows_are_not_paired() -> None:
    one, other = predictions([0] * 12, [0] * 12), predictions([1] * 12, [1] * 12)
    assert two_models(one, other, (12, 12)).rows[0][3].text == "not tested: the labels of the two runs differ"
    moved = one.assign(row=one["row"] + 1)
    assert two_models(one, moved, (12, 12)).rows[0][3].text == "not tested: the two runs predicted different rows"


def test_example_tests_are_shown_for_ten_seeds_at_most() -> None:
    given = setup({"kd": range(12), "rapid": range(12)})
    found = table(statistics_section(given, Details()), "examples")
    assert len(found.rows) == 10
    assert found.notes[1] == "The first 10 of 12 seeds."


def test_a_verdict_does_not_listen_to_examples() -> None:
    """Every example of 12 differs, on each of three seeds: over seeds that is still not shown."""
    given = setup({"kd": [0, 0, 0], "rapid": [12, 12, 12]}, total=12)
    frames = {s.run_id: predictions([0] * 12, [1] * 12) for s in given.students["kd"]}
    frames |= {s.run_id: predictions([0] * 12, [0] * 12) for s in given.students["rapid"]}
    section = statistics_section(given, Details(predictions=frames))
    assert table(section, "examples").rows[0][5].text == "0.000488"
    assert line(section, "rapid", "kd")["Verdict"] == "not shown"
