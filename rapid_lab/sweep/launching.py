"""Workers on this machine: the same command with `--worker`, ended with the one that started them."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import IO

THREADS = "OMP_NUM_THREADS"
LAUNCHED = "RAPID_SWEEP_LAUNCHED"
ENDING_SECONDS = 120


def threads_each(num_workers: int) -> int:
    """The machine's processors divided between workers, of which none has fewer than one."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get(THREADS, "")
    share = max(1, available // num_workers)
    return min(share, int(asked)) if asked.isascii() and asked.isdecimal() and int(asked) else share


class LocalWorkers:
    """Processes that work on one study."""

    def __init__(self, command: Sequence[str], num_workers: int, say: Callable[[str], None]) -> None:
        environment = {**os.environ, LAUNCHED: "1", THREADS: str(threads_each(num_workers))}
        self.processes = [
            subprocess.Popen(  # noqa: S603
                [sys.executable, *command, "--worker"],
                stdin=subprocess.PIPE,  # never written to: it closes when this process is gone
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for _ in range(num_workers)
        ]
        for process in self.processes:
            threading.Thread(target=_pass_on, args=(process.stderr, say), daemon=True).start()

    @property
    def is_over(self) -> bool:
        """Whether all have ended."""
        return all(process.poll() is not None for process in self.processes)

    def faults(self) -> list[str]:
        """How those ended who did not end well."""
        codes = [process.poll() for process in self.processes]
        return [f"a worker ended with code {code}" for code in codes if code]

    def end(self) -> None:
        """Ask all to end in order, and wait for them."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(ENDING_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _pass_on(lines: IO[str] | None, say: Callable[[str], None]) -> None:
    for line in lines or ():
        say(line.rstrip("\n"))


def end_with_launcher() -> None:
    """In a worker that a driver has started: end in order when the driver is gone, however it went."""
    if LAUNCHED not in os.environ:
        return

    def attend() -> None:
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=attend, name="end-with-launcher", daemon=True).start()
