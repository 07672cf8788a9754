"""Every published cell beside ours, by rules that can fail."""

import dataclasses
import json
import math
from collections import Counter
from fractions import Fraction
from importlib import resources
from typing import Any

import pandas as pd
import pytest
from comparison.paper_runs import BATCHES, setup

from rapid_lab import names
from rapid_lab.comparison.claims import claims_section
from rapid_lab.comparison.comparability import settings_that_matter
from rapid_lab.comparison.judging import Judged, judge
from rapid_lab.comparison.published import Claim, protocol, published, published_claims
from rapid_lab.comparison.records import Details, Setup, Student
from rapid_lab.comparison.statistics import distinct_variance
from rapid_lab.config import DATASETS
from rapid_lab.objectives import PAPER_METHODS


def papers(dataset: str = "agnews", **changes: Any) -> Setup:
    """The paper's own counts as if we had run them."""
    counts = published()["correct_by_seed"][dataset.split("[")[0].removesuffix("-twin")]
    return setup({method: counts[method] for method in PAPER_METHODS}, dataset=dataset, **changes)


def spending(method: str, unique_main: Fraction, unique_pilot: Fraction = Fraction(0), **changes: Any) -> Setup:
    """Three students that spent the paper's budget on AG News: 33,750 steps, 26 pilots in 27,000 of them."""
    steps = 10 * BATCHES["agnews"]
    pilot = 26 * 27_000 if method == "rapid" else 0
    relations = {
        "main": 256 * steps - pilot,
        "pilot": pilot,
        "unique_main": round(unique_main * steps),
        "unique_pilot": round(unique_pilot * steps),
        "unique_union": 0,
    }
    return setup({method: [7000, 7001, 7002]}, relations=relations, **changes)


def claim(kind: str, method: str, what: str, dataset: str = "agnews") -> Claim:
    return next(
        found
        for found in published_claims()
        if (found.kind, found.method, found.what, found.dataset) == (kind, method, what, dataset)
    )


def every(setups: list[Setup], kind: str) -> list[Judged]:
    return [judge(found, setups, Details()) for found in published_claims() if found.kind == kind]


def steps_of(students: tuple[Student, ...], rows: list[tuple[int, int, int, int]]) -> dict[str, pd.DataFrame]:
    columns = [
        names.RELATIONS_MAIN,
        names.RELATIONS_PILOT,
        names.RELATIONS_UNIQUE_MAIN,
        names.RELATIONS_UNIQUE_PILOT,
    ]
    return {student.run_id: pd.DataFrame(rows, columns=columns, dtype=float) for student in students}


def test_the_package_carries_the_papers_110_cells() -> None:
    text = resources.files("rapid_lab.comparison").joinpath("published.json").read_text(encoding="utf-8")
    assert json.loads(text) == published()
    assert Counter(found.kind for found in published_claims()) == {
        "accuracy": 12,
        "seed accuracy": 36,
        "minutes": 12,
        "peak memory": 10,
        "relations": 32,
        "teacher": 8,
    }
    assert len(set(published_claims())) == 110


def test_printed_cells_have_their_printed_digits() -> None:
    assert claim("accuracy", "student_ce", "mean ± std").text == "94.154 ± 0.124"
    assert claim("accuracy", "gated", "mean ± std", "sst2").text == "88.800 ± 0.532"
    assert claim("accuracy", "kd", "mean ± std").value == Fraction(94206, 1000)
    assert claim("relations", "static", "unique_main").text == "191.050"
    assert claim("teacher", "", "calibration_temperature", "sst2").text == "1.8200"
    assert claim("minutes", "kd", "minutes").text == "85.9 ± 31.2"


@pytest.mark.parametrize("dataset", ["agnews", "sst2"])
def test_the_papers_protocol_is_our_default(dataset: str) -> None:
    preset = DATASETS[dataset]
    known = protocol(dataset)
    assert {name: known[name] for name in preset if name in known} == {
        name: value for name, value in preset.items() if name != "max_length"
    }
    assert (known["epochs"], known["pilot_fraction"], known["student_layers"]) == (10, 0.1, 4)


def test_an_empty_store_leaves_every_cell_not_run() -> None:
    section = claims_section([], Details())
    assert section.paragraphs[0] == (
        "Of the paper's 110 published cells: 0 reproduced, 0 not reproduced, 0 not comparable, 110 not run."
    )
    assert [len(table.rows) for table in section.tables] == [6, 12, 36, 12, 10, 32, 8]
    assert section.tables[1].rows[0][-1].text == "no complete run of student_ce on agnews"


def test_the_papers_own_counts_reproduce_its_accuracies() -> None:
    setups = [papers("agnews"), papers("sst2")]
    for kind, count in (("accuracy", 12), ("seed accuracy", 36)):
        judged = every(setups, kind)
        assert [item.outcome for item in judged] == ["reproduced"] * count
        assert [item.text for item in judged] == [item.claim.text.split(" ")[0] for item in judged]


