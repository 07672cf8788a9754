"""Where a study is kept: a journal file for the processes of one machine, or PostgreSQL for many machines.

Both give the same things: Optuna's storage, the study's lock, which dies with its holder, and who owns a trial and
whether that process is dead.
"""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import optuna
import psutil
from optuna.storages import BaseStorage

optuna.logging.set_verbosity(optuna.logging.ERROR)

LOCK_SECONDS = 300

Owner = dict[str, Any]


@runtime_checkable
class Lock(Protocol):
    """Held by one process at a time, and by none that is dead; taking it again while holding it is an error."""

    def acquire(self) -> None:
        """Wait for it."""

    def release(self) -> None:
        """Let it go; nothing where it is not held."""


@runtime_checkable
class Place(Protocol):
    """A place in which studies are kept."""

    lock: Lock
    shown: str

    def check(self) -> None:
        """Refuse a place that cannot be used; nothing is made."""

    def existing(self) -> BaseStorage | None:
        """Optuna's storage if it is there already; nothing is made."""

    def open(self) -> BaseStorage:
        """Optuna's storage, with its tables; under the lock."""

    def owner(self) -> Owner:
        """Who this process is, as its trials carry it."""

    def is_dead(self, owner: Owner) -> bool:
        """Whether it can be told for sure that this owner is gone; under the lock."""

    def leave(self) -> None:
        """Nothing of this process is under way any more: what it holds is let go."""


@contextlib.contextmanager
def held(lock: Lock) -> Iterator[None]:
    """The lock for the length of a block."""
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def make_place(storage: str, study: str) -> Place:
    """The place a user named; nothing is made yet."""
    from rapid_lab.sweep.database import Postgres
    from rapid_lab.sweep.journal import Embedded

    return Postgres(storage, study) if "://" in storage else Embedded(Path(storage), study)


def signature() -> Owner:
    """Host, process and its start, for people who look for it."""
    process = psutil.Process()
    return {"host": socket.gethostname(), "pid": process.pid, "started": process.create_time()}
