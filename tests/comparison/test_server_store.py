"""The same comparison from a tracking server: runs, histories and artifacts come over HTTP."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from comparison.stores import keep_table, log_student
from tracking.programs import MLFLOW_WARNINGS

from rapid_lab import names
from rapid_lab.cli import main
from rapid_lab.tracking.door import client
from rapid_lab.tracking.runs import TrackedRun

pytestmark = pytest.mark.filterwarnings(MLFLOW_WARNINGS)
START_SECONDS = 180


@pytest.fixture
def server(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server over a store of its own, which keeps artifacts where only it can reach them by path."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{store}", "--port", str(port),
        "--artifacts-destination", str(tmp_path / "served"), "--workers", "1",
    ]  # fmt: skip
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (tmp_path / "server.log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    uri = f"http://127.0.0.1:{port}"
    try:
        wait_for(uri, process)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        yield uri
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 15)
        process.wait(timeout=60)


def wait_for(uri: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), urllib.request.urlopen(f"{uri}/health", timeout=1):  # noqa: S310
            return
        time.sleep(0.2)
    pytest.fail("the tracking server did not start")


def test_a_server_gives_the_same_tables_figures_and_tests_as_a_file(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for method, correct in (("student_ce", 80), ("rapid", 90)):
        for seed in (1, 2):
            keep_details(log_student(method, seed=seed, correct=correct, experiment="served"), correct)
    assert list((tmp_path / "served").rglob(names.PREDICTIONS))

    assert main(["compare", "--output", str(tmp_path / "out"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    cells = [row[2]["text"] for row in document["tables"]["main_results"]["rows"]]
    assert cells == ["80.000 ± 0.000", "90.000 ± 0.000"]
    report = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    for one in document["tables"]["main_results"]["rows"][0][2]["runs"]:
        assert f"{server}/#/experiments/1/runs/{one['run_id']}" in report
    examples = json.loads((tmp_path / "out" / "tables" / "examples_agnews.json").read_text(encoding="utf-8"))
    assert [cell["value"] for cell in examples["rows"][0][3:5]] == [10, 0]
    drawn = {path.name.partition("-")[0].partition(".")[0] for path in (tmp_path / "out" / "figures").iterdir()}
    assert {"selection", "health"} <= drawn
    kept = {item.path for item in client().list_artifacts(document["run_id"])}
    assert kept == {"report.html", "tables"}


def keep_details(run_id: str, correct: int) -> None:
    """Predictions that add up, a step table, and selection accuracies, as a run leaves them."""
    run = TrackedRun(run_id, "1", client())
    predicted = [0] * correct + [1] * (100 - correct)
    keep_table(run, names.PREDICTIONS, {"row": list(range(100)), "label": [0] * 100, "predicted": predicted})
    columns = {name: [1.0, 2.0, 1.0, 1.0] for name in names.STEP_METRICS}
    keep_table(run, names.STEPS, {"step": [1, 2, 3, 4], **columns})
    for step in (2, 4):
        run.log_metrics(step, {names.SELECTION_ACCURACY: 0.8, names.SELECTION_NLL: 0.4})
    run.finish("FINISHED")