def test_the_width_of_the_interval_is_printed() -> None:
    """7156, 7167, 7144 of 7,600: sample std 11.504 examples, half a width 4.3027 * 11.504 / sqrt 3 = 28.58."""
    judged = judge(claim("accuracy", "student_ce", "mean ± std"), [papers()], Details())
    assert judged.reason == "inside our 95 % t interval of the mean, 93.778 to 94.530 (width 0.752, 3 seeds)"


def test_a_published_mean_outside_our_interval_is_not_reproduced() -> None:
    judged = judge(claim("accuracy", "rapid", "mean ± std"), [setup({"rapid": [7100, 7101, 7102]})], Details())
    assert (judged.outcome, judged.text) == ("not reproduced", "93.434")
    assert judged.reason == "outside our 95 % t interval of the mean, 93.402 to 93.467 (width 0.065, 3 seeds)"
    seed = judge(claim("seed accuracy", "rapid", "seed 42"), [setup({"rapid": [7100, 7101, 7102]})], Details())
    assert (seed.outcome, seed.text) == ("not reproduced", "93.421")
    assert "prediction interval of one more seed, 93.369 to 93.500" in seed.reason


def test_more_seeds_than_the_papers_will_do_and_fewer_will_not() -> None:
    wanted = claim("accuracy", "rapid", "mean ± std")
    five = setup({"rapid": [7165, 7161, 7161, 7160, 7163]}, seeds=(42, 43, 44, 45, 46))
    assert judge(wanted, [five], Details()).outcome == "reproduced"
    two = setup({"rapid": [7165, 7161]}, seeds=(42, 43))
    assert judge(wanted, [two], Details()).reason == "fewer seeds: 42, 43, the paper's are 42, 43, 44"
    others = setup({"rapid": [7165, 7161, 7161]}, seeds=(1, 2, 3))
    assert judge(wanted, [others], Details()).outcome == "not comparable"
    missing = judge(claim("seed accuracy", "rapid", "seed 44"), [two], Details())
    assert (missing.outcome, missing.text) == ("not run", "")
    assert missing.reason == "no run of rapid on agnews with seed 44 has read the report split"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dataset": "agnews-twin", "data_source": "twin"}, "twin: agnews-twin is generated text, not agnews"),
        ({"dataset": "agnews[60324]"}, "other data: agnews[60324] is not the official agnews"),
        ({"given": {"student_model": "other/model"}}, "other student model: other/model, the paper's is distilbert-"),
        ({"given": {"student_layers": 6}}, "other student_layers: 6, the paper's is 4"),
        ({"given": {"teacher_model": "a/b"}}, "other teacher model: a/b, the paper's is bert-base-uncased"),
        ({"given": {"relation_budget": 64}}, "other budget: 64, the paper's is 256"),
        ({"given": {"relation_cap": 100}}, "other budget: capped at 100, the paper's is 256"),
        ({"given": {"epochs": 3}}, "other epochs: 3, the paper's is 10"),
        ({"given": {"gate_strength": 0.25}}, "other gate_strength: 0.25, the paper's is 0.5"),
        ({"total": 1000}, "other report split: 1,000 examples, the paper's has 7,600"),
        ({"is_biased": True}, "corrections are clipped, so the estimator is biased"),
        ({"settings": {}}, "other batch_size: not recorded, the paper's is 32"),
    ],
)
def test_what_is_not_the_papers_protocol_is_not_comparable_and_says_why(changes: dict[str, Any], reason: str) -> None:
    judged = judge(claim("accuracy", "rapid", "mean ± std"), [papers(**changes)], Details())
    assert judged.outcome == "not comparable"
    assert reason in judged.reason
    assert judged.text != ""  # ours is shown all the same


def test_every_difference_from_the_protocol_is_named() -> None:
    given = {"epochs": 3, "relation_budget": 64}
    judged = judge(claim("accuracy", "rapid", "mean ± std"), [papers(given=given)], Details())
    assert judged.reason == "other budget: 64, the paper's is 256; other epochs: 3, the paper's is 10"


def test_settings_that_a_method_does_not_read_do_not_matter_to_it() -> None:
    given = {"relation_budget": 64, "gate_strength": 0.1, "teacher_model": "other"}
    judged = {m: judge(claim("accuracy", m, "mean ± std"), [papers(given=given)], Details()) for m in PAPER_METHODS}
    assert judged["student_ce"].outcome == "reproduced"
    assert judged["kd"].reason == "other teacher model: other, the paper's is bert-base-uncased"
    assert "gate_strength" not in judged["uniform"].reason
    assert "gate_strength" in judged["gated"].reason


