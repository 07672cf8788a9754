"""The loop: its schedule, its selection, its accounting, and what stops it."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from guards import NoHostSync
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode
from training.lab import (
    BATCH_SIZE,
    COUNTED,
    EPOCHS,
    NUM_BATCHES,
    NUM_TRAIN,
    Store,
    make_job,
    make_settings,
    make_student,
)

from rapid_lab import names
from rapid_lab.batches import epoch_batches
from rapid_lab.errors import SettingError, TrainingError
from rapid_lab.files import open_tensors
from rapid_lab.method.budget import relation_account
from rapid_lab.models import Outputs, forward
from rapid_lab.objectives import METHODS
from rapid_lab.terms import Objective, TeacherRows
from rapid_lab.training import loop
from rapid_lab.training.checkpoint import Progress
from rapid_lab.training.evaluation import Score, predict, score
from rapid_lab.training.ledger import COLUMNS, Ledger
from rapid_lab.training.loop import epoch_record, is_better, train


def test_the_learning_rate_rises_and_falls_linearly(tmp_path: Path) -> None:
    """Six steps, two of them warm-up, by hand."""
    rates: list[float] = []
    hook = register_optimizer_step_pre_hook(lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"]))
    try:
        train(make_job(tmp_path, make_settings(epochs=1, learning_rate=0.1, lr_warmup_fraction=1 / 3)))
    finally:
        hook.remove()
    assert rates == pytest.approx([0.05, 0.1, 0.1, 0.075, 0.05, 0.025])


def test_the_gradient_is_clipped_before_the_step(tmp_path: Path) -> None:
    squares: list[float] = []

    def measure(optimizer: Any, *_: Any) -> None:
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        squares.append(sum(float(weight.grad.square().sum()) for weight in weights if weight.grad is not None))

    hook = register_optimizer_step_pre_hook(measure)
    try:
        train(make_job(tmp_path, make_settings(epochs=1, gradient_clip=1e-3)))
    finally:
        hook.remove()
    assert squares == pytest.approx([1e-6] * NUM_BATCHES, rel=1e-2)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns(method: str, tmp_path: Path) -> None:
    trained = train(make_job(tmp_path, make_settings(method, epochs=6)))
    losses = trained.table[:, COLUMNS.index(names.LOSS_CE)]
    assert losses[-NUM_BATCHES:].mean() < losses[:NUM_BATCHES].mean()
    assert len(trained.table) == 6 * NUM_BATCHES


def test_the_selected_weights_are_those_of_the_selected_epoch(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    trained = train(job)
    student = make_student()
    student.load_state_dict(trained.weights)
    logits = predict(student, job.selection, job.device, job.dtype).logits
    record = trained.progress.epochs[trained.progress.selected_epoch - 1]
    assert score(logits, job.selection.labels)._asdict().items() <= record.items()
    assert record["correct"] == max(epoch["correct"] for epoch in trained.progress.epochs)


@pytest.mark.parametrize(
    ("epochs", "selected"),
    [
        ([(5, 1.0), (6, 2.0)], 2),  # accuracy first
        ([(6, 1.0), (6, 0.5)], 2),  # then the lower NLL
        ([(6, 0.5), (6, 0.5)], 1),  # then the earlier epoch
        ([(6, 0.5), (5, 0.1), (6, 0.5)], 1),
    ],
)
def test_selection_is_by_accuracy_then_nll_then_the_earlier_epoch(
    epochs: list[tuple[int, float]], selected: int
) -> None:
    progress = Progress()
    for epoch, (correct, nll) in enumerate(epochs, start=1):
        record = epoch_record(epoch, 6 * epoch, Score(correct, 10, nll), 0.0)
        if is_better(record, progress):
            progress.selected_epoch = epoch
        progress.epochs.append(record)
    assert progress.selected_epoch == selected


@pytest.mark.parametrize("method", ["uniform", "gated", "static", "rapid"])
def test_the_accounting_of_a_training_equals_the_closed_form(method: str, tmp_path: Path) -> None:
    settings = make_settings(method)
    table = train(make_job(tmp_path, settings)).table
    account = relation_account(
        train_examples=NUM_TRAIN,
        batch_size=BATCH_SIZE,
        relation_budget=settings.relation_budget,
        relation_cap=settings.relation_cap,
        pilot_fraction=settings.pilot_fraction,
        epochs=EPOCHS,
        warmup_epochs=settings.warmup_epochs,
        max_residual_mix=settings.max_residual_mix if METHODS[method].is_adaptive else 0.0,
        has_uniform_proposal=not METHODS[method].has_static_proposal,
    )
    for name, expected in ((names.RELATIONS_MAIN, account.main), (names.RELATIONS_PILOT, account.pilot)):
        assert Fraction(int(table[:, COLUMNS.index(name)].sum()), len(table)) == expected


def watched_training(method: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *, seed: int) -> list[Any]:
    """What each forward of a training is given: token ids and the state dropout starts from; and its first answer."""
    seen: list[Any] = []

    def watch(model: torch.nn.Module, ids: torch.Tensor, mask: torch.Tensor) -> Outputs:
        dropout = torch.initial_seed()
        outputs = forward(model, ids, mask)
        seen.append((ids.tolist(), dropout, outputs.logits.tolist() if not seen else None))
        return outputs

    with monkeypatch.context() as patch:
        patch.setattr(loop, "forward", watch)
        train(make_job(folder / f"{method}{seed}", make_settings(method, seed=seed)))
    return seen


def test_methods_with_one_seed_share_batches_weights_and_dropout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, rapid = (watched_training(method, tmp_path, monkeypatch, seed=42) for method in ("student_ce", "rapid"))
    assert plain == rapid
    assert len(plain) == EPOCHS * NUM_BATCHES
    assert len({dropout for _, dropout, _ in plain}) == len(plain)
    assert watched_training("rapid", tmp_path, monkeypatch, seed=43)[0] != rapid[0]


def test_a_method_that_learns_from_a_teacher_is_refused_without_one(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="method must be student_ce without a teacher, got 'kd'"):
        train(make_job(tmp_path, make_settings("kd"), teacher=None))
    train(make_job(tmp_path, make_settings("student_ce", epochs=1), teacher=None))


class Altered(Objective):
    """An objective whose total goes through a function of (outputs, total, record, (epoch, step))."""

    def __init__(self, alter: Callable[[Outputs, Tensor, Tensor, tuple[int, int]], Tensor]) -> None:
        super().__init__(make_settings())
        self.alter = alter

    def loss(
        self, outputs: Outputs, labels: Tensor, teacher: TeacherRows | None, *, epoch: int, step: int
    ) -> tuple[Tensor, Tensor]:
        total, record = super().loss(outputs, labels, teacher, epoch=epoch, step=step)
        return self.alter(outputs, total, record, (epoch, step)), record


@pytest.mark.parametrize("term", names.LOSS_METRICS)
def test_a_term_that_is_not_finite_stops_the_training_before_the_next_checkpoint(
    term: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "FLUSH_STEPS", 2)
    monkeypatch.setattr(loop, "CHECKPOINT_STEPS", 2)

    def spoil(_outputs: Outputs, total: Tensor, record: Tensor, position: tuple[int, int]) -> Tensor:
        if position == (2, 3):
            record[[COLUMNS.index(term), COLUMNS.index(names.LOSS_TOTAL)]] = torch.nan
        return total

    job = make_job(tmp_path, objective=Altered(spoil))
    rows = epoch_batches(job.train, batch_size=BATCH_SIZE, seed=42, epoch=2, group_by_length=False)[3]
    with pytest.raises(TrainingError) as stopped:
        train(job)
    assert (
        str(stopped.value)
        == f"{term} is nan at step {NUM_BATCHES + 4}, on examples {rows} of the training split, counted from 0"
    )
    _, progress = open_tensors(job.checkpoint)
    assert (progress["epoch"], progress["step"]) == (2, 2)


def test_a_gradient_that_is_not_finite_stops_the_training_too(tmp_path: Path) -> None:
    """A total of zero at infinite slope: every term is finite, and the weights would be lost."""

    def steep(outputs: Outputs, total: Tensor, _record: Tensor, _position: tuple[int, int]) -> Tensor:
        return total + (outputs.pooled.sum() * 0).sqrt()

    with pytest.raises(TrainingError, match=r"the gradient norm is not finite at step 1, on examples \["):
        train(make_job(tmp_path, objective=Altered(steep)))
    assert not (tmp_path / "checkpoint.safetensors").exists()


class NoHostValues(TorchFunctionMode):
    """Fails on calls that send numbers of the host to the device, or fetch some: on a GPU both wait."""

    FORBIDDEN = (torch.tensor, torch.as_tensor, torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.cpu)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self.FORBIDDEN:
            raise AssertionError(f"{func.__name__} would wait for the device")
        return func(*args, **(kwargs or {}))


def guard_steps(monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[Any]]:
    """From the first to the last line of every step nothing may wait; returns the steps seen and the modes entered."""
    modes: list[Any] = []
    steps: list[int] = []
    begin, end = Ledger.begin_step, Ledger.end_step

    def guarded_begin(self: Ledger) -> None:
        begin(self)
        modes.extend((NoHostSync(), NoHostValues()))
        for mode in modes:
            mode.__enter__()

    def guarded_end(self: Ledger, *arguments: Any) -> None:
        end(self, *arguments)
        steps.append(len(steps) + 1)
        while modes:
            modes.pop().__exit__(None, None, None)

    monkeypatch.setattr(Ledger, "begin_step", guarded_begin)
    monkeypatch.setattr(Ledger, "end_step", guarded_end)
    return steps, modes


@pytest.mark.parametrize("method", METHODS)
def test_no_step_makes_the_host_wait_for_the_device(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batch, teacher rows, forward, loss, backward, clipping, optimizer and ledger, of every step."""
    steps, _ = guard_steps(monkeypatch)
    train(make_job(tmp_path, make_settings(method)))
    assert len(steps) == EPOCHS * NUM_BATCHES


