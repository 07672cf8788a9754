"""Methods x seeds under one parent run, each run in a fresh process."""

import itertools
import multiprocessing
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rapid_lab import names
from rapid_lab.config import Value
from rapid_lab.experiment.store import current_experiment
from rapid_lab.tracking.provenance import SOURCE_HASH
from rapid_lab.tracking.runs import start_run
from rapid_lab.tracking.signals import orderly_end
from rapid_lab.tracking.store import prepare_store

KEPT = ("dataset", "method", "steps", "relations", "train_seconds", "report", "peak_memory_mb", "config_id")


def run_suite(given: Mapping[str, Value], methods: Sequence[str], seeds: Sequence[int]) -> dict[str, Any]:
    """Every run, found or carried out; faults are gathered, not raised."""
    prepare_store()
    tags = {
        names.KIND: names.SUITE,
        names.SOURCE_HASH: SOURCE_HASH,
        names.SCHEMA: str(names.SCHEMA_VERSION),
    }
    parent = start_run(current_experiment(), f"suite {given.get('dataset', 'agnews')}", tags)
    runs: list[dict[str, Any]] = []
    failed: list[str] = []
    try:
        with orderly_end():
            for seed, method in itertools.product(seeds, methods):
                # A fresh process has its own peak memory; one that has imported already makes it cheap.
                outcome = in_fresh_process({**given, "method": method, "seed": seed}, parent.run_id)
                if isinstance(outcome, str):
                    failed.append(f"{method} seed {seed}: {outcome}")
                else:
                    runs.append({"seed": seed, **outcome})
        parent.set_description(f"{len(methods)} methods on {len(seeds)} seeds; {len(failed)} failed.")
        parent.set_tags({names.COMPLETE: str(not failed).lower()})
        parent.finish("FAILED" if failed else "FINISHED")
    except BaseException:
        parent.finish("KILLED")
        raise
    return {"run_id": parent.run_id, "runs": runs, "failed": failed}


def in_fresh_process(settings: Mapping[str, Value], parent_run_id: str) -> dict[str, Any] | str:
    """The result of one run, or the message of its fault."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rapid_lab.experiment.run", "transformers"])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_one, args=(dict(settings), parent_run_id, sender))
    process.start()
    sender.close()
    try:
        outcome: dict[str, Any] | str = receiver.recv()
    except EOFError:
        outcome = "its process ended without a word"
    except BaseException:
        process.terminate()  # a signal to the suite is one to its run, which then ends in order
        process.join()
        raise
    process.join()
    return outcome


def _one(settings: dict[str, Value], parent_run_id: str, sender: Any) -> None:
    from rapid_lab.cli.progress import Lines
    from rapid_lab.config import resolve
    from rapid_lab.experiment.run import run_experiment

    try:
        epochs = resolve(settings).epochs
        watcher = Lines(f"{settings['method']} seed {settings['seed']}", epochs)
        outcome = run_experiment(settings, watcher, parent_run_id=parent_run_id)
    except Exception as fault:
        sender.send(f"{type(fault).__name__}: {fault}")
        sys.exit(1)
    sender.send({"run_id": outcome.run_id, **{name: outcome.result[name] for name in KEPT}})
