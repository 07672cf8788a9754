"""Does the tracking hold a night's load: many writers, a long run, a full store, and memory that stays flat?

    python benchmarks/soak.py [--small] [--report]

Four parts, each through the tracking code as experiments use it, on sqlite: eight processes log 10,000 steps each to
one store; one run logs a million values; a store of 2,000 runs is searched and read; one real training on the twin
runs many epochs. What arrived is counted in the database itself, not through the code that wrote it. `--small` is a
tenth of all of it, to see that it works.
"""

import argparse
import itertools
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import compare_store
import harness
import psutil

from rapid_lab import names
from rapid_lab.tracking.reading import Wanted, read_runs
from rapid_lab.tracking.runs import TrackedRun, start_run
from rapid_lab.tracking.store import find_runs, prepare_store

PARTS = 10  # of the long run; each ends with a flush, as an epoch does
GROWTH_LIMIT = 0.01  # of the resident set, a part or an epoch after the first
TRAINING = ("run", "--data", "twin", "--method", "rapid", "--log-model", "false")


@dataclass(frozen=True)
class Load:
    """How much of everything."""

    writers: int = 8
    steps: int = 10_000
    values: int = 1_000_000
    runs: int = 2_000
    epochs: int = 30

    def tenth(self) -> "Load":
        return Load(self.writers, self.steps // 10, self.values // 10, self.runs // 10, 6)


@contextmanager
def fresh_store() -> Iterator[Path]:
    """The current folder, with a store and a cache of its own."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.chdir(folder)
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder / 'mlflow.db'}"
        os.environ["RAPID_CACHE_DIR"] = str(folder / "cache")
        prepare_store()
        yield folder
        os.chdir(Path(__file__).parent)


def log_steps(run: TrackedRun, steps: Iterator[int]) -> None:
    for step in steps:
        run.log_metrics(step, {name: step + place / 16 for place, name in enumerate(names.STEP_METRICS)})


def write_one(steps: int) -> None:
    """What each of the eight processes does."""
    run = start_run("0", "writer", {names.KIND: names.STUDENT})
    log_steps(run, iter(range(1, steps + 1)))
    run.finish("FINISHED", timeout=3600)


def lost_or_doubled(folder: Path, run_id: str, steps: int) -> int:
    """Of the values that were logged, how many the store has not exactly once and with its own value."""
    query = "SELECT step, value, COUNT(*) FROM metrics WHERE run_uuid = ? AND key = ? GROUP BY step, value"
    wrong = 0
    with closing(sqlite3.connect(folder / "mlflow.db")) as store:
        for place, name in enumerate(names.STEP_METRICS):
            found = set(store.execute(query, (run_id, name)))
            wrong += len(found ^ {(step, step + place / 16, 1) for step in range(1, steps + 1)})
    return wrong


def many_writers(load: Load) -> list[str]:
    """Row of the report: writers, values, seconds, values a second, how many went wrong."""
    with fresh_store() as folder:
        begin = time.perf_counter()
        command = [sys.executable, str(Path(__file__)), "--writer", str(load.steps)]
        writers = [subprocess.Popen(command) for _ in range(load.writers)]  # noqa: S603
        codes = [writer.wait() for writer in writers]
        seconds = time.perf_counter() - begin
        runs = find_runs("0", {names.KIND: names.STUDENT})
        wrong = sum(lost_or_doubled(folder, run.run_id, load.steps) for run in runs)
    if codes != [0] * load.writers or [run.status for run in runs] != ["FINISHED"] * load.writers:
        raise RuntimeError(f"writers ended with {codes}, their runs as {[run.status for run in runs]}")
    count = load.writers * load.steps * len(names.STEP_METRICS)
    return [f"{load.writers} writers, {load.steps:,} steps each", f"{count:,}", *rates(count, seconds), str(wrong)]


def rates(count: int, seconds: float) -> tuple[str, str]:
    return f"{seconds:.0f} s", f"{count / seconds:,.0f}"


def long_run(load: Load) -> tuple[list[str], list[float]]:
    """The same row for one run, and the resident set in MiB after each part."""
    steps = load.values // len(names.STEP_METRICS)
    resident: list[float] = []
    with fresh_store() as folder:
        run = start_run("0", "long", {names.KIND: names.STUDENT})
        begin = time.perf_counter()
        for part in parts(steps):
            log_steps(run, iter(part))
            run.flush(3600)
            resident.append(psutil.Process().memory_info().rss / 2**20)
        run.finish("FINISHED")
        seconds = time.perf_counter() - begin
        wrong = lost_or_doubled(folder, run.run_id, steps)
    count = steps * len(names.STEP_METRICS)
    return [f"one run, {steps:,} steps", f"{count:,}", *rates(count, seconds), str(wrong)], resident


def parts(steps: int) -> Iterator[range]:
    size = -(-steps // PARTS)
    for first in range(1, steps + 1, size):
        yield range(first, min(first + size, steps + 1))


def growth(resident: Sequence[float]) -> float:
    """The largest relative step from one part to the next, after the first."""
    return max(after / before - 1 for before, after in itertools.pairwise(resident[1:]))


def full_store(load: Load) -> list[list[str]]:
    """Rows of what a user does with a store of so many runs."""
    with fresh_store() as folder:
        compare_store.grow(folder, load.runs)
        wanted = next(compare_store.copies())
        found = {
            "find a finished run by its config id": lambda: find_runs("0", {names.CONFIG_ID: wanted.run_id[:16]}),
            "start and finish a run": lambda: start_run("0", "one more", {}).finish("FINISHED"),
            "read every run for a comparison": lambda: read_runs(Wanted()),
        }
        medians = harness.interleaved_medians(found, seconds=30)
        timing = compare_store.timed(folder)
        size = (folder / "mlflow.db").stat().st_size / 2**20
    rows = [[name, f"{seconds:.2f} s"] for name, seconds in medians.items()]
    rows += [["main table", f"{timing.main_table:.1f} s"], ["full report", f"{timing.full_report:.1f} s"]]
    return [*rows, ["database", f"{size:,.0f} MiB"]]


def training_memory(load: Load) -> list[float]:
    """The resident set of a real training, in MiB, when it tells of each epoch."""
    command = [sys.executable, "-m", "rapid_lab", *TRAINING, "--epochs", str(load.epochs)]
    with fresh_store(), subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as training:  # noqa: S603
        process, resident = psutil.Process(training.pid), []
        for line in training.stderr or ():
            if line.startswith("rapid ") and f"/{load.epochs} " in line:
                resident.append(process.memory_info().rss / 2**20)
    if training.returncode or len(resident) != load.epochs:
        raise RuntimeError(f"the training ended with {training.returncode} after {len(resident)} epochs")
    return resident


def sections_of(load: Load) -> list[str]:
    several = many_writers(load)
    single, resident = long_run(load)
    trained = training_memory(load)
    header = ["load", "values", "time", "values a second", "lost, doubled or changed"]
    memory = [
        ["one run of a million values, part by part", spoken(resident), f"{growth(resident):.2%}"],
        ["a training on the twin, epoch by epoch", spoken(trained), f"{growth(trained):.2%}"],
    ]
    verdicts = [
        ["nothing lost", f"{several[-1]} and {single[-1]} values", met(several[-1] == single[-1] == "0")],
        ["writer's memory flat", f"{growth(resident):.2%} a part", met(growth(resident) <= GROWTH_LIMIT)],
        ["training's memory flat", f"{growth(trained):.2%} an epoch", met(growth(trained) <= GROWTH_LIMIT)],
    ]
    return [
        f"{os.cpu_count()} cores, sqlite with its write-ahead log, {len(names.STEP_METRICS)} metrics a step. Values "
        "are logged as fast as the spool takes them, which no training does. What arrived is counted in SQL, by "
        "step and value.",
        harness.table(header, [several, single]),
        "## Memory\n\nMiB. The last column is the largest growth from one to the next, after the first.\n\n"
        + harness.table(["what", "resident", "growth"], memory),
        f"## A store of {load.runs:,} runs\n\n" + harness.table(["what", "takes"], full_store(load)),
        "## Reading\n\n" + harness.table(["target", "measured", "met"], verdicts),
    ]


def spoken(values: Sequence[float]) -> str:
    return " ".join(f"{value:.0f}" for value in values)


def met(is_met: bool) -> str:
    return "yes" if is_met else "no"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--writer", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--small", action="store_true", help="a tenth of the load")
    parser.add_argument("--report", action="store_true", help="write benchmarks/reports/<date>-soak.md")
    options = parser.parse_args()
    if options.writer:
        write_one(options.writer)
        return
    sections = sections_of(Load().tenth() if options.small else Load())
    print("\n\n".join(sections))
    if options.report:
        print(harness.write_report("soak", "A night's load on the tracking store", sections))


if __name__ == "__main__":
    main()
