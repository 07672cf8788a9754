"""The plan of a sweep: what every trial may be, what stays fixed, and which document a study is recognised by."""

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rapid_lab.config import SETTINGS, Settings, Value, resolve
from rapid_lab.errors import SettingError
from rapid_lab.method.relations import num_pairs
from rapid_lab.names import NUMBERS_VERSION
from rapid_lab.objectives import METHODS
from rapid_lab.ranges import RANGES
from rapid_lab.sweep.space import ALL_PAIRS, Axis, Interval, Listed, Sweep

# Each seed of a trial is a run of these settings: the report split stays closed, and no model is kept.
OF_EVERY_TRIAL: dict[str, Value] = {"report": "never", "log_model": False}
# The names of places; what was found there is in the document by its hash.
PLACES = {"data", "dataset", "text_column", "label_column"}
# The component without which a setting does nothing.
COMPONENTS = {
    "relation_budget": "has_relations",
    "gate_strength": "has_gate",
    "pair_defense": "has_static_proposal",
    "endpoint_defense": "has_static_proposal",
    "entropy_power": "has_static_proposal",
    "reliability_power": "has_static_proposal",
    "max_residual_mix": "is_adaptive",
    "pilot_fraction": "is_adaptive",
}


@dataclass(frozen=True)
class DataFacts:
    """What a plan knows of its data."""

    name: str
    data_hash: str
    train_examples: int
    is_twin: bool


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A sweep as it was asked for."""

    sweep: Sweep
    study: str
    given: Mapping[str, Value]  # fixed settings, as the user named them
    axes: Mapping[str, Axis]
    seeds: tuple[int, ...]
    objectives: tuple[str, ...]
    prune: str
    data: DataFacts

    def settings_of(self, params: Mapping[str, Value]) -> dict[str, Value]:
        """The settings of a trial, without its seed."""
        given = {**self.given, **params, **OF_EVERY_TRIAL}
        if given.get("relation_budget") != ALL_PAIRS:
            return given
        rest = resolve({**given, "relation_budget": 1}, is_twin=self.data.is_twin)
        pairs = max(1, num_pairs(rest.batch_size))
        most = int(RANGES["relation_budget"].high)
        if pairs > most:
            raise SettingError(
                f"batch_size must have at most {most} pairs where relation_budget is all, got {rest.batch_size}: "
                f"it has {pairs}"
            )
        # Only where it is in the way: the cap is part of a run's identity.
        cap: dict[str, Value] = {"relation_cap": pairs} if pairs > rest.relation_cap else {}
        return {**given, "relation_budget": pairs, **cap}

    def resolved(self, params: Mapping[str, Value]) -> Settings:
        """Every setting of a trial."""
        return resolve(self.settings_of(params), is_twin=self.data.is_twin)

    def paper(self) -> dict[str, Value]:
        """The paper's values on the axes, as far as the axes have them."""
        fixed = {name: value for name, value in self.given.items() if name in ("dataset", "method")}
        settings = resolve(fixed)
        values = {name: getattr(settings, name) for name in self.axes}
        return {name: value for name, value in values.items() if self.axes[name].contains(value)}

    def points(self) -> list[dict[str, Value]]:
        """What is enqueued, the paper's settings first: a grid whole, of a search those and the exact ends."""
        return self._grid() if self.sweep.is_grid else self._first_points()

    def _grid(self) -> list[dict[str, Value]]:
        lists = [axis.values for axis in self.axes.values() if isinstance(axis, Listed)]
        points = [dict(zip(self.axes, values, strict=True)) for values in itertools.product(*lists)]
        paper = {name: value for name, value in self.paper().items() if name != "method"}
        return sorted(points, key=lambda point: any(point[name] != value for name, value in paper.items()))

    def _first_points(self) -> list[dict[str, Value]]:
        paper = self.paper()
        points = [paper] if paper else []
        for name, axis in self.axes.items():
            if self.sweep.has_ends and isinstance(axis, Interval):
                points += [{**paper, name: end} for end in (axis.low, axis.high)]
        return [point for index, point in enumerate(points) if point not in points[:index]]

    def notes(self) -> list[str]:
        """What a reader of the plan should know before it is carried out."""
        lines = {}
        for point in self._corners():
            settings = self.resolved(point)
            pairs = num_pairs(settings.batch_size)
            if METHODS[settings.method].has_relations and settings.relation_budget > pairs:
                lines[settings.relation_budget, pairs] = (
                    f"relation_budget {settings.relation_budget} is above the {pairs} pairs of a batch of "
                    f"{settings.batch_size}: all are enumerated"
                )
        notes = list(lines.values())
        missing = [name for name in self.axes if name not in self.paper() and name != "method"]
        if missing:
            notes.append(f"the paper's {', '.join(missing)} is outside of what was asked for, and not tried first")
        return notes

    def _corners(self) -> list[dict[str, Value]]:
        budget = self.axes.get("relation_budget")
        if self.sweep.is_grid:
            return self.points()
        if budget is None:
            return [{}]
        values = budget.values if isinstance(budget, Listed) else (int(budget.low), int(budget.high))
        return [{"relation_budget": value} for value in values]

    def document(self) -> dict[str, Any]:
        """What a study is recognised by: everything that makes its trials comparable."""
        settings = dataclasses.asdict(self.resolved(self._anywhere()))
        kept = {
            name: value
            for name, value in settings.items()
            if SETTINGS[name].affects_numbers and name not in PLACES | {"seed", *self.axes}
        }
        if self.axes.get("relation_budget"):
            kept["relation_cap"] = resolve(_without_budget(self.given), is_twin=self.data.is_twin).relation_cap
        return {
            "sweep": self.sweep.name,
            "dataset": self.data.name,
            "data_hash": self.data.data_hash,
            "space": {name: axis.document() for name, axis in self.axes.items()},
            "seeds": list(self.seeds),
            "objectives": list(self.objectives),
            "prune": self.prune,
            "settings": kept,
            "numbers_version": NUMBERS_VERSION,
        }

    def _anywhere(self) -> dict[str, Value]:
        return {name: axis.values[0] for name, axis in self.axes.items() if isinstance(axis, Listed)}


def _without_budget(given: Mapping[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in given.items() if name != "relation_budget"}


def check_methods(axes: Mapping[str, Axis], given: Mapping[str, Value]) -> None:
    """Refuse an axis that changes nothing in one of the methods."""
    listed = axes.get("method")
    methods = listed.values if isinstance(listed, Listed) else (given.get("method", Settings.method),)
    for method, name in itertools.product(methods, axes):
        components, needed = METHODS[str(method)], COMPONENTS.get(name)
        if needed and (not getattr(components, needed) or (name == "relation_budget" and components.is_exact)):
            able = [key for key, parts in METHODS.items() if getattr(parts, needed) and not parts.is_exact]
            raise SettingError(f"method must be one of {', '.join(able)}, got {method!r}: {name} does nothing in it")


def differences(known: Mapping[str, Any], asked: Mapping[str, Any], prefix: str = "") -> list[str]:
    """What two plan documents do not have in common, by name."""
    found: list[str] = []
    for name in [*known, *(name for name in asked if name not in known)]:
        was, now = known.get(name), asked.get(name)
        if name in ("space", "settings") and isinstance(was, Mapping) and isinstance(now, Mapping):
            found += differences(was, now)
        elif was != now:
            found.append(f"{prefix}{name} is {was if was is not None else 'none'}, not {now}")
    return found
