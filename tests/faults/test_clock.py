"""The clock of the machine is set back while a run goes on: no number changes, and no time is negative."""

import itertools
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from faults.children import TINY, Strike, ask, store_in
from faults.outcomes import Undisturbed, assert_same, assert_whole, outcome, runs
from tracking.programs import MLFLOW_WARNINGS

from rapid_lab import names
from rapid_lab.tracking.door import client
from rapid_lab.tracking.spool import Spool, left_behind

pytestmark = pytest.mark.filterwarnings(MLFLOW_WARNINGS)

DAYS = 3 * 86_400


@dataclass(frozen=True)
class SetBack:
    """After the n-th checkpoint this process reads a clock that is three days behind."""

    number: int

    def __call__(self) -> None:
        import safetensors.torch

        save, count = safetensors.torch.save_file, 0

        def armed(tensors: Any, path: Path, **options: Any) -> None:
            nonlocal count
            save(tensors, path, **options)
            count += 1
            if count == self.number:
                set_back()

        safetensors.torch.save_file = armed  # type: ignore[assignment]


def set_back() -> None:
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() - DAYS
    time.time_ns = lambda: now_ns() - DAYS * 10**9


@pytest.mark.soak
def test_a_clock_set_back_in_the_middle_of_a_run_changes_no_number(taught: Path, undisturbed: Undisturbed) -> None:
    end = ask(taught, ["run", *TINY], SetBack(3))
    assert (end.code, "Traceback" in end.err) == (0, False), end.err
    check(taught, undisturbed)


def behind() -> None:
    """The clock is behind before the process begins."""
    from rapid_lab.tracking import clock

    set_back()
    clock._STARTED_NS -= DAYS * 10**9


@pytest.mark.soak
def test_a_run_that_was_killed_goes_on_under_a_clock_that_is_behind(taught: Path, undisturbed: Undisturbed) -> None:
    assert ask(taught, ["run", *TINY], Strike("checkpoint.safetensors", 3, "after")).code == -signal.SIGKILL
    end = ask(taught, ["run", *TINY], behind)
    assert end.code == 0, end.err
    check(taught, undisturbed, num_parts=2)


def check(folder: Path, undisturbed: Undisturbed, num_parts: int = 1) -> None:
    assert_whole(folder)
    assert_same(outcome(folder), undisturbed.outcome)
    with store_in(folder):
        for run in runs():
            assert run.info.end_time >= run.info.start_time
        (student,) = runs(names.STUDENT)
        for key in (names.STEP_MS, names.TRAIN_MINUTES):
            history = client().get_metric_history(student.info.run_id, key)
            assert all(metric.value > 0 for metric in history), key
            times = [metric.timestamp for metric in sorted(history, key=lambda metric: metric.step)]
            assert sum(after < before for before, after in itertools.pairwise(times)) < num_parts, key


def test_spools_of_a_run_keep_their_order_under_a_clock_that_is_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAPID_CACHE_DIR", str(tmp_path))
    made = []
    for seconds in (300, 200, 100):
        monkeypatch.setattr(time, "time_ns", lambda seconds=seconds: seconds * 10**9)
        spool = Spool.create("run", "store", None)
        spool.close()
        made.append(spool.path)
    assert left_behind("run") == made
