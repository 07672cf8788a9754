"""The range of every numeric setting, and the reason for it, by the setting's one name.

Code, configuration files, command-line flags and the functions of `rapid_lab.method` all check against this
table, so an error reads the same wherever the value came in.
"""

import math
import sys
from dataclasses import dataclass

from rapid_lab.errors import SettingError
from rapid_lab.harmless import shown

COUNT_LENGTH = 30  # digits; Python reads no number of thousands of them


@dataclass(frozen=True)
class Range:
    """An interval of allowed values and the mathematical reason for its ends."""

    low: float
    high: float
    reason: str
    excludes_low: bool = False
    is_integer: bool = False

    def contains(self, value: object) -> bool:
        """Whether this is a number of the right kind within the interval."""
        if isinstance(value, bool) or not isinstance(value, int if self.is_integer else (int, float)):
            return False
        if value == self.low:
            return not self.excludes_low
        # False for NaN; an open upper end (infinity) excludes infinity itself, and integers beyond every float.
        return self.low < value <= min(self.high, sys.float_info.max)

    def __str__(self) -> str:
        kind = "an integer " if self.is_integer else ""
        if self.high == math.inf:
            return f"{kind}{'above' if self.excludes_low else 'of at least'} {self.low:g}"
        return f"{kind}in {'(' if self.excludes_low else '['}{self.low:g}, {self.high:g}]"


def _share(reason: str) -> Range:
    return Range(0, 1, reason)


def _floor(high: float, reason: str) -> Range:
    return Range(0, high, reason, excludes_low=True)


def _count(low: int, reason: str) -> Range:
    return Range(low, 10**9, reason, is_integer=True)


RANGES: dict[str, Range] = {
    "gate_strength": _share("it mixes the ungated target (0) with the fully gated one (1)"),
    "residual_mix": _share("it mixes the static endpoint distribution (0) with the residual one (1)"),
    "max_residual_mix": _share("it mixes the static endpoint distribution (0) with the residual one (1)"),
    "pair_defense": Range(0, 1, "at 0 nothing bounds the correction 1/(M q)", excludes_low=True),
    "endpoint_defense": _share("it mixes the endpoint distribution (0) with the uniform one (1)"),
    "pilot_fraction": _share("pilots are a share of the relation budget"),
    "entropy_power": Range(0, math.inf, "a negative power would favour the examples the teacher is sure of"),
    "reliability_power": Range(0, math.inf, "a negative power would favour the relations the gate distrusts"),
    "entropy_floor": _floor(1, "the score must stay above zero, and normalised entropy is at most 1"),
    "residual_floor": _floor(
        2, "an endpoint no pilot has seen must keep a score above zero, and a residual is at most 2"
    ),
    "reliability_floor": Range(1e-6, 1, "the mean gate divides by reliabilities, which are at most 1"),
    "temperature": Range(1e-3, 1e3, "logits are divided by it: beyond these the softmax is one-hot or flat"),
    "kd_temperature": Range(1e-3, 1e3, "logits are divided by it: beyond these the softmax is one-hot or flat"),
    "correction_clip": Range(1, math.inf, "the mean correction is 1, so a lower clip would shrink every term"),
    "relation_budget": _count(1, "a relational method evaluates at least one relation"),
    "relation_cap": _count(1, "a relational method evaluates at least one relation"),
    "train_examples": _count(1, "there is nothing to train on otherwise"),
    "batch_size": _count(1, "a batch holds at least one example"),
    "epochs": _count(1, "training takes at least one epoch"),
    "epoch": _count(1, "epochs count from 1"),
    "warmup_epochs": _count(0, "it counts epochs"),
    "seed": Range(0, 2**63 - 1, "random streams are derived from it", is_integer=True),
    "split_seed": Range(0, 2**63 - 1, "random streams are derived from it", is_integer=True),
    "teacher_seed": Range(0, 2**63 - 1, "random streams are derived from it", is_integer=True),
    "kd_weight": Range(0, math.inf, "a negative weight would drive the student away from its teacher"),
    "relation_weight": Range(0, math.inf, "a negative weight would drive the student away from its teacher"),
    "learning_rate": Range(0, 1, "it is a step against the gradient", excludes_low=True),
    "teacher_learning_rate": Range(0, 1, "it is a step against the gradient", excludes_low=True),
    "weight_decay": _share("it is a share of each weight taken off a step"),
    "lr_warmup_fraction": _share("it is a share of the steps"),
    "gradient_clip": Range(0, math.inf, "a norm bound of zero would stop training", excludes_low=True),
    "max_length": Range(3, 8192, "a text has at least one token between two special ones", is_integer=True),
    "teacher_epochs": _count(1, "training takes at least one epoch"),
    "teacher_batch_size": _count(1, "a batch holds at least one example"),
    "teacher_layers": _count(1, "an encoder has at least one layer"),
    "student_layers": _count(1, "an encoder has at least one layer"),
    "trials": _count(1, "a sweep has at least one trial"),
    "workers": Range(1, 1024, "each is a process, and somebody must do it", is_integer=True),
    "batches": Range(1, 10**6, "it counts what is judged", is_integer=True),
    "realisations": Range(1, 10**6, "it counts draws of the pilots", is_integer=True),
}


def check(**values: object) -> None:
    """Raise SettingError for the first value outside the range of its name."""
    for name, value in values.items():
        allowed = RANGES[name]
        if not allowed.contains(value):
            raise SettingError(f"{name} must be {allowed}, got {shown(value)}: {allowed.reason}")


def read_count(name: str, text: str) -> int:
    """The number of a text, in the range of its name."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= COUNT_LENGTH
    check(**{name: int(text) if is_number else text})
    return int(text)
