"""The teacher: fine-tuned once, calibrated, and its signals for every example kept in one memory-mapped file.

The folder of a teacher is named after everything it was made from. It is shared by every method, seed and trial;
several processes that ask at once wait for the one that builds it.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rapid_lab.batches import Encoded, to_device
from rapid_lab.config import Settings
from rapid_lab.errors import DataError
from rapid_lab.files import DamagedError, open_tensors, save_tensors
from rapid_lab.folders import cache_folder, locked
from rapid_lab.method.calibration import fit_temperature
from rapid_lab.method.update import TeacherSignals, teacher_signals
from rapid_lab.method.validation import validate_batch
from rapid_lab.models import fingerprint, load_classifier
from rapid_lab.names import NUMBERS_VERSION
from rapid_lab.terms import Objective, TeacherRows
from rapid_lab.training.evaluation import predict, score
from rapid_lab.training.loop import Job, Observer, train

CHECKPOINT, MODEL, SIGNALS = "checkpoint.safetensors", "model.safetensors", "signals.safetensors"
POOLING = "mask-aware mean of the last hidden state"
# Settings a teacher depends on besides its data and initial weights.
TEACHER_SETTINGS = (
    "teacher_epochs", "teacher_seed", "teacher_learning_rate", "teacher_layers", "teacher_batch_size", "weight_decay",
    "lr_warmup_fraction", "gradient_clip", "max_length", "group_by_length",
)  # fmt: skip


@dataclass(frozen=True)
class TeacherTask:
    """What a teacher is made from."""

    settings: Settings
    model: str
    num_labels: int
    encoded: Encoded  # every example of the official training split, by the teacher's tokenizer
    train_rows: list[int]
    selection_rows: list[int]
    data_hash: str
    split_hash: str
    device: torch.device
    dtype: torch.dtype

    @functools.cached_property
    def identity(self) -> dict[str, Any]:
        """Everything the signals depend on, by name; known before any training."""
        return {
            "initial_weights": fingerprint(self.untrained()),
            "numbers_version": NUMBERS_VERSION,
            "tokens": self.encoded.digest(),
            "data": self.data_hash,
            "split": self.split_hash,
            "pooling": POOLING,
            "dtype": str(self.dtype),
            **{name: getattr(self.settings, name) for name in TEACHER_SETTINGS},
        }

    @property
    def teacher_id(self) -> str:
        """Names the teacher and its folder."""
        return hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()[:16]

    def untrained(self) -> torch.nn.Module:
        """The classifier before its fine-tuning."""
        return load_classifier(
            self.model,
            layers=self.settings.teacher_layers,
            num_labels=self.num_labels,
            seed=self.settings.teacher_seed,
            setting="teacher_layers",
        )


@dataclass(frozen=True)
class Teacher:
    """A teacher that is ready: its signals by row of the official training split, and how good it is."""

    teacher_id: str
    folder: Path
    logits: Tensor
    pooled: Tensor
    facts: dict[str, Any]

    @property
    def temperature(self) -> float:
        """T_cal, fitted on the selection split."""
        return float(self.facts["temperature"])

    def digest(self) -> str:
        """SHA-256 over its signals: those of two machines may differ in their last bits."""
        content = hashlib.sha256(self.logits.numpy().tobytes())
        content.update(self.pooled.numpy().tobytes())
        return content.hexdigest()

    def weights(self) -> dict[str, Tensor]:
        """The fine-tuned weights."""
        try:
            return open_tensors(self.folder / MODEL)[0]
        except DamagedError as damage:
            raise DamagedError(f"{damage}. Remove it, and the teacher is made anew") from damage


def ensure_teacher(task: TeacherTask, observer: Observer) -> Teacher:
    """The teacher of this task: from its folder, else trained, calibrated and cached; built once at a time."""
    folder = cache_folder() / "teachers" / task.teacher_id
    with locked(folder.with_suffix(".lock")):
        teacher = _found(folder, task.identity, observer)
        if teacher is None:
            _build(task, folder, observer)
            teacher = open_teacher(folder, task.identity)
        # Here, not where it was read: a process killed in between leaves it to the next one.
        (folder / CHECKPOINT).unlink(missing_ok=True)
    return teacher


def _found(folder: Path, identity: dict[str, Any], observer: Observer) -> Teacher | None:
    """The teacher of a folder; None where it is not whole, which is said where it was damaged."""
    if not ((folder / MODEL).exists() and (folder / SIGNALS).exists()):
        return None
    try:
        return open_teacher(folder, identity)
    except DamagedError as damage:
        observer.say(f"{damage}; the teacher is made anew")
        return None


def open_teacher(folder: Path, identity: dict[str, Any]) -> Teacher:
    """The signals of a folder; a stranger is refused, naming what differs."""
    tensors, facts = open_tensors(folder / SIGNALS)
    known = facts.get("identity", {})
    differing = sorted(name for name in identity.keys() | known.keys() if identity.get(name) != known.get(name))
    if differing:
        raise DataError(f"the signals in {folder.name} are of another teacher: {', '.join(differing)} differ")
    return Teacher(folder.name, folder, tensors["logits"], tensors["pooled"], facts)


def _build(task: TeacherTask, folder: Path, observer: Observer) -> None:
    settings = dataclasses.replace(
        task.settings,
        method="student_ce",
        epochs=task.settings.teacher_epochs,
        seed=task.settings.teacher_seed,
        learning_rate=task.settings.teacher_learning_rate,
        batch_size=task.settings.teacher_batch_size,
    )
    model, selection = task.untrained(), task.encoded.subset(task.selection_rows)
    job = Job(
        model=model,
        train=task.encoded.subset(task.train_rows),
        selection=selection,
        objective=Objective(settings),
        device=task.device,
        dtype=task.dtype,
        checkpoint=folder / CHECKPOINT,
        observer=observer,
        role="teacher",
        row_numbers=task.train_rows,
    )
    trained = train(job)
    model.load_state_dict(trained.weights)
    predictions = predict(model, task.encoded, task.device, task.dtype)
    validate_batch(task.encoded.labels, predictions.logits, predictions.pooled)
    selection_logits = predictions.logits[task.selection_rows]
    fit = fit_temperature(selection_logits, selection.labels)
    facts = {
        "identity": task.identity,
        **fit._asdict(),
        "selection": score(selection_logits, selection.labels)._asdict(),
        "selected_epoch": trained.progress.selected_epoch,
        "train_seconds": trained.progress.seconds,
    }
    save_tensors(folder / MODEL, trained.weights, {"teacher_id": folder.name})
    save_tensors(folder / SIGNALS, predictions._asdict(), facts)


def serve(
    teacher: Teacher, objective: Objective, labels: Tensor, train_rows: Sequence[int]
) -> Callable[[Sequence[int], torch.device], TeacherRows]:
    """The teacher's rows of a batch, as the loop asks for them; batch composition stays free."""
    settings = objective.settings
    entropy_power, reliability_power = objective.powers
    signals = teacher_signals(
        teacher.logits,
        labels,
        temperature=teacher.temperature,
        entropy_power=entropy_power,
        reliability_power=reliability_power,
        entropy_floor=settings.entropy_floor,
        reliability_floor=settings.reliability_floor,
    )
    positions = torch.tensor(list(train_rows))

    def rows(batch_rows: Sequence[int], device: torch.device) -> TeacherRows:
        at = positions[list(batch_rows)]
        logits, pooled, reliability, scores = (
            to_device(tensor[at], device) for tensor in (teacher.logits, teacher.pooled, *signals)
        )
        return TeacherRows(logits, pooled, TeacherSignals(reliability, scores))

    return rows
