"""Students under the paper's settings, made from counts alone; whatever is not under test is made up and says so."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from rapid_lab.comparison.published import GPU
from rapid_lab.comparison.records import Setup, Student
from rapid_lab.config import SETTINGS, Value, resolve

TOTALS = {"agnews": 7600, "sst2": 872}
BATCHES = {"agnews": 3375, "sst2": 1895}
NO_RELATIONS = dict.fromkeys(("main", "pilot", "unique_main", "unique_pilot", "unique_union"), 0)


def student(
    method: str,
    correct: int | None,
    *,
    dataset: str = "agnews",
    seed: int = 42,
    given: Mapping[str, Value] = {},
    **changes: Any,
) -> Student:
    settings = resolve(
        {"method": method, "dataset": dataset.split("[")[0].removesuffix("-twin"), "seed": seed, **given}
    )
    plain = str(settings.dataset)
    values: dict[str, Any] = {
        "run_id": hashlib.sha256(repr((method, dataset, seed, sorted(given.items()))).encode()).hexdigest()[:32],
        "experiment_id": "1",
        "name": f"{method} {dataset} seed {seed}",
        "method": method,
        "dataset": dataset,
        "seed": seed,
        "config_id": "made up",
        "teacher_id": "none" if method == "student_ce" else "teacher",
        "source_hash": "made up",
        "schema_version": 1,
        "data_source": "local",
        "data_hash": "made up",
        "device": "cuda",
        "hardware": GPU,
        "is_biased": False,
        "settings": {name: str(getattr(settings, name)) for name in SETTINGS},
        "correct": correct,
        "total": TOTALS[plain],
        "steps": settings.epochs * BATCHES[plain],
        "relations": NO_RELATIONS,
        "train_minutes": 1.0,
        "peak_mb": 1.0,
    }  # fmt: skip
    return Student(**{**values, **changes})


def setup(
    counts: Mapping[str, Sequence[int | None]], *, seeds: Sequence[int] = (), dataset: str = "agnews", **changes: Any
) -> Setup:
    """Methods with their correct counts by seed; what else is given goes to every student."""
    length = len(next(iter(counts.values()), ()))
    seeds = tuple(seeds) or tuple(range(42, 42 + length))
    students = {
        method: tuple(
            student(method, correct, dataset=dataset, seed=seed, **changes)
            for correct, seed in zip(values, seeds, strict=True)
        )
        for method, values in counts.items()
    }
    return Setup(dataset, dataset, seeds, students)
