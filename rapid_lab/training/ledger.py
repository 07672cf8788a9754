"""The record of every step: written on the device, read by the host only when it is flushed."""

import time
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from rapid_lab.errors import TrainingError
from rapid_lab.names import LOSS_METRICS, PEAK_MB, STEP_METRICS

# The objective gives all but the last two of these, in this order.
COLUMNS = STEP_METRICS
LOSSES = [COLUMNS.index(name) for name in LOSS_METRICS]
# What must stay finite: a gradient that is not would spoil the weights, which the terms show one step later.
WATCHED = (*LOSS_METRICS, "the gradient norm")


class Ledger:
    """Rows of COLUMNS for every step so far, and a buffer of the steps since the last flush."""

    def __init__(
        self,
        device: torch.device,
        *,
        peak_mb: Callable[[], float],
        on_rows: Callable[[int, Tensor], None],
        row_numbers: Sequence[int] | None = None,
    ) -> None:
        self.device, self.peak_mb, self.on_rows = device, peak_mb, on_rows
        self.row_numbers = row_numbers  # of the examples in the official training split
        self.rows: list[Tensor] = []
        self.num_rows = 0
        self._peak = 0.0
        self._pending: list[tuple[Tensor, Tensor, Sequence[int], object, object]] = []
        self._begin: object = None

    def begin_step(self) -> None:
        """Start the step's clock: an event on CUDA, so that nothing waits."""
        self._begin = self._mark()

    def end_step(
        self, record: Float64[Tensor, " metrics"], rows: Sequence[int], gradient_norm: Float[Tensor, ""]
    ) -> None:
        """Keep the step's record where it is, with a flag for each term and the gradient: is it finite?"""
        watched = torch.cat((record[LOSSES[0] : LOSSES[-1] + 1], gradient_norm.double().unsqueeze(0)))
        self._pending.append((record, torch.isfinite(watched), rows, self._begin, self._mark()))

    def flush(self) -> None:
        """Bring the pending steps to the host, stop at one that is not finite, and hand the rows on."""
        if not self._pending:
            return
        records = torch.stack([record for record, *_ in self._pending]).cpu()
        self._check(records, torch.stack([flags for _, flags, *_ in self._pending]).cpu())
        milliseconds = [self._elapsed(begin, end) for *_, begin, end in self._pending]
        self._peak = max(self._peak, self.peak_mb())
        extra = torch.tensor([milliseconds, [self._peak] * len(milliseconds)], dtype=torch.float64).T
        table = torch.cat((records, extra), dim=1)
        first = self.num_rows + 1
        self.rows.append(table)
        self.num_rows += len(table)
        self._pending.clear()
        self.on_rows(first, table)

    def table(self) -> Float64[Tensor, "steps columns"]:
        """Every flushed step, one row each."""
        return torch.cat(self.rows) if self.rows else torch.zeros((0, len(COLUMNS)), dtype=torch.float64)

    def restore(self, table: Float64[Tensor, "steps columns"]) -> None:
        """Go on after the steps of an earlier part of the run."""
        self.rows, self.num_rows = [table], len(table)
        self._peak = float(table[-1, COLUMNS.index(PEAK_MB)]) if len(table) else 0.0

    def _check(self, records: Tensor, is_finite: Tensor) -> None:
        if is_finite.all():
            return
        index = int((~is_finite).any(1).nonzero()[0])
        # The total is not finite because of a term: the terms come first.
        term = next(term for term in (1, 2, 3, 0, 4) if not is_finite[index, term])
        values = [*records[index, LOSSES].tolist(), "not finite"]
        rows = list(self._pending[index][2])
        if self.row_numbers is not None:
            rows = [self.row_numbers[row] for row in rows]
        step = self.num_rows + index + 1
        where = f"at step {step}, on examples {rows} of the training split, counted from 0"
        raise TrainingError(f"{WATCHED[term]} is {values[term]} {where}")

    def _mark(self) -> object:
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _elapsed(self, begin: object, end: object) -> float:
        if isinstance(begin, float) and isinstance(end, float):
            return 1000 * (end - begin)
        return float(begin.elapsed_time(end))  # type: ignore[attr-defined]
