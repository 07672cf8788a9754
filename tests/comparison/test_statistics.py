"""The tests on seeds against definitions, scipy, and cases worked by hand."""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rapid_lab.comparison.published import published
from rapid_lab.comparison.statistics import (
    ALPHA,
    PairTest,
    bootstrap_interval,
    compare_examples,
    compare_methods,
    detectable_mean,
    distinct_resamples,
    distinct_variance,
    holm,
    holm_threshold,
    honest_miss_rate,
    seeds_needed,
    sign_flip_p,
    sign_test_p,
    smallest_p,
    t_half_width,
)
from rapid_lab.errors import DataError

small_differences = st.lists(st.integers(-6, 6), min_size=1, max_size=9)
p_families = st.lists(st.integers(1, 64).map(lambda top: Fraction(top, 512)), min_size=1, max_size=8)


def enumerated_p(differences: Sequence[int]) -> Fraction:
    observed = abs(sum(differences))
    flips = list(itertools.product((1, -1), repeat=len(differences)))
    sums = [sum(sign * value for sign, value in zip(signs, differences, strict=True)) for signs in flips]
    return Fraction(sum(abs(total) >= observed for total in sums), len(flips))


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([3, 1, 2], Fraction(1, 4)),  # 6 and -6 of 8
        ([3, -1, 2], Fraction(1, 2)),  # 6, 4, -4, -6 of 8: as far counts
        ([1, 1, 1, -1], Fraction(5, 8)),  # 1 + 4 + 4 + 1 of 16
        ([1, 2, -3], Fraction(1)),  # a sum of zero is as near as it gets
        ([0, 0, 0], Fraction(1)),
        ([7], Fraction(1)),
    ],
)
def test_sign_flips_worked_by_hand(differences: list[int], p: Fraction) -> None:
    assert sign_flip_p(differences) == p


@given(small_differences)
def test_sign_flip_p_is_the_share_of_all_flips(differences: list[int]) -> None:
    assert sign_flip_p(differences) == enumerated_p(differences)


@given(st.lists(st.integers(-6, 6), min_size=2, max_size=8))
def test_sign_flip_p_agrees_with_scipys_exact_test(differences: list[int]) -> None:
    values = np.array(differences, dtype=np.float64)  # 256 flips at most, and scipy takes all where it may draw more
    outcome = stats.permutation_test((values,), np.sum, permutation_type="samples", n_resamples=9999)
    assert float(sign_flip_p(differences)) == pytest.approx(outcome.pvalue, rel=1e-12)


@given(small_differences, st.integers(1, 1000))
def test_zeros_order_sign_and_unit_do_not_change_a_sign_flip_p(differences: list[int], unit: int) -> None:
    p = sign_flip_p(differences)
    assert sign_flip_p([0, *differences, 0]) == p
    assert sign_flip_p([-unit * value for value in reversed(differences)]) == p


@pytest.mark.parametrize("num_seeds", [1, 2, 3, 6, 16, 31, 63, 64, 65, 200])
def test_seeds_that_all_agree_have_the_smallest_attainable_p(num_seeds: int) -> None:
    assert sign_flip_p(range(1, num_seeds + 1)) == smallest_p(num_seeds) == Fraction(2, 2**num_seeds)


@pytest.mark.parametrize(("num_seeds", "num_against"), [(30, 9), (40, 10), (63, 20), (64, 31)])
def test_many_seeds_are_counted_exactly(num_seeds: int, num_against: int) -> None:
    """Differences of one size make it the sign test, whose p is a binomial tail in whole numbers."""
    tail = sum(math.comb(num_seeds, count) for count in range(num_against + 1))
    differences = [-5] * num_against + [5] * (num_seeds - num_against)
    assert sign_flip_p(differences) == Fraction(2 * tail, 2**num_seeds)


def test_beyond_64_seeds_the_p_is_right_to_double_precision() -> None:
    tail = Fraction(2 * sum(math.comb(150, count) for count in range(61)), 2**150)
    assert float(sign_flip_p([-3] * 60 + [3] * 90)) == pytest.approx(float(tail), rel=1e-12)


def test_three_seeds_cannot_reach_the_level_and_six_can() -> None:
    assert [smallest_p(seeds) <= ALPHA for seeds in (3, 5, 6)] == [False, False, True]
    assert (seeds_needed(1), seeds_needed(15), seeds_needed(30)) == (6, 10, 11)


