"""Who stands beside whom: the same data, teacher and seeds, and settings so far as they concern the method."""

import dataclasses
import random
from typing import Any

import pytest
from comparison.stores import make_student

from rapid_lab.comparison.pairing import paired_seeds
from rapid_lab.comparison.records import Excluded, Setup, Student
from rapid_lab.comparison.relevance import CONCERNED, ELSEWHERE, relevant_settings
from rapid_lab.comparison.setups import build_setups
from rapid_lab.config import SETTINGS
from rapid_lab.objectives import METHODS, PAPER_METHODS


def paper_students(seeds: tuple[int, ...] = (42, 43, 44)) -> list[Student]:
    return [make_student(method, seed=seed) for method in PAPER_METHODS for seed in seeds]


def only(students: list[Student]) -> Setup:
    (setup,), excluded = build_setups(students)
    assert excluded == []
    return setup


def test_the_papers_six_methods_make_one_setup_in_the_papers_order_whatever_the_order_of_runs() -> None:
    students = paper_students()
    random.Random(1).shuffle(students)
    setup = only(students)
    assert (setup.label, setup.dataset, setup.seeds) == ("agnews", "agnews", (42, 43, 44))
    assert tuple(setup.students) == PAPER_METHODS
    assert all([student.seed for student in cell] == [42, 43, 44] for cell in setup.students.values())
    assert (setup.marks, setup.unpaired, setup.notes) == ({}, {}, ())


def test_every_setting_separates_those_it_concerns_and_is_named_once() -> None:
    assert set(CONCERNED) <= set(SETTINGS)
    assert not set(CONCERNED) & ELSEWHERE
    everything = {name for method in METHODS for name in relevant_settings(method)}
    left_out = {name for name in SETTINGS if name not in everything}
    unnumbered = {name for name, setting in SETTINGS.items() if not setting.affects_numbers}
    teachers = {name for name in SETTINGS if name.startswith("teacher_")}
    assert left_out == ELSEWHERE | unnumbered | teachers


@pytest.mark.parametrize(
    ("setting", "value", "concerned"),
    [
        ("learning_rate", 1e-4, PAPER_METHODS),
        ("kd_temperature", 4.0, PAPER_METHODS[1:]),
        ("relation_budget", 64, PAPER_METHODS[2:]),
        ("relation_weight", 0.5, PAPER_METHODS[2:]),
        ("gate_strength", 1.0, PAPER_METHODS[3:]),
        ("reliability_floor", 0.1, PAPER_METHODS[3:]),
        ("pair_defense", 0.2, PAPER_METHODS[4:]),
        ("pilot_fraction", 0.2, PAPER_METHODS[5:]),
        ("warmup_epochs", 1, PAPER_METHODS[5:]),
    ],
)
def test_a_setting_separates_only_the_methods_it_concerns(
    setting: str, value: float, concerned: tuple[str, ...]
) -> None:
    change: dict[str, Any] = {setting: value}
    changed = [make_student(method, **change) for method in concerned]
    (first, second), excluded = build_setups([make_student(method) for method in PAPER_METHODS] + changed)
    assert excluded == []
    assert tuple(first.students) == tuple(second.students) == PAPER_METHODS
    default = SETTINGS[setting].default
    assert {first.label, second.label} == {f"agnews, {setting} {default}", f"agnews, {setting} {value}"}
    shared = [method for method in PAPER_METHODS if first.students[method] == second.students[method]]
    assert shared == [method for method in PAPER_METHODS if method not in concerned]


def test_budgets_are_setups_in_the_order_of_their_size_and_say_only_what_differs() -> None:
    students = [make_student("student_ce"), make_student("exact")]
    students += [make_student("rapid", relation_budget=budget) for budget in (256, 16, 64)]
    setups, _ = build_setups(students)
    assert [setup.label for setup in setups] == [f"agnews, relation_budget {budget}" for budget in (16, 64, 256)]
    assert all(tuple(setup.students) == ("student_ce", "rapid", "exact") for setup in setups)


def test_of_runs_that_mean_the_same_the_nearest_joins_and_the_others_are_named() -> None:
    students = [
        make_student(method, relation_budget=budget) for budget in (64, 256) for method in ("student_ce", "rapid")
    ]
    students.append(make_student("student_ce", relation_budget=100))
    (small, large), (excluded,) = build_setups(students)
    assert small.students["student_ce"][0].settings["relation_budget"] == "64"
    assert large.students["student_ce"][0].settings["relation_budget"] == "256"
    assert excluded.run_id == students[-1].run_id
    assert excluded.reason.endswith("differs from it only in settings that do not concern student_ce")


