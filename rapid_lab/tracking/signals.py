"""SIGTERM and Ctrl-C as an exception, so that a run ends in order: flushed, with a checkpoint, as KILLED."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGINT)


class Interrupted(SystemExit):
    """A signal asked the process to end.

    It is a SystemExit: `except Exception` does not swallow it, and where nobody catches it the process ends without a
    traceback, with the exit code 128 + signal that shells use.
    """

    def __init__(self, signal_name: str) -> None:
        super().__init__(128 + signal.Signals[signal_name])
        self.signal_name = signal_name

    def __str__(self) -> str:
        return f"ended by {self.signal_name}"


@contextmanager
def orderly_end() -> Iterator[None]:
    """Raise Interrupted in the main thread when a signal asks to end; clean up inside this block.

    After the first signal SIGTERM is ignored until the block is left, since launchers often send it again while the
    buffer is flushed; another Ctrl-C raises again, since a person who repeats it means it. A block within another
    changes nothing, so that this holds until the outer one is left; nor does one in any other thread than the main
    one, where Python has no signal handlers.

        with orderly_end():
            try:
                train()
            except Interrupted as end:
                run.finish("KILLED")
                raise
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is _raise_interrupted:
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDING}
    for number in ENDING:
        signal.signal(number, _raise_interrupted)
    try:
        yield
    finally:
        for number, handler in before.items():
            # None is a handler that was not set from Python, and cannot be set back from it.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def ignore_termination() -> None:
    """Ignore SIGTERM until the block of `orderly_end` is left: a launcher sends it to what is ending already."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _raise_interrupted(number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Interrupted(signal.Signals(number).name)
