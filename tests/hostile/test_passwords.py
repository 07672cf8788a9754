"""Passwords that come by the environment stay there: no store, spool, artifact, log, message or traceback has them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import postgres
import pytest
from postgres import server as server
from studies import SCRIPT
from tracking.programs import MLFLOW_WARNINGS
from tracking.servers import TrackingServer

from rapid_lab import names
from rapid_lab.cli import main
from rapid_lab.tracking.redaction import ADDRESSES, SECRETS, has_password, message_of, redact, without_secrets
from rapid_lab.tracking.runs import start_run

pytestmark = pytest.mark.filterwarnings(MLFLOW_WARNINGS)
SECRET = "open-sesame-42"  # noqa: S105
OTHER = "tell-nobody-43"
SMALL = [
    "--data=twin",
    "--method=kd",
    "--epochs=1",
    "--batch-size=600",
    "--teacher-epochs=1",
    "--teacher-batch-size=600",
]


def called(*words: str, **environment: str) -> str:
    """All that a process of its own has said."""
    done = subprocess.run(
        [sys.executable, *words], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def holders(folder: Path, *secrets: str) -> list[str]:
    """The files of a folder in which a secret stands, and those whose names have it."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [
        str(path)
        for path in files
        for secret in secrets
        if secret in str(path.relative_to(folder)) or secret.encode() in path.read_bytes()
    ]


@pytest.fixture
def tracking_server(store: Path, tmp_path: Path) -> Iterator[TrackingServer]:
    found = TrackingServer(store, tmp_path)
    yield found
    if found.process.poll() is None:
        found.kill()


@pytest.mark.soak
def test_a_run_over_a_server_with_a_password_in_its_address_keeps_it_to_itself(
    tracking_server: TrackingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    address = tracking_server.uri.replace("http://", f"http://me:{SECRET}@")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", OTHER)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "me")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_ENDPOINT", f"https://me:{SECRET}@127.0.0.1:1")
    said = called("-m", "rapid_lab", "run", *SMALL)
    assert "kd on agnews-twin: finished" in said, said
    assert main(["compare", "--no-log", "--output", "compared"]) == 0
    # A run whose store goes away leaves a spool that says which store it belongs to.
    run = start_run("0", "left", {names.KIND: names.STUDENT})
    tracking_server.kill()
    run.log_metrics(1, {"loss/total": 1.0})
    run.finish("FINISHED", timeout=1)
    assert main(["flush"]) == main(["run", *SMALL]) == 2
    assert main(["doctor"]) == 0
    said += "".join(capsys.readouterr())
    assert "MLFLOW_TRACKING_URI must name a server that answers" in said
    assert [path.suffix for path in (tmp_path / "cache" / "spool").iterdir()].count(".jsonl") == 1
    assert (tmp_path / "compared" / "report.html").is_file()
    assert SECRET not in said
    assert OTHER not in said
    assert holders(tmp_path, SECRET, OTHER) == []


@pytest.mark.soak
@pytest.mark.usefixtures("store")
def test_a_sweep_over_a_database_with_a_password_in_its_address_keeps_it_to_itself(server: str, tmp_path: Path) -> None:
    user = f"{postgres.USER}@"
    address = server.replace(user, f"{postgres.USER}:{postgres.PASSWORD}@")
    words = [str(SCRIPT), "--relation-budget", "16,32", "--seeds", "1"]
    said = called(*words, "--dry-run", "--json", RAPID_STORAGE=address)
    assert "postgresql+psycopg://sweeper:***@127.0.0.1" in said
    said += called(*words, "--workers", "2", RAPID_STORAGE=address)
    assert "best: trial" in said, said
    wrong = called(*words, RAPID_STORAGE=server.replace(user, f"{postgres.USER}:{SECRET}'\"/@"))
    assert "storage must be a database that answers" in wrong
    by_variable = called(*words, RAPID_STORAGE=server, PGPASSWORD=SECRET)
    assert "password authentication failed" in by_variable
    assert postgres.PASSWORD not in said
    assert SECRET not in wrong + by_variable
    assert holders(tmp_path, postgres.PASSWORD, SECRET) == []


PROGRAM = """
import os, sys, threading
from rapid_lab.tracking.redaction import hide_secrets_in_tracebacks
hide_secrets_in_tracebacks()
thread = threading.Thread(target=lambda: int(os.environ["RAPID_STORAGE"]))
thread.start()
thread.join()
raise RuntimeError(f"{os.environ['PGPASSWORD']} and {os.environ['RAPID_STORAGE']}")
"""


def test_a_traceback_has_no_password_whatever_thread_it_comes_from() -> None:
    address = f"postgresql://me:{SECRET}%40'@host/db"
    said = called("-c", PROGRAM, RAPID_STORAGE=address, PGPASSWORD=OTHER)
    assert said.count("Traceback") == 2
    assert "ValueError: invalid literal for int()" in said
    assert "RuntimeError: *** and postgresql://me:***@host/db" in said
    assert SECRET not in said
    assert OTHER not in said


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_of_the_environment_is_taken_out_wherever_it_stands(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, SECRET)
    assert without_secrets(f"said {SECRET}, twice: {SECRET}") == "said ***, twice: ***"


@pytest.mark.parametrize("name", ADDRESSES)
def test_the_password_of_an_address_in_the_environment_is_taken_out_in_both_its_forms(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "postgresql://me:a%40b'c%2Fd@host/db")
    assert without_secrets("a%40b'c%2Fd is a@b'c/d") == "*** is ***"


@pytest.mark.parametrize(
    "argument",
    [
        "postgresql://me:open@host/db",
        "--storage=postgresql://me:open@host/db",
        "--storage=postgresql://me:o'p\"e n@host/db",
        "postgresql://me:o/p@host/db",
        "http://:open@host",
        "postgresql://me@host/db?password=open",
        "postgresql://me@host/db?sslpassword=open",
        "host=h PASSWORD = open",
        "--ui=https://host/?api_key=open",
    ],
)
def test_a_password_in_an_argument_is_seen(argument: str) -> None:
    assert has_password(argument)


@pytest.mark.parametrize(
    "argument",
    [
        "postgresql://me@host:5432/db",
        "http://127.0.0.1:5000",
        "--ui=http://host:5000/#/experiments",
        "hub:owner/name",
        "me@host",
        "--tag=token=abc",
        "a:b@c",
        "C:\\data",
        "passwords/train.csv",
    ],
)
def test_an_argument_without_a_password_is_none(argument: str) -> None:
    assert not has_password(argument)


def test_a_message_is_one_line_of_bearable_length() -> None:
    assert message_of(ValueError("two\nlines \x1b[31m")) == "two lines  [31m"
    assert message_of(KeyError()) == "KeyError"
    assert len(message_of(ValueError("x" * 10**6))) == 4003


def test_an_address_alone_is_redacted_whatever_its_password_is_made_of() -> None:
    assert redact("postgresql://me:o'p\"e/n@@host/db") == "postgresql://me:***@host/db"
