"""What a sweep adds to its trials, on the embedded storage with MLflow and Optuna together.

Three claims: a trial costs at most 1.5 s besides its training; two workers give at least 1.7 times the trials an hour
of one on 2 cores where training is single-threaded; 1,000 finished trials slow the next one by at most 20 %.

    python benchmarks/sweep_overhead.py [--report]

Trials train nothing: a seed is one MLflow run, and for the second claim 6 s of arithmetic in one thread. What is
compared takes turns, so that a slow minute slows both. The file is also the worker that its own commands start.
"""

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import harness
import optuna
from optuna.trial import TrialState

from rapid_lab import names
from rapid_lab.config import Value
from rapid_lab.experiment.preparation import hashed
from rapid_lab.experiment.store import current_experiment
from rapid_lab.sweep.driver import Driver, main
from rapid_lab.sweep.laboratory import Laboratory
from rapid_lab.sweep.plan import DataFacts, Plan
from rapid_lab.sweep.space import Interval, Sweep
from rapid_lab.sweep.storage import make_place
from rapid_lab.sweep.trial import SeedResult
from rapid_lab.sweep.watching import SeedWatcher
from rapid_lab.sweep.worker import Work
from rapid_lab.tracking.runs import start_run
from rapid_lab.tracking.store import prepare_store

HERE = Path(__file__).resolve()
BUSY = "BENCHMARK_BUSY_SECONDS"
IDLE = "BENCHMARK_IDLE_SECONDS"
SWEEP = Sweep(
    name="overhead",
    question=__doc__ or "",
    axes={"gate_strength": Interval(0.0, 1.0), "max_residual_mix": Interval(0.0, 1.0)},
    defaults={"method": "rapid"},
)
FEW, MANY, NEXT = 20, 1000, 30
BUSY_SECONDS, BUSY_TRIALS, TURNS = 6.0, 8, 3
SHARED_LOAD = 1.0
LIMITS = {"overhead": 1.5, "speed": 1.7, "slowing": 1.2}


def facts(given: Mapping[str, Value], say: Callable[[str], None]) -> DataFacts:
    return DataFacts("nothing", "nothing", 1800, is_twin=True)


def prepare(plan: Plan, say: Callable[[str], None]) -> None:
    """No teacher."""


def evaluate(settings: Mapping[str, Value], parent_run_id: str, watcher: SeedWatcher) -> SeedResult:
    config_id = hashed(dict(settings))
    tags = {names.KIND: names.STUDENT, names.CONFIG_ID: config_id, names.COMPLETE: "true"}
    run = start_run(current_experiment(), "nothing", tags, parent_run_id=parent_run_id)
    _compute(float(os.environ.get(BUSY, "0")))
    time.sleep(float(os.environ.get(IDLE, "0")))
    run.finish("FINISHED")
    accuracy = 0.9 - (float(str(settings["gate_strength"])) - 0.7) ** 2
    return SeedResult(run.run_id, config_id, accuracy, 1 - accuracy, 64.0, 0.0, 0.0)


LABORATORY = Laboratory(facts=facts, prepare=prepare, evaluate=evaluate)


