"""What the tests of data share: a machine without data of its own, and folders to fill."""

from collections.abc import Callable
from pathlib import Path

import pytest

VARIABLES = (
    "RAPID_DATA_DIR", "HF_ENDPOINT", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE",
    "HF_DATASETS_CACHE",
)  # fmt: skip


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No local copy, an empty cache, nothing said about the hub."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub-home"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    return tmp_path


MakeFolder = Callable[..., Path]


@pytest.fixture
def make_folder(bare_machine: Path) -> MakeFolder:
    """Write files, by name, into a folder of the machine; what is not given is a small set that can be used."""

    def make(name: str = "reviews", **files: str | bytes | None) -> Path:
        folder = bare_machine / name
        folder.mkdir(parents=True)
        given = {"train_csv": "label,text\n0,bad\n1,good\n", "test_csv": "label,text\n1,fine\n"} | files
        for key, content in given.items():
            if content is not None:
                data = content.encode() if isinstance(content, str) else content
                (folder / key.replace("_", ".")).write_bytes(data)
        return folder

    return make
