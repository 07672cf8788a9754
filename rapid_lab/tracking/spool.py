"""Entries of a run on their way to the store, in a file: appended, read back in order, removed once they are stored.

A line is a checksum and a JSON document with its number, so a line that was torn, changed or taken out is noticed. The
file is locked by whoever writes or sends it; the system lets go of the lock when that process ends, however it ends.
Lines are given to the operating system at once and so outlive their process, but are not forced to the disk: a power
cut may take the last seconds.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import threading
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rapid_lab.checksums import checksum, decoded, encoded
from rapid_lab.folders import cache_folder, is_folder
from rapid_lab.tracking.errors import TrackingError

Entry = dict[str, Any]
NUMBER = "n"
COMPACT_BYTES = 2**24  # a file of which all is stored is emptied from this size on
ASIDE = "aside"


def spool_folder() -> Path:
    """Where all spools of this machine are."""
    return cache_folder() / "spool"


class Spool:
    """One file of entries, locked. One thread may append while another reads and acknowledges."""

    def __init__(self, path: Path, descriptor: int, header: Entry) -> None:
        self.path, self.header = path, header
        self.damages: list[str] = []
        self.torn: str | None = None
        self._descriptor = descriptor
        self._reader = path.open("rb")
        self._guard = threading.Lock()
        self._is_open = True
        self._size = os.fstat(descriptor).st_size
        self._start = self._offset = len(self._reader.readline())
        self._line = 1
        self._is_after_damage = False
        self._last = self._read = 0

    @classmethod
    def create(cls, run_id: str, store: str, process: str | None) -> "Spool":
        """A new one; `store` says where its entries belong, `process` whose run it is."""
        folder = spool_folder()
        folder.mkdir(parents=True, exist_ok=True)
        # Sorted by name, those of a run are in the order they were made; a clock might have been set back between two.
        number = 1 + max(map(_number, left_behind(run_id)), default=0)
        path = folder / f"{_file_name(run_id)}.{number:020d}.{uuid.uuid4().hex[:8]}.jsonl"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        # Nobody else looks at an empty file, so the lock is free.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        header = {NUMBER: 0, "run_id": run_id, "store": store, "process": process}
        try:
            _write(descriptor, encoded(header))
        except OSError:
            os.close(descriptor)
            path.unlink()
            raise
        return cls(path, descriptor, header)

    @classmethod
    def reopen(cls, path: Path) -> "Spool | None":
        """One that was left behind; None where a living process has it, or nothing was written to it.

        A header that cannot be read leaves `header` empty.
        """
        try:
            if path.stat().st_size == 0:
                return None
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not path.exists():  # sent and removed between the two
                raise BlockingIOError
        except BlockingIOError:
            os.close(descriptor)
            return None
        with path.open("rb") as file:
            header = decoded(file.readline()) or {}
        spool = cls(path, descriptor, header)
        spool._read = spool._stored_number()
        if not header:
            spool.damages.append(f"line 1 of {path.name}")
        return spool

    def append(self, entries: Sequence[Entry]) -> int:
        """Write entries, all or none; the number of the last."""
        with self._guard:
            numbered = [{NUMBER: self._last + index, **entry} for index, entry in enumerate(entries, start=1)]
            block = b"".join(map(encoded, numbered))
            try:
                _write(self._descriptor, block)
            except OSError:
                os.ftruncate(self._descriptor, self._size)  # no half line may stay before those of others
                raise
            self._size += len(block)
            self._last += len(entries)
            return self._last

    def read(self) -> Entry | None:
        """The next entry that is not stored; None where there is no more. Lines that are no entries are noted."""
        with self._guard:
            while self._is_open and self._offset < self._size:
                self._reader.seek(self._offset)
                line = self._reader.readline()
                self._offset = self._offset + len(line) if line else self._size
                self._line += 1
                entry = self._checked(line)
                if entry is not None and entry[NUMBER] > self._read:
                    self._read = entry[NUMBER]
                    return entry
        return None

    def _checked(self, line: bytes) -> Entry | None:
        place, entry = f"line {self._line} of {self.path.name}", decoded(line)
        if entry is None and not line.endswith(b"\n"):
            self.torn = place  # the last one: whoever wrote it was killed meanwhile
        elif entry is None:
            self.damages.append(place)
            self._is_after_damage = True
            return None
        elif entry[NUMBER] > self._read + 1 and not self._is_after_damage:
            self.damages.append(f"what was before {place}")
        self._is_after_damage = False
        return entry

    def acknowledge(self, number: int) -> None:
        """Everything up to this entry is stored; after a kill, sending starts behind it."""
        with self._guard:
            if not self._is_open:
                return
            text = b"%020d" % number
            # No more than a hint, as `_stored_number` says: a disk that is full does not end the run here.
            with contextlib.suppress(OSError):
                descriptor = os.open(self._beside(".sent"), os.O_WRONLY | os.O_CREAT, 0o600)
                os.write(descriptor, text + b" " + checksum([text]).encode())
                os.close(descriptor)
            if number == self._last and self._size > COMPACT_BYTES and self._offset == self._size:
                os.ftruncate(self._descriptor, self._start)
                self._size = self._offset = self._start
                self._line = 1

    def keep(self, files: Mapping[str, Path | str]) -> Entry:
        """Copy files and texts, by the names they are to have; what an entry says of them."""
        kept = uuid.uuid4().hex
        folder = self._beside(".files") / kept
        digests = {}
        for name, source in files.items():
            target = folder / name
            if ".." in target.parts or Path(name).is_absolute():
                raise TrackingError(f"the name of an artifact must stay in its folder, got {name!r}")
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(source, Path):
                shutil.copyfile(source, target)
            else:
                target.write_text(source, encoding="utf-8")
            digests[name] = _digest(target)
        return {"kept": kept, "digests": digests}

    def kept(self, entry: Entry) -> Path | None:
        """The folder with the files of an entry; None, and noted, where one is not what was kept."""
        folder = self._beside(".files") / entry["kept"]
        wrong = [name for name, digest in entry["digests"].items() if _digest(folder / name) != digest]
        self.damages += [f"{name} beside {self.path.name}" for name in wrong]
        return None if wrong else folder

    def leave(self) -> None:
        """Force everything to the disk, for whoever sends it later."""
        with contextlib.suppress(OSError):
            os.fsync(self._descriptor)
        self.close()

    def close(self) -> None:
        """Let go of it; what is not stored stays."""
        with self._guard:
            if self._is_open:
                self._is_open = False
                self._reader.close()
                os.close(self._descriptor)

    def remove(self) -> None:
        """It is all stored."""
        self.path.unlink(missing_ok=True)
        self._beside(".sent").unlink(missing_ok=True)
        shutil.rmtree(self._beside(".files"), ignore_errors=True)
        self.close()

    def set_aside(self) -> None:
        """Out of the way, for people to look at."""
        folder = self.path.parent / ASIDE
        # Where that cannot be done it stays, and is refused again the next time.
        with contextlib.suppress(OSError):
            folder.mkdir(exist_ok=True)
            for path in (self._beside(".files"), self._beside(".sent"), self.path):
                if path.exists():
                    path.rename(folder / path.name)
        self.close()

    def _beside(self, suffix: str) -> Path:
        return self.path.with_suffix(suffix)

    def _stored_number(self) -> int:
        try:
            number, found = self._beside(".sent").read_bytes().split(b" ")
        except (OSError, ValueError):
            return 0
        # Without it everything is sent again, which changes nothing in the store but takes longer.
        return int(number) if found == checksum([number]).encode() else 0


def left_behind(run_id: str | None = None) -> list[Path]:
    """The spool files of this machine, of one run or of all, in the order they were made; living ones among them."""
    pattern = "*.jsonl" if run_id is None else f"{_file_name(run_id)}.*.jsonl"
    return sorted(spool_folder().glob(pattern)) if is_folder(spool_folder()) else []


def remove_orphans() -> None:
    """What a process that was killed while it removed a spool has left beside it."""
    if not is_folder(spool_folder()):
        return
    for path in (*spool_folder().glob("*.sent"), *spool_folder().glob("*.files")):
        if not path.with_suffix(".jsonl").exists():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _file_name(run_id: str) -> str:
    """A run id from somewhere else must not leave the folder."""
    return run_id if re.fullmatch(r"[\w-]{1,64}", run_id) else hashlib.sha256(run_id.encode()).hexdigest()


def _number(path: Path) -> int:
    """The place of a spool among those of its run."""
    digits = path.name.split(".")[-3]
    return int(digits) if digits.isdecimal() else 0


def _write(descriptor: int, block: bytes) -> None:
    view = memoryview(block)
    while view:
        view = view[os.write(descriptor, view) :]


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
