"""A driver that is killed with SIGKILL at a chosen write of its journal, in a process of its own."""

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

from rapid_lab.sweep.driver import main
from rapid_lab.sweep.journal import Journal

PRELOADED = ["killing", "trivial_sweep", "rapid_lab.sweep.plots", "mlflow.store.tracking.sqlalchemy_store"]


def drive(folder: Path, words: list[str], kill_at: int | None, how: str) -> None:
    """The sweep, killed before, after or in the middle of a write."""
    from trivial_sweep import GRID, LABORATORY

    os.chdir(folder)
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/mlflow.db"
    if kill_at is not None:
        _arm(kill_at, how)
    os._exit(main(GRID, words, LABORATORY))


def _arm(kill_at: int, how: str) -> None:
    write, count = Journal.append_logs, 0

    def counted(journal: Any, logs: list[dict[str, Any]]) -> None:
        nonlocal count
        count += 1
        if count == kill_at and how == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        if count == kill_at and how == "within":
            with journal._path.open("ab") as file:
                file.write(b'{"op_code":8,"worker_')
            os.kill(os.getpid(), signal.SIGKILL)
        write(journal, logs)
        if count == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    Journal.append_logs = counted  # type: ignore[assignment,method-assign]


def killed_or_done(folder: Path, words: list[str], kill_at: int | None = None, how: str = "after") -> int | None:
    """The exit code of such a process; -9 where it was killed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=drive, args=(folder, words, kill_at, how))
    process.start()
    process.join()
    return process.exitcode
