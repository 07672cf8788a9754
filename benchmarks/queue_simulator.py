"""How many workers can a study and its tracking store bear? The queues simulated, and checked against real workers.

    python benchmarks/queue_simulator.py             # what it says of 1 to 1024 workers
    python benchmarks/queue_simulator.py --report    # one and two real workers first: 3 minutes

A worker waits for the study's lock, holds it while it asks for the settings of a trial (`lock`), works on its own
(`own`: everything that other workers do not slow), is served by the tracking store (`store`), and asks again. Both
queues are first come, first served. The check takes `lock` and `own` from a single worker whose trials train nothing,
predicts how many trials a second two workers finish, and sets beside it what two real ones did.
"""

import heapq
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import harness
import sweep_overhead

from rapid_lab.sweep.storage import Lock
from rapid_lab.tracking.store import prepare_store

TRIALS, SKIPPED = 40, 6  # of each real measurement; the first ones wait for a process to start
IDLE_SECONDS = (0.0, 0.5, 2.0)
# Of a trial besides its training, as measured for reports/2026-11-18-queue_simulator.md.
LOCK_SECONDS, OWN_SECONDS = 0.004, 0.045


class Station:
    """Servers with one queue, first come first served; whoever calls does so in the order of arrivals."""

    def __init__(self, servers: int = 1) -> None:
        self._free = [0.0] * servers
        self.busy = self.waited = 0.0

    def serve(self, arrival: float, seconds: float) -> float:
        """When one who arrives now has been served."""
        start = max(arrival, heapq.heappop(self._free))
        heapq.heappush(self._free, start + seconds)
        self.busy += seconds
        self.waited += start - arrival
        return start + seconds


@dataclass(frozen=True)
class Course:
    """What became of a study: when each trial ended, and how the two queues fared."""

    ends: list[float]
    lock_share: float  # of the time in which the lock was held
    store_share: float  # of the store's capacity that was used
    lock_wait: float  # seconds a trial

    @property
    def makespan(self) -> float:
        """Seconds to the end of the last trial."""
        return self.ends[-1]


def simulate(
    *, workers: int, trials: int, lock: float, own: Callable[[int], float], store: float = 0.0, servers: int = 1
) -> Course:
    """A whole study; `own` is the seconds of a trial by its number."""
    study, tracking = Station(), Station(servers)
    # Time, then order of arrival: who came first is served first.
    events = [(0.0, worker, True) for worker in range(workers)]
    begun, ends, order = 0, [], workers
    while events:
        now, _, is_asking = heapq.heappop(events)
        if is_asking and begun == trials:
            continue
        if is_asking:
            then = study.serve(now, lock) + own(begun)
            begun += 1
        else:
            then = tracking.serve(now, store)
            ends.append(then)
        heapq.heappush(events, (then, order, not is_asking))
        order += 1
    ends.sort()
    return Course(ends, study.busy / ends[-1], tracking.busy / (servers * ends[-1]), study.waited / trials)


def rate(ends: Sequence[float], skipped: int = 0) -> float:
    """Trials a second, without the first ones."""
    return (len(ends) - 1 - skipped) / (ends[-1] - ends[skipped])


class TimedLock:
    """A study's lock, and how long it was held each time."""

    def __init__(self, lock: Lock) -> None:
        self.lock, self.held = lock, list[float]()
        self._since: float | None = None

    def acquire(self) -> None:
        self.lock.acquire()
        self._since = time.perf_counter()

    def release(self) -> None:
        if self._since is not None:
            self.held.append(time.perf_counter() - self._since)
        self._since = None
        self.lock.release()


def one_worker() -> tuple[float, float]:
    """Seconds a trial holds the lock, and seconds it takes besides, of a worker alone in this process."""
    work = sweep_overhead.work_on("alone")
    timed = TimedLock(work.place.lock)
    work.place.lock = timed
    replace(work, num_trials=SKIPPED).until_done()
    timed.held.clear()
    begin = time.perf_counter()
    replace(work, num_trials=SKIPPED + TRIALS).until_done()
    seconds = (time.perf_counter() - begin) / TRIALS
    work.place.leave()
    lock = statistics.median(timed.held)
    return lock, seconds - lock


def two_workers(idle: float) -> float:
    """Trials a second of two real workers whose trials wait for so long."""
    study = f"two-{idle}".replace(".", "-")
    sweep_overhead.command("--study", study, "--workers", "2", "--trials", str(TRIALS), idle=idle)
    ends = [end.timestamp() for _, end in sweep_overhead.times(study)]
    return rate(ends, SKIPPED)


def checked() -> tuple[float, float, list[list[str]]]:
    """The lock and own seconds of one worker, and prediction beside measurement for two."""
    lock, own = one_worker()
    rows = []
    for idle in IDLE_SECONDS:
        # On one store some of what a worker does alone waits for the other: the truth lies between none of it and all.
        free = simulate(workers=2, trials=TRIALS, lock=lock, own=lambda _, idle=idle: own + idle)  # type: ignore[misc]
        tight = simulate(workers=2, trials=TRIALS, lock=lock, own=lambda _, idle=idle: idle, store=own)  # type: ignore[misc]
        found = two_workers(idle)
        fast, slow = rate(free.ends, SKIPPED), rate(tight.ends, SKIPPED)
        nearest = min(max(found, slow), fast)
        off = f"{100 * (found / nearest - 1):+.0f} %"
        rows.append([f"{idle:g}", f"{slow:.2f} to {fast:.2f}", f"{found:.2f}", "within" if found == nearest else off])
    return lock, own, rows


def outlook(lock: float, own: float, training: float) -> list[list[str]]:
    """What the simulator says of many workers whose trials train for so long."""
    rows = []
    for workers in (1, 8, 64, 256, 1024):
        trials = 20 * workers
        course = simulate(workers=workers, trials=trials, lock=lock, own=lambda _: own + training)
        ideal = workers / (lock + own + training)
        rows.append(
            [
                str(workers),
                f"{3600 * trials / course.makespan:.0f}",
                f"{100 * trials / course.makespan / ideal:.1f} %",
                f"{100 * course.lock_share:.1f} %",
                f"{course.lock_wait:.2f}",
            ]
        )
    return rows


HEADER = ["workers", "trials an hour", "of as many as alone", "lock held", "seconds a trial waits for it"]
TRAINING = 60.0  # the shortest trial worth a GPU


def report() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["MLFLOW_TRACKING_URI"] = "sqlite:///mlflow.db"
        prepare_store()
        load = os.getloadavg()[0]
        lock, own, rows = checked()
        os.chdir("/")
    path = harness.write_report(
        "queue_simulator",
        "The queues of a sweep, simulated and real",
        [
            (__doc__ or "").strip(),
            f"One worker alone: {lock:.3f} s a trial under the lock, {own:.3f} s besides.",
            "Two workers, trials a second:",
            harness.table(["seconds a trial idles", "predicted", "measured", "off by"], rows),
            "Predicted is a range: from all work besides the lock waiting in one queue of the store, to none of it.",
            f"Load of the machine on {os.cpu_count()} cores before: {load:.1f}.",
            f"With these, and {TRAINING:g} s of training a trial:",
            harness.table(HEADER, outlook(lock, own, TRAINING)),
        ],
    )
    print(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    if sys.argv[1:] == ["--report"]:
        report()
    else:
        print(harness.table(HEADER, outlook(LOCK_SECONDS, OWN_SECONDS, TRAINING)))
