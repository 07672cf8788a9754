"""A folder with a journal for each study: what the processes of one machine share.

A journal has no heartbeat, so a worker holds a lock of its own for as long as it lives: whoever can take it knows that
its owner is gone, after a kill as after a reboot.
"""

import fcntl
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import BaseJournalBackend

from rapid_lab.checksums import decoded, encoded
from rapid_lab.errors import DataError, SettingError
from rapid_lab.folders import check_writable
from rapid_lab.sweep.storage import LOCK_SECONDS, Lock, Owner, signature


class Embedded:
    """A folder with a journal for each study."""

    def __init__(self, folder: Path, study: str) -> None:
        self.folder, self.study, self.shown = folder.absolute(), study, str(folder)
        self.lock: Lock = _FileLock(self.folder / f"{study}.lock")
        self._name = uuid.uuid4().hex
        self._life: FileLock | None = None

    @property
    def journal(self) -> Path:
        """The file that holds the study."""
        return self.folder / f"{self.study}.journal"

    def check(self) -> None:
        """Refuse a folder that cannot be written to; nothing is made."""
        check_writable("storage", self.folder)

    def existing(self) -> BaseStorage | None:
        """The journal, if there is one."""
        return self.open() if self.journal.exists() else None

    def open(self) -> BaseStorage:
        """The journal, made where there is none."""
        return JournalStorage(Journal(self.journal))

    def owner(self) -> Owner:
        """This process; its lock is taken at the first call and held until it ends."""
        if self._life is None:
            self._life = self._life_of(self._name)
            self._life.acquire()
        return {**signature(), "worker": self._name}

    def is_dead(self, owner: Owner) -> bool:
        """Whether the owner's lock can be had."""
        name = str(owner.get("worker", ""))
        if name == self._name:
            return False
        if not name:
            return True
        life = self._life_of(name)
        try:
            life.acquire(timeout=0)
        except Timeout:
            return False
        life.release()
        Path(life.lock_file).unlink(missing_ok=True)
        return True

    def leave(self) -> None:
        """Let the lock of this process go."""
        if self._life is not None:
            self._life.release()
            Path(self._life.lock_file).unlink(missing_ok=True)
            self._life = None

    def _life_of(self, name: str) -> FileLock:
        path = self.folder / f"{self.study}.workers" / f"{name}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(path, thread_local=False)


class _FileLock:
    """A file lock that says what it waits for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = FileLock(path, thread_local=False)

    def acquire(self) -> None:
        folder = str(self._path.parent)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=LOCK_SECONDS)
        except Timeout:
            message = f"another process has held {self._path.name} for {LOCK_SECONDS} s"
            raise SettingError(f"storage must be free now and then, got {folder!r}: {message}") from None
        except OSError as error:
            message = f"storage must be a folder that can be written to, got {folder!r}"
            raise SettingError(f"{message}: {error.strerror}") from None

    def release(self) -> None:
        self._lock.release(force=True)


class Journal(BaseJournalBackend):
    """Optuna's journal in a file that a `kill -9` cannot damage.

    The kernel lets the lock go with its holder, and a line that a writer did not finish is cut off by the next one:
    an operation is in the journal whole or not at all. Every line has a checksum; one that was changed is refused.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offsets = [0]  # of every line read so far, and of the next
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """Whole lines from this number on."""
        number = min(log_number_from, len(self._offsets) - 1)
        with self._path.open("rb") as file:
            file.seek(self._offsets[number])
            for line in file:
                if not line.endswith(b"\n"):
                    return  # somebody is writing it, or died doing so
                number += 1
                if number == len(self._offsets):
                    self._offsets.append(self._offsets[-1] + len(line))
                if number > log_number_from:
                    yield self._entry(line, number)

    def _entry(self, line: bytes, number: int) -> dict[str, Any]:
        entry = decoded(line)
        if entry is None:
            raise DataError(
                f"line {number} of {self._path.name} in {self._path.parent.name} is damaged: nothing of the study is "
                "used. Put the file back from a copy, or give --study another name: finished runs are found again"
            )
        return entry

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Add whole lines, on disk before anybody is told."""
        block = b"".join(map(encoded, logs))
        with self._path.open("rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            _cut_unfinished_line(file)
            file.write(block)
            file.flush()
            os.fsync(file.fileno())


def _cut_unfinished_line(file: Any) -> None:
    """Leave the file at its end, which is the end of a line."""
    end = file.seek(0, os.SEEK_END)
    if end == 0:
        return
    file.seek(end - 1)
    if file.read(1) == b"\n":
        return
    file.seek(0)
    whole = file.read().rfind(b"\n") + 1
    file.truncate(whole)
    file.seek(whole)
