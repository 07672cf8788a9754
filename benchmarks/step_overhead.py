"""What does a step cost: RAPID against plain cross-entropy, the loop against a bare one, tracking against none?

    RAPID_DATA_DIR=... RAPID_MODEL_DIR=... python benchmarks/step_overhead.py [--rounds 12] [--report]

MiniLM pair (benchmarks/minilm_pair.py), B = 32, teacher cached. Every arm trains the same batches from the same
weights, in turns of one epoch each; times are medians over steps, the first two of a turn left out. With
`--processor-time` one thread is measured by the processor time it took, which other work on the machine hardly moves.
"""

import argparse
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import harness
import psutil
import torch
from minilm_pair import CPU, Pair, Silent, load_pair
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from rapid_lab.allocation import keep_freed_memory
from rapid_lab.batches import epoch_batches
from rapid_lab.experiment.run import Tracker
from rapid_lab.names import STEP_MS
from rapid_lab.seeds import seed_dropout
from rapid_lab.tracking.runs import start_run
from rapid_lab.tracking.store import experiment_id, prepare_store
from rapid_lab.training.checkpoint import adamw
from rapid_lab.training.ledger import COLUMNS, Ledger
from rapid_lab.training.loop import learning_rate_factor, train

WARM_STEPS = 2
BATCH = 32
OPERATIONS = 10  # shown of the profile
METHODS = ("student_ce", "kd", "uniform", "static", "rapid")


clock = time.perf_counter


def use_processor_time() -> None:
    """One thread, and its processor time in place of the clock on the wall, here and in the loop's ledger."""
    global clock
    clock = time.process_time
    torch.set_num_threads(1)
    Ledger._mark = lambda _: time.process_time()  # type: ignore[assignment, method-assign]


def bare_loop(pair: Pair) -> list[float]:
    """Milliseconds of each step of the loop one would write: the model's own loss, padded batches at hand."""
    settings = pair.settings("student_ce", epochs=1)
    batches = [
        pair.encoded.batch(rows, CPU)
        for rows in epoch_batches(pair.encoded, batch_size=BATCH, seed=42, epoch=1, group_by_length=False)
    ]
    model = pair.student().train()
    optimizer = adamw(model, learning_rate=settings.learning_rate, weight_decay=settings.weight_decay)
    times = []
    for step, batch in enumerate(batches):
        started = clock()
        rate = settings.learning_rate * learning_rate_factor(step, len(batches), warmup_fraction=0.06)
        for group in optimizer.param_groups:
            group["lr"] = rate
        seed_dropout(42, 1, step)
        loss = model(input_ids=batch.ids, attention_mask=batch.mask, labels=batch.labels).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), settings.gradient_clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(1000 * (clock() - started))
    return times


def our_loop(pair: Pair, method: str, folder: Path) -> list[float]:
    """Milliseconds of each step as the loop itself records them, RAPID adaptive from the start."""
    job = pair.job(method, folder)
    table = train(job).table
    job.checkpoint.unlink()
    return [float(value) for value in table[:, COLUMNS.index(STEP_MS)]]


def measure_steps(pair: Pair, rounds: int, folder: Path) -> dict[str, float]:
    """Median milliseconds a step of every arm; within a turn each batch is the same for all arms."""
    times: dict[str, list[float]] = {name: [] for name in ("bare loop", *METHODS)}
    for turn in range(rounds):
        # Each turn begins with another arm: what comes early in a turn was seen to be slower by some per cent.
        for name in [*times][turn % len(times) :] + [*times][: turn % len(times)]:
            steps = bare_loop(pair) if name == "bare loop" else our_loop(pair, name, folder)
            times[name] += steps[WARM_STEPS:]
        medians = {name: statistics.median(values) for name, values in times.items()}
        print(turn + 1, {name: round(value, 1) for name, value in medians.items()}, flush=True)
    return medians


def where_time_goes(pair: Pair, folder: Path) -> list[list[str]]:
    """The tensor operations that a RAPID step spends most of its processor time in, with their shares."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        our_loop(pair, "rapid", folder)
    events = [event for event in profiler.key_averages() if event.key.startswith(("aten::", "_fused"))]
    total = sum(event.self_cpu_time_total for event in profiler.key_averages())
    largest = sorted(events, key=lambda event: -event.self_cpu_time_total)[:OPERATIONS]
    return [[event.key, str(event.count), f"{100 * event.self_cpu_time_total / total:.1f} %"] for event in largest]


class Clocked:
    """An observer that passes every step on to a run of a real store, and adds up how long the loop waited for it."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker, self.seconds = tracker, 0.0

    def begin(self, role: str, num_steps: int, table: Tensor, epochs: Sequence[dict[str, Any]]) -> None:
        self.tracker.begin(role, num_steps, table, epochs)

    def steps(self, first: int, table: Tensor) -> None:
        started = time.perf_counter()
        self.tracker.steps(first, table)
        self.seconds += time.perf_counter() - started

    def epoch(self, record: dict[str, Any]) -> None:
        self.tracker.epoch(record)

    def say(self, line: str) -> None:
        pass


