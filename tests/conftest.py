"""What every test shares."""

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
import torch
from jaxtyping import config

from rapid_lab.allocation import keep_freed_memory

if TYPE_CHECKING:
    from faults.outcomes import Undisturbed

keep_freed_memory()
# The same cases in every run: a test that fails fails for everybody.
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=50)
hypothesis.settings.load_profile("fixed")
STARTED = time.monotonic()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """With SOAK_SECONDS no long test begins after so many seconds."""
    limit = os.environ.get("SOAK_SECONDS", "")
    if limit and item.get_closest_marker("soak") and time.monotonic() - STARTED > float(limit):
        pytest.skip(f"the {limit} s of SOAK_SECONDS are over")


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(20261118)


@pytest.fixture
def unchecked_shapes() -> Iterator[None]:
    """As a user runs it: without the shape checker of the tests, which would speak first."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


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
    """A copy in the current folder, named in full by MLFLOW_TRACKING_URI: MLflow remembers stores by their name."""
    path = tmp_path / "mlflow.db"
    with closing(sqlite3.connect(made_store)) as old, closing(sqlite3.connect(path)) as new:
        old.backup(new)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{path}")
    if "RAPID_CACHE_DIR" not in os.environ:
        monkeypatch.setenv("RAPID_CACHE_DIR", str(tmp_path / "cache"))  # where spools are
    return path


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def lab(store: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of its own, and one teacher for all tests of a file."""
    monkeypatch.setenv("RAPID_CACHE_DIR", str(cache))
    return store


@pytest.fixture(scope="session")
def undisturbed(made_store: Path, tmp_path_factory: pytest.TempPathFactory) -> "Undisturbed":
    """A short run that nothing happens to, for tests of faults."""
    from faults.children import TINY, ask
    from faults.outcomes import Undisturbed, assert_whole, copy_store, outcome

    folder = tmp_path_factory.mktemp("undisturbed")
    copy_store(made_store, folder)
    started = time.monotonic()
    done = ask(folder, ["run", *TINY])
    assert done.code == 0, done.err
    seconds = time.monotonic() - started
    assert_whole(folder)
    return Undisturbed(folder, outcome(folder), seconds)


@pytest.fixture
def cold(made_store: Path, tmp_path: Path) -> Path:
    """A folder with a store without runs and no teacher."""
    from faults.outcomes import copy_store

    copy_store(made_store, tmp_path)
    return tmp_path


@pytest.fixture
def taught(cold: Path, undisturbed: "Undisturbed") -> Path:
    """The same with the teacher of the undisturbed run, which takes the most time."""
    shutil.copytree(undisturbed.folder / "cache" / "teachers", cold / "cache" / "teachers")
    return cold