@pytest.mark.parametrize(
    ("differences", "p"),
    [([3, 1, 2, -1, 0], 0.625), ([2, 1, 5], 0.25), ([0, 0], 1.0), ([1] * 6, 0.03125)],  # 0.625 = 2 (1 + 4) / 16
)
def test_sign_tests_worked_by_hand(differences: list[int], p: float) -> None:
    assert sign_test_p(differences) == pytest.approx(p, rel=1e-12)


def test_holm_worked_by_hand() -> None:
    p_values = [Fraction(text) for text in ("0.01", "0.04", "0.03", "0.005")]
    assert holm(p_values) == [Fraction(text) for text in ("0.03", "0.06", "0.06", "0.02")]
    assert holm([Fraction(1, 2), Fraction(3, 4)]) == [1, 1]
    assert holm([]) == []


@given(p_families)
def test_holm_rejects_by_steps_until_the_first_that_fails(p_values: list[Fraction]) -> None:
    adjusted = holm(p_values)
    rejected = 0
    while rejected < len(p_values) and sorted(p_values)[rejected] <= ALPHA / (len(p_values) - rejected):
        rejected += 1
    assert sum(p <= ALPHA for p in adjusted) == rejected
    assert [p_values[i] <= holm_threshold(p_values, i) for i in range(len(p_values))] == [p <= ALPHA for p in adjusted]


@pytest.mark.parametrize(
    ("differences", "mean"),
    [
        # Six seeds, one pair: 2/64 rejects, 4/64 does not, so all six must be positive; the lowest is 3 below the mean.
        ([1, 2, 3, 4, 5, 9], Fraction(19, 6)),
        ([-1, -2, -3, -4, -5, -9], Fraction(19, 6)),
        # Without a direction the harder one counts: the highest is 5 above the mean.
        ([-3, -2, -1, 0, 1, 5], Fraction(31, 6)),
        # Seven: 6/128 rejects, so two subsets may stay as far. Means below the centre: 6, (6+4)/2, 4, ...
        ([4, 6, 9, 10, 12, 14, 15], Fraction(29, 7)),
        ([8] * 6, Fraction(1, 6)),
    ],
)
def test_smallest_showable_means_worked_by_hand(differences: list[int], mean: Fraction) -> None:
    assert detectable_mean(differences, ALPHA) == mean


@given(st.lists(st.integers(-9, 9), min_size=6, max_size=9))
def test_the_smallest_showable_mean_is_the_first_that_the_test_rejects(differences: list[int]) -> None:
    count, total = len(differences), sum(differences)
    direction = 1 if total > 0 else -1
    centred = [direction * (count * value - total) for value in differences]
    first = next(step for step in itertools.count() if enumerated_p([value + step for value in centred]) <= ALPHA)
    found = detectable_mean(differences, ALPHA)
    assert found is not None
    assert found == Fraction(first, count) if total else found >= Fraction(first, count)
    # What is rejected is at least that large, and what is smaller is not rejected.
    assert (sign_flip_p(differences) <= ALPHA) == (abs(Fraction(total, count)) >= found)


def test_no_mean_can_be_shown_where_the_smallest_p_is_too_large() -> None:
    assert detectable_mean([100, 100, 100], ALPHA) is None
    assert detectable_mean([1] * 9, ALPHA / 15) is None
    assert detectable_mean([1] * 10, ALPHA / 15) == Fraction(1, 10)


def test_beyond_64_seeds_the_smallest_showable_mean_goes_by_whole_examples() -> None:
    differences = [1, 3] * 40
    found = detectable_mean(differences, ALPHA)
    assert found == 1  # centred -1 and 1; moved by one: 0 and 2, forty of one sign
    assert sign_flip_p([value - 2 + 1 for value in differences]) == smallest_p(40)


def test_three_seeds_bootstrap_to_their_extremes() -> None:
    """Ten resamples, and all of one seed comes up in 1/27 of them: more than the 2.5 % cut off."""
    assert bootstrap_interval([2, -1, 5]) == (-1.0, 5.0)
    assert (distinct_resamples(3), distinct_resamples(6)) == (10, 462)
    assert bootstrap_interval([4, 4, 4]) == (4.0, 4.0)


def test_the_seed_interval_is_that_of_all_resamples() -> None:
    differences = [0, 1, 2, 3, 10]
    means = [sum(drawn) / 5 for drawn in itertools.product(differences, repeat=5)]
    low, high = np.quantile(means, [0.025, 0.975])
    assert bootstrap_interval(differences) == pytest.approx((low, high), abs=0.2)  # 0.2 is one step of the mean


