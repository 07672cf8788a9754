"""Tests on paired seeds: numbers in, records out, exact where exactness can be had.

Differences are those of counts, method minus reference, one for each seed. Counts are integers, so two sums are equal
or they are not: a tie is never a matter of the last bit.
"""

import bisect
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool
from scipy import stats

from rapid_lab.errors import DataError

ALPHA = Fraction(1, 20)
CONFIDENCE = 0.95
RESAMPLES = 9999
RESAMPLING_SEED = 1729
# 64 seeds have at most 2^63 sign vectors in one tail, which is what a machine integer holds.
EXACT_SEEDS = 64

Verdict = Literal["better", "worse", "not shown"]
Interval = tuple[float, float]


@dataclass(frozen=True)
class PairTest:
    """A method against a reference over seeds; means and intervals in examples of the report split."""

    method: str
    reference: str
    differences: tuple[int, ...]
    p: Fraction
    holm_p: Fraction
    sign_p: float
    interval: Interval
    detectable: Fraction | None
    verdict: Verdict

    @property
    def mean(self) -> Fraction:
        """The mean difference."""
        return Fraction(sum(self.differences), len(self.differences))


class ExampleTest(NamedTuple):
    """Two trained models on the same examples: says nothing of other seeds."""

    only_method: int
    only_reference: int
    total: int
    p: float
    interval: Interval


def compare_methods(correct: Mapping[str, Sequence[int]]) -> tuple[PairTest, ...]:
    """Every pair of methods, each later one against each earlier, in one Holm family."""
    lengths = {len(counts) for counts in correct.values()}
    if len(lengths) > 1 or min(lengths, default=2) < 2:
        raise DataError(f"methods must have the same two or more seeds, got {sorted(lengths)}: pairs are by seed")
    pairs = [(method, reference) for reference, method in itertools.combinations(correct, 2)]
    differences = [tuple(a - b for a, b in zip(correct[m], correct[r], strict=True)) for m, r in pairs]
    p_values = [sign_flip_p(values) for values in differences]
    adjusted = holm(p_values)
    return tuple(
        PairTest(
            method=method,
            reference=reference,
            differences=values,
            p=p_values[index],
            holm_p=adjusted[index],
            sign_p=sign_test_p(values),
            interval=bootstrap_interval(values),
            detectable=detectable_mean(values, holm_threshold(p_values, index)),
            verdict=verdict(sum(values), adjusted[index]),
        )
        for index, ((method, reference), values) in enumerate(zip(pairs, differences, strict=True))
    )


def verdict(difference: int, holm_p: Fraction) -> Verdict:
    """The only decision there is: the adjusted exact sign-flip test at 0.05."""
    if holm_p > ALPHA:
        return "not shown"
    return "better" if difference > 0 else "worse"


