"""What a sweep asks of the rest of the house: facts of the data, a teacher, the run of a seed, a report.

A value of functions, so that the machinery of sweeps can be measured and tested on trials that cost nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rapid_lab.config import Value
from rapid_lab.objectives import METHODS
from rapid_lab.sweep.plan import OF_EVERY_TRIAL, DataFacts, Plan
from rapid_lab.sweep.space import ALL_PAIRS, Listed
from rapid_lab.sweep.trial import Evaluate, run_seed
from rapid_lab.sweep.watching import SeedWatcher

Say = Callable[[str], None]


def data_facts(given: Mapping[str, Value], say: Say) -> DataFacts:
    """The data as it is found now; what a person must know of it is said once."""
    from rapid_lab.data.splits import split_indices
    from rapid_lab.experiment.preparation import prepare_data

    known = {name: value for name, value in given.items() if value != ALL_PAIRS}
    settings, data = prepare_data({**known, **OF_EVERY_TRIAL})
    for line in data.warnings:
        say(line)
    train = split_indices(len(data.train), split_seed=settings.split_seed).train
    return DataFacts(data.name, data.data_hash, len(train), data.is_twin)


def prepare_teacher(plan: Plan, say: Say) -> None:
    """The teacher before the first trial, so that no trial waits for another one's: nothing that varies changes it."""
    from rapid_lab.cli.progress import watcher
    from rapid_lab.experiment.teacher import teacher_experiment

    axis = plan.axes.get("method")
    methods = axis.values if isinstance(axis, Listed) else (plan.resolved({}).method,)
    taught = [method for method in methods if METHODS[str(method)].has_distillation]
    if taught:
        point = {**(plan.points()[0] if plan.points() else {}), "method": taught[0]}
        with watcher(plan.data.name) as shown:
            teacher_experiment(plan.settings_of(point), shown)


def read_report(settings: Mapping[str, Value], parent_run_id: str) -> dict[str, Any] | str:
    """The report of a finished run, from its selected weights; or why there is none."""
    from rapid_lab.experiment.processes import in_fresh_process

    outcome = in_fresh_process({**settings, "report": "once"}, parent_run_id, SeedWatcher())
    if isinstance(outcome, str):
        return outcome
    report: dict[str, Any] | None = outcome["report"]
    return report or "the run has no report"


@dataclass(frozen=True)
class Laboratory:
    """The four things."""

    facts: Callable[[Mapping[str, Value], Say], DataFacts] = data_facts
    prepare: Callable[[Plan, Say], None] = prepare_teacher
    evaluate: Evaluate = run_seed
    report: Callable[[Mapping[str, Value], str], dict[str, Any] | str] = read_report
