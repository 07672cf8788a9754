"""What a person sees while a run goes on, on standard error: a bar on a terminal, plain lines elsewhere.

Standard output stays for results.
"""

import sys
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from rapid_lab.names import LOSS_TOTAL, RELATIONS_MAIN, RELATIONS_PILOT, STEP_METRICS

LOSS, MAIN, PILOT = (STEP_METRICS.index(name) for name in (LOSS_TOTAL, RELATIONS_MAIN, RELATIONS_PILOT))


class Lines:
    """A line an epoch: loss, accuracy on the selection split, relations spent, time left."""

    def __init__(self, label: str) -> None:
        self.label = self.title = label
        self.num_steps = self.done = self.first = self.relations = 0
        self.loss = self.started = 0.0

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Nothing more will happen."""

    def begin(self, role: str, num_steps: int, table: Any, epochs: Sequence[dict[str, Any]]) -> None:
        """Start the clock, after the steps of an earlier part."""
        self.title = f"teacher for {self.label}" if role == "teacher" else self.label
        self.num_steps, self.relations, self.started = num_steps, 0, time.monotonic()
        self._add(1, table)
        self.first = self.done
        if self.done:
            self.say(f"{self.title} goes on after step {self.done} of {num_steps}")

    def steps(self, first: int, table: Any) -> None:
        """Add up what was spent."""
        self._add(first, table)

    def _add(self, first: int, table: Any) -> None:
        self.done = first + len(table) - 1
        if len(table):
            self.relations += int(table[:, MAIN].sum() + table[:, PILOT].sum())
            self.loss = float(table[-1, LOSS])

    def epoch(self, record: dict[str, Any]) -> None:
        """One line."""
        each = (time.monotonic() - self.started) / max(self.done - self.first, 1)
        self.say(f"{self.title} {self.state(record)}  {each * (self.num_steps - self.done):.0f} s left")

    def state(self, record: dict[str, Any]) -> str:
        """Epoch, loss, accuracy and relations in one phrase."""
        epochs = self.num_steps * record["epoch"] // record["step"]
        return (
            f"epoch {record['epoch']}/{epochs}  loss {self.loss:.3f}  "
            f"selection {100 * record['accuracy']:.2f} %  relations {self.relations}"
        )

    def say(self, line: str) -> None:
        """To standard error."""
        print(line, file=sys.stderr, flush=True)


class Bar(Lines):
    """The same in one line that moves with the steps, with a line an epoch left above it."""

    progress: Progress | None = None  # made when it is drawn, so that a bar can be handed to another process

    def begin(self, role: str, num_steps: int, table: Any, epochs: Sequence[dict[str, Any]]) -> None:
        """Draw it."""
        self.end()
        super().begin(role, num_steps, table, epochs)
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"))
        self.progress = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
        self.progress.add_task(self.title, total=num_steps, completed=self.done, state="")
        self.progress.start()

    def steps(self, first: int, table: Any) -> None:
        """Move it."""
        super().steps(first, table)
        if self.progress is not None:
            state = f"loss {self.loss:.3f}  relations {self.relations}"
            self.progress.update(self.progress.task_ids[0], completed=self.done, state=state)

    def epoch(self, record: dict[str, Any]) -> None:
        """Leave a line; after the last one the bar goes."""
        super().epoch(record)
        if self.done >= self.num_steps:
            self.end()

    def end(self) -> None:
        """Give the terminal back."""
        if self.progress is not None:
            self.progress.stop()
            self.progress = None

    def say(self, line: str) -> None:
        """Above the bar."""
        if self.progress is None:
            super().say(line)
        else:
            self.progress.console.print(line, markup=False, highlight=False, soft_wrap=True)


def watcher(label: str) -> Lines:
    """A bar where a person looks on, lines elsewhere."""
    return Bar(label) if sys.stderr.isatty() else Lines(label)
