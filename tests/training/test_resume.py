"""A training that was ended at any moment and asked for again ends as one that never was: bit for bit."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from training.lab import COUNTED, EPOCHS, NUM_BATCHES, Store, make_job, make_settings

import rapid_lab
from rapid_lab.files import open_tensors
from rapid_lab.names import PEAK_MB
from rapid_lab.training import loop
from rapid_lab.training.checkpoint import adamw, restore_checkpoint
from rapid_lab.training.interruption import PostponedSignals
from rapid_lab.training.ledger import COLUMNS
from rapid_lab.training.loop import Trained, train

NUM_STEPS = EPOCHS * NUM_BATCHES


class EndedError(Exception):
    """Stands for whatever ends a process."""


class Ending(Store):
    """Does something when it has been told of one step, or of one epoch."""

    def __init__(self, store: Store, action: Callable[[], None], *, step: int = 0, epoch: int = 0) -> None:
        super().__init__()
        self.rows, self.epochs = store.rows, store.epochs
        self.action, self.at_step, self.at_epoch = action, step, epoch

    def steps(self, first: int, table: Tensor) -> None:
        super().steps(first, table)
        if first + len(table) - 1 == self.at_step:
            self.action()

    def epoch(self, record: dict[str, Any]) -> None:
        super().epoch(record)
        if record["epoch"] == self.at_epoch:
            self.action()


def end() -> None:
    raise EndedError


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flushed after every step, so that a training can be ended there; a checkpoint after every fourth."""
    monkeypatch.setattr(loop, "FLUSH_STEPS", 1)
    monkeypatch.setattr(loop, "CHECKPOINT_STEPS", 4)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train(make_job(tmp_path_factory.mktemp("reference")))


def assert_same(trained: Trained, reference: Trained, store: Store) -> None:
    assert trained.weights.keys() == reference.weights.keys()
    for name, tensor in reference.weights.items():
        assert torch.equal(trained.weights[name], tensor), name
    assert torch.equal(trained.table[:, COUNTED], reference.table[:, COUNTED])
    assert trained.progress.epochs == reference.progress.epochs
    assert trained.progress.selected_epoch == reference.progress.selected_epoch
    assert list(store.rows) == list(range(1, NUM_STEPS + 1))
    assert list(store.epochs) == list(range(1, EPOCHS + 1))


@pytest.mark.parametrize("step", [1, 3, 4, 5, 6, 7, 9, 12, 13, 16, 17, NUM_STEPS])
def test_a_training_ended_at_any_step_ends_the_same(step: int, reference: Trained, tmp_path: Path) -> None:
    """At the ends of epochs, before, at and after a checkpoint, and before the first one."""
    store = Store()
    with pytest.raises(EndedError):
        train(make_job(tmp_path, observer=Ending(store, end, step=step)))
    trained = train(make_job(tmp_path, observer=store))
    assert_same(trained, reference, store)
    assert trained.progress.parts == (2 if step > 4 else 1)


@pytest.mark.parametrize("epoch", range(1, EPOCHS + 1))
def test_a_training_ended_between_evaluation_and_checkpoint_ends_the_same(
    epoch: int, reference: Trained, tmp_path: Path
) -> None:
    store = Store()
    with pytest.raises(EndedError):
        train(make_job(tmp_path, observer=Ending(store, end, epoch=epoch)))
    assert_same(train(make_job(tmp_path, observer=store)), reference, store)


def test_a_training_ended_again_and_again_ends_the_same(reference: Trained, tmp_path: Path) -> None:
    store = Store()
    for step in (3, 7, 9, 14, 18):
        with pytest.raises(EndedError):
            train(make_job(tmp_path, observer=Ending(store, end, step=step)))
    trained = train(make_job(tmp_path, observer=store))
    assert_same(trained, reference, store)
    assert trained.progress.parts == 5


def test_a_finished_training_asked_for_again_is_not_repeated(reference: Trained, tmp_path: Path) -> None:
    first = train(make_job(tmp_path))
    again = train(make_job(tmp_path))
    assert torch.equal(again.table, first.table)
    assert again.progress.seconds == first.progress.seconds


@pytest.mark.parametrize("place", [-1, 100, 3])
def test_a_damaged_checkpoint_is_named_and_the_training_begins_anew_to_the_same_end(
    place: int, reference: Trained, tmp_path: Path
) -> None:
    lines: list[str] = []

    class Hearing(Store):
        def say(self, line: str) -> None:
            lines.append(line)

    store = Hearing()
    with pytest.raises(EndedError):
        train(make_job(tmp_path, observer=Ending(store, end, step=10)))
    path = tmp_path / "checkpoint.safetensors"
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    trained = train(make_job(tmp_path, observer=store))
    assert_same(trained, reference, store)
    assert trained.progress.parts == 1
    (line,) = lines
    assert line.startswith("checkpoint.safetensors in ")
    assert line.endswith("; the training begins anew")


