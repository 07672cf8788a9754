"""How shares, p values and names are printed."""

from fractions import Fraction

from rapid_lab.comparison.rounding import rounded, signed
from rapid_lab.objectives import METHODS


def percent(count: int | Fraction, total: int, *, is_signed: bool = False) -> str:
    """A share, or a difference of shares, in percentage points with the paper's three decimals.

    >>> percent(7156, 7600), percent(-1, 872, is_signed=True)
    ('94.158', '-0.115')
    """
    value = Fraction(100 * count, total)
    return signed(value, 3) if is_signed else rounded(value, 3)


def p_text(p: Fraction | float) -> str:
    """A p value to three figures.

    >>> p_text(Fraction(1, 4)), p_text(Fraction(1, 512))
    ('0.25', '0.00195')
    """
    return f"{float(p):.3g}"


def method_label(method: str) -> str:
    """As the paper calls it; a method that the paper lacks goes by its own name."""
    return METHODS[method].label if method in METHODS else method
