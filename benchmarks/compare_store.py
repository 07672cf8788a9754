"""How long does a store of 1,000 runs take to become tables and a report?

    python benchmarks/compare_store.py [--runs 250 500 1000] [--rounds 3] [--folder kept/between/calls] [--report]

One run with 1,000 steps is logged through the tracking code and its rows are copied in SQL: six methods, ten seeds, and
as many relation budgets as it takes, each copy with counts, predictions and artifacts of its own. What is timed is the
command as a user types it, in a fresh process: until the main table is on standard output, and until the report with
its tables, figures and statistics is written and logged.
"""

import argparse
import dataclasses
import hashlib
import itertools
import json
import os
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import harness
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet

from rapid_lab import names
from rapid_lab.config import resolve
from rapid_lab.objectives import METHODS, PAPER_METHODS
from rapid_lab.tracking.runs import start_run
from rapid_lab.tracking.store import prepare_store

STEPS, EPOCHS, SEEDS = 1000, 10, 10
EXAMPLES, CLASSES = 7600, 4
FINAL = {
    names.MEAN_MAIN: 235.2,
    names.MEAN_PILOT: 20.8,
    names.MEAN_UNIQUE_MAIN: 177.485,
    names.MEAN_UNIQUE_PILOT: 20.285,
    names.MEAN_UNIQUE_UNION: 190.0,
    names.TRAIN_MINUTES: 12.5,
}
TARGETS = {"main table": 10.0, "full report": 60.0}
SHOWN = "* highest mean"  # the line below the main table
COPY = {
    "params": "INSERT INTO params (key, value, run_uuid) SELECT key, value, :new FROM params WHERE run_uuid = :old",
    "tags": "INSERT INTO tags (key, value, run_uuid) SELECT key, value, :new FROM tags WHERE run_uuid = :old",
    **{
        table: f"INSERT INTO {table} (key, value, timestamp, step, is_nan, run_uuid) "  # noqa: S608
        "SELECT key, CASE WHEN key LIKE 'relations/%' THEN value * :relational ELSE value END, "
        f"timestamp, step, is_nan, :new FROM {table} WHERE run_uuid = :old"
        for table in ("metrics", "latest_metrics")
    },
}


class Copy(NamedTuple):
    """What tells one copy from the others."""

    budget: int
    seed: int
    method: str

    @property
    def run_id(self) -> str:
        return hashlib.md5(repr(self).encode(), usedforsecurity=False).hexdigest()

    @property
    def is_relational(self) -> bool:
        return METHODS[self.method].has_relations

    def right(self) -> np.ndarray:
        """Which examples it has right: chance, and a little more of it with relations."""
        share = 0.94 + 0.001 * PAPER_METHODS.index(self.method)
        return np.random.default_rng(int(self.run_id[:12], 16)).random(EXAMPLES) < share


def copies() -> Iterator[Copy]:
    for number in itertools.count(1):
        for seed, method in itertools.product(range(42, 42 + SEEDS), PAPER_METHODS):
            yield Copy(16 * number, seed, method)