def test_a_local_folder_named_as_the_model_is_that_model() -> None:
    given = {"student_model": "/models/distilbert-base-uncased", "teacher_model": "google-bert/bert-base-uncased"}
    judged = judge(claim("accuracy", "rapid", "mean ± std"), [papers(given=given)], Details())
    assert judged.outcome == "reproduced"


def test_the_nearest_setup_is_chosen_and_not_the_best_looking() -> None:
    twin, other = papers("agnews-twin", data_source="twin"), papers(given={"epochs": 3, "relation_budget": 64})
    near = setup({"rapid": [7000, 7001, 7002, 7003]})  # the paper's settings, though its numbers are far
    judged = judge(claim("accuracy", "rapid", "mean ± std"), [twin, other, near], Details())
    assert (judged.outcome, judged.students) == ("not reproduced", near.students["rapid"])
    judged = judge(claim("accuracy", "rapid", "mean ± std"), [twin, other], Details())
    assert judged.students == other.students["rapid"]  # one reason speaks against the twin, two against this


def test_a_method_without_all_seeds_of_the_others_is_judged_by_its_own() -> None:
    given = papers()
    moved = dataclasses.replace(
        given,
        students={m: s for m, s in given.students.items() if m != "rapid"},
        unpaired={"rapid": given.students["rapid"]},
    )
    assert judge(claim("accuracy", "rapid", "mean ± std"), [moved], Details()).outcome == "reproduced"


def test_time_and_memory_are_compared_only_on_the_papers_gpu() -> None:
    wanted = claim("minutes", "rapid", "minutes")
    assert judge(wanted, [papers(train_minutes=62.4)], Details()).outcome == "reproduced"
    assert judge(wanted, [papers(train_minutes=62.44)], Details()).outcome == "reproduced"  # prints as 62.4
    assert judge(wanted, [papers(train_minutes=62.46)], Details()).outcome == "not reproduced"
    for device, hardware in (("cuda", "NVIDIA GeForce RTX 3080 Ti"), ("cpu", "some processor")):
        judged = judge(wanted, [papers(train_minutes=62.4, device=device, hardware=hardware)], Details())
        assert judged.outcome == "not comparable"
        assert judged.reason == f"other hardware: {hardware}, the paper's is one NVIDIA GeForce RTX 3080"
    memory = judge(claim("peak memory", "rapid", "MB"), [papers(peak_mb=2127.4)], Details())
    assert (memory.outcome, memory.text) == ("reproduced", "2127")


def test_main_and_pilot_counts_are_equal_as_printed_or_not_reproduced() -> None:
    given = spending("rapid", Fraction(0))
    judged = {what: judge(claim("relations", "rapid", what), [given], Details()) for what in ("main", "pilot")}
    assert [(item.text, item.outcome) for item in judged.values()] == [
        ("235.200", "reproduced"),
        ("20.800", "reproduced"),
    ]
    student = given.students["rapid"][0]
    off = {**student.relations, "main": student.relations["main"] - 40}  # 0.0012 a batch less
    wrong = dataclasses.replace(given, students={"rapid": (dataclasses.replace(student, relations=off),)})
    assert judge(claim("relations", "rapid", "main"), [wrong], Details()).outcome == "not reproduced"


def test_relation_counts_are_held_to_what_they_depend_on() -> None:
    models = {"student_model": "other", "teacher_model": "other", "student_layers": 2}
    counts = spending("rapid", Fraction(177485, 1000), given=models)
    assert judge(claim("relations", "rapid", "main"), [counts], Details()).outcome == "reproduced"
    unique = judge(claim("relations", "rapid", "unique_main"), [counts], Details())
    assert unique.outcome == "not comparable"
    assert "other student model" in unique.reason
    budget = spending("rapid", Fraction(0), given={"relation_budget": 64})
    assert judge(claim("relations", "rapid", "main"), [budget], Details()).outcome == "not comparable"
    twin = spending("rapid", Fraction(0), dataset="agnews-twin", data_source="twin")
    assert judge(claim("relations", "rapid", "main"), [twin], Details()).outcome == "not comparable"
    assert settings_that_matter(claim("relations", "uniform", "main")) == ("batch_size", "relation_budget")
    assert settings_that_matter(claim("relations", "uniform", "unique_main")) == ("batch_size", "relation_budget")
    assert "epochs" in settings_that_matter(claim("relations", "rapid", "unique_pilot"))


@pytest.mark.parametrize(
    ("above", "outcome"),
    [(Fraction("0.045"), "reproduced"), (Fraction("0.055"), "not reproduced"), (-Fraction("0.055"), "not reproduced")],
)
def test_distinct_pairs_are_held_to_four_standard_errors_of_the_steps(above: Fraction, outcome: str) -> None:
    """Within its group a step has variance 8; 101,250 steps on either side: 4 sqrt(2 * 8 / 101250) = 0.0503."""
    given = spending("static", Fraction("191.05") + above)
    # The groups are 30 apart: that is the allocation's doing, and no chance.
    rows = [(256, 0, 189, 0), (256, 0, 193, 0), (230, 26, 161, 0), (230, 26, 165, 0)]
    details = Details(steps=steps_of(given.students["static"], rows))
    judged = judge(claim("relations", "static", "unique_main"), [given], details)
    assert judged.outcome == outcome
    assert "4 standard errors of 0.0126" in judged.reason


