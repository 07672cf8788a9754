"""The teacher: made once, calibrated on the selection split, cached for all and refused to strangers."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from training.lab import CLASSES, CPU, Store, make_encoded, make_settings, mapped_file

import rapid_lab
from rapid_lab.batches import to_device
from rapid_lab.errors import DataError, SettingError
from rapid_lab.method.calibration import fit_temperature
from rapid_lab.models import forward, load_classifier
from rapid_lab.teacher import CHECKPOINT, Teacher, TeacherTask, ensure_teacher, open_teacher, serve
from rapid_lab.terms import Objective
from rapid_lab.training.evaluation import score

TRAIN_ROWS, SELECTION_ROWS = list(range(0, 55)), list(range(55, 70))


class Listener(Store):
    """Counts the epochs it hears of, and keeps what is said."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    def begin(self, role: str, num_steps: int, table: torch.Tensor, epochs: Sequence[dict[str, Any]]) -> None:
        """What a store may have missed is of no interest here."""

    def steps(self, first: int, table: torch.Tensor) -> None:
        """The steps are of no interest here."""

    def epoch(self, record: dict[str, Any]) -> None:
        self.epochs[record["epoch"]] = record


def make_task(**changes: Any) -> TeacherTask:
    settings = {"teacher_layers": 1} | {
        name: changes.pop(name) for name in list(changes) if name.startswith("teacher_")
    }
    parts: dict[str, Any] = {
        "settings": make_settings(**settings),
        "model": "twin-bert",
        "num_labels": CLASSES,
        "encoded": make_encoded(70),
        "train_rows": TRAIN_ROWS,
        "selection_rows": SELECTION_ROWS,
        "data_hash": "data",
        "split_hash": "split",
        "device": CPU,
        "dtype": torch.float32,
    }
    return TeacherTask(**(parts | changes))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAPID_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def teacher(cache: Path) -> Teacher:
    return ensure_teacher(make_task(), Listener())


def test_a_teacher_is_made_once_and_then_found(cache: Path) -> None:
    first, second = Listener(), Listener()
    made, found = ensure_teacher(make_task(), first), ensure_teacher(make_task(), second)
    assert (len(first.epochs), len(second.epochs)) == (1, 0)
    assert torch.equal(made.logits, found.logits)
    assert made.teacher_id == found.teacher_id
    assert sorted(path.name for path in made.folder.iterdir()) == ["model.safetensors", "signals.safetensors"]


@pytest.mark.parametrize(
    "changes",
    [
        {"teacher_seed": 43}, {"teacher_epochs": 2}, {"teacher_learning_rate": 1e-4}, {"teacher_layers": 2},
        {"data_hash": "other"}, {"split_hash": "other"}, {"dtype": torch.bfloat16},
        {"encoded": make_encoded(70, seed=8)},
    ],
)  # fmt: skip
def test_another_task_has_another_teacher(changes: dict[str, Any], teacher: Teacher) -> None:
    listener = Listener()
    assert ensure_teacher(make_task(**changes), listener).teacher_id != teacher.teacher_id
    assert listener.epochs


@pytest.mark.parametrize("changes", [{"method": "kd"}, {"seed": 7}, {"relation_budget": 3}, {"kd_weight": 0.5}])
def test_methods_seeds_and_students_share_a_teacher(changes: dict[str, Any], teacher: Teacher) -> None:
    settings = dataclasses.replace(make_task().settings, **changes)
    listener = Listener()
    assert ensure_teacher(make_task(settings=settings), listener).teacher_id == teacher.teacher_id
    assert not listener.epochs


def test_cached_and_live_signals_agree(teacher: Teacher) -> None:
    model = load_classifier("twin-bert", layers=1, num_labels=CLASSES, seed=1).eval()
    model.load_state_dict(teacher.weights())
    task, objective = make_task(), Objective(make_settings())
    rows = [3, 50, 17, 8]
    batch = task.encoded.subset(task.train_rows).batch(rows, CPU)
    cached = serve(teacher, objective, task.encoded.labels, task.train_rows)(rows, CPU)
    with torch.no_grad():
        live = forward(model, batch.ids, batch.mask)
    torch.testing.assert_close(cached.logits, live.logits)
    torch.testing.assert_close(cached.pooled, live.pooled)


def test_rows_are_those_of_the_split_and_not_positions_in_it(teacher: Teacher) -> None:
    labels, train_rows = make_task().encoded.labels, [9, 4, 30]
    served = serve(teacher, Objective(make_settings()), labels, train_rows)([2, 0], CPU)
    assert torch.equal(served.logits, teacher.logits[[30, 9]])
    assert torch.equal(served.pooled, teacher.pooled[[30, 9]])
    assert served.signals.reliability.dtype == torch.float32
    assert served.signals.static_log_scores.dtype == torch.float64
    assert torch.equal(to_device(served.logits, CPU), served.logits)


