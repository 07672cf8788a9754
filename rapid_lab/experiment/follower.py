"""What every rank but the first does: wait for its word, train along in silence, end as it ends."""

import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from torch import Tensor

from rapid_lab.config import Value
from rapid_lab.experiment.crew import MENDABLE, Crew, exit_code
from rapid_lab.experiment.preparation import prepare, prepare_data
from rapid_lab.experiment.run import train_student
from rapid_lab.launch import RankError
from rapid_lab.teacher import ensure_teacher
from rapid_lab.tracking.signals import ENDING, Interrupted, orderly_end
from rapid_lab.training.distributed import Ranks, leave


class Silence:
    """An observer that leaves the telling to the first rank."""

    def begin(self, role: str, num_steps: int, table: Tensor, epochs: Sequence[dict[str, Any]]) -> None:
        """Nothing."""

    def steps(self, first: int, table: Tensor) -> None:
        """Nothing."""

    def epoch(self, record: dict[str, Any]) -> None:
        """Nothing."""

    def say(self, line: str) -> None:
        """Nothing."""


def follow(crew: Crew) -> NoReturn:
    """Train what the first rank says until it says that all went well.

    Signals that ask to end are for the first rank to answer: it ends the run in order, and this process with it. When
    it has failed or died, the next exchange with it fails.
    """
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    try:
        while isinstance(word := crew.ranks.word(), dict):
            train_along(word, crew.ranks)
    except RankError as fault:
        crew.give_reason(fault)
        raise SystemExit(crew.code_of_first()) from None
    except Exception as fault:
        crew.give_reason(fault)
        if isinstance(fault, MENDABLE):  # which the first rank tells
            raise SystemExit(exit_code(fault)) from None
        raise
    leave()
    raise SystemExit(word)


def train_along(given: Mapping[str, Value], ranks: Ranks) -> None:
    """This rank's part of the training, from this machine's own data, models and teacher cache."""
    settings, data = prepare_data(given)
    prepared = prepare(settings, data)
    teacher = ensure_teacher(prepared.teacher, Silence()) if prepared.teacher else None
    with suppress(Interrupted), orderly_end():
        train_student(prepared, teacher, Silence(), ranks)
