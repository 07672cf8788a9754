"""What a plan will cost: relations exactly, from sizes alone; time from runs the store has already."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from rapid_lab import names
from rapid_lab.accounting import run_relations
from rapid_lab.config import Value
from rapid_lab.errors import SettingError
from rapid_lab.sweep.plan import Plan
from rapid_lab.sweep.space import Interval


@dataclass(frozen=True)
class Cost:
    """Relations of the whole plan, from the cheapest to the dearest it can be, and seconds where they are known."""

    num_runs: int
    lowest_relations: int
    highest_relations: int
    seconds: float | None

    @property
    def is_exact(self) -> bool:
        """Whether the relations follow from the plan alone."""
        return self.lowest_relations == self.highest_relations


def plan_cost(plan: Plan, num_trials: int) -> Cost:
    """The cost of so many trials."""
    points = plan.points()[:num_trials]
    rest = num_trials - len(points)
    enqueued = sum(run_relations(plan.resolved(point), plan.data.train_examples) for point in points)
    low, high = (run_relations(plan.resolved(end), plan.data.train_examples) for end in _ends(plan))
    num_runs = num_trials * len(plan.seeds)
    seconds = known_seconds(plan)
    return Cost(
        num_runs,
        len(plan.seeds) * (enqueued + rest * low),
        len(plan.seeds) * (enqueued + rest * high),
        None if seconds is None else seconds * num_runs,
    )


def _ends(plan: Plan) -> list[Mapping[str, Value]]:
    """The settings with the fewest and the most relations: of all settings only the budget changes their number."""
    budget = plan.axes.get("relation_budget")
    if isinstance(budget, Interval):
        return [{"relation_budget": int(budget.low)}, {"relation_budget": int(budget.high)}]
    values = budget.values if budget is not None else (None,)
    points = [{} if value is None else {"relation_budget": value} for value in values]
    found = sorted(points, key=lambda point: run_relations(plan.resolved(point), plan.data.train_examples))
    return [found[0], found[-1]]


def known_seconds(plan: Plan) -> float | None:
    """The median duration of finished runs of this data, epochs and batch size; None where the store has none."""
    from rapid_lab.tracking.door import client
    from rapid_lab.tracking.store import existing_store

    try:
        existing_store()
    except SettingError:
        return None
    settings = plan.resolved(plan.points()[0] if plan.points() else {})
    query = " AND ".join(
        [
            f"tags.`{names.KIND}` = '{names.STUDENT}'",
            f"tags.`{names.COMPLETE}` = 'true'",
            f"params.`{names.PARAM_PREFIX}epochs` = '{settings.epochs}'",
            f"params.`{names.PARAM_PREFIX}batch_size` = '{settings.batch_size}'",
        ]
    )
    store = client()
    experiments = [experiment.experiment_id for experiment in store.search_experiments()]
    runs = store.search_runs(experiments, query, max_results=200)
    minutes = [
        run.data.metrics[names.TRAIN_MINUTES]
        for run in runs
        if run.data.tags.get(names.DATASET) == plan.data.name and names.TRAIN_MINUTES in run.data.metrics
    ]
    return 60 * statistics.median(minutes) if minutes else None
