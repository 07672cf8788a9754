"""A study in the tracking store: one run for the study, a child for each trial, a grandchild for each seed."""

from collections.abc import Mapping, Sequence
from typing import Any

from rapid_lab import names
from rapid_lab.config import Value
from rapid_lab.errors import SettingError
from rapid_lab.experiment.store import current_experiment
from rapid_lab.sweep.plan import Plan
from rapid_lab.tracking.door import client
from rapid_lab.tracking.errors import TrackingError
from rapid_lab.tracking.processes import read_process
from rapid_lab.tracking.provenance import SOURCE_HASH
from rapid_lab.tracking.runs import (
    TrackedRun,
    adopt_run,
    existing_run,
    launched_or_new_run,
    point_launched_to,
    start_run,
)
from rapid_lab.tracking.store import RunSummary, find_runs

RUN_NAME = "mlflow.runName"


def _tags(plan: Plan, kind: str) -> dict[str, str]:
    return {
        names.KIND: kind,
        names.STUDY_NAME: plan.study,
        names.DATASET: plan.data.name,
        names.DATA_HASH: plan.data.data_hash,
        names.COMPLETE: "false",
        names.REPORT: "never",
        names.SOURCE_HASH: SOURCE_HASH,
        names.SCHEMA: str(names.SCHEMA_VERSION),
    }


def study_run(plan: Plan) -> TrackedRun:
    """The study's run, RUNNING: found, or started by whoever comes first; under the study's lock.

    One that is RUNNING for a process that may be alive stays with that. One that `mlflow run` has made becomes the
    study's, or a pointer to it.
    """
    experiment = current_experiment()
    for found in find_runs(experiment, {names.KIND: names.STUDY, names.STUDY_NAME: plan.study}):
        if found.tags.get(names.DATA_HASH) == plan.data.data_hash:
            point_launched_to(found.run_id)
            owner = read_process(found.tags.get(names.PROCESS, ""))
            is_owned = found.status == "RUNNING" and owner is not None and not owner.is_dead
            return existing_run(found.run_id) if is_owned else adopt_run(found.run_id)
    run = launched_or_new_run(experiment, plan.study, _tags(plan, names.STUDY))
    run.set_description(f"Sweep **{plan.sweep.name}** on **{plan.data.name}**, seeds {_listed(plan.seeds)}.")
    return run


def taken_over(run: TrackedRun) -> TrackedRun:
    """The study's run in the hands of this process, which is about to conclude the study; under the study's lock.

    Where the store is away it stays as it is, and what is logged waits in a spool.
    """
    try:
        return adopt_run(run.run_id)
    except (SettingError, TrackingError):
        return run


def trial_run(
    plan: Plan, parent_run_id: str, number: int, earlier: Sequence[int], params: Mapping[str, Value]
) -> TrackedRun:
    """The trial's run, RUNNING; one that died left its own behind, which goes on under the new number."""
    name, now = f"{plan.study} trial {number}", {names.TRIAL_NUMBER: str(number)}
    for found in _runs_of_trials(plan, parent_run_id, (*earlier, number)) if earlier else ():
        run = adopt_run(found.run_id)
        run.set_tags({**now, names.RESUMED: "true", RUN_NAME: name})
        return run
    tags = {**_tags(plan, names.TRIAL), **now, names.RESUMED: "false"}
    if method := params.get("method", plan.given.get("method")):
        tags[names.METHOD] = str(method)
    run = start_run(current_experiment(), name, tags, parent_run_id=parent_run_id)
    run.log_params({f"{names.PARAM_PREFIX}{key}": value for key, value in params.items()})
    return run


def end_trial_runs(plan: Plan, parent_run_id: str, numbers: Sequence[int]) -> None:
    """End what a signal has left RUNNING: it may have come before the trial knew its run."""
    for found in _runs_of_trials(plan, parent_run_id, numbers):
        if found.status == "RUNNING":
            TrackedRun(found.run_id, current_experiment(), client()).finish("KILLED")


def _runs_of_trials(plan: Plan, parent_run_id: str, numbers: Sequence[int]) -> list[RunSummary]:
    wanted = {names.KIND: names.TRIAL, names.STUDY_NAME: plan.study, names.PARENT: parent_run_id}
    found = [find_runs(current_experiment(), {**wanted, names.TRIAL_NUMBER: str(number)}) for number in numbers]
    return [run for runs in found for run in runs]


def link_seed(plan: Plan, trial: TrackedRun, number: int, run_id: str, *, is_pruned: bool = False) -> None:
    """Name study and trial on the run of a seed; one that another trial or command began keeps its parent."""
    run = TrackedRun(run_id, trial.experiment_id, client())
    ours = {names.STUDY_NAME: plan.study, names.TRIAL_NUMBER: str(number)}
    theirs = {f"{names.USED_BY}.{trial.run_id}": f"{plan.study}/{number}"}
    pruned = {names.PRUNED: "true"} if is_pruned else {}
    run.set_tags_by_parent(trial.run_id, ours | pruned, theirs | pruned)
    run.leave()


def unfinished_seed(trial: TrackedRun) -> str | None:
    """The run of the seed that the pruner has just ended."""
    wanted = {names.KIND: names.STUDENT, names.PARENT: trial.run_id}
    found = [run for run in find_runs(trial.experiment_id, wanted) if run.status == "KILLED"]
    return found[0].run_id if found else None


def trial_metrics(measures: Mapping[str, float]) -> dict[str, float]:
    """The means of a trial under the names its seeds log theirs."""
    logged = {
        names.SELECTION_ACCURACY: "accuracy",
        names.SELECTION_NLL: "nll",
        names.MEAN_MAIN: "main",
        names.MEAN_PILOT: "pilot",
        names.TRAIN_MINUTES: "minutes",
    }
    return {name: measures[key] for name, key in logged.items() if key in measures}


def describe_trial(params: Mapping[str, Value], measures: Mapping[str, Any], seeds: Sequence[int]) -> str:
    """Markdown above the trial's run."""
    where = ", ".join(f"{name} {value}" for name, value in params.items())
    found = f"selection accuracy {100 * measures['accuracy']:.2f} %" if "accuracy" in measures else "no seed finished"
    return f"{where}: {found}, mean of seeds {_listed(seeds)}."


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(str(seed) for seed in seeds)
