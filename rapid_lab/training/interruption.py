"""Signals that ask to end wait for a moment at which the state of a training is whole."""

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

ENDING = (signal.SIGTERM, signal.SIGINT)


class PostponedSignals:
    """Remembers SIGTERM and Ctrl-C until `deliver` hands them to whoever handled them before.

    A second Ctrl-C is delivered at once: a person who repeats it means it. In any other thread than the main one
    Python has no signal handlers, and nothing is postponed.
    """

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        self._asked: signal.Signals | None = None

    def __enter__(self) -> "PostponedSignals":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._remember) for number in ENDING}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()
        if error is None:
            self.deliver()

    def agree(self, largest: Callable[[float], float]) -> bool:
        """Whether a signal waits on any rank: it is then one to all, so that all end after the same step."""
        number = int(largest(self._asked or 0))
        if number:  # and else nothing: a signal may have come in the meantime
            self._asked = signal.Signals(number)
        return bool(number)

    def deliver(self) -> None:
        """End now, if a signal has asked for it."""
        if self._asked is not None:
            asked, self._asked = self._asked, None
            self._restore()
            signal.raise_signal(asked)

    def _remember(self, number: int, _frame: FrameType | None) -> None:
        is_repeated = self._asked is not None and number == signal.SIGINT
        self._asked = signal.Signals(number)
        if is_repeated:
            self.deliver()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            # None is a handler that was not set from Python, and cannot be set back from it.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}
