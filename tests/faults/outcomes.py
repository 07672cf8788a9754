"""What a folder holds after its runs: numbers to compare, and what must hold of any store."""

import json
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import torch
from faults.children import NUM_EPOCHS, NUM_STEPS, store_in
from mlflow.artifacts import download_artifacts
from mlflow.entities import Run
from torch import Tensor

from rapid_lab import names
from rapid_lab.experiment.run import selected_file
from rapid_lab.files import open_tensors
from rapid_lab.tracking.artifacts import logged_model, model_weights
from rapid_lab.tracking.door import client
from rapid_lab.tracking.runs import existing_run
from rapid_lab.tracking.spool import left_behind

MEASURED = {names.STEP_MS, names.PEAK_MB, names.TRAIN_MINUTES, names.CPU_PERCENT, names.MEMORY_MB}
COUNTED = ("relations", "steps", "epochs", "selected_epoch", "report", "config_id", "identity")


@dataclass(frozen=True)
class Outcome:
    """The numbers of one student."""

    weights: dict[str, Tensor]
    predictions: dict[str, list[Any]]
    result: dict[str, Any]
    metrics: dict[str, list[tuple[int, float]]]


@dataclass(frozen=True)
class Undisturbed:
    """The folder of a run that nothing happens to, its numbers, and how long it took."""

    folder: Path
    outcome: Outcome
    seconds: float


def copy_store(made_store: Path, folder: Path) -> None:
    """A store with its tables, in that folder, as its artifacts are."""
    with closing(sqlite3.connect(made_store)) as old, closing(sqlite3.connect(folder / "mlflow.db")) as new:
        old.backup(new)
        new.execute("UPDATE experiments SET artifact_location = ?", (f"{folder}/mlruns/0",))
        new.commit()


def runs(kind: str | None = None) -> list[Run]:
    """The runs of the current store."""
    found = client().search_runs(["0"], max_results=1000)
    return [run for run in found if kind is None or run.data.tags.get(names.KIND) == kind]


def outcome(folder: Path) -> Outcome:
    """Of the folder's one student."""
    with store_in(folder):
        (student,) = runs(names.STUDENT)
        return student_outcome(student, folder)


def student_outcome(student: Run, folder: Path) -> Outcome:
    run_id = student.info.run_id
    result = json.loads(Path(download_artifacts(f"runs:/{run_id}/{names.RESULT}")).read_text(encoding="utf-8"))
    predictions = Path(download_artifacts(f"runs:/{run_id}/{names.PREDICTIONS}"))
    metrics = {key: history(run_id, key) for key in student.data.metrics if key not in MEASURED}
    return Outcome(
        weights=weights(run_id, folder / "cache" / "runs" / result["config_id"]),
        predictions=parquet.read_table(predictions).to_pydict(),
        result={name: result[name] for name in COUNTED},
        metrics=metrics,
    )


def weights(run_id: str, folder: Path) -> dict[str, Tensor]:
    """The selected weights, which are kept once: in the model or in the cache."""
    model_id, selected = logged_model(existing_run(run_id)), selected_file(folder, run_id)
    assert (model_id is None) == selected.exists()
    return open_tensors(selected)[0] if model_id is None else model_weights(model_id)


def history(run_id: str, key: str) -> list[tuple[int, float]]:
    return sorted((metric.step, metric.value) for metric in client().get_metric_history(run_id, key))


def assert_same(found: Outcome, reference: Outcome) -> None:
    """Bit for bit."""
    assert found.result == reference.result
    assert found.predictions == reference.predictions
    assert found.metrics == reference.metrics
    assert found.weights.keys() == reference.weights.keys()
    assert all(torch.equal(found.weights[name], tensor) for name, tensor in reference.weights.items())


def assert_whole(folder: Path) -> None:
    """No step is missing or doubled, nothing is RUNNING, nothing waits to be sent, and no half file is left."""
    with store_in(folder):
        assert Counter(run.info.status for run in runs()).keys() == {"FINISHED"}
        for student in runs(names.STUDENT):
            run_id = student.info.run_id
            assert student.data.tags[names.COMPLETE] == "true"
            for key in names.STEP_METRICS:
                assert [step for step, _ in history(run_id, key)] == list(range(1, NUM_STEPS + 1)), key
            for key in names.EPOCH_METRICS:
                assert len(history(run_id, key)) == NUM_EPOCHS, key
            for key in names.FINAL_METRICS:
                assert len(history(run_id, key)) == 1, key
        (teacher,) = runs(names.TEACHER)
        assert len(history(teacher.info.run_id, names.TEACHER_TEMPERATURE)) == 1
        assert left_behind() == []
    cache = folder / "cache"
    assert [path.name for path in cache.rglob("*.tmp")] == []
    assert [path.name for path in cache.rglob("checkpoint.safetensors")] == []