def test_mcnemar_worked_by_hand() -> None:
    """10 against 2 of 12: 2 (1 + 12 + 66) / 4096."""
    first = np.array([True] * 10 + [False] * 2 + [True] * 80 + [False] * 8)
    second = np.array([False] * 10 + [True] * 2 + [True] * 80 + [False] * 8)
    test = compare_examples(first, second)
    assert (test.only_method, test.only_reference, test.total) == (10, 2, 100)
    assert test.p == pytest.approx(158 / 4096, rel=1e-12)
    assert compare_examples(second, first).p == test.p
    assert compare_examples(first, first)[3:] == (1.0, (0.0, 0.0))


def test_the_example_interval_agrees_with_scipys_bootstrap() -> None:
    generator = np.random.default_rng(7)
    first, second = generator.random(300) < 0.9, generator.random(300) < 0.85
    outcome = stats.bootstrap(
        (first.astype(float), second.astype(float)),
        lambda a, b, axis: (a - b).mean(axis=axis),
        paired=True,
        method="percentile",
        rng=np.random.default_rng(3),
    )
    expected = (outcome.confidence_interval.low, outcome.confidence_interval.high)
    assert compare_examples(first, second).interval == pytest.approx(expected, abs=1.01 / 300)  # an example's worth


def test_t_intervals_worked_by_hand() -> None:
    assert t_half_width([1, 2, 3]) == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert t_half_width([1, 2, 3], is_for_one_more=True) == pytest.approx(4.302653 * math.sqrt(4 / 3), rel=1e-6)
    assert t_half_width([5, 5, 5]) == 0


def test_an_honest_repetition_misses_more_often_with_more_seeds() -> None:
    """With two degrees of freedom P(|t| > x) = 1 - x / sqrt(2 + x^2), here at 4.3027 / sqrt 2."""
    bound = 4.302653 / math.sqrt(2)
    assert honest_miss_rate(3, published_seeds=3) == pytest.approx(1 - bound / math.sqrt(2 + bound**2), rel=1e-5)
    assert [round(honest_miss_rate(seeds, published_seeds=3), 2) for seeds in (3, 5, 10)] == [0.09, 0.16, 0.31]


@pytest.mark.parametrize(("draws", "population"), [(0, 5), (1, 5), (2, 2), (3, 3), (4, 3), (2, 6), (5, 1)])
def test_the_variance_of_distinct_pairs_is_that_of_all_draws(draws: int, population: int) -> None:
    distinct = [len(set(drawn)) for drawn in itertools.product(range(population), repeat=draws)]
    assert distinct_variance(draws, population) == pytest.approx(np.var(distinct), abs=1e-12)


def test_none_of_the_papers_thirty_pairs_survives_holm() -> None:
    tests: list[PairTest] = []
    for counts in published()["correct_by_seed"].values():
        tests += compare_methods({name: values for name, values in counts.items() if name != "total"})
    assert len(tests) == 30
    assert {test.verdict for test in tests} == {"not shown"}
    assert min(test.p for test in tests) == Fraction(1, 4)
    assert min(holm([test.p for test in tests])) == 1


def test_pairs_go_from_the_later_method_to_the_earlier() -> None:
    tests = compare_methods({"a": [5, 5], "b": [6, 7], "c": [4, 5]})
    assert [(test.method, test.reference, test.differences) for test in tests] == [
        ("b", "a", (1, 2)),
        ("c", "a", (-1, 0)),
        ("c", "b", (-2, -2)),
    ]
    assert tests[0].mean == Fraction(3, 2)


def test_with_enough_seeds_better_and_worse_are_told() -> None:
    better, worse, near = [10] * 10, [2] * 10, [1, -1] * 5
    tests = compare_methods({"base": [0] * 10, "better": better, "worse": worse, "near": near})
    assert {(t.method, t.reference): t.verdict for t in tests} == {
        ("better", "base"): "better",
        ("worse", "base"): "better",
        ("near", "base"): "not shown",
        ("worse", "better"): "worse",
        ("near", "better"): "worse",
        ("near", "worse"): "worse",
    }


@pytest.mark.parametrize("counts", [{"a": [1, 2], "b": [1]}, {"a": [1], "b": [2]}])
def test_methods_without_the_same_seeds_are_refused(counts: dict[str, list[int]]) -> None:
    with pytest.raises(DataError, match="methods must have the same two or more seeds"):
        compare_methods(counts)
