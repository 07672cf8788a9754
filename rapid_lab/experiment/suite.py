"""Methods x seeds under one parent run, each run in a fresh process."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rapid_lab import names
from rapid_lab.config import Value
from rapid_lab.errors import SettingError
from rapid_lab.experiment.preparation import prepare, prepare_data
from rapid_lab.experiment.processes import in_fresh_process
from rapid_lab.experiment.store import check_places, current_experiment
from rapid_lab.experiment.teacher import teacher_experiment
from rapid_lab.objectives import METHODS
from rapid_lab.tracking.errors import TrackingError
from rapid_lab.tracking.provenance import SOURCE_HASH
from rapid_lab.tracking.redaction import message_of
from rapid_lab.tracking.runs import ended_in_order, launched_or_new_run
from rapid_lab.tracking.signals import orderly_end
from rapid_lab.tracking.store import prepare_store
from rapid_lab.tracking.waiting import wait_for_store
from rapid_lab.training.loop import Observer

# Of a run's result, what the suite's own document shows.
KEPT = (
    "run_id", "method", "seed", "dataset", "steps", "relations", "train_seconds", "report", "peak_memory_mb",
    "config_id",
)  # fmt: skip


def run_suite(
    given: Mapping[str, Value], methods: Sequence[str], seeds: Sequence[int], watch: Callable[[str], Observer]
) -> dict[str, Any]:
    """Every run, found or carried out; their faults are gathered, not raised. One of the teacher ends the suite.

    A store that goes away is waited for before the next run, twelve hours at most. The best seed of each method, by the
    selection split, is at last logged as a model unless `log_model` says no.
    """
    check_places()
    # Refused once, not by every run: by one that has a teacher, where any does.
    first = next((method for method in methods if METHODS[method].has_distillation), methods[0])
    settings, data = prepare_data({**given, "method": first, "seed": seeds[0]})
    prepare(settings, data)
    prepare_store()
    tags = {
        names.KIND: names.SUITE,
        names.SOURCE_HASH: SOURCE_HASH,
        names.SCHEMA: str(names.SCHEMA_VERSION),
    }
    dataset = settings.dataset
    parent = launched_or_new_run(current_experiment(), f"suite {dataset}", tags)
    runs: dict[tuple[int, str], dict[str, Any]] = {}
    failed: list[str] = []

    def carry_out(seed: int, method: str, *, log_model: bool) -> None:
        watcher = watch(f"{method} seed {seed}")
        wait_for_store(watcher.say)  # which each run needs at once: one outage must not fail them all
        settings = {**given, "method": method, "seed": seed, "log_model": log_model}
        outcome = in_fresh_process(settings, parent.run_id, watcher)
        if isinstance(outcome, str):
            failed.append(f"{method} seed {seed}: {outcome}")
        else:
            runs[seed, method] = {"seed": seed, **outcome}

    with orderly_end(), ended_in_order(parent):
        if METHODS[first].has_distillation:
            # Before its students and not by the first of them, whose peak of memory would be another then.
            teacher_experiment({**given, "report": "never"}, watch(f"{dataset} suite"))
        for seed, method in itertools.product(seeds, methods):
            carry_out(seed, method, log_model=False)
        if given.get("log_model", True):
            for best in best_seeds(list(runs.values())):
                carry_out(best["seed"], best["method"], log_model=True)
        if any(run["teacher"] for run in runs.values()):
            try:
                teacher_experiment(given, watch(dataset))  # which has no report of its own yet
            except (SettingError, TrackingError) as fault:  # the store is away: the next asking records it
                failed.append(f"teacher: {message_of(fault)}")
        parent.set_description(f"{len(methods)} methods on {len(seeds)} seeds; {len(failed)} failed.")
        parent.set_tags({names.COMPLETE: str(not failed).lower()})
        parent.finish("FAILED" if failed else "FINISHED")
    kept = [{name: run[name] for name in KEPT} for run in runs.values()]
    return {"run_id": parent.run_id, "runs": kept, "failed": failed, "warnings": list(data.warnings)}


def best_seeds(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each method the run that did best on the selection split; the report split chooses nothing."""

    def quality(run: dict[str, Any]) -> tuple[int, float]:
        selected = run["epochs"][run["selected_epoch"] - 1]
        return selected["correct"], -selected["nll"]

    methods = dict.fromkeys(run["method"] for run in runs)
    return [max((run for run in runs if run["method"] == method), key=quality) for method in methods]
