"""Disks that become full and folders that become read-only at a chosen write, in the process that writes.

A file-size limit stands for a full disk: the system refuses the bytes beyond it, as it would without space. It holds
for the length of one write, as if what is written there had a disk of its own. What a thread beside the training
writes gets a disk that is really small, since the limit would hold for all threads.
"""

import contextlib
import ctypes
import functools
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

OVERRIDE, READ_AND_SEARCH = 1 << 1, 1 << 2  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH


@contextlib.contextmanager
def limited(num_bytes: int) -> Iterator[None]:
    """No file of this process can become larger, for the length of the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _around_saves(name: str, number: int, before: Callable[[Path], contextlib.AbstractContextManager[None]]) -> None:
    """Do something around the n-th write of a tensor file of this name, and all that follow."""
    import safetensors.torch

    save, count = safetensors.torch.save_file, 0

    def armed(tensors: Any, path: Path, **options: Any) -> None:
        nonlocal count
        count += name in path.name
        with before(path) if name in path.name and count >= number else contextlib.nullcontext():
            save(tensors, path, **options)

    safetensors.torch.save_file = armed  # type: ignore[assignment]


def _around_uploads(before: Callable[[Path], contextlib.AbstractContextManager[None]]) -> None:
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository as Repository

    def armed(log: Callable[..., None]) -> Callable[..., None]:
        def upload(repository: Any, path: str, folder: str | None = None) -> None:
            with before(Path(repository.artifact_dir)):
                log(repository, path, folder)

        return upload

    Repository.log_artifact = armed(Repository.log_artifact)  # type: ignore[method-assign]
    Repository.log_artifacts = armed(Repository.log_artifacts)  # type: ignore[method-assign]


def impatient() -> None:
    """A store that takes nothing is given up at once."""
    from rapid_lab.tracking import writer

    writer.STILL_SECONDS, writer.PAUSES = 0.2, (0.1,) * 7


@dataclass(frozen=True)
class FullDisk:
    """From the n-th write of this kind on there is no more space than for so many bytes."""

    at: str
    number: int = 1
    num_bytes: int = 20_000

    def __str__(self) -> str:
        return f"full at {self.at}"

    def __call__(self) -> None:
        _around_saves(self.at, self.number, lambda _: limited(self.num_bytes))


@contextlib.contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Callable[[], None]]:
    """A disk of that size in place of a folder, and what makes it a large one; skips where nothing can be mounted."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        yield functools.partial(_call, "mount", "-o", "remount,size=100m", str(folder))
    finally:
        _call("umount", str(folder))


def _call(*command: str) -> None:
    subprocess.run(command, check=True)


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Nobody but root may make a file there, for the length of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    mode = folder.stat().st_mode
    folder.chmod(0o555)
    try:
        yield
    finally:
        folder.chmod(mode)


@dataclass(frozen=True)
class ReadOnly:
    """The same with a folder that may not be written to; the process is one that permissions bind."""

    at: str
    number: int = 1

    def __str__(self) -> str:
        return f"read-only at {self.at}"

    def __call__(self) -> None:
        impatient()
        be_bound()
        if self.at == "artifact":
            _around_uploads(read_only)
        elif self.at == "spool":
            _around_new_spools()
        else:
            _around_saves(self.at, self.number, lambda path: read_only(path.parent))


def _around_new_spools() -> None:
    from rapid_lab.tracking.spool import Spool, spool_folder

    create = Spool.create

    def armed(run_id: str, store: str, process: str | None) -> Spool:
        with read_only(spool_folder()):
            return create(run_id, store, process)

    Spool.create = armed  # type: ignore[method-assign]


def be_bound() -> None:
    """Let permissions bind this process: root gives up its right to pass over them, which the system lets it do."""
    if os.geteuid() == 0:
        # As in linux/capability.h: three masks of the rights 0 to 31, then three of those above.
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)
        masks = (ctypes.c_uint32 * 6)()
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.capget(header, masks) == 0
        for place in range(3):
            masks[place] &= ~(OVERRIDE | READ_AND_SEARCH)
        assert libc.capset(header, masks) == 0
