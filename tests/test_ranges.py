"""Every numeric setting has a range with a reason, and an error has name, range, value and reason."""

import math

import pytest

from rapid_lab.errors import SettingError
from rapid_lab.ranges import RANGES, check


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1, True, None, "1", [1]])
def test_what_is_no_number_in_range_is_refused(name: str, value: object) -> None:
    with pytest.raises(SettingError, match=rf"^{name} must be .+, got .+: \w+"):
        check(**{name: value})


@pytest.mark.parametrize("name", [name for name, allowed in RANGES.items() if allowed.is_integer])
def test_a_count_is_an_integer(name: str) -> None:
    with pytest.raises(SettingError, match=f"{name} must be an integer (of at least|in)"):
        check(**{name: 2.5})
    check(**{name: 3})


@pytest.mark.parametrize("name", RANGES)
def test_the_ends_of_a_range_are_as_printed(name: str) -> None:
    allowed = RANGES[name]
    low = int(allowed.low) if allowed.is_integer else float(allowed.low)
    if allowed.excludes_low:
        with pytest.raises(SettingError, match=rf"{name} must be (above {low:g}|in \({low:g},)"):
            check(**{name: low})
    else:
        check(**{name: low})
    if allowed.high < math.inf:
        check(**{name: allowed.high})
