"""Who watches the run of a seed: quietly, asking the trial after every epoch whether to go on."""

import multiprocessing
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import optuna
from torch import Tensor

from rapid_lab.tracking.signals import Interrupted


class Pruned(Interrupted):
    """The trial is given up: its run ends in order, as one that a signal ends, and keeps what it has logged."""

    def __init__(self) -> None:
        super().__init__("SIGTERM")

    def __str__(self) -> str:
        return "given up by the pruner"


class SeedWatcher:
    """An Observer that goes along into the process of a run."""

    def __init__(self, judge: Connection | None = None) -> None:
        self.judge = judge
        self.is_judged = True

    def begin(self, role: str, num_steps: int, table: Tensor, epochs: Sequence[dict[str, Any]]) -> None:
        """A run that goes on has epochs the trial has not heard of; those of a teacher are none of the trial's."""
        self.is_judged = role == "student"
        for record in epochs:
            self.epoch(record)

    def steps(self, first: int, table: Tensor) -> None:
        """Of no interest here."""

    def epoch(self, record: dict[str, Any]) -> None:
        """Ask whether the trial is worth going on with."""
        if self.judge is not None and self.is_judged:
            self.judge.send((record["epoch"], {"accuracy": record["accuracy"], "nll": record["nll"]}))
            if self.judge.recv():
                raise Pruned

    def say(self, line: str) -> None:
        """The sweep has said it once for all its runs."""


class Judge:
    """Answers the watcher of a trial's first seed, epoch by epoch; later seeds are not judged.

    A trial has one axis of steps. Here it is the epochs of the first seed, which is the same seed in every trial.
    """

    def __init__(self, trial: optuna.Trial, objective: str) -> None:
        self.trial, self.objective = trial, objective
        self.last: dict[str, float] | None = None
        self.is_pruned = False

    @contextmanager
    def watcher(self) -> Iterator[SeedWatcher]:
        """A watcher whose questions are answered while the block lasts."""
        ours, theirs = multiprocessing.get_context("forkserver").Pipe()
        thread = threading.Thread(target=self._answer, args=(ours,), name="judge", daemon=True)
        thread.start()
        try:
            yield SeedWatcher(theirs)
        finally:
            theirs.close()
            thread.join()

    def _answer(self, connection: Connection) -> None:
        with connection:
            while True:
                try:
                    epoch, measures = connection.recv()
                except (EOFError, OSError):
                    return
                self.trial.report(measures[self.objective], step=epoch)
                self.last = measures
                self.is_pruned = self.trial.should_prune()
                connection.send(self.is_pruned)
