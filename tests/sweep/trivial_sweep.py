"""A sweep whose trials train nothing: the real driver, storage and tracking store, on made-up numbers.

Run as a command by the tests. TRIVIAL_SECONDS is how long a seed takes, TRIVIAL_PREPARATION how long a driver prepares
for its workers, TRIVIAL_FAULT names a value of gate_strength that fails.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from rapid_lab import names
from rapid_lab.config import Value
from rapid_lab.experiment.preparation import hashed
from rapid_lab.experiment.store import current_experiment
from rapid_lab.sweep.driver import main
from rapid_lab.sweep.laboratory import Laboratory
from rapid_lab.sweep.launching import LAUNCHED
from rapid_lab.sweep.plan import DataFacts, Plan
from rapid_lab.sweep.space import Interval, Listed, Sweep
from rapid_lab.sweep.trial import SeedResult
from rapid_lab.sweep.watching import SeedWatcher
from rapid_lab.tracking.door import client
from rapid_lab.tracking.runs import TrackedRun, adopt_run, start_run
from rapid_lab.tracking.store import find_runs

GRID = Sweep(
    name="trivial",
    question="Does the machinery of sweeps hold?",
    axes={"relation_budget": Listed((16, 32, 64, "all")), "method": Listed(("uniform", "rapid"))},
    also=("batch_size",),
    is_grid=True,
)
SEARCH = Sweep(
    name="search",
    question="Does the search go on?",
    axes={"gate_strength": Interval(0.0, 1.0), "max_residual_mix": Interval(0.0, 1.0)},
    has_ends=True,
    num_trials=8,
    defaults={"method": "rapid"},
)


def facts(given: Mapping[str, Value], say: Callable[[str], None]) -> DataFacts:
    dataset = str(given.get("dataset", "agnews"))
    return DataFacts(f"{dataset}-trivial", f"hash of {dataset}", 1800, is_twin=True)


def prepare(plan: Plan, say: Callable[[str], None]) -> None:
    """No teacher, but time for one; workers find it there."""
    if LAUNCHED not in os.environ:
        time.sleep(float(os.environ.get("TRIVIAL_PREPARATION", "0")))


def evaluate(settings: Mapping[str, Value], parent_run_id: str, watcher: SeedWatcher) -> SeedResult | str:
    """A student's run as the one run leaves it: found by its config id, resumed, or started."""
    if str(settings.get("gate_strength")) == os.environ.get("TRIVIAL_FAULT"):
        return "ValueError: this one always fails"
    config_id = hashed({name: value for name, value in settings.items() if name not in ("report", "log_model")})
    run, is_finished = _claim(config_id, parent_run_id)
    if not is_finished:
        time.sleep(float(os.environ.get("TRIVIAL_SECONDS", "0")))
        run.set_tags({names.COMPLETE: "true"})
        run.finish("FINISHED")
    budget = float(str(settings.get("relation_budget", 64)))
    gate, seed = float(str(settings.get("gate_strength", 0.5))), int(str(settings["seed"]))
    accuracy = 0.9 - 1 / budget - (gate - 0.7) ** 2 + seed / 1e4
    return SeedResult(run.run_id, config_id, accuracy, 1 - accuracy, budget, 0.0, budget / 1e3)


def _claim(config_id: str, parent_run_id: str) -> tuple[TrackedRun, bool]:
    experiment = current_experiment()
    for found in find_runs(experiment, {names.CONFIG_ID: config_id, names.KIND: names.STUDENT}):
        if found.status == "FINISHED":
            return TrackedRun(found.run_id, experiment, client()), True
        return adopt_run(found.run_id), False
    tags = {names.KIND: names.STUDENT, names.CONFIG_ID: config_id}
    return start_run(experiment, "trivial", tags, parent_run_id=parent_run_id), False


def report(settings: Mapping[str, Value], parent_run_id: str) -> dict[str, Any] | str:
    return {"correct": 800 + int(str(settings["seed"])), "total": 1000}


LABORATORY = Laboratory(facts=facts, prepare=prepare, evaluate=evaluate, report=report)

if __name__ == "__main__":
    kind = SEARCH if os.environ.get("TRIVIAL_KIND") == "search" else GRID
    sys.exit(main(kind, laboratory=LABORATORY))
