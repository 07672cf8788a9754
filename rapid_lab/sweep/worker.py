"""A worker: takes trials of a study until none is left, and goes on for those who die. All workers are equal."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import optuna
from optuna.exceptions import TrialPruned, UpdateFinishedTrialError
from optuna.study import Study

from rapid_lab.config import Value
from rapid_lab.sweep import record
from rapid_lab.sweep.plan import Plan
from rapid_lab.sweep.storage import Place
from rapid_lab.sweep.study import EARLIER, FAULT, OWNER, PARAMS, Outlook, fail, mend, outlook, suggest, use_own_sampler
from rapid_lab.sweep.trial import Evaluate, TrialCourse
from rapid_lab.tracking.signals import Interrupted

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

    def until_done(self) -> Outlook:
        """Trial after trial; waits for those of others, who may die, and returns what is left."""
        while True:
            self.place.lock.acquire()
            try:
                mend(self.study, self.place)
                found = outlook(self.study, self.plan, self.num_trials)
                is_late = time.monotonic() >= self.deadline
                if found.is_over or is_late:
                    return found
                if found.has_more:
                    self._one_trial()
                    continue
            finally:
                self.place.lock.release()
            time.sleep(POLL_SECONDS)

    def _one_trial(self) -> None:
        """Ask under the lock, so that no two workers take the last trial; the objective lets it go."""
        use_own_sampler(self.study, self.plan)
        try:
            self.study.optimize(self._objective, n_trials=1, catch=(Exception,))
        except (UpdateFinishedTrialError, ValueError) as fault:
            self.say(f"a trial taken for dead was given to another worker, and its result here is not used: {fault}")

    def _objective(self, trial: optuna.Trial) -> list[float]:
        try:
            params = self._begin(trial)
            course = TrialCourse(self.plan, trial, params, self.parent_run_id)
            values = course.carry_out(self.evaluate, self.say)
        except Interrupted:
            numbers = (*trial.user_attrs.get(EARLIER, []), trial.number)
            record.end_trial_runs(self.plan, self.parent_run_id, numbers)
            fail(self.study, trial.number)
            raise
        except TrialPruned:
            self.say(f"trial {trial.number} given up by the pruner")
            raise
        except Exception as fault:
            self.say(f"trial {trial.number} failed: {fault}")
            trial.set_user_attr(FAULT, str(fault) or type(fault).__name__)
            raise
        self.say(f"trial {trial.number} done: {', '.join(f'{name} {value}' for name, value in params.items())}")
        return values

    def _begin(self, trial: optuna.Trial) -> dict[str, Value]:
        """Settings and owner are there before anybody else can look: who dies later is known, and repeated."""
        try:
            params = suggest(trial, self.plan.axes)
            trial.set_user_attr(PARAMS, params)
            trial.set_user_attr(OWNER, self.place.owner())
        finally:
            self.place.lock.release()
        return params
