"""Every numeric setting has a range with a reason, and an error has name, range, value and reason."""

import math

import pytest

from rapid_lab.config import SETTINGS, parse, resolve
from rapid_lab.errors import SettingError
from rapid_lab.ranges import RANGES, check


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1, True, None, "1", [1]])
def test_what_is_no_number_in_range_is_refused(name: str, value: object) -> None:
    with pytest.raises(SettingError, match=rf"^{name} must be .+, got .+: \w+"):
        check(**{name: value})


@pytest.mark.parametrize("name", [name for name, allowed in RANGES.items() if allowed.is_integer])
def test_a_count_is_an_integer(name: str) -> None:
    with pytest.raises(SettingError, match=f"{name} must be an integer of at least"):
        check(**{name: 2.5})
    check(**{name: 2})


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


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_has_a_range_that_holds_its_default(name: str) -> None:
    default = SETTINGS[name].default
    if default is not None:
        check(**{name: default})
    assert name in RANGES


def test_what_the_paper_does_not_state_is_marked() -> None:
    assert SETTINGS["relation_cap"].description.endswith("(C_cap; default 4096, not in the paper)")


@pytest.mark.parametrize("text", ["", "ten", "1.5", "0x10", "1e2"])
def test_a_count_that_is_no_integer_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match=rf"epochs must be an integer of at least 1, got '{text}'"):
        parse("epochs", text)


def test_a_setting_comes_from_the_user_then_the_dataset_then_its_default() -> None:
    assert resolve("sst2", {})["relation_budget"] == 64
    assert resolve("sst2", {"relation_budget": 7})["relation_budget"] == 7
    assert resolve("sst2", {})["epochs"] == 10
    with pytest.raises(SettingError, match="train_examples must be given"):
        resolve(None, {"relation_budget": 7})
