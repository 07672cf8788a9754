"""What each rank does in the tests of data parallel training; the same functions, alone, give what it is held against.

torchrun starts this file with a folder, in which every rank leaves what it has found.
"""

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from training.lab import (
    BATCH_SIZE,
    COUNTED,
    CPU,
    Store,
    make_encoded,
    make_job,
    make_settings,
    make_student,
    make_teacher,
)

from rapid_lab.errors import DataError, TrainingError
from rapid_lab.method.update import UpdateInfo
from rapid_lab.models import Outputs, forward
from rapid_lab.objectives import METHODS
from rapid_lab.teacher import serve
from rapid_lab.terms import Objective, TeacherRows
from rapid_lab.tracking.signals import Interrupted, orderly_end
from rapid_lab.training import evaluation, loop
from rapid_lab.training.distributed import Ranks, join, leave
from rapid_lab.training.evaluation import evaluate
from rapid_lab.training.resources import choose_device

# Full, uneven, of fewer examples than three ranks, and too small for a relation.
SIZES = (BATCH_SIZE, 7, 4, 2, 1)
ENDED_STEP = 8


class Noting(Objective):
    """Remembers the pairs of every step, pilots first."""

    def __init__(self, method: str) -> None:
        super().__init__(make_settings(method))
        self.pilots: list[list[int]] = []
        self.pairs: list[list[int]] = []

    def relations(self, pooled: Tensor, teacher: TeacherRows, *, epoch: int, step: int) -> tuple[Tensor, UpdateInfo]:
        term, info = super().relations(pooled, teacher, epoch=epoch, step=step)
        self.pilots.append(info.pilot_pairs.codes.tolist())
        self.pairs.append(info.main_pairs.codes.tolist())
        return term, info


