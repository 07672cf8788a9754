"""What a person sees while a run goes on: lines on standard error, so that standard output stays for results."""

import sys
import time
from typing import Any

from torch import Tensor


class Lines:
    """A line an epoch: accuracy on the selection split, relations spent, time left."""

    def __init__(self, label: str, epochs: int) -> None:
        self.label, self.epochs = label, epochs
        self.started = time.monotonic()
        self.relations = 0
        self.loss = 0.0

    def steps(self, first: int, table: Tensor) -> None:
        """Add up what was spent."""
        self.relations += int(table[:, :2].sum())
        self.loss = float(table[-1, 5])

    def epoch(self, step: int, record: dict[str, Any]) -> None:
        """One line."""
        done = record["epoch"]
        left = (time.monotonic() - self.started) / done * max(self.epochs - done, 0)
        self.say(
            f"{self.label} epoch {done}/{self.epochs}  loss {self.loss:.3f}  "
            f"selection {100 * record['accuracy']:.2f} %  relations {self.relations}  {left:.0f} s left"
        )

    def say(self, line: str) -> None:
        """To standard error."""
        print(line, file=sys.stderr, flush=True)
