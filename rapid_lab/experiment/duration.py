"""How long a run of real models will take on a CPU, told before it begins: nobody should find out by waiting."""

import time

import torch

from rapid_lab.batches import encode
from rapid_lab.config import Settings
from rapid_lab.data import twin
from rapid_lab.data.sources import TextData
from rapid_lab.models import find_model, forward, load_classifier, load_tokenizer
from rapid_lab.terms import Objective
from rapid_lab.training.resources import choose_device

# Every fourth text of a batch of 32 by length, the longest among them: padded as the whole batch would be.
SAMPLE_TEXTS, SAMPLE_STRIDE = 32, 4
FORWARD_SHARE = 1 / 3  # of a training step: the backward pass costs two forward ones
SELECTION_SHARE = 0.1


def duration_notice(settings: Settings, data: TextData) -> str | None:
    """The estimated duration and the command for the twin; None on the twin and on CUDA, which are fast."""
    if data.is_twin or choose_device(settings.device).type != "cpu":
        return None
    parts = {"student": student_seconds(settings, data)}
    if Objective(settings).needs_teacher:
        parts["teacher, once for all methods and seeds"] = teacher_seconds(settings, data)
    each = ", ".join(f"{name}: {spoken(seconds)}" for name, seconds in parts.items())
    dataset = settings.dataset if settings.dataset in twin.TWINS else "agnews"
    return (
        f"Real models on a CPU: about {spoken(sum(parts.values()))} ({each}; what is done already is not repeated). "
        f"In a minute, on the twin: rapid-lab run --method {settings.method} --dataset {dataset} --data twin"
    )


def teacher_notice(settings: Settings, data: TextData) -> str | None:
    """The same for a teacher alone."""
    if data.is_twin or choose_device(settings.device).type != "cpu":
        return None
    return f"A real model on a CPU: about {spoken(teacher_seconds(settings, data))} unless it is cached already"


def student_seconds(settings: Settings, data: TextData) -> float:
    """Every epoch's training and selection."""
    an_example = example_seconds("student", settings, data)
    return an_example * len(data.train) * settings.epochs * _epoch_share()


def teacher_seconds(settings: Settings, data: TextData) -> float:
    """Every epoch's training and selection, then the signals of every example."""
    an_example = example_seconds("teacher", settings, data)
    return an_example * len(data.train) * (settings.teacher_epochs * _epoch_share() + FORWARD_SHARE)


def _epoch_share() -> float:
    return 1 - SELECTION_SHARE + SELECTION_SHARE * FORWARD_SHARE


def example_seconds(role: str, settings: Settings, data: TextData) -> float:
    """Seconds a training example takes, measured on the model itself with a few texts; the second of two steps."""
    is_teacher = role == "teacher"
    asked = settings.teacher_model if is_teacher else settings.student_model
    layers = settings.teacher_layers if is_teacher else settings.student_layers
    name = find_model(asked, setting=f"{role}_model", is_twin=False)
    stride = max(1, len(data.train) // SAMPLE_TEXTS)
    texts = data.train.texts[::stride][:SAMPLE_TEXTS]
    encoded = encode(load_tokenizer(name), texts, [0] * len(texts), max_length=settings.max_length)
    rows = sorted(range(len(texts)), key=encoded.length, reverse=True)[::SAMPLE_STRIDE]
    batch = encoded.batch(rows, torch.device("cpu"))
    model = load_classifier(name, layers=layers, num_labels=data.num_labels, seed=settings.seed).train()
    seconds = 0.0
    for _ in range(2):
        started = time.perf_counter()
        forward(model, batch.ids, batch.mask).logits.square().mean().backward()
        seconds = time.perf_counter() - started
    return seconds / len(rows)


def spoken(seconds: float) -> str:
    """A duration to two figures.

    >>> spoken(20), spoken(150), spoken(4 * 3600), spoken(5 * 86400)
    ('20 s', '2.5 min', '4 h', '5 days')
    """
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size or (unit != "days" and seconds >= size):
            return f"{float(f'{seconds / size:.2g}'):g} {unit}"
    return f"{float(f'{seconds:.2g}'):g} s"
