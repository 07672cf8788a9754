"""The only training loop: every method and the teacher itself go through it.

Nothing in a step waits for the device. Counts and losses stay there until the ledger is flushed; a step that is not
finite is found then, before the next checkpoint is written. A signal to end the process waits for the end of the
step, so that a checkpoint is written first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from rapid_lab.batches import Encoded, epoch_batches, to_device
from rapid_lab.errors import SettingError
from rapid_lab.models import forward
from rapid_lab.seeds import seed_dropout
from rapid_lab.terms import Objective, TeacherRows
from rapid_lab.training.checkpoint import (
    Progress,
    adamw,
    copied,
    read_checkpoint,
    restore_checkpoint,
    save_checkpoint,
)
from rapid_lab.training.distributed import ALONE, Ranks
from rapid_lab.training.evaluation import Score, evaluate
from rapid_lab.training.interruption import PostponedSignals
from rapid_lab.training.ledger import Ledger
from rapid_lab.training.resources import PeakMemory, Stopwatch, autocast

FLUSH_STEPS = 50
CHECKPOINT_STEPS = 500


@runtime_checkable
class Observer(Protocol):
    """Who is told what happens: the tracking store, a progress bar."""

    def begin(self, role: str, num_steps: int, table: Tensor, epochs: Sequence[dict[str, Any]]) -> None:
        """The training of a student or of its teacher begins, or goes on after these rows and epochs.

        What was told before a kill may not have reached a store: this is all of it once more.
        """

    def steps(self, first: int, table: Tensor) -> None:
        """Rows of the ledger's columns for the steps from `first` on, counted from 1."""

    def epoch(self, record: dict[str, Any]) -> None:
        """An epoch has ended: `record` says after which step, and how it did on the selection split."""

    def say(self, line: str) -> None:
        """Something a person should know."""


@dataclass(frozen=True)
class Job:
    """What to train on what, and where the state of an unfinished training is kept."""

    model: nn.Module
    train: Encoded
    selection: Encoded
    objective: Objective
    device: torch.device
    dtype: torch.dtype
    checkpoint: Path
    observer: Observer
    role: str = "student"  # or "teacher": of no meaning here, but for whoever is told
    teacher: Callable[[Sequence[int], torch.device], TeacherRows] | None = None
    row_numbers: Sequence[int] | None = None  # of the training examples in the official training split
    ranks: Ranks = ALONE


class Trained(NamedTuple):
    """The weights chosen on the selection split, and how the training went."""

    weights: dict[str, Tensor]
    progress: Progress
    table: Tensor


def train(job: Job) -> Trained:
    """Train to the end, going on from the checkpoint if there is one."""
    with PostponedSignals() as ending:
        return _train(job, ending)


