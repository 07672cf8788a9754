"""Real texts and a real encoder, where RAPID_DATA_DIR and RAPID_MODEL_DIR say they are."""

import csv
import json
import os
from pathlib import Path

import pytest

from rapid_lab import names
from rapid_lab.cli import main
from rapid_lab.method.budget import relation_account
from rapid_lab.tracking.door import client

pytestmark = pytest.mark.real
TRAIN_ROWS, REPORT_ROWS = 200, 64


def needed(variable: str, what: str) -> Path:
    root = os.environ.get(variable)
    if not root:
        pytest.skip(f"{variable} is not set: there is no {what}")
    return Path(root)


@pytest.fixture
def model() -> str:
    """The first encoder on the shelf."""
    shelf = needed("RAPID_MODEL_DIR", "real encoder")
    found = sorted(path.parent.name for path in shelf.glob("*/config.json"))
    if not found:
        pytest.skip("RAPID_MODEL_DIR holds no model")
    return found[0]


@pytest.fixture
def news(tmp_path: Path) -> Path:
    """The first rows of a real AG News, which are a fair sample of it."""
    source = needed("RAPID_DATA_DIR", "real text") / "ag_news"
    if not source.is_dir():
        pytest.skip("RAPID_DATA_DIR holds no ag_news")
    folder = tmp_path / "news"
    folder.mkdir()
    for name, count in (("train.csv", TRAIN_ROWS), ("test.csv", REPORT_ROWS)):
        with (source / name).open(encoding="utf-8", newline="") as old, (folder / name).open("w", newline="") as new:
            rows = csv.reader(old)
            csv.writer(new).writerows(row for _, row in zip(range(count + 1), rows, strict=False))
    return folder


@pytest.mark.usefixtures("store")
def test_a_real_pair_learns_from_real_texts(
    model: str, news: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAPID_CACHE_DIR", str(tmp_path / "cache"))
    arguments = [
        "run", "--dataset", str(news), "--teacher-model", model, "--student-model", model, "--student-layers", "3",
        "--epochs", "2", "--warmup-epochs", "1", "--teacher-epochs", "1", "--max-length", "32", "--log-model", "false",
        "--relation-budget", "64", "--learning-rate", "1e-3", "--teacher-learning-rate", "3e-4",
        "--device", "cpu", "--json",
    ]  # fmt: skip
    assert main(arguments) == 0
    shown = capsys.readouterr()
    assert "Real models on a CPU: about" in shown.err
    assert "rapid-lab run --method rapid --dataset agnews --data twin" in shown.err
    document = json.loads(shown.out)
    assert document["report"]["total"] == REPORT_ROWS
    expected = relation_account(
        train_examples=180, batch_size=32, relation_budget=64, relation_cap=4096, pilot_fraction=0.1, epochs=2,
        warmup_epochs=1, max_residual_mix=0.5, has_uniform_proposal=False,
    )  # fmt: skip
    steps = document["steps"]
    assert document["relations"]["main"] == expected.main * steps
    assert document["relations"]["pilot"] == expected.pilot * steps
    assert set(names.FINAL_METRICS) <= client().get_run(document["run_id"]).data.metrics.keys()
    history = client().get_metric_history(document["run_id"], names.LOSS_CE)
    losses = [point.value for point in sorted(history, key=lambda point: point.step)]
    assert sum(losses[steps // 2 :]) < sum(losses[: steps // 2])


def test_more_tokens_than_a_real_encoder_has_positions_are_refused(
    model: str, news: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["run", "--dataset", str(news), "--teacher-model", model, "--student-model", model]
    assert main([*arguments, "--max-length", "8000"]) == 2
    assert "max_length must be in [1, " in capsys.readouterr().err
