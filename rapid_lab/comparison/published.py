"""What the paper has printed, cell by cell, and the protocol it was measured under."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib import resources
from typing import Any, Literal

from rapid_lab.config import Value

Kind = Literal["accuracy", "seed accuracy", "minutes", "peak memory", "relations", "teacher"]
KINDS: tuple[Kind, ...] = ("accuracy", "seed accuracy", "minutes", "peak memory", "relations", "teacher")
# From the paper's reproducibility section, as CUDA names it.
GPU = "NVIDIA GeForce RTX 3080"
# Not printed: it follows from the pilot and unique-pilot means.
EPOCHS = 10
TEACHER_DECIMALS = {
    "report_accuracy": 3,
    "calibration_temperature": 4,
    "selection_nll_before": 4,
    "selection_nll_after": 4,
}


@dataclass(frozen=True)
class Claim:
    """One printed cell: its text, the number exactly as printed, and what it is a number of."""

    kind: Kind
    dataset: str
    method: str  # empty for a teacher
    what: str
    text: str
    value: Fraction
    decimals: int
    seed: int | None = None

    @property
    def rounding(self) -> Fraction:
        """How far the number may be from the one that was rounded."""
        return Fraction(1, 2 * 10**self.decimals)


@cache
def published() -> dict[str, Any]:
    """The paper's numbers, as the package carries them."""
    text = resources.files("rapid_lab.comparison").joinpath("published.json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


@cache
def published_claims() -> tuple[Claim, ...]:
    """Every cell of the paper's result tables and its teachers' figures; what was not recorded is no claim."""
    return (*_accuracies(), *_seed_accuracies(), *_compute(), *_relations(), *_teachers())


@cache
def protocol(dataset: str) -> dict[str, Value]:
    """The settings under which the paper measured a dataset, by our names."""
    document = published()["protocol"]
    common, own = document["common"], document[dataset]
    teacher, teacher_layers = _model(own["teacher"])
    student, student_layers = _model(own["student"])
    same_name = ("batch_size", "split_seed", "gate_strength", "warmup_epochs", "entropy_power", "reliability_power")
    return {
        **{name: common[name] for name in same_name},
        "max_residual_mix": common["max_residual_mix"],
        "pilot_fraction": common["pilot_fraction_approx"],
        "epochs": EPOCHS,
        "relation_budget": own["relation_budget"],
        "teacher_model": teacher,
        "teacher_layers": teacher_layers,
        "student_model": student,
        "student_layers": student_layers,
    }


def published_seeds() -> tuple[int, ...]:
    """The paper's student seeds."""
    return tuple(published()["protocol"]["common"]["seeds"])


def report_examples(dataset: str) -> int:
    """Size of the paper's report split."""
    return int(published()["protocol"][dataset]["report_examples"])


def batches_an_epoch(dataset: str) -> tuple[int, int]:
    """Full batches, and all batches with the last partial one."""
    examples, size = int(published()["protocol"][dataset]["train_examples"]), int(protocol(dataset)["batch_size"] or 0)
    return examples // size, -(-examples // size)


def _model(text: str) -> tuple[str, int | None]:
    name, _, rest = text.partition(",")
    layers = re.search(r"\d+", rest)
    return name, int(layers[0]) if layers else None


def _accuracies() -> Iterator[Claim]:
    for dataset, methods in published()["accuracy_mean_std"].items():
        for method, (mean, spread) in methods.items():
            text = f"{mean:.3f} ± {spread:.3f}"
            yield Claim("accuracy", dataset, method, "mean ± std", text, _exact(mean), 3)


def _seed_accuracies() -> Iterator[Claim]:
    for dataset, methods in published()["accuracy_by_seed"].items():
        for method, values in methods.items():
            for seed, value in zip(published_seeds(), values, strict=True):
                yield Claim("seed accuracy", dataset, method, f"seed {seed}", f"{value:.3f}", _exact(value), 3, seed)


def _compute() -> Iterator[Claim]:
    for dataset, methods in published()["compute"].items():
        for method, cells in methods.items():
            mean, spread = cells["minutes"]
            yield Claim("minutes", dataset, method, "minutes", f"{mean:.1f} ± {spread:.1f}", _exact(mean), 1)
            if cells["peak_memory_mb"] is not None:
                memory = cells["peak_memory_mb"]
                yield Claim("peak memory", dataset, method, "MB", f"{memory}", _exact(memory), 0)


def _relations() -> Iterator[Claim]:
    document = published()["relations_per_batch"]
    columns = document["columns"]
    for dataset in (name for name in document if name != "columns"):
        for method, means in document[dataset].items():
            for column, mean in zip(columns, means, strict=True):
                yield Claim("relations", dataset, method, column, f"{mean:.3f}" if mean else "0", _exact(mean), 3)


def _teachers() -> Iterator[Claim]:
    for dataset, figures in published()["teacher"].items():
        for name, value in figures.items():
            decimals = TEACHER_DECIMALS[name]
            yield Claim("teacher", dataset, "", name, f"{value:.{decimals}f}", _exact(value), decimals)


def _exact(value: float) -> Fraction:
    # By its digits: the paper printed decimals, not their nearest doubles.
    return Fraction(str(value))