def log_original() -> str:
    """One run, logged as an experiment logs it."""
    prepare_store()
    settings = resolve({"method": "rapid"})
    tags = {
        names.KIND: names.STUDENT, names.METHOD: "rapid", names.DATASET: "agnews", names.DATA_SOURCE: "local",
        names.DATA_HASH: "d" * 64, names.COMPLETE: "true", names.BIASED: "false", names.DEVICE: "cpu",
        names.HARDWARE: "a processor", names.RESUMED: "false", names.CONFIG_ID: "0" * 16, names.TEACHER_ID: "1" * 16,
        names.SOURCE_HASH: "5" * 64, names.SCHEMA: str(names.SCHEMA_VERSION),
        names.NUMBERS: str(names.NUMBERS_VERSION), names.REPORT: "once",
    }  # fmt: skip
    run = start_run("0", "original", tags)
    run.log_params({f"{names.PARAM_PREFIX}{name}": value for name, value in dataclasses.asdict(settings).items()})
    for step, row in enumerate(step_values(1).tolist(), start=1):
        run.log_metrics(step, dict(zip(names.STEP_METRICS, row, strict=True)))
    for epoch in range(1, EPOCHS + 1):
        values = {names.SELECTION_ACCURACY: 0.9 + epoch / 250, names.SELECTION_NLL: 0.3 - epoch / 100}
        run.log_metrics(epoch * STEPS // EPOCHS, values | {names.RESIDUAL_MIX: 0.05 * epoch})
    report = {names.REPORT_CORRECT: 7161.0, names.REPORT_TOTAL: EXAMPLES, names.REPORT_ACCURACY: 7161 / EXAMPLES}
    run.log_metrics(STEPS, FINAL | report)
    run.finish("FINISHED")
    return run.run_id


def step_values(relational: float) -> np.ndarray:
    """A row of plausible values for each step."""
    generator = np.random.default_rng(1)
    table = generator.random((STEPS, len(names.STEP_METRICS)))
    counts = np.array([235, 21, 177, 20, 190]) * relational
    table[:, : len(counts)] = counts
    return table


def write_artifacts(folder: Path, copy: Copy, steps: Mapping[bool, Path]) -> None:
    folder.mkdir(parents=True)
    shutil.copyfile(steps[copy.is_relational], folder / names.STEPS)
    labels = np.arange(EXAMPLES) % CLASSES
    predicted = np.where(copy.right(), labels, (labels + 1) % CLASSES)
    probs = np.full((EXAMPLES, CLASSES), 0.25)
    table = {"row": np.arange(EXAMPLES), "label": labels, "predicted": predicted, "probs": list(probs)}
    pyarrow.parquet.write_table(pa.table(table), folder / names.PREDICTIONS)
    (folder / names.RESULT).write_text(json.dumps({"steps": STEPS}), encoding="utf-8")


def write_copy(store: sqlite3.Connection, original: str, copy: Copy, artifacts: Path) -> None:
    """Every row of the original under a new run id, and what differs."""
    columns = [row[1] for row in store.execute("PRAGMA table_info(runs)")]
    changed = {"run_uuid": ":new", "name": ":name", "artifact_uri": ":artifacts", "lifecycle_stage": "'active'"}
    chosen = ", ".join(changed.get(column, column) for column in columns)
    values: dict[str, object] = {
        "old": original, "new": copy.run_id, "name": f"{copy.method} agnews seed {copy.seed}",
        "artifacts": str(artifacts), "relational": 1.0 if copy.is_relational else 0.0,
    }  # fmt: skip
    store.execute(
        f"INSERT INTO runs ({', '.join(columns)}) SELECT {chosen} FROM runs WHERE run_uuid = :old",  # noqa: S608
        values,
    )
    for statement in COPY.values():
        store.execute(statement, values)
    prefix = names.PARAM_PREFIX
    params = {"method": copy.method, "seed": copy.seed, "relation_budget": copy.budget}
    changes: list[tuple[str, str, str | float]] = [
        ("params", f"{prefix}{name}", str(value)) for name, value in params.items()
    ]
    changes += [("tags", names.METHOD, copy.method), ("tags", names.CONFIG_ID, copy.run_id[:16])]
    if copy.method == "student_ce":
        changes.append(("tags", names.TEACHER_ID, "none"))
    correct = int(copy.right().sum())
    for table in ("metrics", "latest_metrics"):
        changes += [(table, names.REPORT_CORRECT, float(correct)), (table, names.REPORT_ACCURACY, correct / EXAMPLES)]
    for table, key, value in changes:
        store.execute(f"UPDATE {table} SET value = ? WHERE run_uuid = ? AND key = ?", (value, copy.run_id, key))  # noqa: S608


def grow(folder: Path, count: int) -> None:
    """Fill the store of a folder up to this many finished runs; the original is a deleted run and counts in none."""
    note = folder / "grown.json"
    known: dict[str, Any] = {"count": 0}
    known = json.loads(note.read_text(encoding="utf-8")) if note.exists() else known | {"original": log_original()}
    tables = {is_relational: folder / f"steps-{is_relational}.parquet" for is_relational in (False, True)}
    for is_relational, path in tables.items():
        columns = dict(zip(names.STEP_METRICS, step_values(float(is_relational)).T, strict=True))
        pyarrow.parquet.write_table(pa.table({"step": np.arange(1, STEPS + 1), **columns}), path)
    if known["count"] > count:
        raise ValueError(f"{folder} already holds {known['count']} runs: a store of {count} needs a folder of its own")
    with closing(sqlite3.connect(folder / "mlflow.db")) as store:
        for copy in itertools.islice(copies(), known["count"], count):
            artifacts = folder / "artifacts" / copy.run_id
            shutil.rmtree(artifacts, ignore_errors=True)
            write_artifacts(artifacts, copy, tables)
            write_copy(store, known["original"], copy, artifacts)
        store.execute("UPDATE runs SET lifecycle_stage = 'deleted' WHERE run_uuid = ?", (known["original"],))
        store.commit()
    note.write_text(json.dumps(known | {"count": max(count, known["count"])}), encoding="utf-8")


class Timing(NamedTuple):
    """One call of the command: seconds by the clock and of processor time, bytes of the report."""

    main_table: float
    main_table_cpu: float
    full_report: float
    full_report_cpu: float
    size: float


def timed(folder: Path) -> Timing:
    with tempfile.TemporaryDirectory() as output:
        command = [sys.executable, "-m", "rapid_lab", "compare", "--output", output]
        begin, spent = time.perf_counter(), children_seconds()
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
            lines = iter(process.stdout or ())
            if not any(line.startswith(SHOWN) for line in lines):
                raise RuntimeError("compare ended without a main table")
            shown, used = time.perf_counter() - begin, sum(psutil.Process(process.pid).cpu_times()[:2])
            list(lines)
        if process.returncode:
            raise RuntimeError(f"compare ended with exit code {process.returncode}")
        size = (Path(output) / "report.html").stat().st_size
        return Timing(shown, used, time.perf_counter() - begin, children_seconds() - spent, size)


def children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(folder: Path, counts: list[int], rounds: int) -> dict[int, tuple[Timing, float]]:
    """Medians at each size, and how many processes wanted a core before."""
    found = {}
    for count in sorted(counts):
        grow(folder, count)
        load = os.getloadavg()[0]
        columns = zip(*(timed(folder) for _ in range(rounds)), strict=True)
        found[count] = (Timing(*map(statistics.median, columns)), load)
        print(count, *found[count], flush=True)
    return found


def sections_of(found: Mapping[int, tuple[Timing, float]], rounds: int) -> list[str]:
    header = ["runs", "main table", "of the processor", "full report", "of the processor", "report.html", "load before"]
    rows = [
        [count, *(f"{seconds:.1f} s" for seconds in timing[:4]), f"{timing.size / 2**20:.1f} MiB", f"{load:.1f}"]
        for count, (timing, load) in found.items()
    ]
    largest, smallest = max(found), min(found)
    most, least = found[largest][0], found[smallest][0]
    verdicts = []
    for name, seconds in (("main table", most.main_table), ("full report", most.full_report)):
        is_met = "yes" if seconds <= TARGETS[name] else "no"
        verdicts.append([f"{name} of {largest} runs within {TARGETS[name]:g} s", f"{seconds:.1f} s", is_met])
    growth = most.full_report_cpu / least.full_report_cpu
    grown = f"{growth:.1f} times the processor time for {largest / smallest:g} times the runs"
    is_linear = growth <= largest / smallest
    verdicts.append(["the cost grows at most linearly in runs", grown, "yes" if is_linear else "no"])
    return [
        f"Six methods, {SEEDS} seeds, a relation budget for each 60 runs; {STEPS} steps a run, {EXAMPLES} predictions. "
        f"The whole command in a fresh process, imports included; medians of {rounds}. {os.cpu_count()} cores, one "
        "of them used by the command; the load is the average number of processes that wanted a core in the minute "
        "before.",
        harness.table(header, rows),
        "## Reading\n\n" + harness.table(["target", "measured", "met"], verdicts),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, nargs="+", default=[250, 500, 1000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="keep the store here, and grow the one that is here")
    parser.add_argument("--report", action="store_true", help="write benchmarks/reports/<date>-compare_store.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        os.chdir(folder)
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder / 'mlflow.db'}"
        sections = sections_of(measure(folder, options.runs, options.rounds), options.rounds)
    print("\n\n".join(sections))
    if options.report:
        print(harness.write_report("compare_store", "A store of many runs as tables and a report", sections))


if __name__ == "__main__":
    main()
