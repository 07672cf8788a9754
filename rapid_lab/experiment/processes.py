"""One run in a fresh process: it has its own peak memory, and one that has imported already makes it cheap."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

from rapid_lab.config import Value
from rapid_lab.tracking.redaction import message_of
from rapid_lab.training.loop import Observer


def in_fresh_process(settings: Mapping[str, Value], parent_run_id: str, watcher: Observer) -> dict[str, Any] | str:
    """The result of one run with its run id, or the message of its fault; the watcher is pickled and goes along."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rapid_lab.experiment.run", "transformers"])
    ours, theirs = context.Pipe()
    process = context.Process(target=_one, args=(dict(settings), parent_run_id, watcher, theirs, dict(os.environ)))
    process.start()
    theirs.close()
    try:
        outcome: dict[str, Any] | str = ours.recv()
    except EOFError:
        outcome = "its process ended without a word"
    except BaseException:
        process.terminate()  # a signal to this process is one to its run, which then ends in order
        process.join()
        raise
    process.join()
    ours.close()
    return outcome


def _one(
    settings: dict[str, Value], parent_run_id: str, watcher: Observer, line: Connection, environment: dict[str, str]
) -> None:
    os.environ.clear()
    os.environ.update(environment)  # as it is now: the process this one is forked from has that of its own start
    from rapid_lab.experiment.run import run_experiment

    threading.Thread(target=_end_with_parent, args=(line,), daemon=True).start()
    try:
        outcome = run_experiment(settings, watcher, parent_run_id=parent_run_id)
    except Exception as fault:
        line.send(f"{type(fault).__name__}: {message_of(fault)}")
        sys.exit(1)
    line.send({"run_id": outcome.run_id, **outcome.result})


def _end_with_parent(line: Connection) -> None:
    """The other end of the line closes when the parent has died: then nobody waits for this run any more."""
    try:
        line.recv()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)
