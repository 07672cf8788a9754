"""What a run leaves behind: names, tags, parameters, metrics, the result document, predictions."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import torch
from torch import Tensor

from rapid_lab import names
from rapid_lab.data.sources import TextData
from rapid_lab.experiment.preparation import Prepared
from rapid_lab.names import NUMBERS_VERSION
from rapid_lab.objectives import METHODS
from rapid_lab.teacher import Teacher
from rapid_lab.tracking.artifacts import log_dataset, read_text
from rapid_lab.tracking.provenance import SOURCE_HASH, provenance
from rapid_lab.tracking.runs import TrackedRun
from rapid_lab.training.distributed import Ranks
from rapid_lab.training.ledger import COLUMNS
from rapid_lab.training.loop import Trained
from rapid_lab.training.resources import device_name


def run_name(prepared: Prepared) -> str:
    """Readable in a list of runs."""
    return f"{prepared.settings.method} {prepared.data.name} seed {prepared.settings.seed}"


def machine_tags(prepared: Prepared, ranks: Ranks) -> dict[str, str]:
    """What trains: a run that goes on elsewhere changes them. Times of another number of devices share no cell."""
    name = device_name(prepared.device)
    return {
        names.DEVICE: prepared.device.type,
        names.HARDWARE: name if ranks.size == 1 else f"{ranks.size} x {name}",
        names.WORLD_SIZE: str(ranks.size),
    }


def tags(prepared: Prepared, ranks: Ranks) -> dict[str, str]:
    """The tags tables and searches rely on."""
    return {
        names.KIND: names.STUDENT,
        names.METHOD: prepared.settings.method,
        names.DATASET: prepared.data.name,
        names.DATA_SOURCE: prepared.data.source,
        names.DATA_HASH: prepared.data.data_hash,
        names.COMPLETE: "false",
        names.BIASED: str(prepared.settings.is_biased).lower(),
        **machine_tags(prepared, ranks),
        names.RESUMED: "false",
        names.CONFIG_ID: prepared.config_id,
        names.TEACHER_ID: prepared.teacher.teacher_id if prepared.teacher else "none",
        names.SOURCE_HASH: SOURCE_HASH,
        names.SCHEMA: str(names.SCHEMA_VERSION),
        names.NUMBERS: str(NUMBERS_VERSION),
        names.REPORT: prepared.settings.report,
    }


def params(prepared: Prepared) -> dict[str, Any]:
    """The resolved settings, as MLflow names them."""
    return {f"{names.PARAM_PREFIX}{name}": value for name, value in dataclasses.asdict(prepared.settings).items()}


def result(prepared: Prepared, teacher: Teacher | None, trained: Trained, ranks: Ranks) -> dict[str, Any]:
    """Everything the paper's reproducibility section lists: counts, not rates."""
    progress = trained.progress
    sums = dict(zip(COLUMNS, trained.table.sum(0).tolist(), strict=True))
    return {
        "schema_version": names.SCHEMA_VERSION,
        "numbers_version": NUMBERS_VERSION,
        "config_id": prepared.config_id,
        "identity": prepared.identity,
        "settings": dataclasses.asdict(prepared.settings),
        "method": prepared.settings.method,
        "is_biased": prepared.settings.is_biased,
        "dataset": prepared.data.name,
        "data": {
            "source": prepared.data.source,
            "hash": prepared.data.data_hash,
            "rows": len(prepared.data.train),
            "train_rows_in_report": prepared.data.train_rows_in_report,
        },
        "split": {
            "train": len(prepared.split.train),
            "selection": len(prepared.split.selection),
            "indices_hash": prepared.split.indices_hash,
        },
        "teacher": {"id": teacher.teacher_id, **teacher.facts} if teacher else None,
        "device": prepared.device.type,
        "world_size": ranks.size,
        "precision": str(prepared.dtype),
        "steps": len(trained.table),
        "relations": {name.removeprefix("relations/"): int(sums[name]) for name in COLUMNS if "relations/" in name},
        "selected_epoch": progress.selected_epoch,
        "epochs": progress.epochs,
        "train_seconds": progress.seconds,
        "parts": progress.parts,
        "peak_memory_mb": float(trained.table[-1, COLUMNS.index(names.PEAK_MB)]),
        "report": None,
        "provenance": provenance(),
    }


