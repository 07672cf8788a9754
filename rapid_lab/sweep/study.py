"""A study: found or made, refused under another plan, mended after deaths, and how far it has come.

Everything here happens under the study's lock. A trial goes WAITING, RUNNING, COMPLETE or PRUNED. One whose process
died, or was asked to end, is FAIL and has a successor with the same settings, made by whoever comes next; one that
raised an error is FAIL with the error beside it, and has a successor only when a new command asks again.
"""

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning, UpdateFinishedTrialError
from optuna.pruners import BasePruner, MedianPruner, NopPruner, WilcoxonPruner
from optuna.storages import BaseStorage, fail_stale_trials
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from rapid_lab.config import Value
from rapid_lab.errors import SettingError
from rapid_lab.sweep.plan import Plan, differences
from rapid_lab.sweep.space import OBJECTIVES, Axis, Listed
from rapid_lab.sweep.storage import Place

PLAN = "plan"
ENQUEUED = "enqueued"
SAMPLERS = "samplers"  # how many there have been
# Attributes of a trial
OWNER = "owner"
POINT = "point"  # its place among the enqueued ones
PARAMS = "params"
EARLIER = "earlier"  # numbers of the trials it stands in for, oldest first
FAULT = "fault"
MEASURES = "measures"


@dataclass(frozen=True)
class Outlook:
    """How far a study has come."""

    finished: int
    failed: int
    running: int
    waiting: int
    target: int
    is_grid: bool

    @property
    def done(self) -> int:
        """Trials nobody has to look after any more."""
        return self.finished + self.failed

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do, now or after a death."""
        return self.running == 0 and not self.has_more

    @property
    def has_more(self) -> bool:
        """Whether a trial can begin now."""
        return self.done + self.running < self.target and (self.waiting > 0 or not self.is_grid)


def find_study(plan: Plan, storage: BaseStorage) -> Study | None:
    """The study of this name; refused where it has another plan."""
    try:
        study = optuna.load_study(study_name=plan.study, storage=storage, pruner=make_pruner(plan.prune))
    except KeyError:
        return None
    known = study.user_attrs.get(PLAN)
    found = differences(known, plan.document()) if known is not None else []
    if found:
        raise SettingError(
            f"study must be a new name or be asked for as it was begun, got {plan.study!r}: its {'; its '.join(found)}"
        )
    return study


def open_study(plan: Plan, storage: BaseStorage) -> Study:
    """The study, with everything in it that the plan enqueues; whoever died doing this is finished for here."""
    study = find_study(plan, storage)
    if study is None:
        directions = [OBJECTIVES[name].direction for name in plan.objectives]
        study = optuna.create_study(
            study_name=plan.study, storage=storage, directions=directions, pruner=make_pruner(plan.prune)
        )
    if PLAN not in study.user_attrs:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            study.set_metric_names([OBJECTIVES[name].label for name in plan.objectives])
        study.set_user_attr(PLAN, plan.document())
    if not study.user_attrs.get(ENQUEUED):
        there = {trial.user_attrs.get(POINT) for trial in study.get_trials(deepcopy=False)}
        for index, point in enumerate(plan.points()):
            if index not in there:
                study.enqueue_trial(point, user_attrs={POINT: index, PARAMS: point})
        study.set_user_attr(ENQUEUED, True)
    return study


def make_pruner(prune: str) -> BasePruner:
    """Which trials are given up early."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        if prune == "seeds":
            return WilcoxonPruner(p_threshold=0.1)
    # A median of fewer than five trials is no news, and the first epoch tells little.
    return MedianPruner(n_startup_trials=5, n_warmup_steps=2) if prune == "epochs" else NopPruner()


def mend(study: Study, place: Place, *, with_faults: bool = False) -> None:
    """Give a successor to every trial that died, exactly one; with faults, to those that raised an error as well."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        fail_stale_trials(study)
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if place.is_dead(trial.user_attrs.get(OWNER, {})):
            fail(study, trial.number)
    for trial in unreplaced(study.get_trials(deepcopy=False)):
        if with_faults or FAULT not in trial.user_attrs:
            _succeed(study, trial)


def fail(study: Study, number: int) -> None:
    """End a trial as FAIL, unless it has ended meanwhile."""
    try:
        study.tell(number, state=TrialState.FAIL, skip_if_finished=True)
    except UpdateFinishedTrialError:
        return


def replaced_numbers(trials: list[FrozenTrial]) -> set[int]:
    """The trials another one stands in for."""
    return {number for trial in trials for number in trial.user_attrs.get(EARLIER, [])}


def unreplaced(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """The trials that failed and that no other one stands in for."""
    failed = [trial for trial in trials if trial.state == TrialState.FAIL]
    # Asked before every trial: a study of thousands in which none failed is looked through once.
    replaced = replaced_numbers(trials) if failed else set()
    return [trial for trial in failed if trial.number not in replaced]


def _succeed(study: Study, trial: FrozenTrial) -> None:
    params = {**trial.user_attrs.get(PARAMS, {}), **trial.params}
    earlier = [*trial.user_attrs.get(EARLIER, []), trial.number]
    kept = {name: trial.user_attrs[name] for name in (POINT,) if name in trial.user_attrs}
    # One without settings died before it had any: its place is free, and the next one asked for takes it.
    if params:
        study.enqueue_trial(params, user_attrs={**kept, PARAMS: params, EARLIER: earlier})


def outlook(study: Study, plan: Plan, num_trials: int | None) -> Outlook:
    """What is done and what is left."""
    trials = study.get_trials(deepcopy=False)
    states = [trial.state for trial in trials]
    return Outlook(
        finished=states.count(TrialState.COMPLETE) + states.count(TrialState.PRUNED),
        failed=sum(FAULT in trial.user_attrs for trial in unreplaced(trials)),
        running=states.count(TrialState.RUNNING),
        waiting=states.count(TrialState.WAITING),
        target=target_of(plan, num_trials),
        is_grid=plan.sweep.is_grid,
    )


def target_of(plan: Plan, num_trials: int | None) -> int:
    """How many trials the study is to have."""
    if plan.sweep.is_grid:
        whole = len(plan.points())
        return whole if num_trials is None else min(whole, num_trials)
    return plan.sweep.num_trials if num_trials is None else num_trials


class WorkersSampler(optuna.samplers.TPESampler):
    """TPE for the life of one worker: what it has worked out about earlier trials is not worked out for every one."""


def use_own_sampler(study: Study, plan: Plan) -> None:
    """Seed the sampler by its number among all that the study has had, counted under the lock: no draw comes twice."""
    if not isinstance(study.sampler, WorkersSampler):
        number = study.user_attrs.get(SAMPLERS, 0)
        study.set_user_attr(SAMPLERS, number + 1)
        digest = hashlib.sha256(f"{plan.study} sampler {number}".encode()).digest()
        study.sampler = WorkersSampler(seed=int.from_bytes(digest[:4], "big"))


def suggest(trial: Trial, axes: Mapping[str, Axis]) -> dict[str, Value]:
    """The values of a trial on every axis."""
    values: dict[str, Any] = {}
    for name, axis in axes.items():
        if isinstance(axis, Listed):
            values[name] = trial.suggest_categorical(name, list(axis.values))
        elif axis.is_integer:
            values[name] = trial.suggest_int(name, int(axis.low), int(axis.high), log=axis.is_log)
        else:
            values[name] = trial.suggest_float(name, axis.low, axis.high, log=axis.is_log)
    return values
