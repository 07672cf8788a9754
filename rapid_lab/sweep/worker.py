"""A worker: takes trials of a study until none is left, and goes on for those who die. All workers are equal."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import optuna
from optuna.exceptions import TrialPruned, UpdateFinishedTrialError
from optuna.study import Study

from rapid_lab.config import Value
from rapid_lab.errors import SettingError
from rapid_lab.sweep import record
from rapid_lab.sweep.plan import Plan
from rapid_lab.sweep.storage import Place, held
from rapid_lab.sweep.study import EARLIER, FAULT, OWNER, PARAMS, Outlook, fail, mend, outlook, suggest, use_own_sampler
from rapid_lab.sweep.trial import Evaluate, TrialCourse
from rapid_lab.tracking.errors import TrackingError
from rapid_lab.tracking.redaction import message_of
from rapid_lab.tracking.signals import Interrupted
from rapid_lab.tracking.waiting import store_fault, wait_for_store

POLL_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a worker needs."""

    plan: Plan
    place: Place
    study: Study
    parent_run_id: str
    num_trials: int | None
    deadline: float  # of the monotonic clock
    evaluate: Evaluate
    say: Callable[[str], None]

    def until_done(self) -> int:
        """Trial after trial, waiting for those of others, who may die, and for a store that is away; how many."""
        num_taken = 0
        while True:
            with held(self.place.lock):
                mend(self.study, self.place)
                found = self._outlook()
            if found.is_over or time.monotonic() >= self.deadline:
                return num_taken
            if not found.has_more:
                time.sleep(POLL_SECONDS)  # somebody who is at work may die
            elif wait_for_store(self.say, self.deadline):
                num_taken += self._one_trial()

    def _outlook(self) -> Outlook:
        return outlook(self.study, self.plan, self.num_trials)

    def _one_trial(self) -> bool:
        """Ask under the lock, so that no two workers take the last trial; the objective lets it go."""
        with held(self.place.lock):
            if not self._outlook().has_more:
                return False
            use_own_sampler(self.study, self.plan)
            try:
                self.study.optimize(self._objective, n_trials=1, catch=(Exception,))
            except (UpdateFinishedTrialError, ValueError) as fault:
                self.say(f"a trial taken for dead was given to another worker, and its result is not used: {fault}")
        return True

    def _objective(self, trial: optuna.Trial) -> list[float]:
        try:
            params = self._begin(trial)
            course = TrialCourse(self.plan, trial, params, self.parent_run_id)
            values = course.carry_out(self.evaluate, self.say)
        except Interrupted:
            self._end_runs(trial)
            fail(self.study, trial.number)
            raise
        except TrialPruned:
            self.say(f"trial {trial.number} given up by the pruner")
            raise
        except Exception as fault:
            self._judge(trial, fault)
            raise
        self.say(f"trial {trial.number} done: {', '.join(f'{name} {value}' for name, value in params.items())}")
        return values

    def _judge(self, trial: optuna.Trial, fault: Exception) -> None:
        """A trial that fails while the store is away has died with it, and has a successor as every dead one."""
        if store_fault() is not None:
            self.say(f"trial {trial.number} is begun again when the tracking store answers: {message_of(fault)}")
            return
        self.say(f"trial {trial.number} failed: {fault}")
        trial.set_user_attr(FAULT, str(fault) or type(fault).__name__)

    def _end_runs(self, trial: optuna.Trial) -> None:
        """What the trial has left RUNNING; a store that is away must not keep a signal from ending the process."""
        numbers = (*trial.user_attrs.get(EARLIER, []), trial.number)
        try:
            record.end_trial_runs(self.plan, self.parent_run_id, numbers)
        except (SettingError, TrackingError) as fault:
            self.say(f"trial {trial.number} may stay RUNNING until `rapid-lab reap` closes it: {message_of(fault)}")

    def _begin(self, trial: optuna.Trial) -> dict[str, Value]:
        """Settings and owner are there before anybody else can look: who dies later is known, and repeated."""
        try:
            params = suggest(trial, self.plan.axes)
            trial.set_user_attr(PARAMS, params)
            trial.set_user_attr(OWNER, self.place.owner())
        finally:
            self.place.lock.release()
        return params