def _train(job: Job, ending: PostponedSignals) -> Trained:
    settings, device, model, ranks = job.objective.settings, job.device, job.model, job.ranks
    if job.objective.needs_teacher and job.teacher is None:
        raise SettingError(f"method must be student_ce without a teacher, got {settings.method!r}: it learns from one")
    model.to(device).train()
    optimizer = adamw(model, learning_rate=settings.learning_rate, weight_decay=settings.weight_decay)
    progress, selected = Progress(), dict[str, Tensor]()
    peak = PeakMemory(device)
    ledger = Ledger(
        device,
        peak_mb=lambda: ranks.largest(peak()),
        on_rows=job.observer.steps,
        row_numbers=job.row_numbers,
    )
    scaler = torch.amp.GradScaler(device.type, enabled=job.dtype == torch.float16)
    forward_batch = torch.compile(forward) if settings.compile and device.type == "cuda" else forward
    num_batches = -(-len(job.train) // settings.batch_size)
    contents = ranks.of_first(lambda: read_checkpoint(job.checkpoint, job.observer.say))
    if contents is not None:
        progress, table, selected = restore_checkpoint(job.checkpoint, contents, model, optimizer)
        ledger.restore(table)
        scaler.load_state_dict(progress.scaler)
    job.observer.begin(job.role, num_batches * settings.epochs, ledger.table(), progress.epochs)
    watch = Stopwatch(device, progress.seconds)

    def save() -> None:
        progress.seconds, progress.scaler = watch.seconds, scaler.state_dict()
        if ranks.is_first:  # all have the same
            save_checkpoint(job.checkpoint, progress, model, optimizer, ledger.table(), selected)

    for epoch in range(progress.epoch, settings.epochs + 1):
        batches = epoch_batches(
            job.train,
            batch_size=settings.batch_size,
            seed=settings.seed,
            epoch=epoch,
            group_by_length=settings.group_by_length,
        )
        watch.start()
        for step in range(progress.step, num_batches):
            ledger.begin_step()
            rows = batches[step]
            share = ranks.share(rows)
            batch = job.train.batch(share.rows, device)
            labels = to_device(job.train.labels[rows], device)
            teacher = job.teacher(rows, device) if job.teacher else None
            done = (epoch - 1) * num_batches + step
            rate = settings.learning_rate * learning_rate_factor(
                done, num_batches * settings.epochs, warmup_fraction=settings.lr_warmup_fraction
            )
            for group in optimizer.param_groups:
                group["lr"] = rate
            seed_dropout(settings.seed, epoch, step, *share.position)
            with autocast(device, job.dtype):
                outputs = forward_batch(model, batch.ids, batch.mask)
            outputs = ranks.gathered(outputs, len(rows))
            total, record = job.objective.loss(outputs, labels, teacher, epoch=epoch, step=step)
            scaler.scale(total).backward()
            ranks.sum_gradients(model)
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(model.parameters(), settings.gradient_clip)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            # In fp16 a gradient may overflow: the scaler leaves such a step out and goes on with a smaller scale.
            ledger.end_step(record, rows, torch.zeros_like(norm) if scaler.is_enabled() else norm)

            progress.step, done = step + 1, done + 1
            is_ending = ending.agree(ranks.largest)
            # The last step of an epoch is saved below, with its evaluation.
            is_saved = (is_ending or done % CHECKPOINT_STEPS == 0) and progress.step < num_batches
            if is_saved or done % FLUSH_STEPS == 0:
                watch.stop()
                ledger.flush()
                if is_saved:
                    save()
                if is_saved and is_ending:
                    ending.deliver()
                watch.start()
        watch.stop()
        ledger.flush()

        result = evaluate(model, job.selection, device, job.dtype, ranks)
        summary = epoch_record(epoch, epoch * num_batches, result, job.objective.residual_mix(epoch))
        if is_better(summary, progress):
            progress.selected_epoch, selected = epoch, copied(model)
        progress.epochs.append(summary)
        progress.epoch, progress.step = epoch + 1, 0
        job.observer.epoch(summary)
        is_ending = ending.agree(ranks.largest)
        save()
        if is_ending:
            ending.deliver()
    return Trained(selected, progress, ledger.table())


def learning_rate_factor(step: int, num_steps: int, *, warmup_fraction: float) -> float:
    """Linear from 0 to 1 over the warm-up, then linear to 0 at the end.

    >>> [learning_rate_factor(step, 10, warmup_fraction=0.2) for step in (0, 1, 2, 6, 9)]
    [0.5, 1.0, 1.0, 0.5, 0.125]
    """
    warmup = round(warmup_fraction * num_steps)
    if step < warmup:
        return (step + 1) / warmup
    return (num_steps - step) / max(1, num_steps - warmup)


def epoch_record(epoch: int, step: int, result: Score, residual_mix: float) -> dict[str, Any]:
    """What an epoch logs and what selection reads: counts first."""
    return {"epoch": epoch, "step": step, "residual_mix": residual_mix, **result._asdict(), "accuracy": result.accuracy}


def is_better(record: dict[str, Any], progress: Progress) -> bool:
    """Selection by accuracy, ties by lower NLL, then by the earlier epoch."""
    if not progress.selected_epoch:
        return True
    best = progress.epochs[progress.selected_epoch - 1]
    return (record["correct"], -record["nll"]) > (best["correct"], -best["nll"])
