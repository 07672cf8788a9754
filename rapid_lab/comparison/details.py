"""What figures and example-level tests read of single runs: fetched when asked for, and not kept for long."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import pyarrow.parquet

from rapid_lab import names
from rapid_lab.comparison.records import Details, Student
from rapid_lab.tracking.reading import StoredRun, artifact_path, metric_histories

Found = TypeVar("Found")
# What figures and claims read of a step table.
STEP_COLUMNS = (
    "step",
    names.RELATIONS_MAIN,
    names.RELATIONS_PILOT,
    names.RELATIONS_UNIQUE_MAIN,
    names.RELATIONS_UNIQUE_PILOT,
    names.RELATIONS_UNIQUE_UNION,
    names.ESS_FRACTION,
    names.MAX_CORRECTION,
)
# Without the probabilities: nothing reads them, and they are most of the file.
PREDICTION_COLUMNS = ("row", "label", "predicted")
# A report reads setup after setup, and each a few times; a store may hold more than memory does.
KEPT = 256


class Fetched(Mapping[str, Found]):
    """A mapping whose values are read from the store when they are asked for; what cannot be read is not in it."""

    def __init__(self, keys: Sequence[str], fetch: Callable[[str], Found | None]) -> None:
        self._keys = dict.fromkeys(keys)
        self._fetch = lru_cache(maxsize=KEPT)(fetch)

    def __getitem__(self, key: str) -> Found:
        found = self._fetch(key) if key in self._keys else None
        if found is None:
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[str]:
        return (key for key in self._keys if self._fetch(key) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def details_of(
    students: Sequence[Student], runs: Mapping[str, StoredRun], teachers: Sequence[StoredRun], scratch: Path
) -> Details:
    """The details of these students and of their teachers; artifacts from afar are fetched into `scratch`."""
    run_ids = [student.run_id for student in students]
    wanted = {student.teacher_id for student in students}
    # The first finished run of a teacher speaks for it.
    of_teacher = {
        run.tags[names.TEACHER_ID]: run
        for run in reversed(teachers)
        if run.tags.get(names.TEACHER_ID) in wanted and run.status == "FINISHED"
    }
    return Details(
        selection=selection_tables(run_ids),
        steps=Fetched(run_ids, lambda run_id: read_table(runs[run_id], names.STEPS, STEP_COLUMNS, scratch)),
        predictions=Fetched(
            run_ids, lambda run_id: read_table(runs[run_id], names.PREDICTIONS, PREDICTION_COLUMNS, scratch)
        ),
        calibration=Fetched(
            list(of_teacher), lambda teacher_id: read_document(of_teacher[teacher_id], names.CALIBRATION, scratch)
        ),
        teachers={
            teacher_id: {name: value for name, (value, _) in run.metrics.items()}
            for teacher_id, run in of_teacher.items()
        },
    )


def selection_tables(run_ids: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Accuracy and NLL on the selection split by epoch, of every run that logged them."""
    accuracies = metric_histories(run_ids, names.SELECTION_ACCURACY)
    losses = {run_id: dict(history) for run_id, history in metric_histories(run_ids, names.SELECTION_NLL).items()}
    return {
        run_id: pd.DataFrame(
            {
                "epoch": range(1, len(history) + 1),
                "step": [step for step, _ in history],
                "accuracy": [value for _, value in history],
                "nll": [losses.get(run_id, {}).get(step) for step, _ in history],
            }
        )
        for run_id, history in accuracies.items()
    }


def read_table(run: StoredRun, name: str, columns: Sequence[str], scratch: Path) -> pd.DataFrame | None:
    """Those of the columns that a parquet artifact has; None where it cannot be read."""
    path = artifact_path(run, name, scratch)
    if path is None:
        return None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            present = [column for column in columns if column in file.schema_arrow.names]
            return file.read(present, use_threads=False).to_pandas()
    except (pyarrow.ArrowException, OSError):
        return None


def read_document(run: StoredRun, name: str, scratch: Path) -> dict[str, Any] | None:
    """A JSON artifact; None where it cannot be read."""
    path = artifact_path(run, name, scratch)
    try:
        document = None if path is None else json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None
