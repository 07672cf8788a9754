"""The ledger: one row a step, handed on in order, whatever the flushes."""

import sys
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from training.lab import CPU

from rapid_lab.allocation import keep_freed_memory
from rapid_lab.errors import TrainingError
from rapid_lab.names import PEAK_MB, STEP_MS
from rapid_lab.training.ledger import COLUMNS, Ledger
from rapid_lab.training.resources import PeakMemory, Stopwatch

NUM_RECORDED = len(COLUMNS) - 2


def make_ledger(told: list[tuple[int, Tensor]], peaks: Iterator[float] | None = None) -> Ledger:
    values = iter(range(100)) if peaks is None else peaks
    return Ledger(CPU, peak_mb=lambda: float(next(values)), on_rows=lambda first, table: told.append((first, table)))


def add_step(ledger: Ledger, value: float, *, norm: float = 1.0) -> None:
    ledger.begin_step()
    ledger.end_step(torch.full((NUM_RECORDED,), value, dtype=torch.float64), [4, 2], torch.tensor(norm))


def test_rows_are_handed_on_at_a_flush_counted_from_one() -> None:
    told: list[tuple[int, Tensor]] = []
    ledger = make_ledger(told)
    for value in (1.0, 2.0, 3.0):
        add_step(ledger, value)
        if value == 2.0:
            assert told == []
            ledger.flush()
    ledger.flush()
    ledger.flush()  # nothing is pending: nobody is told
    assert [first for first, _ in told] == [1, 3]
    assert ledger.table()[:, :NUM_RECORDED].unique(dim=1).flatten().tolist() == [1.0, 2.0, 3.0]
    assert torch.equal(torch.cat([table for _, table in told]), ledger.table())
    assert (ledger.table()[:, COLUMNS.index(STEP_MS)] >= 0).all()


def test_the_peak_never_falls_also_not_after_a_resume() -> None:
    first = make_ledger([], iter([5.0, 3.0]))
    for _ in range(2):
        add_step(first, 1.0)
        first.flush()
    resumed = make_ledger([], iter([1.0, 7.0]))
    resumed.restore(first.table())
    for _ in range(2):
        add_step(resumed, 1.0)
        resumed.flush()
    assert resumed.table()[:, COLUMNS.index(PEAK_MB)].tolist() == [5.0, 5.0, 5.0, 7.0]
    assert resumed.num_rows == 4


def test_an_empty_ledger_has_a_table_of_no_rows() -> None:
    ledger = make_ledger([])
    assert ledger.table().shape == (0, len(COLUMNS))
    ledger.restore(ledger.table())
    add_step(ledger, 1.0)
    ledger.flush()
    assert len(ledger.table()) == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_step_that_is_not_finite_is_named_and_not_handed_on(value: float) -> None:
    told: list[tuple[int, Tensor]] = []
    ledger = make_ledger(told)
    add_step(ledger, 1.0)
    ledger.flush()
    add_step(ledger, 1.0)
    add_step(ledger, value)
    with pytest.raises(TrainingError, match=rf"loss/ce is {value} at step 3, on examples \[4, 2\]"):
        ledger.flush()
    assert len(told) == 1


def test_the_examples_of_a_bad_step_are_those_of_the_official_split() -> None:
    ledger = Ledger(CPU, peak_mb=lambda: 0.0, on_rows=lambda first, table: None, row_numbers=[70, 71, 72, 73, 74])
    add_step(ledger, float("nan"))
    with pytest.raises(TrainingError, match=r"on examples \[74, 72\] of the training split"):
        ledger.flush()


def test_a_gradient_that_is_not_finite_is_named() -> None:
    ledger = make_ledger([])
    add_step(ledger, 1.0, norm=float("inf"))
    with pytest.raises(TrainingError, match="the gradient norm is not finite at step 1"):
        ledger.flush()


def test_peak_memory_is_what_was_added_since_it_began_whatever_was_freed_before() -> None:
    keep_freed_memory()
    before = torch.ones(300 * 2**18)  # 300 MiB, as of a teacher that was trained in this process
    del before
    peak = PeakMemory(CPU)
    held = torch.ones(100 * 2**18)
    reached = peak()
    del held
    assert peak() >= reached
    if sys.platform == "linux":
        assert 95 < reached < 150


def test_a_stopwatch_stands_still_when_stopped_and_adds_up() -> None:
    watch = Stopwatch(CPU, 5.0)
    watch.stop()
    assert watch.seconds == 5.0
    watch.start()
    watch.stop()
    seconds = watch.seconds
    assert seconds > 5.0
    watch.stop()
    assert watch.seconds == seconds
