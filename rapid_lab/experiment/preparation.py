"""What a run is made of, and its identity: data, split, models, teacher.

Settings are refused before any data is touched, and data faults are raised before any model is loaded.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from rapid_lab.batches import Encoded, encode
from rapid_lab.config import SETTINGS, Settings, Value, resolve
from rapid_lab.data import twin
from rapid_lab.data.sources import TextData, check_names, find_data
from rapid_lab.data.splits import Split, split_indices
from rapid_lab.models import TWIN_MODELS, check_length, find_model, fingerprint, load_classifier, load_tokenizer
from rapid_lab.names import NUMBERS_VERSION
from rapid_lab.teacher import TeacherTask
from rapid_lab.terms import Objective
from rapid_lab.tracking.redaction import without_secrets
from rapid_lab.training.resources import choose_device, choose_dtype

# Where things come from does not change a number: the hashes of what was found there are in the identity instead.
PLACES = {"data", "dataset", "text_column", "label_column", "teacher_model", "student_model"}


@dataclass(frozen=True)
class Prepared:
    """Everything a run needs before its first step."""

    settings: Settings
    data: TextData
    split: Split
    device: torch.device
    dtype: torch.dtype
    tokenizer: Any
    encoded: Encoded
    model: nn.Module
    teacher: TeacherTask | None
    identity: dict[str, Any]

    @property
    def config_id(self) -> str:
        """Names the run: equal ids are one run, and have equal numbers on one kind of device and number of ranks."""
        return hashed(self.identity)


def hashed(identity: Mapping[str, Any]) -> str:
    """Sixteen hexadecimal digits over names and values."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def prepare_data(given: Mapping[str, Value]) -> tuple[Settings, TextData]:
    """The settings of this run and its texts; nothing else is loaded yet."""
    asked = resolve(given)
    check_names(asked.dataset, asked.data)
    choose_device(asked.device)
    for name in ("student_model", "teacher_model"):
        if name in given and given[name] not in TWIN_MODELS:  # a folder that is none is refused before any data
            find_model(str(given[name]), setting=name, is_twin=False)
    data = find_data(asked.dataset, asked.data, text_column=asked.text_column, label_column=asked.label_column)
    # What is said of a place may hold the password of its address.
    data = dataclasses.replace(data, warnings=tuple(map(without_secrets, data.warnings)))
    return resolve(given, is_twin=data.is_twin), data


def prepare(settings: Settings, data: TextData) -> Prepared:
    """Models, tokens, and what the teacher is made from where the method has one; nothing is trained yet."""
    device = choose_device(settings.device)
    dtype = choose_dtype(settings.precision, device)
    name = find_model(settings.student_model, setting="student_model", is_twin=data.is_twin)
    objective = Objective(settings)
    split = split_indices(len(data.train), split_seed=settings.split_seed)
    tokenizer = load_tokenizer(name, twin_words=twin_words(data))
    check_length(name, tokenizer, max_length=settings.max_length)
    encoded = encode(tokenizer, data.train.texts, data.train.labels, max_length=settings.max_length)
    teacher = teacher_task(settings, data) if objective.needs_teacher else None
    model = load_classifier(name, layers=settings.student_layers, num_labels=data.num_labels, seed=settings.seed)
    identity = run_identity(settings, data, split, encoded, model, teacher, dtype)
    return Prepared(settings, data, split, device, dtype, tokenizer, encoded, model, teacher, identity)


def teacher_task(settings: Settings, data: TextData) -> TeacherTask:
    """What the teacher of these settings is made from."""
    device = choose_device(settings.device)
    name = find_model(settings.teacher_model, setting="teacher_model", is_twin=data.is_twin)
    split = split_indices(len(data.train), split_seed=settings.split_seed)
    tokenizer = load_tokenizer(name, twin_words=twin_words(data))
    check_length(name, tokenizer, max_length=settings.max_length)
    return TeacherTask(
        settings=settings,
        model=name,
        num_labels=data.num_labels,
        encoded=encode(tokenizer, data.train.texts, data.train.labels, max_length=settings.max_length),
        train_rows=split.train,
        selection_rows=split.selection,
        data_hash=data.data_hash,
        split_hash=split.indices_hash,
        device=device,
        dtype=choose_dtype(settings.precision, device),
    )


def twin_words(data: TextData) -> list[str]:
    """The twin's vocabulary; real tokenizers bring their own."""
    return twin.twin_vocabulary(data.dataset) if data.is_twin else []


def run_identity(
    settings: Settings,
    data: TextData,
    split: Split,
    encoded: Encoded,
    model: nn.Module,
    teacher: TeacherTask | None,
    dtype: torch.dtype,
) -> dict[str, Any]:
    """Every setting that can change a number, and hashes of what was found."""
    numbers = {
        name: value
        for name, value in dataclasses.asdict(settings).items()
        if SETTINGS[name].affects_numbers and name not in PLACES
    }
    return {
        **numbers,
        "precision": str(dtype),
        "data": data.data_hash,
        "split": split.indices_hash,
        "tokens": encoded.digest(),
        "student": fingerprint(model),
        "teacher": teacher.teacher_id if teacher else None,
        "numbers_version": NUMBERS_VERSION,
    }