def test_without_step_tables_uniform_draws_have_a_closed_form_and_others_none() -> None:
    wanted = claim("relations", "uniform", "unique_main")
    error = math.sqrt(distinct_variance(256, 496) * 2 / 101_250)
    for distance, outcome in ((3.9, "reproduced"), (4.2, "not reproduced")):
        given = spending("uniform", wanted.value + Fraction(distance * error))
        judged = judge(wanted, [given], Details())
        assert judged.outcome == outcome
        assert f"standard errors of {error:.4f}" in judged.reason
    other = judge(claim("relations", "static", "unique_main"), [spending("static", Fraction("191.05"))], Details())
    assert (other.outcome, other.reason) == ("not comparable", "no step table, so no standard error")


def test_the_pilots_have_the_closed_form_of_26_draws_in_eight_of_ten_epochs() -> None:
    wanted = claim("relations", "rapid", "unique_pilot")
    error = math.sqrt(0.8 * distinct_variance(26, 496) * 2 / 101_250)
    for distance, outcome in ((3.8, "reproduced"), (4.6, "not reproduced")):  # the third decimal is a third of it
        given = spending("rapid", Fraction(0), wanted.value + Fraction(distance * error))
        judged = judge(wanted, [given], Details())
        assert (judged.outcome, f"{error:.4f}" in judged.reason) == (outcome, True)
    none = judge(claim("relations", "static", "unique_pilot"), [spending("static", Fraction(0))], Details())
    assert (none.outcome, none.text) == ("reproduced", "0.000")


def test_what_a_run_has_not_logged_is_not_run() -> None:
    given = papers(train_minutes=math.nan, peak_mb=math.nan, relations={})
    kinds = ("minutes", "peak memory", "relations")
    judged = [judge(found, [given], Details()) for found in published_claims() if found.kind in kinds]
    ours = [item for item in judged if item.claim.dataset == "agnews"]
    assert {(item.outcome, item.reason, item.text) for item in ours} == {
        ("not run", "no run with this figure in the store", "")
    }


def test_a_step_table_without_the_counts_is_none() -> None:
    given = spending("static", Fraction("191.05"))
    tables = {student.run_id: pd.DataFrame({"step": [1, 2]}) for student in given.students["static"]}
    judged = judge(claim("relations", "static", "unique_main"), [given], Details(steps=tables))
    assert judged.reason == "no step table, so no standard error"


def test_a_teacher_is_shown_beside_the_papers_and_not_judged() -> None:
    figures = {
        "teacher/report_accuracy": 0.94395,
        "teacher/calibration_temperature": 2.2859,
        "teacher/selection_nll_before": 0.3163,
        "teacher/selection_nll_after": 0.185,
    }
    details = Details(teachers={"teacher": figures})
    judged = [judge(found, [papers()], details) for found in published_claims() if found.kind == "teacher"]
    assert [item.outcome for item in judged] == ["not comparable"] * 4 + ["not run"] * 4
    assert [item.text for item in judged[:4]] == ["94.395", "2.2859", "0.3163", "0.1850"]
    assert "no spread to judge by" in judged[0].reason


def test_a_teachers_calibration_document_serves_where_its_metrics_are_missing() -> None:
    document = {"temperature": 1.5, "before": {"nll": 0.25}, "after": {"nll": 0.2}}
    details = Details(calibration={"teacher": document})
    judged = [judge(found, [papers()], details) for found in published_claims() if found.kind == "teacher"][:4]
    assert [item.text for item in judged] == ["", "1.5000", "0.2500", "0.2000"]
    assert [item.outcome for item in judged] == ["not run", *["not comparable"] * 3]


def test_our_cell_has_its_runs_and_the_setups_marks() -> None:
    given = dataclasses.replace(papers(), marks={"student_ce": ("two source hashes",)})
    section = claims_section([given], Details())
    accuracy, seeds = section.tables[1], section.tables[2]
    runs = tuple(student.run_id for student in given.students["student_ce"])
    assert accuracy.rows[0][4].run_ids == runs
    assert accuracy.rows[0][4].marks == ("two source hashes",)
    assert [row[4].run_ids for row in seeds.rows[:3]] == [(run,) for run in runs]
    assert section.paragraphs[0].startswith("Of the paper's 110 published cells: ")
    assert sum(int(row[-1].text) for row in section.tables[0].rows) == 110
