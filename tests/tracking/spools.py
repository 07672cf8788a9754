"""Runs that leave spools behind, and what the store has of them."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from rapid_lab.tracking.door import client
from rapid_lab.tracking.spool import left_behind

# A run that logs without end, once it is told to, and says nothing more.
ENDLESS = """
import sys
from rapid_lab.tracking.store import experiment_id, prepare_store
from rapid_lab.tracking.runs import start_run
prepare_store()
run = start_run(experiment_id("endless"), "endless", {})
run.set_tags({"is": "ready"})
print(run.run_id, flush=True)
sys.stdin.readline()
for step in range(10**9):
    run.log_metrics(step, {"loss/total": step + 0.5, "relations/main": 7.0})
    if step % 100 == 0:
        import time
        time.sleep(0.005)
"""


@contextmanager
def unwritable(store: Path) -> Iterator[None]:
    """The store, for as long as the block lasts, kept by somebody who does not let go of it."""
    with closing(sqlite3.connect(store, timeout=60)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.rollback()


def steps(run_id: str, key: str = "loss/total") -> list[int]:
    """Every stored step of a metric, as often as it is stored, in the order of the steps."""
    return sorted(metric.step for metric in client().get_metric_history(run_id, key))


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        if time.monotonic() > deadline:
            pytest.fail(f"not within two minutes: {what}")
        time.sleep(0.02)


def num_entries() -> int:
    """Whole lines in all spools, without their headers."""
    return sum(path.read_bytes().count(b"\n") - 1 for path in left_behind() if path.stat().st_size)
