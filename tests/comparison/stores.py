"""Runs written into a real store through the real tracking code, with the counts a test asks for."""

import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from rapid_lab import names
from rapid_lab.comparison.records import Student
from rapid_lab.config import Value, resolve
from rapid_lab.tracking.runs import Status, TrackedRun, start_run, written
from rapid_lab.tracking.store import experiment_id

PUBLISHED = Path(__file__).parents[2] / "rapid_lab" / "comparison" / "published.json"
CHANGEABLE = ("device", "report", "log_model", "compile")
SEEDS = (42, 43, 44)


def published() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    return document


def digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, default=str, sort_keys=True).encode()).hexdigest()


def run_tags(method: str, dataset: str, settings: Mapping[str, object], is_biased: bool) -> dict[str, str]:
    teacher = "none" if method == "student_ce" else digest("teacher", dataset)[:16]
    return {
        names.KIND: names.STUDENT,
        names.METHOD: method,
        names.DATASET: dataset,
        names.DATA_SOURCE: "twin" if dataset.endswith("-twin") else "local",
        names.DATA_HASH: digest("data", dataset),
        names.COMPLETE: "true",
        names.BIASED: str(is_biased).lower(),
        names.DEVICE: "cpu",
        names.HARDWARE: "test processor",
        names.CONFIG_ID: digest(dataset, settings, teacher)[:16],
        names.TEACHER_ID: teacher,
        names.SOURCE_HASH: digest("source"),
        names.SCHEMA: str(names.SCHEMA_VERSION),
        names.NUMBERS: str(names.NUMBERS_VERSION),
        names.REPORT: "once",
    }


def log_student(
    method: str = "rapid",
    dataset: str = "agnews",
    seed: int = 42,
    *,
    correct: int | None = 90,
    total: int = 100,
    steps: int = 4,
    relations: Sequence[int] | None = (8, 2, 6, 2, 7),
    minutes: float | None = None,
    peak_mb: float | None = None,
    status: Status | None = "FINISHED",
    experiment: str = "Default",
    name: str | None = None,
    tags: Mapping[str, str | None] | None = None,
    **given: Value,
) -> str:
    """The id of one new run; a tag of None is left away, a status of None leaves the run RUNNING."""
    plain = dataset.partition("-twin")[0].partition("[")[0]
    settings = resolve({"method": method, "dataset": plain, "seed": seed, **given})
    params = {key: value for key, value in dataclasses.asdict(settings).items() if key not in CHANGEABLE}
    known = {**run_tags(method, dataset, params, settings.is_biased), **(tags or {})}
    run = start_run(
        experiment_id(experiment),
        name or f"{method} {dataset} seed {seed}",
        {key: value for key, value in known.items() if value is not None},
    )
    run.log_params({f"{names.PARAM_PREFIX}{key}": value for key, value in params.items()})
    if peak_mb is not None:
        run.log_metrics(steps, {names.PEAK_MB: peak_mb})
    run.log_metrics(steps, final_metrics(correct, total, steps, relations, minutes))
    if status is None:
        run.flush()
    else:
        run.finish(status)
    return run.run_id


def final_metrics(
    correct: int | None, total: int, steps: int, relations: Sequence[int] | None, minutes: float | None
) -> dict[str, float]:
    found: dict[str, float] = {}
    if correct is not None:
        accuracy = correct / total
        found |= {names.REPORT_CORRECT: correct, names.REPORT_TOTAL: total, names.REPORT_ACCURACY: accuracy}
    if minutes is not None:
        found[names.TRAIN_MINUTES] = minutes
    means = (
        names.MEAN_MAIN, names.MEAN_PILOT, names.MEAN_UNIQUE_MAIN, names.MEAN_UNIQUE_PILOT, names.MEAN_UNIQUE_UNION,
    )  # fmt: skip
    if relations is not None:
        found |= {key: count / steps for key, count in zip(means, relations, strict=True)}
    return found


def log_published() -> None:
    """The paper's seed-level counts, and nothing that it does not print by seed."""
    for dataset, methods in published()["correct_by_seed"].items():
        total = methods["total"]
        for method, counts in methods.items():
            for seed, correct in zip(SEEDS, counts if method != "total" else (), strict=method != "total"):
                log_student(method, dataset, seed, correct=correct, total=total, relations=None)


def keep_table(run: TrackedRun, name: str, columns: Mapping[str, Sequence[object]]) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / name
        pyarrow.parquet.write_table(pa.table(dict(columns)), path)
        run.log_artifact_file(path)


def make_student(method: str = "rapid", dataset: str = "agnews", seed: int = 42, **changes: Any) -> Student:
    """A student as the store would give it: fields of Student by name, every other name a setting."""
    fields = {field.name for field in dataclasses.fields(Student)}
    given = {key: value for key, value in changes.items() if key not in fields}
    plain = dataset.partition("-twin")[0].partition("[")[0]
    resolved = resolve({"method": method, "dataset": plain, "seed": seed, **given})
    params = {key: value for key, value in dataclasses.asdict(resolved).items() if key not in CHANGEABLE}
    tags = run_tags(method, dataset, params, resolved.is_biased)
    student = Student(
        run_id=digest(tags, changes)[:32],
        experiment_id="0",
        name=f"{method} {dataset} seed {seed}",
        method=method,
        dataset=dataset,
        seed=seed,
        config_id=tags[names.CONFIG_ID],
        teacher_id=tags[names.TEACHER_ID],
        source_hash=tags[names.SOURCE_HASH],
        schema_version=names.SCHEMA_VERSION,
        data_source=tags[names.DATA_SOURCE],
        data_hash=tags[names.DATA_HASH],
        device="cpu",
        hardware="test processor",
        is_biased=resolved.is_biased,
        settings={key: written(value) for key, value in params.items()},
        correct=90,
        total=100,
        steps=4,
        relations=dict(
            zip(("main", "pilot", "unique_main", "unique_pilot", "unique_union"), (8, 2, 6, 2, 7), strict=True)
        ),
        train_minutes=2.0,
        peak_mb=100.0,
    )
    return dataclasses.replace(student, **{key: value for key, value in changes.items() if key in fields})
