"""What the tests of faults share: a run that nothing happens to, and folders to let something happen in."""

import shutil
import time
from pathlib import Path

import pytest
from faults.children import TINY, ask
from faults.outcomes import Undisturbed, assert_whole, copy_store, outcome


@pytest.fixture(scope="session")
def undisturbed(made_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
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
    """A store without runs and no teacher."""
    copy_store(made_store, tmp_path)
    return tmp_path


@pytest.fixture
def taught(cold: Path, undisturbed: Undisturbed) -> Path:
    """The same with a teacher, which takes the most time."""
    shutil.copytree(undisturbed.folder / "cache" / "teachers", cold / "cache" / "teachers")
    return cold