def test_what_a_store_missed_before_a_kill_is_told_again(reference: Trained, tmp_path: Path) -> None:
    with pytest.raises(EndedError):
        train(make_job(tmp_path, observer=Ending(Store(), end, step=10)))
    empty = Store()
    assert_same(train(make_job(tmp_path, observer=empty)), reference, empty)


def test_time_and_peak_memory_go_on_from_the_earlier_part(tmp_path: Path) -> None:
    with pytest.raises(EndedError):
        train(make_job(tmp_path, observer=Ending(Store(), end, step=13)))
    job = make_job(tmp_path)
    optimizer = adamw(job.model, learning_rate=1.0, weight_decay=0.0)
    progress, table, _ = restore_checkpoint(job.checkpoint, open_tensors(job.checkpoint), job.model, optimizer)
    trained = train(make_job(tmp_path))
    assert trained.progress.seconds > progress.seconds > 0
    peaks = trained.table[:, COLUMNS.index(PEAK_MB)]
    assert torch.equal(trained.table[: len(table)], table)
    assert (peaks.diff() >= 0).all()


@pytest.mark.parametrize("method", ["student_ce", "uniform"])
@pytest.mark.parametrize("changes", [{"group_by_length": True}, {"precision": "fp16"}])
def test_other_methods_and_ways_of_training_resume_alike(method: str, changes: dict[str, Any], tmp_path: Path) -> None:
    settings = make_settings(method, **changes)
    dtype = torch.float16 if settings.precision == "fp16" else torch.float32
    reference = train(make_job(tmp_path / "reference", settings, dtype=dtype))
    store = Store()
    with pytest.raises(EndedError):
        train(make_job(tmp_path / "ended", settings, dtype=dtype, observer=Ending(store, end, step=11)))
    assert_same(train(make_job(tmp_path / "ended", settings, dtype=dtype, observer=store)), reference, store)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("step", [1, 6, 18])
def test_a_signal_waits_for_a_checkpoint_and_is_then_delivered(
    number: signal.Signals, step: int, reference: Trained, tmp_path: Path
) -> None:
    def raise_ended(_number: int, _frame: object) -> None:
        raise EndedError

    store, before = Store(), signal.signal(number, raise_ended)
    try:
        with pytest.raises(EndedError):
            train(make_job(tmp_path, observer=Ending(store, lambda: signal.raise_signal(number), step=step)))
        assert signal.getsignal(number) is raise_ended
    finally:
        signal.signal(number, before)
    assert len(store.rows) - step <= 1  # at most the step that was under way
    resumed = Store()
    job = make_job(tmp_path, observer=Ending(resumed, end, step=len(store.rows)))
    with pytest.raises(EndedError):  # told again up to the last step before the signal: nothing was lost
        train(job)
    resumed.rows.clear()
    resumed.epochs.clear()
    assert_same(train(make_job(tmp_path, observer=resumed)), reference, resumed)


@pytest.fixture
def _heard_ctrl_c() -> Iterator[None]:
    """As in a terminal: a shell starts what it puts in the background with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_heard_ctrl_c")
def test_a_repeated_ctrl_c_is_delivered_at_once() -> None:
    with PostponedSignals() as ending:
        signal.raise_signal(signal.SIGINT)
        assert ending.agree(lambda number: number)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


PROGRAM = """
import sys, time
import torch
from pathlib import Path
from training.lab import Store, make_job
from rapid_lab.training import loop

torch.set_num_threads(1)
loop.FLUSH_STEPS, loop.CHECKPOINT_STEPS = 1, 4

class Slow(Store):
    def steps(self, first, table):
        print(first, flush=True)
        time.sleep(0.02)

loop.train(make_job(Path(sys.argv[1]), observer=Slow()))
time.sleep(60)
"""


def test_a_training_killed_at_a_random_moment_ends_the_same(reference: Trained, tmp_path: Path) -> None:
    paths = [str(Path(__file__).parent.parent), str(Path(rapid_lab.__file__).parent.parent)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    moment = random.uniform(0, 0.6)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        time.sleep(moment)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    store = Store()
    print(f"killed {moment:.3f} s after the first step")
    assert_same(train(make_job(tmp_path, observer=store)), reference, store)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.safetensors"]