def test_the_temperature_is_fitted_on_the_selection_rows_alone(teacher: Teacher) -> None:
    logits, labels = teacher.logits[SELECTION_ROWS], make_task().encoded.labels[SELECTION_ROWS]
    fit = fit_temperature(logits, labels)
    assert teacher.temperature == fit.temperature
    assert (teacher.facts["nll_before"], teacher.facts["nll_after"]) == (fit.nll_before, fit.nll_after)
    assert teacher.facts["selection"] == score(logits, labels)._asdict()
    assert fit.temperature != fit_temperature(teacher.logits, make_task().encoded.labels).temperature


def test_the_signals_are_mapped_into_memory(teacher: Teacher) -> None:
    signals = teacher.folder / "signals.safetensors"
    assert mapped_file(teacher.logits) == mapped_file(teacher.pooled) == signals
    assert (teacher.logits.dtype, teacher.pooled.dtype) == (torch.float32, torch.float32)
    assert len(teacher.logits) == len(teacher.pooled) == 70


def test_signals_of_a_stranger_are_refused_naming_what_differs(teacher: Teacher) -> None:
    asked = teacher.facts["identity"] | {"dtype": "torch.bfloat16", "max_length": 99}
    with pytest.raises(DataError, match=f"{teacher.teacher_id} are of another teacher: dtype, max_length differ"):
        open_teacher(teacher.folder, asked)


def flip(path: Path, place: int) -> None:
    """Change one byte."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("place", [-100, 40, 0])
def test_signals_with_a_changed_byte_are_named_and_made_anew(teacher: Teacher, place: int) -> None:
    """In a value, in the description, in the length of the header."""
    logits = teacher.logits.clone()
    flip(teacher.folder / "signals.safetensors", place)
    listener = Listener()
    again = ensure_teacher(make_task(), listener)
    assert torch.equal(again.logits, logits)
    (line,) = listener.lines
    assert line.startswith(f"signals.safetensors in {teacher.teacher_id} is damaged: ")
    assert line.endswith("; the teacher is made anew")
    assert len(listener.epochs) == 1


def test_weights_with_a_changed_byte_are_refused_and_made_anew_once_they_are_removed(teacher: Teacher) -> None:
    model = teacher.folder / "model.safetensors"
    flip(model, -1)
    with pytest.raises(DataError, match=r"model.safetensors in \w+ is damaged: .* the teacher is made anew"):
        teacher.weights()
    model.unlink()
    listener = Listener()
    assert ensure_teacher(make_task(), listener).weights()
    assert listener.epochs


def test_a_teacher_whose_training_was_ended_goes_on_from_its_checkpoint(cache: Path) -> None:
    class Ending(Listener):
        def epoch(self, record: dict[str, Any]) -> None:
            super().epoch(record)
            if record["epoch"] == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure_teacher(make_task(teacher_epochs=3), Ending())
    (checkpoint,) = cache.glob(f"teachers/*/{CHECKPOINT}")
    resumed = ensure_teacher(make_task(teacher_epochs=3), Listener())
    assert not checkpoint.exists()
    (resumed.folder / "signals.safetensors").unlink()
    assert torch.equal(resumed.logits, ensure_teacher(make_task(teacher_epochs=3), Listener()).logits)


def test_a_checkpoint_left_beside_finished_signals_is_removed(teacher: Teacher) -> None:
    (teacher.folder / CHECKPOINT).write_bytes(b"left by a process that was killed")
    ensure_teacher(make_task(), Listener())
    assert not (teacher.folder / CHECKPOINT).exists()


def test_too_many_layers_are_refused_by_the_name_of_the_teachers_setting(tmp_path: Path) -> None:
    import transformers

    config = transformers.BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    transformers.BertModel(config).save_pretrained(tmp_path)
    with pytest.raises(SettingError, match=r"teacher_layers must be in \[1, 1\], got 2"):
        ensure_teacher(make_task(model=str(tmp_path), teacher_layers=2), Listener())


PROGRAM = """
import json, sys, time
import torch
from training.test_teacher import Listener, make_task
from rapid_lab.teacher import ensure_teacher

torch.set_num_threads(1)
task, listener = make_task(), Listener()
print("ready", flush=True)
sys.stdin.readline()
teacher = ensure_teacher(task, listener)
print(json.dumps([len(listener.epochs), teacher.teacher_id, float(teacher.logits.double().sum())]), flush=True)
"""


def test_two_processes_that_ask_at_once_make_one_teacher(cache: Path) -> None:
    paths = [str(Path(__file__).parent.parent), str(Path(rapid_lab.__file__).parent.parent)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", PROGRAM]
    processes = [
        subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [json.loads(process.communicate(timeout=120)[0]) for process in processes]
    assert sorted(answer[0] for answer in answers) == [0, 1]  # one of them trained
    assert answers[0][1:] == answers[1][1:]
    assert len(list(cache.glob("teachers/*/signals.safetensors"))) == 1
