"""A laboratory small enough to train in milliseconds: texts, a student, teacher signals, and a store that remembers."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from rapid_lab.batches import Encoded
from rapid_lab.config import Settings
from rapid_lab.names import PEAK_MB, STEP_METRICS, STEP_MS
from rapid_lab.seeds import derived_seed
from rapid_lab.teacher import Teacher, serve
from rapid_lab.terms import Objective
from rapid_lab.training.loop import Job

CPU = torch.device("cpu")
CLASSES, VOCABULARY = 3, 50
# 44 examples in batches of 8: five full ones, whose 28 pairs are sampled, and one of 4, whose 6 pairs are enumerated.
NUM_TRAIN, NUM_SELECTION, BATCH_SIZE, NUM_BATCHES, EPOCHS = 44, 16, 8, 6, 3
COUNTED = [index for index, name in enumerate(STEP_METRICS) if name not in (STEP_MS, PEAK_MB)]


def make_settings(method: str = "rapid", **changes: Any) -> Settings:
    small: dict[str, Any] = {
        "epochs": EPOCHS, "warmup_epochs": 1, "batch_size": BATCH_SIZE, "relation_budget": 12, "learning_rate": 1e-2,
        "teacher_epochs": 1, "teacher_learning_rate": 1e-3, "max_length": 16,
    }  # fmt: skip
    return Settings(method=method, **(small | changes))


def make_encoded(count: int, *, seed: int = 7) -> Encoded:
    """Texts of 3 to 12 tokens, in which a class has words of its own."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    lengths = torch.randint(3, 13, (count,), generator=generator).tolist()
    texts = [
        torch.randint(4 + 10 * label, 24 + 10 * label, (length,), generator=generator)
        for label, length in zip(labels.tolist(), lengths, strict=True)
    ]
    starts = [0, *torch.tensor(lengths).cumsum(0).tolist()]
    return Encoded(torch.cat(texts).to(torch.int32), starts, labels, padding=0)


def make_student(seed: int = 42, *, dropout: float = 0.1) -> nn.Module:
    """One layer, 16 wide, with dropout."""
    torch.manual_seed(derived_seed(seed, "weights"))
    small: dict[str, Any] = {
        "vocab_size": VOCABULARY, "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32, "num_labels": CLASSES,
        "max_position_embeddings": 16, "dropout": dropout, "attention_dropout": dropout,
        "seq_classif_dropout": 2 * dropout,
    }  # fmt: skip
    config = transformers.DistilBertConfig(**small)
    return transformers.DistilBertForSequenceClassification(config)


def make_teacher(encoded: Encoded) -> Teacher:
    """Signals of a teacher that is mostly right."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(len(encoded), CLASSES, generator=generator)
    logits += 2 * torch.nn.functional.one_hot(encoded.labels, CLASSES)
    pooled = torch.randn(len(encoded), 24, generator=generator)
    return Teacher("small", Path("small"), logits, pooled, {"temperature": 1.3})


class Store:
    """Keeps what it is told first, as the tracking store does, and holds it against what it is told again."""

    def __init__(self) -> None:
        self.rows: dict[int, Tensor] = {}
        self.epochs: dict[int, dict[str, Any]] = {}

    def begin(self, role: str, num_steps: int, table: Tensor, epochs: Sequence[dict[str, Any]]) -> None:
        assert num_steps % NUM_BATCHES == 0
        self.steps(1, table)
        for record in epochs:
            self.epoch(record)

    def steps(self, first: int, table: Tensor) -> None:
        for step, row in enumerate(table, start=first):
            assert step in self.rows or step == len(self.rows) + 1, "a step is missing"
            torch.testing.assert_close(row[COUNTED], self.rows.setdefault(step, row)[COUNTED], rtol=0, atol=0)

    def epoch(self, record: dict[str, Any]) -> None:
        assert record["step"] == record["epoch"] * NUM_BATCHES
        assert self.epochs.setdefault(record["epoch"], record) == record

    def say(self, line: str) -> None:
        raise AssertionError(line)


def mapped_file(tensor: Tensor) -> Path | None:
    """The file whose mapping holds a tensor's values; None where they are in memory of the process's own."""
    if sys.platform != "linux":
        pytest.skip("only Linux tells what a process has mapped")
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        span, *_, name = line.split(maxsplit=5)
        low, high = (int(end, 16) for end in span.split("-"))
        if low <= tensor.data_ptr() < high:
            return Path(name) if name.startswith("/") else None
    return None


def make_job(folder: Path, settings: Settings | None = None, **changes: Any) -> Job:
    settings = settings or make_settings()
    encoded = make_encoded(NUM_TRAIN + NUM_SELECTION)
    objective, train_rows = Objective(settings), list(range(NUM_TRAIN))
    parts: dict[str, Any] = {
        "model": make_student(settings.seed),
        "train": encoded.subset(train_rows),
        "selection": encoded.subset(range(NUM_TRAIN, len(encoded))),
        "objective": objective,
        "device": CPU,
        "dtype": torch.float32,
        "checkpoint": folder / "checkpoint.safetensors",
        "observer": Store(),
        "teacher": serve(make_teacher(encoded), objective, encoded.labels, train_rows),
    }
    return Job(**(parts | changes))
