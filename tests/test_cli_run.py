"""`rapid-lab run`: its options, and what becomes of the run that `mlflow run` has made before it."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
import transformers
from mlflow import MlflowClient

from rapid_lab import names
from rapid_lab.cli import main
from rapid_lab.config import SETTINGS, Value, resolve
from rapid_lab.data.sources import find_data
from rapid_lab.experiment.duration import duration_notice
from rapid_lab.tracking.launched import launched_run
from rapid_lab.tracking.signals import Interrupted

WORDS = ("good", "bad", "film", "plot", "song")


def test_help_lists_every_setting_with_its_symbol_and_default() -> None:
    command = [sys.executable, "-m", "rapid_lab", "run", "--help"]
    wide = os.environ | {"COLUMNS": "1000"}
    text = subprocess.run(command, capture_output=True, text=True, check=True, env=wide).stdout
    for setting in SETTINGS.values():
        assert f"{setting.flag} VALUE" in text
        assert setting.description in text
        assert "default" in setting.description
    assert "(rho; default 0.1)" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epochs", "0"], "epochs must be"),
        (["--foo", "1"], "foo is no setting: no name is near to it"),
        (["--gate_strenght", "1"], "gate_strenght is no setting: did you mean gate_strength"),
        (["--kd_weight", "-1e-5"], "kd_weight must be"),
        (["--epochs", "--force"], "expected one argument"),
        (["--force", "1"], "--force: must be alone, or followed by true or false, got '1'"),
        (["--method", "rapit"], "did you mean rapid?"),
        (["--dataset", "agnew"], "did you mean agnews?"),
        (["--config", "/nowhere.toml"], "config must be a readable TOML file"),
    ],
)
def test_bad_input_is_one_message_and_the_exit_code_2(
    options: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MLFLOW_RUN_ID", raising=False)
    assert main(["run", *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("rapid-lab: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> MlflowClient:
    """A store of this module's own."""
    from rapid_lab.tracking.store import prepare_store

    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
        return MlflowClient(prepare_store())


@pytest.fixture
def launched(client: MlflowClient, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run as `mlflow run` makes it for its command."""
    run_id = client.create_run("0").info.run_id
    monkeypatch.setenv("MLFLOW_TRACKING_URI", client.tracking_uri)
    monkeypatch.setenv("MLFLOW_RUN_ID", run_id)
    return str(run_id)


def test_bad_input_ends_the_launched_run_as_failed_with_the_message(
    client: MlflowClient, launched: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--method", "rapid", "--dataset", "agnews", "--epochs", "0"]) == 2
    run = client.get_run(launched)
    assert run.info.status == "FAILED"
    assert f"rapid-lab: {run.data.tags[names.DESCRIPTION]}\n" == capsys.readouterr().err


def test_a_signal_before_there_is_anything_to_record_ends_the_launched_run_as_killed(
    client: MlflowClient, launched: str
) -> None:
    with pytest.raises(Interrupted), launched_run():
        raise Interrupted("SIGTERM")
    run = client.get_run(launched)
    assert (run.info.status, run.data.tags[names.DESCRIPTION]) == ("KILLED", "ended by SIGTERM")


@pytest.mark.parametrize("status", ["FINISHED", "KILLED", "FAILED"])
def test_a_launched_run_that_points_elsewhere_ends_as_its_target(
    status: str, client: MlflowClient, launched: str
) -> None:
    target = client.create_run("0").info.run_id
    client.set_tag(launched, names.POINTS_TO, target)
    with launched_run():
        client.set_terminated(target, status)
    assert client.get_run(launched).info.status == status


def test_a_fault_is_told_though_the_store_cannot_be(
    launched: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_RUN_ID", "0" * 32)
    assert main(["run", "--epochs", "0"]) == 2
    assert "epochs must be" in capsys.readouterr().err


@pytest.fixture
def real(tmp_path: Path) -> dict[str, str]:
    """A folder of texts and a small model with weights: real as far as the code can tell."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    for split in ("train", "test"):
        with (tmp_path / f"{split}.csv").open("w", newline="") as file:
            rows = [(row % 2, " ".join(WORDS[: 1 + row % 5])) for row in range(64)]
            csv.writer(file).writerows([("label", "text"), *rows])
    vocabulary = {word: index for index, word in enumerate(("[PAD]", "[UNK]", *WORDS))}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    model = tmp_path / "model"
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(model)
    config = transformers.BertConfig(
        vocab_size=8, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
    )
    transformers.BertForSequenceClassification(config).save_pretrained(model)
    return {"dataset": f"{tmp_path}/", "teacher_model": str(model), "student_model": str(model)}


def test_real_models_on_a_cpu_are_announced_with_their_duration_and_the_command_for_the_twin(
    real: dict[str, str],
) -> None:
    asked: dict[str, Value] = {**real, "student_layers": 1, "max_length": 16, "device": "cpu"}
    data = find_data(real["dataset"], "auto")
    notice = duration_notice(resolve({**asked, "method": "kd"}), data)
    assert notice is not None
    assert "Real models on a CPU: about " in notice
    assert "teacher, once for all methods and seeds: " in notice
    assert notice.endswith("rapid-lab run --method kd --dataset agnews --data twin")
    alone = duration_notice(resolve({**asked, "method": "student_ce"}), data)
    assert alone is not None
    assert "teacher" not in alone
    twin = resolve({"dataset": "agnews", "data": "twin", "device": "cpu"}, is_twin=True)
    assert duration_notice(twin, find_data("agnews", "twin")) is None
