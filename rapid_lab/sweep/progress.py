"""Progress over the trials of a study: a bar on a terminal, plain lines elsewhere; always on standard error."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rapid_lab.sweep.study import Outlook

REFRESH_SECONDS = 1.0


class Progress:
    """Says lines, and draws a bar below them where there is a terminal."""

    def __init__(self, *, is_shown: bool = True) -> None:
        self.is_terminal = is_shown and sys.stderr.isatty()
        self._print: Callable[[str], object] = lambda line: print(line, file=sys.stderr, flush=True)

    def say(self, line: str) -> None:
        """One line; nobody may be listening any more, which is no fault of the trial that speaks."""
        with suppress(OSError):
            self._print(line)

    @contextmanager
    def over(self, look: Callable[[], Outlook]) -> Iterator[None]:
        """Show how far the study has come while the block lasts."""
        if not self.is_terminal:
            yield
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        console = Console(stderr=True)
        columns = (TextColumn("trials"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        is_over = threading.Event()
        with Bar(*columns, console=console) as bar:
            task = bar.add_task("trials", total=look().target)
            before, self._print = self._print, lambda line: console.print(line, markup=False, highlight=False)

            def refresh() -> None:
                while not is_over.wait(REFRESH_SECONDS):
                    bar.update(task, completed=look().done)

            thread = threading.Thread(target=refresh, daemon=True)
            thread.start()
            try:
                yield
            finally:
                is_over.set()
                thread.join()
                bar.update(task, completed=look().done)
                self._print = before
