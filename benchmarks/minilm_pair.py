"""A real pair to measure on: all-MiniLM-L6-v2 as teacher, its first three layers as student, SST-2 texts.

    RAPID_DATA_DIR=... RAPID_MODEL_DIR=... python benchmarks/X.py

SST-2 has the shorter texts, so that a step is quick and whatever is added to it shows. What it costs does not depend
on how good the teacher is, so the teacher here is the encoder with a fresh head: its signals are computed once for
the texts measured, and nothing is fine-tuned.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rapid_lab.batches import Encoded, encode
from rapid_lab.config import Settings, resolve
from rapid_lab.data.sources import find_data
from rapid_lab.models import find_model, load_classifier, load_tokenizer
from rapid_lab.teacher import Teacher, serve
from rapid_lab.terms import Objective
from rapid_lab.training.evaluation import predict
from rapid_lab.training.loop import Job, Observer

CPU = torch.device("cpu")
MODEL = "minilm"
NUM_LABELS, MAX_LENGTH = 2, 64
FLOAT = torch.float32


class Silent:
    """An observer that keeps nothing."""

    def begin(self, role: str, num_steps: int, table: Tensor, epochs: Sequence[dict[str, Any]]) -> None:
        pass

    def steps(self, first: int, table: Tensor) -> None:
        pass

    def epoch(self, record: dict[str, Any]) -> None:
        pass

    def say(self, line: str) -> None:
        pass


@dataclass
class Pair:
    """Encoded texts, the teacher as a model and as cached signals."""

    encoded: Encoded
    texts: list[str]
    tokenizer: Any
    teacher_model: nn.Module
    teacher: Teacher
    name: str

    def student(self) -> nn.Module:
        """The first three layers, with the same weights every time."""
        return load_classifier(self.name, layers=3, num_labels=NUM_LABELS, seed=42)

    def job(self, method: str, folder: Path, observer: Observer | None = None, **settings: Any) -> Job:
        """One training of this method on all texts; a handful of them stands for the selection split."""
        chosen = self.settings(method, **settings)
        objective = Objective(chosen)
        rows = list(range(len(self.encoded)))
        served = serve(self.teacher, objective, self.encoded.labels, rows) if objective.needs_teacher else None
        return Job(
            model=self.student(),
            train=self.encoded,
            selection=self.encoded.subset(rows[:32]),
            objective=objective,
            device=CPU,
            dtype=FLOAT,
            checkpoint=folder / f"{method}.safetensors",
            observer=observer or Silent(),
            teacher=served,
        )

    @staticmethod
    def settings(method: str, **settings: Any) -> Settings:
        """K = 256, the larger of the paper's; RAPID adaptive from the first epoch, which costs most."""
        common: dict[str, Any] = {
            "dataset": "sst2",
            "relation_budget": 256,
            "student_model": MODEL,
            "student_layers": 3,
        }
        return resolve({**common, "method": method, "epochs": 1, "warmup_epochs": 0, **settings})


def load_pair(num_texts: int) -> Pair:
    """The pair, with the signals of the first texts computed."""
    for variable in ("RAPID_DATA_DIR", "RAPID_MODEL_DIR"):
        if not os.environ.get(variable):
            raise SystemExit(f"{variable} must be set: this is measured on real texts and a real encoder ({MODEL})")
    data = find_data("sst2", "auto", text_column=None, label_column=None)
    name = find_model(MODEL, setting="student_model", is_twin=False)
    tokenizer = load_tokenizer(name)
    texts = list(data.train.texts[:num_texts])
    encoded = encode(tokenizer, texts, data.train.labels[:num_texts], max_length=MAX_LENGTH)
    model = load_classifier(name, layers=None, num_labels=NUM_LABELS, seed=42)
    signals = predict(model, encoded, CPU, FLOAT)
    teacher = Teacher("benchmark", Path(), signals.logits, signals.pooled, {"temperature": 1.0})
    return Pair(encoded, texts, tokenizer, model, teacher, name)