@pytest.mark.parametrize("waits", [lambda total: float(total), lambda _: torch.as_tensor(1), lambda _: torch.tensor(1)])
def test_the_guard_sees_a_step_that_waits(waits: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(_outputs: Outputs, total: Tensor, _record: Tensor, _position: tuple[int, int]) -> Tensor:
        waits(total)
        return total

    _, modes = guard_steps(monkeypatch)
    try:
        with pytest.raises(AssertionError, match="would"):
            train(make_job(tmp_path, objective=Altered(wait)))
    finally:
        while modes:
            modes.pop().__exit__(None, None, None)


def test_half_precision_goes_through_the_same_loop(tmp_path: Path) -> None:
    for dtype in (torch.bfloat16, torch.float16):
        trained = train(make_job(tmp_path / str(dtype), make_settings(epochs=1), dtype=dtype))
        assert torch.isfinite(trained.table[:, COUNTED]).all()
        assert {tensor.dtype for tensor in trained.weights.values()} == {torch.float32}


def test_every_step_and_epoch_is_told(tmp_path: Path) -> None:
    store = Store()
    trained = train(make_job(tmp_path, observer=store))
    assert torch.equal(torch.stack([store.rows[step] for step in sorted(store.rows)]), trained.table)
    assert list(store.epochs.values()) == trained.progress.epochs
