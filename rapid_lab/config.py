"""Settings: one name each, with its default, the paper's symbol and where the default comes from."""

from dataclasses import dataclass
from typing import Any

from rapid_lab.errors import SettingError
from rapid_lab.ranges import RANGES, check


@dataclass(frozen=True)
class Setting:
    """One setting. A default of None depends on the dataset."""

    default: int | float | None
    symbol: str
    help: str
    is_in_paper: bool = True

    @property
    def description(self) -> str:
        """The help text with symbol, default and origin."""
        default = "by dataset" if self.default is None else f"{self.default:g}"
        origin = "" if self.is_in_paper else ", not in the paper"
        return f"{self.help} ({self.symbol}; default {default}{origin})"


SETTINGS: dict[str, Setting] = {
    "train_examples": Setting(None, "N", "training examples"),
    "batch_size": Setting(32, "B", "examples a batch"),
    "relation_budget": Setting(None, "R", "relations a batch may evaluate, pilots included"),
    "relation_cap": Setting(4096, "C_cap", "upper limit to the relation budget", is_in_paper=False),
    "pilot_fraction": Setting(0.1, "rho", "share of the budget spent on pilots while adaptive"),
    "epochs": Setting(10, "E", "training epochs"),
    "warmup_epochs": Setting(2, "W0", "epochs before the proposal adapts"),
    "max_residual_mix": Setting(0.5, "tau_max", "largest weight of the residual endpoint distribution"),
    "entropy_power": Setting(1.0, "alpha", "power of the teacher's entropy in the static proposal"),
    "reliability_power": Setting(1.0, "beta", "power of the reliability in the static proposal"),
}

# What depends on the dataset.
DATASETS: dict[str, dict[str, int]] = {
    "agnews": {"train_examples": 108_000, "relation_budget": 256},
    "sst2": {"train_examples": 60_614, "relation_budget": 64},
}


def parse(name: str, text: str) -> int | float:
    """The value of a numeric setting from text, checked against its range."""
    kind = int if RANGES[name].is_integer else float
    try:
        value = kind(text)
    except ValueError:
        raise SettingError(
            f"{name} must be {RANGES[name]}, got {text!r}: that is not {'an integer' if kind is int else 'a number'}"
        ) from None
    check(**{name: value})
    return value


def resolve(dataset: str | None, given: dict[str, Any]) -> dict[str, Any]:
    """Every setting: as given, else by dataset, else its default."""
    by_dataset = DATASETS.get(dataset, {}) if dataset else {}
    resolved = {}
    for name, setting in SETTINGS.items():
        resolved[name] = given.get(name, by_dataset.get(name, setting.default))
        if resolved[name] is None:
            raise SettingError(f"{name} must be given, got nothing: it depends on the dataset, and none was named")
    check(**resolved)
    return resolved