def test_a_duplicate_of_method_dataset_seed_and_config_counts_once_and_names_the_first() -> None:
    first = make_student()
    same = dataclasses.replace(first, run_id="same")
    other = dataclasses.replace(first, run_id="other", correct=89)
    (setup,), excluded = build_setups([first, same, other])
    assert setup.students == {"rapid": (first,)}
    kept = f"duplicate of run {first.run_id}, the first of this method, dataset, seed and config"
    assert excluded == [
        Excluded("same", first.name, f"{kept}, with the same count"),
        Excluded("other", first.name, f"{kept}, though the counts differ (89 here, 90 there)"),
    ]


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [
        ({"a": {1, 2, 3}, "b": {1, 2, 3}}, (1, 2, 3)),
        ({"a": {1, 2, 3}, "b": {1, 2}}, (1, 2)),
        ({"a": {1, 2, 3}, "b": {1, 2, 3}, "c": {3}}, (1, 2, 3)),
        ({"a": {1, 2}, "b": {3, 4}}, (1, 2)),
        ({"a": set(range(10)), "b": {0, 1, 2}, "c": {0, 1, 2}, "d": {0, 1, 2}}, (0, 1, 2)),
    ],
)
def test_the_paired_seeds_fill_the_most_cells(seeds: dict[str, set[int]], expected: tuple[int, ...]) -> None:
    assert paired_seeds(seeds) == expected


def test_seeds_that_not_every_method_has_are_left_out_marked_and_named() -> None:
    students = [make_student("student_ce", seed=seed) for seed in (42, 43, 44)]
    students += [make_student("rapid", seed=seed) for seed in (42, 43)]
    (setup,), (excluded,) = build_setups(students)
    assert setup.seeds == (42, 43)
    assert [student.seed for student in setup.students["student_ce"]] == [42, 43]
    assert setup.marks == {"student_ce": ("unpaired seed 44 left out: not every method has them",)}
    assert (excluded.name, excluded.reason) == (
        "student_ce agnews seed 44",
        "unpaired: seed 44 is not run by enough of the methods beside it",
    )


def test_a_method_that_lacks_paired_seeds_stands_apart_with_a_mark() -> None:
    setup = only([*paper_students(), make_student("exact", seed=43)])
    assert "exact" not in setup.students
    assert [student.seed for student in setup.unpaired["exact"]] == [43]
    assert setup.marks == {"exact": ("unpaired: seed 43 only, without seeds 42, 44 of the other methods",)}


def test_twin_and_real_data_never_share_a_setup_even_under_one_name() -> None:
    real = [make_student("student_ce"), make_student("rapid")]
    disguised = [
        dataclasses.replace(student, run_id=student.run_id[::-1], data_source="twin", config_id="t") for student in real
    ]
    setups, _ = build_setups([*real, *disguised, make_student("rapid", "agnews-twin")])
    sources = [{student.data_source for cell in setup.students.values() for student in cell} for setup in setups]
    assert sorted(map(sorted, sources)) == [["local"], ["twin"], ["twin"]]


def test_one_name_with_different_data_makes_setups_that_say_so() -> None:
    students = [make_student("rapid"), make_student("rapid", data_hash="f" * 64, config_id="other")]
    (first, second), _ = build_setups(students)
    assert {first.label, second.label} == {f"agnews, data {students[0].data_hash[:8]}", "agnews, data ffffffff"}
    assert "The store has agnews with other data hashes (ffffffff)" in (first.notes + second.notes)[0]


def test_students_of_another_teacher_are_not_in_the_comparison_and_it_says_so() -> None:
    students = [make_student("student_ce"), make_student("kd"), make_student("rapid", teacher_id="0" * 16)]
    (first, second), excluded = build_setups(students)
    assert excluded == []
    assert {tuple(first.students), tuple(second.students)} == {("student_ce", "kd"), ("student_ce", "rapid")}
    assert all("teacher" in setup.label for setup in (first, second))
    (note,) = next(setup for setup in (first, second) if "rapid" in setup.students).notes
    assert note == f"Runs whose teacher differs are not in this comparison: KD of teacher {students[1].teacher_id[:8]}."


def test_a_teacher_that_differs_by_a_setting_is_called_by_the_setting() -> None:
    students = [make_student("rapid", teacher_epochs=epochs, teacher_id=str(epochs) * 16) for epochs in (3, 5)]
    setups, _ = build_setups(students)
    assert [setup.label for setup in setups] == ["agnews, teacher_epochs 3", "agnews, teacher_epochs 5"]


def test_biased_estimators_and_mixed_sources_and_devices_are_marked() -> None:
    clipped = [make_student("rapid", seed=seed, correction_clip=2.0) for seed in (42, 43)]
    mixed = [
        make_student("kd", seed=42),
        make_student("kd", seed=43, source_hash="ab" * 32, device="cuda"),
    ]
    setup = only([*clipped, *mixed])
    old = mixed[0].source_hash[:8]
    assert setup.marks == {
        "kd": (f"source differs: {old} (seed 42); abababab (seed 43)", "devices differ: cpu, cuda"),
        "rapid": ("biased: corrections are clipped at 2.0",),
    }
    assert setup.notes == (f"Not all runs have the same source: {old} (KD, RAPID); abababab (KD).",)


def test_datasets_come_in_the_papers_order_and_then_by_name() -> None:
    names = ("zoo", "sst2", "agnews-twin", "agnews")
    students = [make_student("rapid", "agnews", data_hash=name, config_id=name) for name in names]
    students = [dataclasses.replace(student, dataset=name) for student, name in zip(students, names, strict=True)]
    students[2] = dataclasses.replace(students[2], data_source="twin")
    setups, _ = build_setups(students)
    assert [setup.dataset for setup in setups] == ["agnews", "sst2", "agnews-twin", "zoo"]
