"""Numbers as printed: exact fractions until here, and rounded once, half away from zero."""

import math
from collections.abc import Sequence
from fractions import Fraction

NOTHING = "-"


def mean(values: Sequence[Fraction]) -> Fraction:
    """The exact mean."""
    return sum(values, Fraction(0)) / len(values)


def population_variance(values: Sequence[Fraction]) -> Fraction:
    """The exact mean squared deviation: the seeds are all there are, not a sample."""
    centre = mean(values)
    return mean([(value - centre) ** 2 for value in values])


def rounded(value: Fraction, decimals: int) -> str:
    """The value with this many decimals.

    >>> rounded(Fraction(1, 8), 2), rounded(Fraction(-1, 8), 2), rounded(Fraction(2), 1), rounded(Fraction(-1, 900), 2)
    ('0.13', '-0.13', '2.0', '0.00')
    """
    ticks = math.floor(abs(value) * 10**decimals + Fraction(1, 2))
    return _written(-ticks if value < 0 else ticks, decimals)


def rounded_root(value: Fraction, decimals: int) -> str:
    """The square root of an exact value, rounded without ever being a float.

    >>> rounded_root(Fraction(1, 4), 3), rounded_root(Fraction(2), 3)
    ('0.500', '1.414')
    """
    scaled = 4 * value * 10 ** (2 * decimals)
    # floor(sqrt(x) + 1/2) = floor((floor(sqrt(4 x)) + 1) / 2), in integers.
    return _written((math.isqrt(math.floor(scaled)) + 1) // 2, decimals)


def signed(value: Fraction, decimals: int) -> str:
    """With a plus where it is above zero as printed.

    >>> signed(Fraction(1, 4), 3), signed(Fraction(-1, 4), 3), signed(Fraction(1, 9000), 3)
    ('+0.250', '-0.250', '0.000')
    """
    text = rounded(value, decimals)
    return f"+{text}" if value > 0 and any(digit in "123456789" for digit in text) else text


def _written(ticks: int, decimals: int) -> str:
    whole, part = divmod(abs(ticks), 10**decimals)
    sign = "-" if ticks < 0 else ""
    return f"{sign}{whole}.{part:0{decimals}d}" if decimals else f"{sign}{whole}"
