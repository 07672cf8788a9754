"""The first rank's view of the others when torchrun has started several processes for one run.

The first rank is the run: it checks settings, claims the run, makes the teacher, trains, reports and records, as it
would alone. The others wait for its word, train along, and end with its exit code. The store is the first rank's alone.
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
            self._dismiss(exit_code(fault))
            raise
        self._dismiss(0)
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
            process, reason = read_process(name), self._reason(rank)
            if reason:
                found.append(f"rank {rank} has failed: {reason}")
            elif reason is None and process is not None and process.is_here and not process.is_alive:
                found.append(f"rank {rank} (process {process.pid}) has ended without a word")
        return "; ".join(found)

    def give_reason(self, fault: Exception) -> None:
        """Leave word, before this rank ends, why it does; none of its own where it only lost another one."""
        reason = "" if isinstance(fault, RankError) else said(fault)
        with suppress(RankError), answered():
            self.ranks.store.set(f"reason/{self.ranks.rank}", reason)

    def _reason(self, rank: int) -> str | None:
        key, store = f"reason/{rank}", self.ranks.store
        with suppress(RankError), answered():
            if store.check([key]):
                return str(store.get(key).decode())
        return None

    def _dismiss(self, code: int) -> None:
        # A rank that ends with a fault makes torchrun send SIGTERM to the rest: this one ends anyway, in its own time.
        ignore_termination()
        with suppress(RankError):
            self.ranks.word(code)


NOBODY = Crew()


def exit_code(fault: BaseException) -> int:
    """The exit code that a fault ends this process with."""
    if isinstance(fault, SystemExit):
        return fault.code if isinstance(fault.code, int) else 1
    return 2 if isinstance(fault, MENDABLE) else 1
