"""One trial: the same settings on every seed, averaged, recorded in Optuna and in the tracking store."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.exceptions import TrialPruned

from rapid_lab import names
from rapid_lab.config import Value
from rapid_lab.errors import DataError
from rapid_lab.sweep import record
from rapid_lab.sweep.plan import Plan
from rapid_lab.sweep.study import EARLIER, MEASURES
from rapid_lab.sweep.watching import Judge, SeedWatcher
from rapid_lab.tracking.runs import Status
from rapid_lab.tracking.signals import Interrupted


@dataclass(frozen=True)
class SeedResult:
    """What a trial wants to know of the run of one seed."""

    run_id: str
    config_id: str
    accuracy: float
    nll: float
    main: float
    pilot: float
    minutes: float


# The run of settings with a seed under a parent run, watched; or the message of its fault.
Evaluate = Callable[[Mapping[str, Value], str, SeedWatcher], SeedResult | str]
MEASURED = ("accuracy", "nll", "main", "pilot", "minutes")


def run_seed(settings: Mapping[str, Value], parent_run_id: str, watcher: SeedWatcher) -> SeedResult | str:
    """The one run in a process of its own, so that its peak memory is its own as well."""
    from rapid_lab.experiment.processes import in_fresh_process

    outcome = in_fresh_process(settings, parent_run_id, watcher)
    return outcome if isinstance(outcome, str) else seed_result(outcome)


def seed_result(result: Mapping[str, Any]) -> SeedResult:
    """The selected epoch of a finished run, and what it cost."""
    selected = next(epoch for epoch in result["epochs"] if epoch["epoch"] == result["selected_epoch"])
    return SeedResult(
        run_id=result["run_id"],
        config_id=result["config_id"],
        accuracy=selected["accuracy"],
        nll=selected["nll"],
        main=result["relations"]["main"] / result["steps"],
        pilot=result["relations"]["pilot"] / result["steps"],
        minutes=result["train_seconds"] / 60,
    )


def averaged(results: Sequence[SeedResult]) -> dict[str, float]:
    """Means over seeds, and the relations a batch evaluates of either kind."""
    means = {name: statistics.mean(getattr(result, name) for result in results) for name in MEASURED}
    return {**means, "relations": means["main"] + means["pilot"]}


class TrialCourse:
    """A trial under way: its run in the store, its seeds so far."""

    def __init__(self, plan: Plan, trial: optuna.Trial, params: dict[str, Value], parent_run_id: str) -> None:
        self.plan, self.trial, self.params = plan, trial, params
        self.results: list[SeedResult] = []
        self.last: dict[str, float] = {}
        earlier = trial.user_attrs.get(EARLIER, [])
        self.run = record.trial_run(plan, parent_run_id, trial.number, earlier, params)

    def carry_out(self, evaluate: Evaluate, say: Callable[[str], None]) -> list[float]:
        """The values of the objectives; whatever ends the trial early ends its run in order."""
        try:
            for index, seed in enumerate(self.plan.seeds):
                result = self._seed(index, seed, evaluate)
                self.results.append(result)
                share = f"{100 * result.accuracy:.2f} %"
                say(f"trial {self.trial.number} seed {seed}: selection {share}, {60 * result.minutes:.1f} s")
                self._judge_seeds(index, result)
        except TrialPruned:
            self._finish("KILLED", {names.PRUNED: "true"})
            raise
        except Interrupted:
            self.run.finish("KILLED")
            raise
        except BaseException as fault:
            self.run.fail(fault)
            raise
        measures = self._finish("FINISHED", {names.COMPLETE: "true"})
        return [measures[name] for name in self.plan.objectives]

    def _seed(self, index: int, seed: int, evaluate: Evaluate) -> SeedResult:
        settings = {**self.plan.settings_of(self.params), "seed": seed}
        is_judged = self.plan.prune == "epochs" and index == 0
        judge = Judge(self.trial, self.plan.objectives[0]) if is_judged else None
        with judge.watcher() if judge else nullcontext(SeedWatcher()) as watcher:
            result = evaluate(settings, self.run.run_id, watcher)
        if judge and judge.is_pruned and not isinstance(result, SeedResult):
            self.last = judge.last or {}
            if run_id := record.unfinished_seed(self.run):
                record.link_seed(self.plan, self.run, self.trial.number, run_id, is_pruned=True)
            raise TrialPruned
        if isinstance(result, str):
            raise DataError(f"seed {seed}: {result}")
        record.link_seed(self.plan, self.run, self.trial.number, result.run_id)
        return result

    def _judge_seeds(self, index: int, result: SeedResult) -> None:
        """Wilcoxon's test needs the same seeds in every trial: the seed's place is the step."""
        if self.plan.prune != "seeds":
            return
        self.trial.report(getattr(result, self.plan.objectives[0]), step=index)
        if index + 1 < len(self.plan.seeds) and self.trial.should_prune():
            raise TrialPruned

    def _finish(self, status: Status, tags: Mapping[str, str]) -> dict[str, float]:
        """Everything known of the trial, in the store first: a trial that Optuna calls done has its run ended."""
        measures = averaged(self.results) if self.results else self.last
        ids = {"runs": [result.run_id for result in self.results], "configs": [r.config_id for r in self.results]}
        seeds = {name: [getattr(result, name) for result in self.results] for name in ("accuracy", "minutes")}
        kept: dict[str, Any] = {**measures, "seeds": seeds, **ids, "run_id": self.run.run_id}
        self.trial.set_user_attr(MEASURES, kept)
        self.run.log_metrics(0, record.trial_metrics(measures))
        self.run.set_tags(
            {
                **tags,
                names.CONFIG_ID: ",".join(ids["configs"]),
                names.DESCRIPTION: record.describe_trial(self.params, measures, self.plan.seeds[: len(self.results)]),
            }
        )
        self.run.finish(status)
        return measures
