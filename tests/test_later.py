"""A report or a model that was not asked for at first is added to the finished run, without training again."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pyarrow.parquet as parquet
import pytest
from mlflow.artifacts import download_artifacts

from rapid_lab import names
from rapid_lab.cli import main
from rapid_lab.cli.progress import Lines
from rapid_lab.experiment.preparation import prepare_data, teacher_task
from rapid_lab.experiment.run import CHECKPOINT, ready_teacher, selected_file
from rapid_lab.experiment.suite import best_seeds
from rapid_lab.files import open_tensors, save_tensors
from rapid_lab.tracking.artifacts import model_weights
from rapid_lab.tracking.door import client
from rapid_lab.tracking.signals import Interrupted
from rapid_lab.tracking.store import find_runs

QUICK = [
    "--data", "twin", "--method", "kd", "--epochs", "1", "--warmup-epochs", "0", "--teacher-epochs", "1", "--json",
]  # fmt: skip


def run(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main(["run", *QUICK, *options]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def models_of(run_id: str) -> list[str]:
    outputs = client().get_run(run_id).outputs
    return [output.model_id for output in outputs.model_outputs] if outputs else []


@pytest.mark.usefixtures("lab")
def test_a_report_and_a_model_are_added_from_the_selected_weights(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = run(capsys, "--report", "never", "--log-model", "false")
    folder = cache / "runs" / silent["config_id"]
    assert silent["report"] is None
    assert list(folder.iterdir()) == [selected_file(folder, silent["run_id"])]
    stored = client().get_run(silent["run_id"])
    assert stored.data.tags[names.REPORT] == "never"
    assert names.REPORT_ACCURACY not in stored.data.metrics
    assert not [item for item in client().list_artifacts(silent["run_id"]) if item.path == names.PREDICTIONS]
    steps = len(client().get_metric_history(silent["run_id"], names.RELATIONS_MAIN))

    reported = run(capsys, "--log-model", "false")
    assert (reported["run_id"], reported["is_reused"]) == (silent["run_id"], True)
    stored = client().get_run(silent["run_id"])
    assert stored.info.status == "FINISHED"
    assert stored.data.tags[names.REPORT] == "once"
    assert stored.data.metrics[names.REPORT_CORRECT] == reported["report"]["correct"]
    assert len(client().get_metric_history(silent["run_id"], names.RELATIONS_MAIN)) == steps
    table = parquet.read_table(download_artifacts(f"runs:/{silent['run_id']}/{names.PREDICTIONS}"))
    right = sum(a == b for a, b in zip(table["label"].to_pylist(), table["predicted"].to_pylist(), strict=True))
    assert right == reported["report"]["correct"]

    selected = selected_file(folder, silent["run_id"])
    weights = {name: tensor.clone() for name, tensor in open_tensors(selected)[0].items()}
    run(capsys, "--log-model", "true")
    assert list(folder.iterdir()) == []  # kept once: now in the model
    (model_id,) = models_of(silent["run_id"])
    logged = model_weights(model_id)
    assert logged.keys() == weights.keys()
    assert all(logged[name].equal(tensor) for name, tensor in weights.items())
    save_tensors(selected, weights, {})  # as a process that was killed in between leaves it
    run(capsys, "--log-model", "true")
    assert (models_of(silent["run_id"]), list(folder.iterdir())) == ([model_id], [])


@pytest.mark.usefixtures("lab")
def test_a_whole_run_that_was_ended_after_its_last_word_is_finished_when_asked_for_again(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run(capsys, "--log-model", "false", "--seed", "8")
    left = cache / "runs" / first["config_id"] / CHECKPOINT  # as a process killed at its end leaves it
    left.write_bytes(b"of a run that is done")
    client().set_terminated(first["run_id"], "KILLED")
    assert run(capsys, "--log-model", "false", "--seed", "8")["run_id"] == first["run_id"]
    assert client().get_run(first["run_id"]).info.status == "FINISHED"
    assert not left.exists()


@pytest.mark.usefixtures("lab")
def test_a_forced_run_trains_every_step_whatever_checkpoint_is_there(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run(capsys, "--log-model", "false", "--seed", "9")
    (cache / "runs" / first["config_id"] / CHECKPOINT).write_bytes(b"neither read nor named")
    assert main(["run", *QUICK, "--log-model", "false", "--seed", "9", "--force"]) == 0
    shown = capsys.readouterr()
    second = json.loads(shown.out)
    assert "checkpoint" not in shown.err
    assert second["run_id"] != first["run_id"]
    assert (second["steps"], second["report"]) == (first["steps"], first["report"])
    folder = cache / "runs" / first["config_id"]
    # Each has its own weights: a model that is logged of one takes nothing from the other.
    assert sorted(folder.iterdir()) == sorted(selected_file(folder, found["run_id"]) for found in (first, second))


@pytest.mark.usefixtures("lab")
def test_an_unfinished_run_goes_on_when_its_data_and_precision_are_given_by_other_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--log-model", "false", "--seed", "10"]
    with monkeypatch.context() as patch:
        patch.setattr("rapid_lab.experiment.run.train_student", _interrupt)
        with pytest.raises(Interrupted):
            main(["run", *QUICK, *words])
    again = run(capsys, *words, "--precision", "fp32", "--device", "cpu")
    stored = client().get_run(again["run_id"])
    assert stored.data.tags[names.RESUMED] == "true"
    assert (stored.data.params["cfg.precision"], stored.data.params["cfg.device"]) == ("auto", "auto")


def _interrupt(*_: object) -> NoReturn:
    raise Interrupted("SIGTERM")


@pytest.mark.usefixtures("lab")
def test_a_report_is_added_from_the_logged_model_where_the_cache_is_gone(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run(capsys, "--report", "never", "--seed", "5")
    assert not selected_file(cache / "runs" / first["config_id"], first["run_id"]).exists()
    later = run(capsys, "--seed", "5")
    assert later["run_id"] == first["run_id"]
    assert later["report"]["total"] > 0


@pytest.mark.usefixtures("lab")
def test_a_report_without_weights_is_refused_and_the_run_stays_finished(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run(capsys, "--report", "never", "--log-model", "false", "--seed", "6")
    selected_file(cache / "runs" / first["config_id"], first["run_id"]).unlink()
    assert main(["run", *QUICK, "--seed", "6"]) == 2
    assert (
        "nothing can be added to it; `rapid-lab run --force` with its settings trains it again"
        in capsys.readouterr().err
    )
    assert client().get_run(first["run_id"]).info.status == "FINISHED"


@pytest.mark.usefixtures("lab")
def test_damaged_weights_are_named_and_nothing_is_added_from_them(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run(capsys, "--report", "never", "--log-model", "false", "--seed", "4")
    selected = selected_file(cache / "runs" / first["config_id"], first["run_id"])
    content = bytearray(selected.read_bytes())
    content[-1] ^= 1
    selected.write_bytes(content)
    assert main(["run", *QUICK, "--seed", "4"]) == 2
    said = capsys.readouterr().err
    assert f"rapid-lab: {selected.name} in {first['config_id']} is damaged: its checksum is " in said
    assert said.endswith("; `rapid-lab run --force` with its settings trains it again\n")
    assert client().get_run(first["run_id"]).info.status == "FINISHED"


@pytest.mark.usefixtures("lab")
def test_a_teacher_that_the_store_does_not_take_is_said_and_used(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, data = prepare_data({"data": "twin", "teacher_epochs": 1})
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    lines: list[str] = []

    class Hearing(Lines):
        def say(self, line: str) -> None:
            lines.append(line)

    teacher = ready_teacher(teacher_task(settings, data), data, "0", Hearing("teacher"))
    assert len(teacher.logits) == 2000
    message = f"teacher {teacher.teacher_id} is ready, and recorded when it is asked for again: searching runs failed"
    assert lines[-1].startswith(message)


@pytest.mark.usefixtures("lab")
def test_a_run_records_its_teacher_once_with_its_reliability_diagram(capsys: pytest.CaptureFixture[str]) -> None:
    for seed in ("7", "8"):
        run(capsys, "--log-model", "false", "--seed", seed)
    (teacher,) = find_runs("0", {names.KIND: names.TEACHER})
    document = json.loads(Path(download_artifacts(f"runs:/{teacher.run_id}/{names.CALIBRATION}")).read_text("utf-8"))
    assert document["bins"] == 15
    assert sum(document["before"]["count"]) == sum(document["after"]["count"]) == 200
    assert document["after"]["nll"] <= document["before"]["nll"]


def test_the_best_seed_is_chosen_by_the_selection_split_alone() -> None:
    def made(method: str, seed: int, correct: int, nll: float, report: int) -> dict[str, Any]:
        epochs = [{"correct": 99, "nll": 0.0}, {"correct": correct, "nll": nll}]
        return {
            "method": method, "seed": seed, "epochs": epochs, "selected_epoch": 2, "report": {"correct": report},
        }  # fmt: skip

    runs = [made("kd", 1, 8, 0.5, 1), made("kd", 2, 8, 0.4, 0), made("kd", 3, 7, 0.1, 9), made("rapid", 1, 1, 1.0, 1)]
    assert [(best["method"], best["seed"]) for best in best_seeds(runs)] == [("kd", 2), ("rapid", 1)]


SUITE = [
    "suite",
    "--data",
    "twin",
    "--methods",
    "student_ce",
    "--seeds",
    "9",
    "--epochs",
    "200",
    "--log-model",
    "false",
]


def test_a_run_ends_in_order_when_its_suite_is_killed(lab: Path) -> None:
    command = [sys.executable, "-m", "rapid_lab", *SUITE]
    suite = subprocess.Popen(command, cwd=lab.parent, stderr=subprocess.PIPE, text=True)
    assert suite.stderr is not None
    line = suite.stderr.readline()
    assert line.startswith("student_ce seed 9 epoch 1/200"), line
    os.kill(suite.pid, signal.SIGKILL)
    suite.communicate()  # to the end of its output: the run has ended too and closed its end
    (run,) = find_runs("0", {names.KIND: names.STUDENT})
    assert run.status == "KILLED"
