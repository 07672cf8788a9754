"""Where a number comes from is written down, secrets are not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rapid_lab.tracking.provenance import (
    command_line,
    git_state,
    hardware,
    lock_hash,
    provenance,
    redact,
    source_hash,
    versions,
)
from rapid_lab.tracking.redaction import redact_arguments


def test_the_source_hash_changes_with_a_name_or_a_byte_and_with_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "a.py").write_text("x = 1")
    first = source_hash(tmp_path)
    (tmp_path / "notes.txt").write_text("no source")
    assert source_hash(tmp_path) == first
    (tmp_path / "part" / "a.py").write_text("x = 2")
    second = source_hash(tmp_path)
    (tmp_path / "part" / "a.py").rename(tmp_path / "part" / "b.py")
    assert len({first, second, source_hash(tmp_path), source_hash()}) == 4


def test_the_lock_hash_is_that_of_the_file_where_there_is_one(tmp_path: Path) -> None:
    assert lock_hash(tmp_path) is None
    (tmp_path / "requirements.lock").write_bytes(b"")
    assert lock_hash(tmp_path) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def git(folder: Path, *arguments: str) -> str:
    names = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.run(
        ["git", *names, *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_the_commit_and_changes_to_it_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert git_state(tmp_path) == {}
    git(tmp_path, "init", "-q")
    assert git_state(tmp_path) == {}
    (tmp_path / "a.py").write_text("x = 1")
    git(tmp_path, "add", "a.py")
    git(tmp_path, "commit", "-q", "-m", "first")
    commit = git(tmp_path, "rev-parse", "HEAD")
    (tmp_path / "mlflow.db").write_text("")
    assert git_state(tmp_path) == {"commit": commit, "is_dirty": False}
    (tmp_path / "a.py").write_text("x = 2")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert git_state(tmp_path) == {"commit": commit, "is_dirty": True}


def test_a_package_inside_a_stranger_s_repository_has_no_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    (tmp_path / "site-packages").mkdir()
    assert git_state(tmp_path / "site-packages") == {}


def test_without_git_there_is_no_commit_and_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state() == {}


def test_versions_and_hardware_are_what_is_here() -> None:
    assert set(versions()) == {"python", "rapid_lab", "torch", "transformers", "datasets", "mlflow", "numpy"}
    assert {"platform", "cpu_count", "memory_mb"} <= set(hardware())


def test_all_of_it_is_json() -> None:
    assert json.loads(json.dumps(provenance()))["source_hash"] == source_hash()


def test_provenance_imports_neither_mlflow_nor_torch() -> None:
    light = "errors, provenance, signals, system"
    imports = f"import sys, rapid_lab.names; from rapid_lab.tracking import {light}"
    program = f"{imports}; provenance.provenance(); print(*sys.modules)"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program], check=True, cwd=root, capture_output=True, text=True)
    assert not {"mlflow", "torch"} & set(done.stdout.split())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql+psycopg2://me:open@host:5/db", "postgresql+psycopg2://me:***@host:5/db"),
        ("http://me:o@p/e:n@host/x", "http://me:***@host/x"),
        ("redis://:open@host", "redis://:***@host"),
        ("failed for 'https://me:open@host' today", "failed for 'https://me:***@host' today"),
        ("http://host:5000/path", "http://host:5000/path"),
        ("HF_TOKEN=open x", "HF_TOKEN=*** x"),
        ("AWS_SECRET_ACCESS_KEY=open", "AWS_SECRET_ACCESS_KEY=***"),
        ("?db_password=open&sslmode=require", "?db_password=***&sslmode=require"),
        ('{"api_key": "o p e n", "x": 1}', '{"api_key": ***, "x": 1}'),
        ("--hub-token open --seed 1", "--hub-token *** --seed 1"),
        ("Authorization: Bearer abcdefgh.ijkl", "Authorization: Bearer ***"),
        ("tokenizer=bert --max-length 128", "tokenizer=bert --max-length 128"),
    ],
)
def test_secrets_are_replaced_and_the_rest_stays(text: str, shown: str) -> None:
    assert redact(text) == shown


def test_a_long_text_is_redacted_in_a_moment() -> None:
    for piece in ("a", "a.", "token", "a://", "--token "):
        assert redact(piece * 5000) is not None


def test_a_command_line_hides_secrets_argument_by_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["rapid-lab", "--password", "a 'b", "-P", "my_secret=c d", "--tracking=http://u:p@h", "two words"]
    monkeypatch.setattr(sys, "orig_argv", arguments)
    expected = "rapid-lab --password *** -P my_secret=*** --tracking=http://u:***@h 'two words'"
    assert command_line() == redact_arguments(arguments) == expected