def _compute(seconds: float) -> None:
    """Arithmetic that takes so long on a core of its own: by the processor's clock, so that a busy machine is seen."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        sum(range(1000))


def command(*words: str, busy: float = 0.0, idle: float = 0.0) -> None:
    environment = {**os.environ, BUSY: str(busy), IDLE: str(idle), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(  # noqa: S603
        [sys.executable, str(HERE), "--seeds", "1", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)


def times(study: str) -> list[tuple[datetime, datetime]]:
    """Start and end of every finished trial, in the order of their ends."""
    trials = optuna.load_study(study_name=study, storage=make_place("rapid-sweeps", study).open()).trials
    ended = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    pairs = [(trial.datetime_start, trial.datetime_complete) for trial in ended]
    return sorted(((a, b) for a, b in pairs if a and b), key=lambda pair: pair[1])


def gaps(study: str) -> list[float]:
    """Seconds from the end of a trial to the end of the next: everything a trial costs, the asking included."""
    ends = [end for _, end in times(study)]
    return [(b - a).total_seconds() for a, b in pairwise(ends)]


def trials_an_hour(study: str) -> float:
    """From the first trial's start to the last one's end: what starting a process costs does not grow with trials."""
    pairs = times(study)
    seconds = (pairs[-1][1] - min(start for start, _ in pairs)).total_seconds()
    return 3600 * len(pairs) / seconds


def work_on(study: str) -> Work:
    """A worker of this process on a study that is there."""
    driver = Driver(SWEEP, ["--seeds", "1", "--study", study], LABORATORY)
    opened, run = driver.open()
    return Work(
        plan=driver.plan,
        place=driver.place,
        study=opened,
        parent_run_id=run.run_id,
        num_trials=None,
        deadline=float("inf"),
        evaluate=evaluate,
        say=lambda line: None,
    )


def seconds_of_one_more(work: Work) -> float:
    """The next trial, from looking at the study to finding it done."""
    done = len(work.study.get_trials(deepcopy=False))
    begin = time.perf_counter()
    replace(work, num_trials=done + 1).until_done()
    return time.perf_counter() - begin


def slowing() -> tuple[float, float]:
    """Median seconds of the next trial after few and after many finished ones, the two taking turns."""
    few, many = work_on("few"), work_on("many")
    pairs = [(seconds_of_one_more(few), seconds_of_one_more(many)) for _ in range(NEXT)]
    for work in (few, many):
        work.place.leave()
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def speeds() -> dict[int, float]:
    """Median trials an hour of one worker and of two, the two taking turns."""
    found: dict[int, list[float]] = {1: [], 2: []}
    for turn, workers in itertools.product(range(TURNS), found):
        study = f"turn{turn}-{workers}"
        command("--study", study, "--workers", str(workers), "--trials", str(BUSY_TRIALS), busy=BUSY_SECONDS)
        found[workers].append(trials_an_hour(study))
    return {workers: statistics.median(values) for workers, values in found.items()}


def measure() -> Sequence[Sequence[object]]:
    command("--study", "few", "--trials", str(FEW))
    command("--study", "many", "--trials", str(MANY))
    overhead = statistics.median(gaps("many"))
    few, many = slowing()
    hourly = speeds()
    return [
        ["seconds a trial adds, median", f"{overhead:.3f}", f"at most {LIMITS['overhead']}"],
        ["trials an hour, two workers to one", f"{hourly[2] / hourly[1]:.2f}", f"at least {LIMITS['speed']}"],
        [
            f"seconds of a trial after {MANY} finished ones, to one after {FEW}",
            f"{many:.3f} / {few:.3f} = {many / few:.2f}",
            f"at most {LIMITS['slowing']}",
        ],
    ]


def benchmark(*, is_reporting: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["MLFLOW_TRACKING_URI"] = "sqlite:///mlflow.db"
        prepare_store()
        before = os.getloadavg()[0]
        rows = measure()
        after = os.getloadavg()[0]
        os.chdir("/")
    load = f"Load of the machine on {os.cpu_count()} cores: {before:.1f} before, {after:.1f} after."
    shared = " It was shared with other work: seconds are too long, and ratios rougher than on a quiet one."
    sections = [
        (__doc__ or "").strip(),
        harness.table(["what", "measured", "claimed"], rows),
        load + (shared if before > SHARED_LOAD else ""),
    ]
    print("\n\n".join(sections))
    if is_reporting:
        print(harness.write_report("sweep_overhead", "What a sweep adds to its trials", sections))


if __name__ == "__main__":
    if set(sys.argv[1:]) <= {"--report"}:
        benchmark(is_reporting=len(sys.argv) > 1)
    else:
        sys.exit(main(SWEEP, laboratory=LABORATORY))
