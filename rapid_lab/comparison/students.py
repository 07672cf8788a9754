"""From runs of the store to students, or to the reason why a run is in no table."""

import math
from collections.abc import Iterator, Sequence

from rapid_lab import names
from rapid_lab.comparison.records import Excluded, Student
from rapid_lab.comparison.relevance import is_sampled
from rapid_lab.errors import SettingError
from rapid_lab.objectives import METHODS
from rapid_lab.tracking.reading import StoredRun

REQUIRED_TAGS = (
    names.METHOD,
    names.DATASET,
    names.DATA_SOURCE,
    names.CONFIG_ID,
    names.TEACHER_ID,
    names.SOURCE_HASH,
    names.DEVICE,
)
RELATIONS = {
    "main": names.MEAN_MAIN,
    "pilot": names.MEAN_PILOT,
    "unique_main": names.MEAN_UNIQUE_MAIN,
    "unique_pilot": names.MEAN_UNIQUE_PILOT,
    "unique_union": names.MEAN_UNIQUE_UNION,
}
REQUIRED_METRICS = (names.REPORT_CORRECT, names.REPORT_TOTAL)
UNKNOWN = "unknown"
NOTHING = (math.nan, 0)
SEED = f"{names.PARAM_PREFIX}seed"
# How far a mean times its steps may be from a whole number: float64 keeps sums of billions closer than this.
WHOLE = 1e-3


def read_students(runs: Sequence[StoredRun]) -> tuple[list[Student], list[Excluded]]:
    """Students in the order of the runs, and by name and reason every run that might be taken for one."""
    check_schema(runs)
    students, excluded = [], []
    for run in runs:
        reason = refusal(run)
        if reason is not None:
            excluded.append(Excluded(run.run_id, run.name, reason))
        elif run.tags.get(names.KIND) == names.STUDENT:
            students.append(student_of(run))
    return students, excluded


def check_schema(runs: Sequence[StoredRun]) -> None:
    """Refuse a store that only a newer release has written."""
    versions = {version for run in runs if (version := _schema(run)) is not None}
    if versions and min(versions) > names.SCHEMA_VERSION:
        raise SettingError(
            f"the tracking store must be of schema version {names.SCHEMA_VERSION}, got {min(versions)}: "
            "a newer rapid-lab has written it; update this one"
        )


def refusal(run: StoredRun) -> str | None:
    """Why a run is in no table though it might be taken for a student; None for students and for other kinds."""
    kind = run.tags.get(names.KIND)
    if kind == names.POINTER:
        return f"a pointer to run {run.tags.get(names.POINTS_TO, UNKNOWN)}, which is counted itself"
    if kind == names.TRIAL:
        return "a trial of a sweep: trials choose by the selection split and never read the report split"
    return next(_refusals(run), None) if kind == names.STUDENT else None


def _refusals(run: StoredRun) -> Iterator[str]:
    tags = run.tags
    if _schema(run) != names.SCHEMA_VERSION:
        yield f"schema version {tags.get(names.SCHEMA, UNKNOWN)} is not the one of this table, {names.SCHEMA_VERSION}"
    if tags.get(names.NUMBERS) != str(names.NUMBERS_VERSION):
        yield (
            f"numbers version {tags.get(names.NUMBERS, UNKNOWN)} is not that of this release, {names.NUMBERS_VERSION}: "
            "a change between them moves results (CHANGELOG, Numbers)"
        )
    if run.status != "FINISHED":
        yield f"incomplete: it is {run.status}, not FINISHED"
    if tags.get(names.COMPLETE) != "true":
        yield f"incomplete: the tag {names.COMPLETE} is {tags.get(names.COMPLETE, 'missing')!r}, not 'true'"
    yield from (f"the tag {name} is missing" for name in REQUIRED_TAGS if not tags.get(name))
    if tags[names.METHOD] not in METHODS:
        yield f"its method {tags[names.METHOD]!r} is none that this release knows"
    if tags[names.DATASET].endswith("-twin") != (tags[names.DATA_SOURCE] == "twin"):
        yield f"twin and real data: {tags[names.DATASET]} came from {tags[names.DATA_SOURCE]!r}"
    if not _is_whole_text(run.params.get(SEED, "")):
        yield f"the parameter {SEED} is {run.params.get(SEED, 'missing')!r}, no seed"
    yield from _refusals_of_numbers(run)


def _refusals_of_numbers(run: StoredRun) -> Iterator[str]:
    if run.tags.get(names.REPORT) == "never" and names.REPORT_CORRECT not in run.metrics:
        yield "its report split was never read (report is 'never'): there is no accuracy to show"
    yield from (f"the metric {name} is missing" for name in REQUIRED_METRICS if name not in run.metrics)
    correct, total = (run.metrics[name][0] for name in (names.REPORT_CORRECT, names.REPORT_TOTAL))
    if not (correct.is_integer() and total.is_integer() and 0 <= correct <= total != 0):
        yield f"{correct:g} right of {total:g} is no count"
    for name in set(RELATIONS.values()) & set(run.metrics):
        mean, steps = run.metrics[name]
        if steps < 1 or abs(mean * steps - round(mean * steps)) > WHOLE:
            yield f"{name} is {mean:g} over {steps} steps, which is no whole number of relations"


def student_of(run: StoredRun) -> Student:
    """The student of a run that nothing speaks against."""
    tags, metrics = run.tags, run.metrics
    return Student(
        run_id=run.run_id,
        experiment_id=run.experiment_id,
        name=run.name,
        method=tags[names.METHOD],
        dataset=tags[names.DATASET],
        seed=int(run.params[SEED]),
        config_id=tags[names.CONFIG_ID],
        teacher_id=tags[names.TEACHER_ID],
        source_hash=tags[names.SOURCE_HASH],
        schema_version=int(tags[names.SCHEMA]),
        data_source=tags[names.DATA_SOURCE],
        data_hash=tags.get(names.DATA_HASH, UNKNOWN),
        device=tags[names.DEVICE],
        hardware=tags.get(names.HARDWARE, UNKNOWN),
        is_biased=tags.get(names.BIASED) == "true" and is_sampled(tags[names.METHOD]),
        settings=_settings(run),
        correct=int(metrics[names.REPORT_CORRECT][0]),
        total=int(metrics[names.REPORT_TOTAL][0]),
        # What is logged once at the end is logged at the last step.
        steps=metrics.get(names.MEAN_MAIN, metrics[names.REPORT_CORRECT])[1],
        relations={name: _total(metrics[key]) for name, key in RELATIONS.items() if key in metrics},
        train_minutes=metrics.get(names.TRAIN_MINUTES, NOTHING)[0],
        peak_mb=metrics.get(names.PEAK_MB, NOTHING)[0],
    )


def _total(mean_at_step: tuple[float, int]) -> int:
    mean, steps = mean_at_step
    return round(mean * steps)


def _settings(run: StoredRun) -> dict[str, str]:
    prefix = names.PARAM_PREFIX
    return {name.removeprefix(prefix): value for name, value in run.params.items() if name.startswith(prefix)}


def _schema(run: StoredRun) -> int | None:
    text = run.tags.get(names.SCHEMA, "")
    return int(text) if _is_whole_text(text) else None


def _is_whole_text(text: str) -> bool:
    return text.isascii() and text.isdecimal()