def final_metrics(document: dict[str, Any]) -> dict[str, float]:
    """What is logged once, derived from the document's counts."""
    steps, relations = document["steps"], document["relations"]
    metrics = {
        names.TRAIN_MINUTES: document["train_seconds"] / 60,
        names.MEAN_MAIN: relations["main"] / steps,
        names.MEAN_PILOT: relations["pilot"] / steps,
        names.MEAN_UNIQUE_MAIN: relations["unique_main"] / steps,
        names.MEAN_UNIQUE_PILOT: relations["unique_pilot"] / steps,
        names.MEAN_UNIQUE_UNION: relations["unique_union"] / steps,
    }
    if document["report"]:
        metrics[names.REPORT_ACCURACY] = document["report"]["accuracy"]
        metrics[names.REPORT_CORRECT] = document["report"]["correct"]
        metrics[names.REPORT_TOTAL] = document["report"]["total"]
    return metrics


def description(prepared: Prepared, document: dict[str, Any]) -> str:
    """Markdown above the run in the MLflow UI."""
    label = METHODS[prepared.settings.method].label
    lines = [
        f"**{label}** on **{prepared.data.name}**, seed {prepared.settings.seed}.",
        f"Selected epoch {document['selected_epoch']} of {prepared.settings.epochs} on the selection split.",
    ]
    if prepared.data.train_rows_in_report:
        lines.append(f"{prepared.data.train_rows_in_report} training rows have a text of the report split.")
    if prepared.settings.is_biased:
        lines.append("Corrections are clipped: the estimator is biased.")
    return "\n\n".join([*lines, *report_lines(prepared.data, document["report"])])


def report_lines(data: TextData, report: dict[str, Any] | None) -> list[str]:
    """What a description says of the report split, and whether that is of real data."""
    lines = []
    if report:
        share = 100 * report["accuracy"]
        lines.append(f"Report split: {report['correct']} of {report['total']} right ({share:.2f} %).")
    if data.is_twin:
        lines.append("The twin's texts are generated: this is no result on real data.")
    return lines


def log_data(prepared: Prepared, tracked: TrackedRun) -> None:
    """The data set as an input of the run."""
    rows = {"train": len(prepared.split.train), "selection": len(prepared.split.selection)}
    data = prepared.data
    log_dataset(tracked, name=data.name, digest=data.data_hash, source=data.source, rows=rows)


def step_table(table: Tensor) -> pa.Table:
    """Every step with every column that the store has, in one file that loads at once."""
    columns = {name: column.tolist() for name, column in zip(COLUMNS, table.unbind(1), strict=True)}
    return pa.table({"step": list(range(1, len(table) + 1)), **columns})


def write_table(path: Path, table: pa.Table) -> None:
    """As parquet."""
    pyarrow.parquet.write_table(table, path)


def predictions(labels: Tensor, logits: Tensor) -> pa.Table:
    """One row for each example of the report split."""
    probs = torch.softmax(logits.double(), dim=1)
    return pa.table(
        {
            "row": pa.array(range(len(labels)), pa.int64()),
            "label": pa.array(labels.tolist(), pa.int64()),
            "predicted": pa.array(logits.argmax(1).tolist(), pa.int64()),
            "probs": pa.array(probs.tolist(), pa.list_(pa.float64())),
        }
    )


def read_result(tracked: TrackedRun) -> dict[str, Any]:
    """The result document of a finished run."""
    document: dict[str, Any] = json.loads(read_text(tracked, names.RESULT))
    return document
