"""The twin is hard enough: a student that learns from labels alone stays clearly below the teacher, which is good."""

from pathlib import Path

import pytest

from rapid_lab.batches import encode
from rapid_lab.cli.progress import Lines
from rapid_lab.experiment.preparation import prepare, prepare_data, teacher_task
from rapid_lab.experiment.run import student_job
from rapid_lab.experiment.teacher import report_of
from rapid_lab.teacher import ensure_teacher
from rapid_lab.training.evaluation import predict, score
from rapid_lab.training.loop import train


@pytest.mark.soak
@pytest.mark.parametrize("dataset", ["agnews", "sst2"])
def test_a_student_of_labels_alone_stays_clearly_below_a_good_teacher(
    dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 42 of the five (agnews) and three (sst2) seeds the parameters were fixed on: 2 to 5 points below."""
    monkeypatch.setenv("RAPID_CACHE_DIR", str(tmp_path))
    settings, data = prepare_data({"dataset": dataset, "data": "twin", "method": "student_ce", "device": "cpu"})
    task = teacher_task(settings, data)
    teacher = report_of(ensure_teacher(task, Lines("teacher")), task, data)
    assert 0.90 <= teacher["accuracy"] <= 0.97

    prepared = prepare(settings, data)
    trained = train(student_job(prepared, None, tmp_path, Lines("student")))
    prepared.model.load_state_dict(trained.weights)
    examples = data.read_report()
    encoded = encode(prepared.tokenizer, examples.texts, examples.labels, max_length=settings.max_length)
    student = score(predict(prepared.model, encoded, prepared.device, prepared.dtype).logits, encoded.labels)
    assert student.accuracy <= teacher["accuracy"] - 0.015
