import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from comparison.samples import HOSTILE, calibration, details, setup, student

from rapid_lab import names
from rapid_lab.comparison import style
from rapid_lab.comparison.accuracy_figures import accuracy_against_time, gains
from rapid_lab.comparison.budget_figures import accuracy_against_budget, allocation
from rapid_lab.comparison.calibration_figure import calibrations
from rapid_lab.comparison.figures import figures_section
from rapid_lab.comparison.records import Details, Drawing, Setup
from rapid_lab.comparison.style import Missing
from rapid_lab.comparison.training_figures import MOST_POINTS, binned, proposal_health, selection_curves
from rapid_lab.comparison.wording import method_label
from rapid_lab.objectives import METHODS, PAPER_METHODS

KINDS = {"gains", "accuracy-budget", "accuracy-time", "allocation", "selection", "health", "calibration"}


def drawn(made: Drawing | Missing) -> Drawing:
    assert isinstance(made, Drawing), made
    return made


def missing(made: Drawing | Missing) -> str:
    assert isinstance(made, Missing)
    return made.reason


def traces(made: Drawing | Missing, kind: str = "scatter") -> list[Any]:
    return [trace for trace in drawn(made).figure.data if trace.type == kind]


def counted(correct: dict[str, list[int]]) -> Setup:
    """Students with these counts of 100, from seed 1 on."""
    students = {
        method: tuple(student(method, seed=seed, correct=right, total=100) for seed, right in enumerate(counts, 1))
        for method, counts in correct.items()
    }
    return Setup("agnews", "agnews", (1, 2), students)


def test_with_all_data_every_kind_is_drawn_and_nothing_is_missed() -> None:
    setups = [setup(budget=256), setup(budget=64)]
    section = figures_section(setups, details(setups))
    assert {drawing.name.partition(".")[0] for drawing in section.drawings} == KINDS
    assert section.paragraphs == ()


def test_with_no_data_nothing_is_drawn_and_every_kind_has_its_sentence() -> None:
    made = setup(methods=("kd",))
    unread = {"kd": tuple(replace(one, correct=None, total=None) for one in made.students["kd"])}
    section = figures_section([replace(made, students=unread)], Details())
    assert section.drawings == ()
    assert len(section.paragraphs) == len(KINDS)
    assert all(text.startswith("Not drawn: ") and ", since " in text for text in section.paragraphs)


def test_places_that_lack_a_figure_for_one_reason_share_a_sentence() -> None:
    section = figures_section([setup(budget=64), setup(budget=256)], Details())
    assert section.paragraphs[0] == (
        "Not drawn: selection accuracy by epoch (agnews, budget 64; agnews, budget 256), since these runs have no "
        "selection accuracy in the store."
    )


def test_without_setups_the_section_is_sentences_alone() -> None:
    assert figures_section([], Details()).drawings == ()


def test_every_caption_names_its_setup_and_says_what_it_does_not_show() -> None:
    setups = [setup(budget=256), setup(budget=64)]
    for drawing in figures_section(setups, details(setups)).drawings:
        heading, _, text = drawing.caption.partition(". ")
        assert ": agnews" in heading
        assert "not " in text or "no estimate" in text


def test_a_gain_is_the_difference_to_the_ce_student_of_the_same_seed() -> None:
    made = gains(counted({"student_ce": [88, 93], "rapid": [90, 92]}))
    assert list(traces(made, "bar")[0].x) == pytest.approx([0.5])
    assert list(traces(made)[0].x) == pytest.approx([2.0, -1.0])
    assert list(traces(made)[0].customdata) == [1, 2]


def test_a_seed_without_a_ce_student_has_no_gain() -> None:
    made = gains(counted({"student_ce": [88], "rapid": [90, 92]}))
    assert list(traces(made)[0].customdata) == [1]


def test_equal_gains_do_not_hide_one_another() -> None:
    points = traces(gains(counted({"student_ce": [88, 88], "rapid": [90, 90]})))[0]
    assert len(set(points.y)) == 2


def test_gains_without_a_ce_student_are_missing_with_the_reason() -> None:
    assert missing(gains(counted({"rapid": [90, 92]}))) == "there is no CE student to compare with"


