"""Which settings can change a student of each method: the others must not keep it out of a table."""

from collections.abc import Callable
from functools import cache

from rapid_lab.config import SETTINGS
from rapid_lab.objectives import METHODS, Components

Claim = Callable[[Components], bool]


def _distils(components: Components) -> bool:
    return components.has_distillation


def _relates(components: Components) -> bool:
    return components.has_relations


def _samples(components: Components) -> bool:
    return components.has_relations and not components.is_exact


def _gates(components: Components) -> bool:
    return components.has_gate


def _weighs_endpoints(components: Components) -> bool:
    # Against a uniform proposal both defences mix uniform pairs into uniform pairs.
    return components.has_static_proposal


def _adapts(components: Components) -> bool:
    return components.is_adaptive


# A setting that is not here concerns every method: what is forgotten separates, and never mixes.
CONCERNED: dict[str, Claim] = {
    "kd_weight": _distils,
    "kd_temperature": _distils,
    "relation_weight": _relates,
    "relation_budget": _samples,
    "relation_cap": _samples,
    "correction_clip": _samples,
    "gate_strength": _gates,
    "reliability_floor": _gates,
    "entropy_power": _weighs_endpoints,
    "reliability_power": _weighs_endpoints,
    "entropy_floor": _weighs_endpoints,
    "pair_defense": _weighs_endpoints,
    "endpoint_defense": _weighs_endpoints,
    "max_residual_mix": _adapts,
    "pilot_fraction": _adapts,
    "residual_floor": _adapts,
    "warmup_epochs": _adapts,
}
# Kept apart by other means: method and seed are the axes of a table, the hash of the data says more than its place,
# and the teacher's id more than the settings it was made with.
ELSEWHERE = {"method", "seed", "dataset", "data", "text_column", "label_column"}
TEACHER_SETTINGS = tuple(name for name in SETTINGS if name.startswith("teacher_"))


@cache
def relevant_settings(method: str) -> tuple[str, ...]:
    """The settings that separate two students of this method, besides data, teacher and seed.

    >>> set(relevant_settings("kd")) - set(relevant_settings("student_ce")) == {"kd_weight", "kd_temperature"}
    True
    """
    return tuple(
        name
        for name, setting in SETTINGS.items()
        if setting.affects_numbers
        and name not in ELSEWHERE
        and name not in TEACHER_SETTINGS
        and CONCERNED.get(name, lambda _: True)(METHODS[method])
    )


def needs_teacher(method: str) -> bool:
    """Whether the method reads teacher signals."""
    return METHODS[method].has_distillation or METHODS[method].has_relations


def is_sampled(method: str) -> bool:
    """Whether the method estimates its target from sampled pairs, which clipping would bias."""
    return _samples(METHODS[method])
