"""What a sweep varies: axes over settings, as values that know how to be read from an option."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rapid_lab.config import SETTINGS, Value, nearest
from rapid_lab.errors import SettingError

ALL_PAIRS = "all"


@dataclass(frozen=True)
class Interval:
    """Every value from low to high, both included."""

    low: float
    high: float
    is_log: bool = False
    is_integer: bool = False

    def contains(self, value: Value) -> bool:
        """Whether this value is one of the axis."""
        return isinstance(value, int | float) and self.low <= value <= self.high

    def document(self) -> dict[str, Value]:
        """As JSON keeps it."""
        return {"low": self.low, "high": self.high, "is_log": self.is_log, "is_integer": self.is_integer}


@dataclass(frozen=True)
class Listed:
    """These values and no others."""

    values: tuple[Value, ...]

    def contains(self, value: Value) -> bool:
        """Whether this value is one of the axis."""
        return value in self.values

    def document(self) -> list[Value]:
        """As JSON keeps it."""
        return list(self.values)


Axis = Interval | Listed


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A question: which settings vary, how, and what is asked of them."""

    name: str
    question: str
    axes: Mapping[str, Axis]
    objectives: tuple[str, ...] = ("accuracy",)
    is_grid: bool = False
    num_trials: int = 30  # of a search; a grid has as many as points
    also: tuple[str, ...] = ()  # settings that a grid may be asked to cross with its own
    has_ends: bool = False  # the ends of every interval are tried as they are, since a sampler never draws them
    defaults: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Objective:
    """A measure of a trial, and which way is better."""

    label: str
    is_maximised: bool

    @property
    def direction(self) -> Literal["maximize", "minimize"]:
        """As Optuna calls it."""
        return "maximize" if self.is_maximised else "minimize"


# Measured on the selection split, averaged over seeds. Nothing of the report split can be asked for.
OBJECTIVES = {
    "accuracy": Objective("selection accuracy", is_maximised=True),
    "nll": Objective("selection NLL", is_maximised=False),
    "relations": Objective("relations a batch", is_maximised=False),
    "minutes": Objective("training minutes", is_maximised=False),
}


def read_objectives(text: str | None, default: tuple[str, ...]) -> tuple[str, ...]:
    """The objectives a user named, one or two."""
    if text is None:
        return default
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    unknown = [name for name in found if name not in OBJECTIVES]
    known = ", ".join(OBJECTIVES)
    if unknown:
        hint = "the report split is no objective" if "report" in unknown[0] else nearest(unknown[0], OBJECTIVES)
        raise SettingError(f"objective must be one of {known}, got {unknown[0]!r}: {hint}")
    if len(set(found)) != len(found) or len(found) not in (1, 2):
        raise SettingError(f"objective must be one or two of {known}, got {text!r}: a front has two axes")
    return found


def read_axis(name: str, text: str, axis: Axis | None, *, is_grid: bool) -> Axis | Value:
    """An option of the command line: `low:high` is an interval, `a,b,c` a list, anything else one value.

    >>> read_axis("gate_strength", "0.2:0.8", Interval(0, 1), is_grid=False)
    Interval(low=0.2, high=0.8, is_log=False, is_integer=False)
    >>> read_axis("relation_budget", "16,all", None, is_grid=True)
    Listed(values=(16, 'all'))
    """
    if ":" in text and axis is not None and SETTINGS[name].kind is not str:
        return _interval(name, text, axis, is_grid=is_grid)
    if is_grid or "," in text:
        return _listed(name, text)
    return _value(name, text)


def _interval(name: str, text: str, axis: Axis, *, is_grid: bool) -> Interval:
    if is_grid:
        raise SettingError(f"{name} must be a list such as 16,32, got {text!r}: a grid has points, not a range")
    low_text, _, high_text = text.partition(":")
    low, high = (float(str(_value(name, part.strip()))) for part in (low_text, high_text))
    if not low < high:
        kind = "reversed" if low > high else "empty"
        raise SettingError(f"{name} must be a range low:high with low below high, got {text!r}: it is {kind}")
    is_integer = SETTINGS[name].kind is int
    is_log = isinstance(axis, Interval) and axis.is_log and low > 0
    low, high = (int(low), int(high)) if is_integer else (low, high)
    return Interval(low, high, is_log=is_log, is_integer=is_integer)


def _listed(name: str, text: str) -> Listed:
    values = tuple(_value(name, part.strip()) for part in text.split(",") if part.strip())
    if not values:
        raise SettingError(f"{name} must be a list of values, got {text!r}: it is empty")
    if len(set(values)) < len(values):
        raise SettingError(f"{name} must be a list of different values, got {text!r}: a point counts once")
    return Listed(values)


def _value(name: str, text: str) -> Value:
    if not text:
        raise SettingError(f"{name} must be a range low:high or values, got an empty end: nothing can be drawn from it")
    if name == "relation_budget" and text == ALL_PAIRS:
        return ALL_PAIRS
    value = SETTINGS[name].parse(text)
    if isinstance(value, float) and not math.isfinite(value):
        raise SettingError(f"{name} must be a finite number, got {text!r}: nothing can be drawn from it")
    return value