def sign_flip_p(differences: Sequence[int]) -> Fraction:
    """Share of the 2^n sign vectors whose sum is as far from zero as the observed one, or farther.

    A zero difference is the same with either sign: it stays, and changes nothing.

    >>> sign_flip_p([3, 1, 2]), sign_flip_p([3, -1, 2]), sign_flip_p([1, -1])
    (Fraction(1, 4), Fraction(1, 2), Fraction(1, 1))
    """
    sizes = [abs(value) for value in differences if value]
    observed = abs(sum(differences))
    if observed == 0:
        return Fraction(1)
    unit = math.gcd(*sizes)
    # A sum of at least the observed one leaves at most this much on the negative side; the other tail mirrors it.
    limit = (sum(sizes) - observed) // 2 // unit
    return 2 * _share_at_most([size // unit for size in sizes], limit)


def _share_at_most(sizes: Sequence[int], limit: int) -> Fraction:
    """Share of all subsets of the sizes with a sum of at most the limit, by counting subsets for every sum."""
    is_exact = len(sizes) <= EXACT_SEEDS
    weight: np.ndarray = np.zeros(limit + 1, dtype=np.uint64 if is_exact else np.float64)
    weight[0] = 1
    for size in sizes:
        if not is_exact:
            weight *= 0.5  # shares instead of counts, which would outgrow any machine number
        if size <= limit:
            weight[size:] += weight[:-size]
    return Fraction(int(weight.sum()), 2 ** len(sizes)) if is_exact else Fraction(float(weight.sum()))


def smallest_p(num_seeds: int) -> Fraction:
    """2^(1-n): all differences of one sign, which no two-sided test on signs or sign flips can go below.

    >>> smallest_p(3), smallest_p(6)
    (Fraction(1, 4), Fraction(1, 32))
    """
    return Fraction(2, 2**num_seeds)


def seeds_needed(num_pairs: int) -> int:
    """Fewest seeds with which the smallest p reaches 0.05 after Holm over this many pairs.

    >>> seeds_needed(1), seeds_needed(15), seeds_needed(30)
    (6, 10, 11)
    """
    return next(seeds for seeds in itertools.count(1) if num_pairs * smallest_p(seeds) <= ALPHA)


def sign_test_p(differences: Sequence[int]) -> float:
    """Two-sided sign test; zero differences have no sign and are left out."""
    signs = [value > 0 for value in differences if value]
    return float(stats.binomtest(sum(signs), len(signs)).pvalue) if signs else 1.0


def holm(p_values: Sequence[Fraction]) -> list[Fraction]:
    """Holm's adjusted p: the k-th smallest of m times m - k + 1, never below the one before, at most 1."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, floor = list(p_values), Fraction(0)
    for rank, index in enumerate(order):
        floor = max(floor, min(Fraction(1), (len(order) - rank) * p_values[index]))
        adjusted[index] = floor
    return adjusted


def holm_threshold(p_values: Sequence[Fraction], index: int) -> Fraction:
    """The unadjusted p up to which Holm rejects this hypothesis, the others being what they are.

    With r others rejected beside it, that is alpha / (m - r).
    """
    without = [Fraction(1) if other == index else p for other, p in enumerate(p_values)]
    num_rejected = sum(p <= ALPHA for p in holm(without))
    return ALPHA / (len(p_values) - num_rejected)


def detectable_mean(differences: Sequence[int], threshold: Fraction) -> Fraction | None:
    """The smallest mean these seeds could have shown: their spread kept, their mean moved until the test rejects.

    The differences are centred and moved together, in the direction of the observed mean (where it is zero, in the
    harder one). The p falls as they move, so the first step that rejects is found by bisection. A step is an n-th of
    an example, as means over n seeds are; beyond EXACT_SEEDS a whole one. None where no mean would do.
    """
    total = sum(differences)
    if smallest_p(len(differences)) > threshold:
        return None
    upward, downward = list(differences), [-value for value in differences]
    if total == 0:
        return max(_detectable_upward(upward, threshold), _detectable_upward(downward, threshold))
    return _detectable_upward(upward if total > 0 else downward, threshold)


def _detectable_upward(differences: Sequence[int], threshold: Fraction) -> Fraction:
    num_seeds, total = len(differences), sum(differences)
    scale = num_seeds if num_seeds <= EXACT_SEEDS else 1
    centred = [scale * value - scale * total // num_seeds for value in differences]
    last = max(-value for value in centred) + 1  # every difference positive
    step = bisect.bisect_left(
        range(last), True, key=lambda shift: sign_flip_p([value + shift for value in centred]) <= threshold
    )
    return Fraction(sum(centred), scale * num_seeds) + Fraction(step, scale)


def bootstrap_interval(differences: Sequence[int]) -> Interval:
    """95 % percentile interval of the mean over resampled seeds; a seed's difference is drawn as a whole.

    BCa would correct it by a jackknife over a handful of values, and has no answer where they are equal.
    """
    outcome = stats.bootstrap(
        (np.asarray(differences, dtype=np.float64),),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(RESAMPLING_SEED),
    )
    return float(outcome.confidence_interval.low), float(outcome.confidence_interval.high)


def distinct_resamples(num_seeds: int) -> int:
    """How many different resamples n seeds have: (2n-1 choose n).

    >>> distinct_resamples(3), distinct_resamples(10)
    (10, 92378)
    """
    return math.comb(2 * num_seeds - 1, num_seeds)


def compare_examples(
    method_right: Bool[np.ndarray, " examples"], reference_right: Bool[np.ndarray, " examples"]
) -> ExampleTest:
    """McNemar's exact test and a paired bootstrap interval of the accuracy difference, over examples."""
    total = len(method_right)
    only_method = int((method_right & ~reference_right).sum())
    only_reference = int((~method_right & reference_right).sum())
    discordant = only_method + only_reference
    p = float(stats.binomtest(only_method, discordant).pvalue) if discordant else 1.0
    # An example counts +1, -1 or 0: drawing examples with replacement is drawing how many of each there are.
    shares = np.array([only_method, only_reference, total - discordant]) / total
    drawn = np.random.default_rng(RESAMPLING_SEED).multinomial(total, shares, size=RESAMPLES)
    low, high = np.quantile((drawn[:, 0] - drawn[:, 1]) / total, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return ExampleTest(only_method, only_reference, total, p, (float(low), float(high)))


def t_half_width(values: Sequence[float], *, is_for_one_more: bool = False) -> float:
    """Half the width of the 95 % t interval of the mean, or of the 95 % prediction interval of one more value."""
    count = len(values)
    spread = float(np.std(values, ddof=1)) * math.sqrt(1 / count + is_for_one_more)
    return float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1)) * spread


def honest_miss_rate(num_seeds: int, *, published_seeds: int) -> float:
    """How often the published mean misses our t interval though both come from one normal distribution.

    The interval knows our seeds' chance, not the published mean's own: the rate grows with our seeds.
    """
    bound = stats.t.ppf((1 + CONFIDENCE) / 2, num_seeds - 1) / math.sqrt(1 + num_seeds / published_seeds)
    return float(2 * stats.t.sf(bound, num_seeds - 1))


def distinct_variance(draws: int, population: int) -> float:
    """Variance of the number of distinct pairs among n uniform draws with replacement from M.

    M (1-1/M)^n + M (M-1) (1-2/M)^n - M^2 (1-1/M)^(2n), as a pair is missed with probability (1-1/M)^n, two pairs
    with (1-2/M)^n. In exact numbers: the terms cancel to a small rest of large ones.
    """
    one, two = Fraction(population - 1, population) ** draws, Fraction(population - 2, population) ** draws
    return float(population * one + population * (population - 1) * two - (population * one) ** 2)
