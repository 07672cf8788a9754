"""`rapid-lab doctor`: what is found, what is missing and what mends it, without making or changing anything."""

import json
from pathlib import Path
from typing import Any

import pytest

from rapid_lab.cli import main

SECTIONS = (
    "versions",
    "hardware",
    "device",
    "store",
    "environment",
    "hub",
    "data",
    "models",
    "cache",
    "git",
    "missing",
)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without anything: no network, no data, no models, nothing registered."""
    for name in ("RAPID_DATA_DIR", "RAPID_MODEL_DIR", "MLFLOW_TRACKING_URI", "HF_HUB_CACHE", "HF_DATASETS_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    # Read from the environment once, when it is imported.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("RAPID_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MLFLOW_ENV_ROOT", str(tmp_path / "envs"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answer(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main(["doctor", *options, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


def mends(document: dict[str, Any], about: str) -> str:
    """The command for the one missing thing that these words are about."""
    (finding,) = [finding for finding in document["missing"] if about in finding["what"]]
    return str(finding["mend"])


def test_on_an_empty_machine_every_missing_thing_has_its_command_and_nothing_is_made(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = answer(capsys)
    assert set(SECTIONS) <= document.keys()
    assert document["store"]["is_reachable"]
    assert not document["store"]["exists"]
    assert {places["auto"] for places in document["data"].values()} == {"twin"}
    assert document["environment"]["state"] == "missing"
    assert mends(document, "mlflow run").endswith("-m rapid_lab.environment")
    assert "RAPID_DATA_DIR" in mends(document, "agnews is neither")
    assert "RAPID_MODEL_DIR" in mends(document, "the model bert-base-uncased")
    assert list(machine.iterdir()) == []


def test_what_is_there_is_found(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rapid_lab.environment import register

    for path in ("data/ag_news/train.csv", "data/ag_news/test.csv", "data/sst2/train.tsv"):
        (machine / path).parent.mkdir(parents=True, exist_ok=True)
        (machine / path).touch()
    for name in ("config.json", "model.safetensors"):
        (machine / "models" / "bert-base-uncased").mkdir(parents=True, exist_ok=True)
        (machine / "models" / "bert-base-uncased" / name).touch()
    (machine / "cache").mkdir()
    (machine / "cache" / "signals").write_bytes(bytes(2**20))
    monkeypatch.setenv("RAPID_DATA_DIR", str(machine / "data"))
    monkeypatch.setenv("RAPID_MODEL_DIR", str(machine / "models"))
    register()
    document = answer(capsys)
    assert document["data"]["agnews"]["local"] == str(machine / "data" / "ag_news")
    assert document["data"]["agnews"]["auto"] == "local"
    assert str(machine / "data" / "sst2") in mends(document, "copy of sst2 cannot be used")
    assert document["models"]["bert-base-uncased"] == str(machine / "models" / "bert-base-uncased")
    assert document["environment"]["state"] == "registered"
    assert document["cache"]["size_mb"] == 1


def test_cuda_that_is_asked_for_and_not_there_is_said(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    document = answer(capsys, "--device", "cuda")
    assert (document["device"]["asked"], document["device"]["chosen"]) == ("cuda", "cpu")
    assert "--device cpu" in mends(document, "this machine has no CUDA device")


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("sqlite:///damaged.db", "file is not a database"),
        ("http://me:secret@127.0.0.1:9", "cannot be reached"),
        ("./mlruns", "no longer writes folders"),
    ],
)
def test_a_store_that_cannot_be_used_is_told_without_its_password(
    uri: str, problem: str, machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (machine / "damaged.db").write_text("no database " * 100)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert problem in text
    assert "export MLFLOW_TRACKING_URI" in text
    assert "secret" not in text
    assert [path.name for path in machine.iterdir()] == ["damaged.db"]


@pytest.mark.parametrize("options", [["--device", "gpu"], ["--mend"], ["now"]])
def test_bad_options_are_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *options]) == 2
    assert capsys.readouterr().err.startswith("rapid-lab: ")
