"""`rapid-lab variance`: every proposal judged on real batches of a run's state."""

import json
from pathlib import Path
from typing import Any

import pytest

from rapid_lab.cli import main
from rapid_lab.experiment.run import selected_file
from rapid_lab.files import open_tensors, save_tensors

RUN = [
    "run", "--data", "twin", "--method", "student_ce", "--relation-budget", "64", "--epochs", "1", "--teacher-epochs",
    "1", "--log-model", "false", "--json",
]  # fmt: skip


def printed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(arguments) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_proposals_are_judged_on_a_run_and_on_a_checkpoint_whatever_method_trained(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAPID_CACHE_DIR", str(tmp_path / "cache"))
    run = printed(RUN, capsys)
    judged = ["--batches", "5", "--realisations", "2", "--json"]
    document = printed(["variance", run["run_id"], *judged], capsys)
    proposals = {entry["proposal"]: entry for entry in document["proposals"]}
    assert document["num_batches"] == 5
    assert proposals["uniform"]["loss_ratio"]["pooled"] == 1.0
    # (M - K) / (M - 1) with M = 496 and K = 64, and pilots out of the same budget.
    assert proposals["uniform without replacement"]["gradient_ratio"]["median"] == pytest.approx(432 / 495)
    assert (proposals["static"]["main"], proposals["rapid"]["main"]) == (64, 58)
    assert proposals["loss oracle"]["loss_ratio"]["pooled"] < 1e-9
    best = min(entry["gradient_ratio"]["pooled"] for entry in document["proposals"])
    assert proposals["gradient oracle"]["gradient_ratio"]["pooled"] == best

    folder = tmp_path / "cache" / "runs" / run["config_id"]
    weights, _ = open_tensors(selected_file(folder, run["run_id"]))
    save_tensors(folder / "checkpoint.safetensors", {f"model/{name}": value for name, value in weights.items()}, {})
    assert printed(["variance", str(folder / "checkpoint.safetensors"), *judged], capsys) == document

    assert main(["variance", run["run_id"], "--batches", "2", "--realisations", "1"]) == 0
    assert "Medians over 2 batches, relative to uniform at equal budget" in capsys.readouterr().out

    elsewhere = tmp_path / "elsewhere" / "checkpoint.safetensors"
    save_tensors(elsewhere, weights, {})
    assert main(["variance", str(elsewhere)]) == 2
    assert "no run has the config id 'elsewhere'" in capsys.readouterr().err


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: RUN_OR_CHECKPOINT"),
        (["0" * 32], "run id must name a run of the tracking store"),
        (["x", "--batches", "0"], "batches must be an integer in [1, 1e+06], got 0"),
        (["x", "--realisations", "many"], "realisations must be an integer"),
    ],
)
def test_a_state_that_is_none_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["variance", *arguments]) == 2
    assert message in capsys.readouterr().err
