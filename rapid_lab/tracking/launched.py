"""The run that `mlflow run` makes before it starts a command: whatever the command does with it, it ends in order."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rapid_lab import names
from rapid_lab.harmless import shown
from rapid_lab.launch import launch
from rapid_lab.tracking.redaction import message_of, without_secrets
from rapid_lab.tracking.signals import Interrupted, orderly_end

VARIABLE = "MLFLOW_RUN_ID"


def launched_id() -> str | None:
    """The run that was made for this process and that nothing has taken yet; of several ranks it is the first one's."""
    return (os.environ.get(VARIABLE) or None) if launch().rank == 0 else None


def take_launched_id() -> str | None:
    """The same, taken: what is started below this process gets runs of its own."""
    return os.environ.pop(VARIABLE, None) or None


@contextmanager
def launched_run() -> Iterator[None]:
    """See to it that the run `mlflow run` made ends as what happened in this block, with the reason in it."""
    run_id = launched_id()
    if run_id is None:
        yield
        return
    with orderly_end():
        try:
            yield
        except (Exception, Interrupted) as fault:
            _settle(run_id, fault)
            raise
        _settle(run_id, None)


def _settle(run_id: str, fault: BaseException | None) -> None:
    """End a launched run that nothing has ended: a pointer as its target, one that came to nothing with the reason."""
    # Here alone, since mlflow takes seconds and a command that nobody launched has nothing to settle.
    from rapid_lab.tracking.door import client
    from rapid_lab.tracking.runs import TrackedRun
    from rapid_lab.tracking.store import existing_store

    try:
        existing_store()  # MLflow would make an empty one
        store = client()
        run = store.get_run(run_id)
        target = run.data.tags.get(names.POINTS_TO)
        if target is not None:
            status = store.get_run(target).info.status
            # Others may be at work on a study that this process has left in order.
            ended = "FAILED" if fault else "FINISHED"
            store.set_terminated(run_id, ended if status == "RUNNING" else status)
        elif run.info.status == "RUNNING" and fault is not None:
            launched = TrackedRun(run_id, run.info.experiment_id, store)
            launched.set_description(message_of(fault))
            launched.finish("KILLED" if isinstance(fault, Interrupted) else "FAILED")
    except Exception as error:
        # What happened in the block matters more than a store that cannot be told of it.
        message = f"the run {shown(run_id)} could not be ended in the tracking store: {message_of(error)}"
        print(without_secrets(message), file=sys.stderr)