def measure_tracking(pair: Pair, folder: Path) -> dict[str, float]:
    """Shares of the training time: what the loop waits for tracking, and what the writer's thread computes."""
    with chosen_store(folder):
        prepare_store()
        run = start_run(experiment_id("benchmark"), "tracking cost", {})
        observer = Clocked(Tracker(run, Silent()))
        before = other_threads_seconds()
        trained = train(pair.job("rapid", folder, observer, epochs=4, warmup_epochs=2))
        run.flush()
        computed = other_threads_seconds() - before
        run.finish("FINISHED")
    seconds = trained.progress.seconds
    return {
        "steps": len(trained.table),
        "seconds": seconds,
        "waited": observer.seconds / seconds,
        "writer": computed / seconds,
    }


def other_threads_seconds() -> float:
    """Processor time of every Python thread but this one; torch's own threads are none of Python's."""
    names = {thread.native_id for thread in threading.enumerate() if thread is not threading.main_thread()}
    return sum(thread.user_time + thread.system_time for thread in psutil.Process().threads() if thread.id in names)


@contextmanager
def chosen_store(folder: Path) -> Iterator[None]:
    """A fresh sqlite store in this folder for as long as the block lasts."""
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder / 'mlflow.db'}"
    yield
    del os.environ["MLFLOW_TRACKING_URI"]


def judged(value: float, limit: float, *, is_upper: bool) -> str:
    """Whether a target is met, in words."""
    return "met" if (value <= limit if is_upper else value >= limit) else "**missed**"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12, help="turns of each arm")
    parser.add_argument("--texts", type=int, default=24 * BATCH, help="texts of a turn")
    parser.add_argument("--report", action="store_true", help="write benchmarks/reports/<date>-step_overhead.md")
    parser.add_argument("--processor-time", action="store_true", help="one thread, by its processor time")
    options = parser.parse_args()
    if options.processor_time:
        use_processor_time()
    keep_freed_memory()
    pair = load_pair(options.texts)
    with tempfile.TemporaryDirectory() as temporary:
        medians = measure_steps(pair, options.rounds, Path(temporary))
        profiled = where_time_goes(pair, Path(temporary))
        tracking = measure_tracking(pair, Path(temporary))
    plain = medians["student_ce"]
    rows = [[name, f"{value:.1f}", f"{value / plain:.3f}"] for name, value in medians.items()]
    rapid, loop = medians["rapid"] / plain, medians["bare loop"] / plain
    cost = tracking["waited"] + tracking["writer"]
    verdicts = [
        ["a RAPID step, in student-CE steps", f"{rapid:.3f}", "at most 1.05", judged(rapid, 1.05, is_upper=True)],
        [
            "the loop's throughput, in the bare loop's",
            f"{loop:.3f}",
            "at least 0.95",
            judged(loop, 0.95, is_upper=False),
        ],
        ["tracking, share of the step", f"{100 * cost:.2f} %", "at most 1 %", judged(cost, 0.01, is_upper=True)],
    ]
    sections = [
        f"MiniLM pair, SST-2 texts, K = 256, B = {BATCH}, float32, teacher cached; {options.rounds} turns of "
        f"{options.texts // BATCH} steps an arm, interleaved, each turn begun by another; RAPID adaptive always. "
        + ("Processor time of one thread." if options.processor_time else "Time on the wall."),
        "## Targets\n\n" + harness.table(["what", "measured", "target", ""], verdicts),
        "## A step (median)\n\n" + harness.table(["arm", "ms", "in student-CE steps"], rows),
        f"## Tracking\n\nOver {tracking['steps']:.0f} steps ({tracking['seconds']:.0f} s) written to sqlite, the loop "
        f"waited {100 * tracking['waited']:.3f} % of the training time for the buffer; the writer's thread computed "
        f"for {100 * tracking['writer']:.3f} % of it, beside the training.",
        "## Where the time goes\n\nOf a RAPID epoch's processor time, checkpoint included, by the profiler.\n\n"
        + harness.table(["operation", "calls", "share"], profiled),
    ]
    print("\n\n".join(sections))
    if options.report:
        print(harness.write_report("step_overhead", "What a step costs", sections))


if __name__ == "__main__":
    main()
