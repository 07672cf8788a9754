"""Real stores: one is made for the session, every test gets a copy of its own."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def made_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with its tables, which takes seconds to make."""
    from rapid_lab.tracking.store import prepare_store

    folder = tmp_path_factory.mktemp("made store")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        assert prepare_store().endswith("/mlflow.db")
    return folder / "mlflow.db"


@pytest.fixture
def store(made_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy in the current folder, named by MLFLOW_TRACKING_URI."""
    path = tmp_path / "mlflow.db"
    with closing(sqlite3.connect(made_store)) as old, closing(sqlite3.connect(path)) as new:
        old.backup(new)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    return path
