"""A study's plots: Optuna's own, and a grid's curve over the relation budget; each a page that needs no network."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import optuna.visualization as visualization
import plotly.graph_objects as graphs
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from plotly.subplots import make_subplots

from rapid_lab.objectives import METHODS
from rapid_lab.sweep.outcome import Row, complete
from rapid_lab.sweep.plan import Plan
from rapid_lab.sweep.space import OBJECTIVES

MIN_TRIALS = 2
# Told apart by everybody who sees colours at all.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#f0e442")


def study_pages(plan: Plan, study: Study, rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """The name and text of every page that the trials so far allow."""
    if len(complete(rows)) < MIN_TRIALS:
        return
    for name, draw in _drawings(plan, study, rows):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna's about few trials: their number is in the title
            try:
                figure = draw()
            except (ValueError, RuntimeError, ZeroDivisionError):
                continue  # Optuna's word for trials that cannot be told apart: equal values, one setting
        yield f"plots/{name}.html", figure.to_html(include_plotlyjs=True, full_html=True)


def _drawings(plan: Plan, study: Study, rows: Sequence[Row]) -> Iterator[tuple[str, Callable[[], graphs.Figure]]]:
    for index, name in enumerate(plan.objectives):
        suffix = f"-{name}" if len(plan.objectives) > 1 else ""
        target = {"target": _value_of(index)} if len(plan.objectives) > 1 else {}
        options: dict[str, Any] = {"target_name": OBJECTIVES[name].label, **target}
        yield f"history{suffix}", partial(visualization.plot_optimization_history, study, **options)
        yield f"importances{suffix}", partial(_importances, study, options)
        yield f"slice{suffix}", partial(visualization.plot_slice, study, **options)
        if len(plan.axes) > 1:
            yield f"contour{suffix}", partial(visualization.plot_contour, study, **options)
        yield f"parallel{suffix}", partial(visualization.plot_parallel_coordinate, study, **options)
    if len(plan.objectives) > 1:
        labels = [OBJECTIVES[name].label for name in plan.objectives]
        yield "pareto", partial(visualization.plot_pareto_front, study, target_names=labels)
    if "relation_budget" in plan.axes and plan.sweep.is_grid:
        yield "budget", partial(budget_curve, rows)


def _value_of(index: int) -> Callable[[FrozenTrial], float]:
    return lambda trial: float(trial.values[index])


def _importances(study: Study, options: dict[str, Any]) -> graphs.Figure:
    evaluator = PedAnovaImportanceEvaluator()
    figure = visualization.plot_param_importances(study, evaluator=evaluator, **options)
    count = len(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)))
    return figure.update_layout(title=f"Importances for {options['target_name']}: PED-ANOVA, {count} trials")


def budget_curve(rows: Sequence[Row]) -> graphs.Figure:
    """Selection accuracy and time over the relations a batch may evaluate, a line for each method and batch size."""
    figure = make_subplots(
        rows=2, cols=1, shared_xaxes=True, subplot_titles=("selection accuracy, %", "training minutes a seed")
    )
    done = sorted(complete(rows), key=lambda row: row["effective_budget"])
    kinds = dict.fromkeys((row["params"].get("method"), row["batch_size"]) for row in done)
    has_sizes = len({size for _, size in kinds}) > 1
    for index, (method, size) in enumerate(kinds):
        own = [row for row in done if (row["params"].get("method"), row["batch_size"]) == (method, size)]
        label = (METHODS[method].label if method else "trials") + (f", batch of {size}" if has_sizes else "")
        for line, (name, scale) in enumerate((("accuracy", 100), ("minutes", 1)), start=1):
            trace = graphs.Scatter(
                x=[row["effective_budget"] for row in own],
                y=[scale * row[name] for row in own],
                text=[f"trial {row['trial']}, {row['relations']:.1f} relations a batch" for row in own],
                name=label,
                legendgroup=str(index),
                showlegend=line == 1,
                mode="lines+markers",
                marker={"symbol": index},
                line={"color": COLOURS[index % len(COLOURS)]},
            )
            figure.add_trace(trace, row=line, col=1)
    figure.update_xaxes(type="log", title_text="relations a batch may evaluate, K", row=2, col=1)
    return figure.update_layout(title="Accuracy and time over the relation budget")