def test_the_parts_of_the_budget_are_means_over_all_steps_and_add_up_to_what_was_spent() -> None:
    counts = {"main": 90, "pilot": 10, "unique_main": 60, "unique_pilot": 8, "unique_union": 65}
    twice = {name: 2 * value for name, value in counts.items()}
    group = (student("rapid", steps=10, relations=counts), student("rapid", seed=43, steps=30, relations=twice))
    made = allocation(Setup("agnews", "agnews", (42, 43), {"rapid": group}))
    parts = {trace.name: trace.x[0] for trace in traces(made, "bar")}
    expected = {"main, distinct": 4.5, "main, drawn again": 2.25, "pilot, distinct": 0.6, "pilot, drawn again": 0.15}
    assert parts == pytest.approx(expected)
    assert traces(made)[0].x[0] == pytest.approx(3 * 65 / 40)


def test_methods_without_relations_have_no_bar_and_are_named() -> None:
    made = drawn(allocation(setup()))
    assert "Student CE and KD evaluate no relations" in made.caption
    assert "KD" not in traces(made, "bar")[0].y


def test_a_line_over_budgets_has_the_mean_at_each_budget_and_the_ce_student_counts_once() -> None:
    (made,) = accuracy_against_budget([setup(budget=256), setup(budget=64)])
    lines = {trace.name: trace for trace in traces(made) if trace.mode == "lines+markers"}
    assert set(lines) == {"Uniform relational", "Reliability-gated", "Static influence", "RAPID"}
    assert list(lines["RAPID"].x) == [64, 256]
    rates = [one.correct / 76 for one in setup(budget=64).students["rapid"] if one.correct]
    assert lines["RAPID"].y[0] == pytest.approx(np.mean(rates))
    level = next(trace for trace in traces(made) if trace.name == "Student CE")
    assert list(level.x) == [64, 256]


def test_budgets_are_joined_only_where_nothing_else_differs() -> None:
    other = setup(budget=64)
    changed = {
        method: tuple(replace(one, settings={**one.settings, "learning_rate": "0.1"}) for one in group)
        for method, group in other.students.items()
    }
    (made,) = accuracy_against_budget([setup(budget=256), replace(other, students=changed)])
    assert missing(made).startswith("no method was run")


def test_datasets_have_a_budget_figure_each() -> None:
    setups = [setup(name, budget) for name in ("agnews", "sst2") for budget in (64, 256)]
    assert [drawn(made).caption.split(".")[0] for made in accuracy_against_budget(setups)] == [
        "Accuracy against relation budget: agnews",
        "Accuracy against relation budget: sst2",
    ]


def test_times_of_cpu_and_cuda_are_not_drawn_on_one_axis() -> None:
    made = setup()
    cuda = tuple(replace(one, device="cuda") for one in made.students["rapid"])
    mixed = replace(made, students={**made.students, "rapid": cuda})
    assert missing(accuracy_against_time(mixed)) == "times on cpu and cuda are not one scale"


def test_a_run_without_a_time_is_not_drawn() -> None:
    made = setup(methods=("rapid",))
    first, *others = made.students["rapid"]
    students = {"rapid": (replace(first, train_minutes=float("nan")), *others)}
    assert len(traces(accuracy_against_time(replace(made, students=students)))[0].x) == 2


def test_a_method_that_lacks_seeds_is_named_and_not_drawn() -> None:
    made = setup(methods=("student_ce", "rapid"), unpaired={"kd": (student("kd"),)})
    assert "not drawn: KD." in drawn(gains(made)).caption


def test_the_time_figure_has_each_run_and_each_mean() -> None:
    runs, mean = traces(accuracy_against_time(setup(methods=("rapid",))))
    assert len(runs.x) == 3
    assert mean.x[0] == pytest.approx(np.mean(runs.x))
    assert mean.y[0] == pytest.approx(np.mean(runs.y))


def test_the_band_of_a_selection_curve_reaches_from_the_lowest_to_the_highest_seed() -> None:
    made = setup(methods=("rapid",))
    values = {42: [0.5, 0.9], 43: [0.7, 0.8], 44: [0.6, 0.7]}
    frames = {
        one.run_id: pd.DataFrame({"epoch": [1, 2], "step": [5, 10], "accuracy": values[one.seed], "nll": [1.0, 1.0]})
        for one in made.students["rapid"]
    }
    band, line = traces(selection_curves(made, Details(selection=frames)))
    assert list(line.y) == pytest.approx([60, 80])
    assert list(band.y) == pytest.approx([70, 90, 70, 50])


def test_a_curve_with_a_missing_seed_uses_the_others() -> None:
    made = setup(methods=("rapid",))
    all_of_it = details([made])
    left = dict(list(all_of_it.selection.items())[:1])
    assert len(traces(selection_curves(made, Details(selection=left)))) == 2


