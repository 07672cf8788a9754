"""Section 3.6: integer budget accounting, and the paper's relation table without training."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapid_lab.errors import SettingError
from rapid_lab.method.budget import Account, allocate, expected_unique, relation_account
from rapid_lab.method.relations import num_pairs

# Table "relation-detail" of the paper: main, pilot, unique main, unique pilot.
PUBLISHED = {
    ("agnews", "uniform"): (256.0, 0, 200.126, 0),
    ("agnews", "gated"): (256.0, 0, 200.126, 0),
    ("agnews", "static"): (256.0, 0, 191.05, 0),
    ("agnews", "rapid"): (235.2, 20.8, 177.485, 20.285),
    ("sst2", "uniform"): (63.974, 0, 60.076, 0),
    ("sst2", "gated"): (63.974, 0, 60.076, 0),
    ("sst2", "static"): (63.974, 0, 57.634, 0),
    ("sst2", "rapid"): (59.177, 4.797, 52.972, 4.774),
}
SIZES = {"agnews": (108_000, 256), "sst2": (60_614, 64)}


def account(dataset: str, method: str) -> Account:
    train_examples, relation_budget = SIZES[dataset]
    return relation_account(
        train_examples=train_examples,
        batch_size=32,
        relation_budget=relation_budget,
        relation_cap=4096,
        pilot_fraction=0.1,
        epochs=10,
        warmup_epochs=2,
        max_residual_mix=0.5 if method == "rapid" else 0,
        has_uniform_proposal=method in ("uniform", "gated"),
    )


@pytest.mark.parametrize(("dataset", "method"), PUBLISHED)
def test_main_and_pilot_of_the_relation_table_come_out_to_the_third_decimal(dataset: str, method: str) -> None:
    main, pilot, *_ = account(dataset, method)
    assert (round(float(main), 3), round(float(pilot), 3)) == PUBLISHED[dataset, method][:2]


@pytest.mark.parametrize("dataset", SIZES)
@pytest.mark.parametrize("method", ["uniform", "gated"])
def test_unique_pairs_of_uniform_draws_are_the_published_means(dataset: str, method: str) -> None:
    assert account(dataset, method).unique_main == pytest.approx(PUBLISHED[dataset, method][2], abs=0.003)


@pytest.mark.parametrize("dataset", SIZES)
def test_unique_pilots_are_the_published_means(dataset: str) -> None:
    assert account(dataset, "rapid").unique_pilot == pytest.approx(PUBLISHED[dataset, "rapid"][3], abs=0.003)


@pytest.mark.parametrize("dataset", SIZES)
@pytest.mark.parametrize("method", ["static", "rapid"])
def test_unique_pairs_that_depend_on_a_teacher_are_not_guessed(dataset: str, method: str) -> None:
    assert account(dataset, method).unique_main is None
    assert account(dataset, method).unique_union is None


def test_only_the_last_partial_batch_of_sst2_is_enumerated() -> None:
    """60,614 = 1,894 batches of 32 and one of 6, whose 15 pairs pay no pilots."""
    assert account("sst2", "static").main == Fraction(1894 * 64 + 15, 1895)
    assert account("sst2", "rapid").pilot == Fraction(1894 * 6 * 8, 1895 * 10)


def spend(batch_size: int = 32, **changes: Any) -> tuple[int, int, bool]:
    options: dict[str, Any] = {
        "relation_budget": 256,
        "relation_cap": 4096,
        "pilot_fraction": 0.1,
        "is_adaptive": True,
    }
    return allocate(batch_size, **{**options, **changes})


def test_pilots_are_rounded_half_up_not_to_even() -> None:
    assert spend(relation_budget=25) == (22, 3, False)  # 2.5: round() would give 2
    assert spend(relation_budget=256) == (230, 26, False)
    assert spend(relation_budget=64) == (58, 6, False)


def test_pilots_are_rounded_as_decimals() -> None:
    assert spend(relation_budget=50, pilot_fraction=0.29) == (35, 15, False)  # 14.5, though 0.29 * 50 < 14.5


def test_a_pilot_fraction_of_zero_still_gives_one_pilot_while_adaptive() -> None:
    assert spend(pilot_fraction=0) == (255, 1, False)
    assert spend(pilot_fraction=0, is_adaptive=False) == (256, 0, False)


def test_a_pilot_fraction_of_one_leaves_one_main_relation() -> None:
    assert spend(pilot_fraction=1) == (1, 255, False)


def test_a_budget_of_one_gives_no_pilot() -> None:
    assert spend(relation_budget=1) == (1, 0, False)


@pytest.mark.parametrize("budget", [496, 497, 10_000])
def test_a_budget_of_all_pairs_or_more_enumerates_and_spends_no_pilots(budget: int) -> None:
    assert spend(relation_budget=budget, relation_cap=10_000) == (496, 0, True)


def test_the_cap_bounds_the_budget() -> None:
    assert spend(relation_cap=100) == (90, 10, False)


@pytest.mark.parametrize("batch_size", [0, 1])
def test_fewer_than_two_examples_spend_nothing(batch_size: int) -> None:
    assert spend(batch_size) == (0, 0, False)


@given(st.integers(0, 80), st.integers(1, 5000), st.integers(1, 5000), st.floats(0, 1), st.booleans())
def test_main_and_pilot_are_exactly_the_effective_budget(
    batch_size: int, budget: int, cap: int, fraction: float, is_adaptive: bool
) -> None:
    spent = allocate(
        batch_size, relation_budget=budget, relation_cap=cap, pilot_fraction=fraction, is_adaptive=is_adaptive
    )
    effective = min(num_pairs(batch_size), budget, cap)
    assert spent.main + spent.pilot == effective
    assert spent.pilot >= 0
    assert spent.main >= min(1, effective)
    assert spent.is_enumerated == (effective == num_pairs(batch_size) > 0)


@given(st.integers(0, 6), st.integers(1, 6))
def test_expected_unique_is_the_mean_over_all_sequences(draws: int, population: int) -> None:
    total = sum(
        len({sequence // population**position % population for position in range(draws)})
        for sequence in range(population**draws)
    )
    assert expected_unique(draws, population) == pytest.approx(total / population**draws)


@pytest.mark.parametrize(
    ("name", "value"),
    [("relation_budget", 0), ("relation_cap", -1), ("pilot_fraction", 1.1), ("pilot_fraction", float("nan"))],
)
def test_a_budget_out_of_range_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(SettingError, match=rf"^{name} must be .*, got {value!r}: "):
        spend(**{name: value})
