"""What a study has found: its trials as rows, the best of them, the front, and how it is shown."""

import csv
import io
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from rapid_lab.cli.tables import text_table
from rapid_lab.config import SETTINGS, written_config
from rapid_lab.method.budget import effective_budget
from rapid_lab.method.relations import num_pairs
from rapid_lab.objectives import METHODS
from rapid_lab.sweep.plan import Plan
from rapid_lab.sweep.space import OBJECTIVES
from rapid_lab.sweep.study import FAULT, MEASURES, POINT, replaced_numbers

Row = dict[str, Any]
SHOWN = 10


def trial_rows(plan: Plan, study: Study) -> list[Row]:
    """Every trial that nobody stands in for, in the order of the plan."""
    trials = study.get_trials(deepcopy=False)
    replaced = replaced_numbers(trials)
    ended = [trial for trial in trials if trial.state.is_finished() and trial.number not in replaced]
    ended.sort(key=lambda trial: trial.user_attrs.get(POINT, trial.number))
    return [_row(plan, trial) for trial in ended if trial.state != TrialState.FAIL or FAULT in trial.user_attrs]


def _row(plan: Plan, trial: FrozenTrial) -> Row:
    measures = trial.user_attrs.get(MEASURES, {})
    row: Row = {
        "trial": trial.number,
        "state": trial.state.name,
        "params": trial.params,
        **{name: measures.get(name) for name in ("accuracy", "nll", "relations", "main", "pilot", "minutes")},
        "accuracies": measures.get("seeds", {}).get("accuracy", []),
        "run_id": measures.get("run_id"),
        "config_ids": measures.get("configs", []),
        "run_ids": measures.get("runs", []),
        "fault": trial.user_attrs.get(FAULT),
    }
    settings = plan.resolved(trial.params) if set(plan.axes) <= set(trial.params) else None
    if settings and METHODS[settings.method].has_relations:
        cap = settings.relation_cap
        row["batch_size"] = settings.batch_size
        row["effective_budget"] = effective_budget(
            settings.batch_size, relation_budget=settings.relation_budget, relation_cap=cap
        )
    return row


def complete(rows: Sequence[Row]) -> list[Row]:
    """The rows whose trials were carried out on every seed."""
    return [row for row in rows if row["state"] == "COMPLETE"]


def best_row(plan: Plan, rows: Sequence[Row]) -> Row | None:
    """The best by the first objective; ties by lower NLL, then by the earlier trial, as epochs are selected."""
    name = plan.objectives[0]
    sign = -1 if OBJECTIVES[name].is_maximised else 1
    return min(complete(rows), key=lambda row: (sign * row[name], row["nll"], row["trial"]), default=None)


def front(plan: Plan, rows: Sequence[Row]) -> list[Row]:
    """The trials that no other beats in both objectives, from the first objective's best on."""
    first, second = plan.objectives
    costs = [(_cost(first, row), _cost(second, row), row) for row in complete(rows)]
    found: list[Row] = []
    lowest = math.inf
    for _, cost, row in sorted(costs, key=lambda entry: entry[:2]):
        if cost < lowest:
            lowest = cost
            found.append(row)
    return found


def _cost(name: str, row: Row) -> float:
    value = float(row[name])
    return -value if OBJECTIVES[name].is_maximised else value


def hypervolume(points: Sequence[tuple[float, float]], reference: tuple[float, float]) -> float:
    """The area that points to be minimised dominate below the reference.

    >>> hypervolume([(0.0, 2.0), (1.0, 1.0), (2.0, 2.0)], (3.0, 3.0))
    5.0
    """
    area, highest = 0.0, reference[1]
    for x, y in sorted(points):
        if x < reference[0] and y < highest:
            area += (reference[0] - x) * (highest - y)
            highest = y
    return area


def front_share(plan: Plan, rows: Sequence[Row]) -> float | None:
    """The share of the box from nothing right at the cost of all pairs to everything right for free."""
    if plan.objectives != ("accuracy", "relations") or not complete(rows):
        return None
    pairs = max(num_pairs(plan.resolved(row["params"]).batch_size) for row in complete(rows))
    points = [(1 - row["accuracy"], row["relations"] / pairs) for row in complete(rows)]
    return hypervolume(points, (1.0, 1.0))


def best_config(plan: Plan, row: Row) -> str:
    """The settings of a trial as `rapid-lab run --config` takes them; its first seed is that of the file."""
    settings = plan.resolved(row["params"])
    settings = replace(settings, seed=plan.seeds[0], report=SETTINGS["report"].default, log_model=True)  # type: ignore[arg-type]
    return written_config(settings)


def rows_csv(plan: Plan, rows: Sequence[Row]) -> str:
    """The trials as a table for other programs."""
    names = ["trial", "state", *plan.axes, "accuracy", "nll", "relations", "main", "pilot", "minutes", "run_id"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([row["params"].get(name) if name in plan.axes else row[name] for name in names])
    return text.getvalue()


def shown_rows(plan: Plan, rows: Sequence[Row]) -> list[Row]:
    """A grid whole, in the order of its axes; of a search the front or the best."""
    done = complete(rows)
    if plan.sweep.is_grid:
        orders = {name: axis.document() for name, axis in plan.axes.items()}
        return sorted(done, key=lambda row: [orders[name].index(row["params"][name]) for name in _order(plan)])  # type: ignore[union-attr]
    if len(plan.objectives) == 2:
        return front(plan, done)
    name = plan.objectives[0]
    return sorted(done, key=lambda row: (_cost(name, row), row["nll"], row["trial"]))[:SHOWN]


def _order(plan: Plan) -> list[str]:
    return sorted(plan.axes, key=lambda name: ("batch_size", "method").index(name) if name != "relation_budget" else 9)


def rendered(plan: Plan, rows: Sequence[Row], reports: Mapping[int, Mapping[str, Any]]) -> str:
    """The table a person reads."""
    header = [
        "trial",
        *plan.axes,
        "selection %",
        "+-",
        "NLL",
        "relations",
        "minutes",
        *(["report %"] if reports else []),
    ]
    cells = []
    for row in shown_rows(plan, rows):
        report = reports.get(row["trial"])
        cells.append(
            [str(row["trial"]), *(_written(row, name) for name in plan.axes)]
            + [f"{100 * row['accuracy']:.3f}", f"{100 * statistics.pstdev(row['accuracies']):.3f}"]
            + [f"{row['nll']:.4f}", f"{row['relations']:.3f}", f"{row['minutes']:.2f}"]
            + ([f"{100 * report['accuracy']:.3f}" if report else "-"] if reports else [])
        )
    return text_table(header, cells) if cells else "no trial has finished"


def _written(row: Row, name: str) -> str:
    value = row["params"][name]
    if name == "relation_budget" and row.get("effective_budget") != value:
        return f"{value} ({row['effective_budget']})"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