def test_a_long_run_is_thinned_and_its_largest_correction_survives() -> None:
    steps = np.arange(1, 10_001)
    frame = pd.DataFrame({"step": steps, names.MAX_CORRECTION: 1.0, names.ESS_FRACTION: np.where(steps % 2, 0.4, 0.6)})
    frame.loc[7_776, names.MAX_CORRECTION] = 9.5
    places, largest = binned([frame, frame], names.MAX_CORRECTION)
    assert len(places) <= MOST_POINTS
    assert largest.max() == 9.5
    assert abs(places[largest.argmax()] - 7_777) <= 34
    assert binned([frame], names.ESS_FRACTION)[1] == pytest.approx(0.5, abs=0.01)


def test_a_short_run_keeps_every_step() -> None:
    frame = pd.DataFrame({"step": [1, 2, 3], names.ESS_FRACTION: [0.5, np.nan, 0.7]})
    places, values = binned([frame], names.ESS_FRACTION)
    assert list(places) == [1, 3]
    assert list(values) == [0.5, 0.7]


def test_a_column_that_no_table_has_is_an_empty_line() -> None:
    assert len(binned([pd.DataFrame({"step": [1]})], names.ESS_FRACTION)[0]) == 0


def test_health_is_of_the_methods_with_relations_alone_in_four_panels() -> None:
    made = setup()
    lines = traces(proposal_health(made, details([made])))
    assert {line.legendgroup for line in lines} == {"uniform", "gated", "static", "rapid"}
    assert {line.yaxis for line in lines} == {"y", "y2", "y3", "y4"}


def test_a_reliability_diagram_leaves_empty_bins_out() -> None:
    made = setup(methods=("rapid",))
    teacher = made.students["rapid"][0].teacher_id
    (figure,) = calibrations([made], Details(calibration={teacher: calibration()}))
    after = next(trace for trace in traces(figure) if trace.name == "after")
    assert len(after.x) == 12
    assert "2.2859" in drawn(figure).caption
    assert "0.0412 to 0.0071" in drawn(figure).caption


def test_a_teacher_without_a_calibration_document_is_missing_by_name() -> None:
    (made,) = calibrations([setup()], Details())
    assert isinstance(made, Missing)
    assert made.where.startswith("agnews, teacher ")


def test_the_papers_methods_have_a_colour_and_a_symbol_of_their_own() -> None:
    for chosen in (style.COLOURS, style.SYMBOLS):
        assert {*PAPER_METHODS} < set(chosen) <= set(METHODS)
        assert len(set(chosen.values())) == len(chosen)


def test_any_other_method_keeps_one_colour_that_is_not_one_of_theirs() -> None:
    assert style.colour("someone_elses") == style.colour("someone_elses")
    assert not {*style.OTHER_COLOURS} & {*style.COLOURS.values()}
    assert style.symbol("someone_elses") not in style.SYMBOLS.values()
    assert method_label("someone_elses") == "someone_elses"


def test_a_marked_method_has_a_dagger_and_its_reason_in_the_caption() -> None:
    made = drawn(gains(setup(marks={"rapid": ("biased: clipped",)})))
    assert made.figure.layout.yaxis.ticktext[-1] == "RAPID \u2020"
    assert "\u2020 needs a remark: RAPID (biased: clipped)." in made.caption


def test_names_from_the_store_reach_plotly_as_text_and_files_as_words() -> None:
    hostile = setup(methods=(*PAPER_METHODS, HOSTILE), label=HOSTILE, dataset=HOSTILE)
    for drawing in figures_section([hostile], details([hostile])).drawings:
        assert "<script" not in str(drawing.figure.to_dict())
        assert set(drawing.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_.")


def test_figures_of_setups_that_differ_in_punctuation_alone_have_names_of_their_own() -> None:
    setups = [setup(label="agnews, rate 1"), setup(label="agnews; rate 1")]
    drawings = figures_section(setups, details(setups)).drawings
    assert len({drawing.name for drawing in drawings}) == len(drawings)


def test_figures_are_transparent_so_that_they_stand_on_light_and_dark() -> None:
    for template in (style.LIGHT, style.DARK):
        assert template["layout"]["paper_bgcolor"] == template["layout"]["plot_bgcolor"] == "rgba(0,0,0,0)"


def test_figures_and_report_import_no_torch() -> None:
    code = "import sys, rapid_lab.comparison.figures, rapid_lab.comparison.report; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