class Spoiled(Objective):
    """Has a loss that is not a number in the third step."""

    def loss(self, *arguments: Any, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        total, record = super().loss(*arguments, epoch=epoch, step=step)
        return (total * torch.nan, record * torch.nan) if step == 2 else (total, record)


class DetachedRanks(Ranks):
    """Gathers representations without their gradient, which is wrong."""

    def gathered(self, outputs: Outputs, batch_size: int) -> Outputs:
        logits, pooled = super().gathered(outputs, batch_size)
        return Outputs(logits, pooled.detach())


def gradient(ranks: Ranks, method: str, size: int) -> dict[str, Tensor]:
    """The gradient of one step on so many examples, in an epoch in which RAPID adapts."""
    objective, encoded, rows = Objective(make_settings(method)), make_encoded(BATCH_SIZE), list(range(size))
    student = make_student(dropout=0.0).train()
    teacher = serve(make_teacher(encoded), objective, encoded.labels, range(BATCH_SIZE))(rows, CPU)
    batch = encoded.batch(ranks.share(rows).rows, CPU)
    outputs = ranks.gathered(forward(student, batch.ids, batch.mask), size)
    total, _ = objective.loss(outputs, encoded.labels[rows], teacher, epoch=3, step=0)
    total.backward()
    ranks.sum_gradients(student)
    return {name: weight.grad for name, weight in student.named_parameters() if weight.grad is not None}


def gradients(ranks: Ranks) -> dict[tuple[str, int], dict[str, Tensor]]:
    return {(method, size): gradient(ranks, method, size) for method in METHODS for size in SIZES}


def training(ranks: Ranks, method: str, folder: Path, *, dropout: float, device: torch.device = CPU) -> dict[str, Any]:
    """A whole training: three epochs of five full batches and one of four."""
    objective, student = Noting(method), make_student(dropout=dropout)
    job = make_job(folder, objective.settings, objective=objective, model=student, device=device, ranks=ranks)
    trained = loop.train(job)
    return {
        "weights": trained.weights,
        "table": trained.table[:, COUNTED],
        "whole_table": trained.table,
        "epochs": trained.progress.epochs,
        "selected_epoch": trained.progress.selected_epoch,
        "pilots": objective.pilots,
        "pairs": objective.pairs,
    }


def trainings(ranks: Ranks, folder: Path, *, dropout: float) -> dict[str, dict[str, Any]]:
    return {method: training(ranks, method, folder / f"{method} {dropout}", dropout=dropout) for method in METHODS}


class Signalling(Store):
    """Asks its own process to end when it is told of one step."""

    def __init__(self, number: signal.Signals = signal.SIGTERM) -> None:
        super().__init__()
        self.number = number

    def steps(self, first: int, table: Tensor) -> None:
        super().steps(first, table)
        if first + len(table) - 1 == ENDED_STEP:
            signal.raise_signal(self.number)


def ended(ranks: Ranks, folder: Path) -> int:
    """A training whose last rank alone gets a signal: the steps after which this rank has ended."""
    is_last = ranks.rank == ranks.size - 1
    store = Signalling() if is_last else Store()
    with orderly_end():
        try:
            loop.train(make_job(folder, model=make_student(dropout=0.0), observer=store, ranks=ranks))
        except Interrupted:
            return len(store.rows)
    raise AssertionError("it was not ended")


def resumed(ranks: Ranks, folder: Path) -> dict[str, Any]:
    trained = loop.train(make_job(folder, model=make_student(dropout=0.0), ranks=ranks))
    return {"weights": trained.weights, "table": trained.table[:, COUNTED], "parts": trained.progress.parts}


def spoiled(ranks: Ranks, folder: Path) -> str:
    try:
        loop.train(make_job(folder, objective=Spoiled(make_settings()), ranks=ranks))
    except TrainingError as error:
        return str(error)
    raise AssertionError("it was not stopped")


def evaluated(ranks: Ranks) -> dict[str, float]:
    """Five batches: two ranks have three and two of them, three ranks two, two and one."""
    return evaluate(make_student(), make_encoded(18), CPU, torch.float32, ranks)._asdict()


def refused(ranks: Ranks) -> str:
    try:
        ranks.begin(CPU, f"what rank {ranks.rank} would train")
    except DataError as error:
        return str(error)
    raise AssertionError("it was not refused")


def findings(ranks: Ranks, folder: Path) -> dict[str, Any]:
    """Everything one rank can say, files apart by the number of ranks."""
    own = folder / str(ranks.size)
    detached = DetachedRanks(ranks.rank, ranks.size)
    detached._group = ranks._group
    return {
        "gradients": gradients(ranks),
        "detached": gradient(detached, "rapid", BATCH_SIZE) if ranks.size > 1 else None,
        "without dropout": trainings(ranks, own, dropout=0.0),
        "with dropout": trainings(ranks, own, dropout=0.1),
        "evaluated": evaluated(ranks),
        "spoiled": spoiled(ranks, own / "spoiled"),
        "ended": ended(ranks, folder / f"ended by {ranks.size}"),
        "of first": ranks.of_first(lambda: f"made by {ranks.rank} of {ranks.size}"),
        "largest": ranks.largest(10.5 + ranks.rank),
    }


def on_gpus(ranks: Ranks, folder: Path) -> dict[str, Any]:
    """One training is enough: what does not depend on the device is found on the CPU."""
    return training(ranks, "rapid", folder / "gpus", dropout=0.0, device=torch.device("cuda"))


def killed(ranks: Ranks, folder: Path) -> dict[str, Any]:
    """A training whose first rank ends without a word, between two checkpoints."""
    store = Signalling(signal.SIGKILL) if ranks.is_first else Store()
    loop.train(make_job(folder / "killed", model=make_student(dropout=0.0), observer=store, ranks=ranks))
    raise AssertionError("it was not killed")


def gone_on(ranks: Ranks, folder: Path) -> dict[str, Any]:
    return resumed(ranks, folder / "killed")


def by_two_and_by_three(ranks: Ranks, folder: Path) -> dict[int, Any]:
    """Two of three processes go on with what one left, all three with what two did."""
    found: dict[int, Any] = {}
    two = Ranks(ranks.rank, 2)
    two._group = dist.new_group([0, 1])
    for each in (two, ranks):
        if each.rank < each.size:
            left = resumed(each, folder / f"ended by {each.size - 1}")
            found[each.size] = findings(each, folder) | {"gone on": left}
    return found


TASKS: dict[str, Callable[[Ranks, Path], Any]] = {
    "by_two_and_by_three": by_two_and_by_three,
    "on_gpus": on_gpus,
    "killed": killed,
    "gone_on": gone_on,
}


def main(task: str, folder: Path) -> None:
    torch.set_num_threads(1)
    loop.FLUSH_STEPS, loop.CHECKPOINT_STEPS, evaluation.EVALUATION_BATCH = 1, 4, 4
    ranks, device = join(), choose_device("cuda" if task == "on_gpus" else "cpu")
    refusal = refused(ranks)
    ranks.begin(device, "the same")
    torch.save((TASKS[task](ranks, folder), refusal), folder / f"rank {ranks.rank}.pt")
    leave()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
