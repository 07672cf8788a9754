"""The first rank's view of the others when torchrun has started several processes for one run.

The first rank is the run: it checks settings, claims the run, makes the teacher, trains, reports and records, as it
would alone. The others wait for its word, train along, and end with its exit code. The store is the first rank's alone.

A fault is never told by an exchange, since the others may sit in another one. What a rank has to say before it ends it
leaves with the launcher; its end closes the connections that the others wait at, and they look there.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict

from rapid_lab.config import Settings
from rapid_lab.errors import DataError, SettingError, TrainingError
from rapid_lab.launch import RankError
from rapid_lab.reach import said
from rapid_lab.tracking.errors import TrackingError
from rapid_lab.tracking.processes import read_process, this_process
from rapid_lab.tracking.signals import Interrupted, ignore_termination
from rapid_lab.training.distributed import ALONE, Ranks, answered, leave

# How long a process may take to be gone once its connections are closed.
CLOSING_SECONDS = 2.0
ENDED = "ended"  # the key of the first rank's exit code, after a fault
MENDABLE = (SettingError, DataError, TrackingError, TrainingError)


class Crew:
    """All ranks of a run, with the processes they are; alone there is nobody to tell or to lose."""

    def __init__(self, ranks: Ranks = ALONE) -> None:
        self.ranks = ranks
        self.processes = ranks.everyones(str(this_process()))

    def call(self, settings: Settings) -> None:
        """Tell the others what to train."""
        if self.ranks.size > 1:
            self.ranks.word(asdict(settings))

    @contextmanager
    def led(self) -> Iterator[None]:
        """Whatever becomes of this block, the others end as it does."""
        try:
            yield
        except BaseException as fault:
            # Ranks that end with a fault make torchrun send SIGTERM to the rest: this one ends in its own time.
            ignore_termination()
            self._leave(ENDED, str(exit_code(fault)))
            raise
        ignore_termination()
        with suppress(RankError):
            self.ranks.word(0)
        leave()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Tell the end of another rank from a signal that means this one: torchrun sends SIGTERM in both cases."""
        try:
            yield
        except (Interrupted, RankError) as fault:
            ignore_termination()
            deadline = time.monotonic() + (CLOSING_SECONDS if isinstance(fault, RankError) else 0.0)
            while not (lost := self.lost()) and time.monotonic() < deadline:
                time.sleep(0.02)
            if lost:
                raise RankError(lost) from fault
            raise

    def lost(self) -> str:
        """Which ranks have ended and why, as far as this machine can tell; empty where none has."""
        found = []
        for rank, name in enumerate(self.processes[1:], start=1):
            process, reason = read_process(name), self._left(f"reason/{rank}")
            if reason:
                found.append(f"rank {rank} has failed: {reason}")
            elif reason is None and process is not None and process.is_here and not process.is_alive:
                found.append(f"rank {rank} (process {process.pid}) has ended without a word")
        return "; ".join(found)

    def give_reason(self, fault: Exception) -> None:
        """Leave word, before this rank ends, why it does; none of its own where it only lost another one."""
        self._leave(f"reason/{self.ranks.rank}", "" if isinstance(fault, RankError) else said(fault))

    def code_of_first(self) -> int:
        """The exit code the first rank has left; that of a lost rank where it was killed, or goes on."""
        return int(self._left(ENDED) or exit_code(RankError()))

    def _leave(self, key: str, text: str) -> None:
        with suppress(RankError), answered():
            self.ranks.store.set(key, text)

    def _left(self, key: str) -> str | None:
        with suppress(RankError), answered():
            if self.ranks.store.check([key]):
                return str(self.ranks.store.get(key).decode())
        return None


NOBODY = Crew()


def exit_code(fault: BaseException) -> int:
    """The exit code that a fault ends this process with."""
    if isinstance(fault, SystemExit):
        return fault.code if isinstance(fault.code, int) else 1
    return 2 if isinstance(fault, MENDABLE) else 1
