"""Figures of the relation budget: what it was spent on, and accuracy against it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import plotly.graph_objects as go

from rapid_lab.comparison import style
from rapid_lab.comparison.accuracy_figures import percent, percents
from rapid_lab.comparison.records import Drawing, Setup, Student
from rapid_lab.comparison.relevance import is_sampled, relevant_settings
from rapid_lab.comparison.style import Missing
from rapid_lab.comparison.wording import method_label
from rapid_lab.harmless import file_name
from rapid_lab.objectives import METHODS

# From dark to light: pairs seen for the first time in their batch, and pairs drawn again.
PARTS = {
    "main, distinct": ("#0072b2", ""),
    "main, drawn again": ("#8cc4ea", "/"),
    "pilot, distinct": ("#d55e00", ""),
    "pilot, drawn again": ("#f2b48a", "/"),
}


def allocation(setup: Setup) -> Drawing | Missing:
    """Bars that add up to the pairs evaluated in a batch, split into main and pilot, distinct and drawn again."""
    kind = "Budget allocation"
    means = {method: _means(students) for method, students in setup.students.items()}
    means = {method: found for method, found in means.items() if found.get("main", 0) + found.get("pilot", 0) > 0}
    if not means:
        return Missing(kind, style.title(setup), "no run of it evaluated a relation")
    names = [style.marked_label(setup, method) for method in means]
    figure = style.figure(height=130 + 48 * len(means))
    for part, (colour, pattern) in PARTS.items():
        _add_part(figure, names, part, [_part(found, part) for found in means.values()], colour, pattern)
    _add_union(figure, names, [found.get("unique_union") for found in means.values()])
    figure.update_layout(barmode="stack", legend_traceorder="normal")
    figure.update_xaxes(title_text="Pairs evaluated in a batch (mean)", rangemode="tozero")
    figure.update_yaxes(autorange="reversed", showgrid=False)
    unspent = [method_label(method) for method in setup.students if method not in means]
    without = f" {' and '.join(unspent)} evaluate no relations and are not shown." if unspent else ""
    caption = (
        f"{kind}: {style.title(setup)}. A bar is what one batch evaluated on average over all steps and seeds: pilots, "
        "which only shape the proposal, and main pairs, which enter the loss. A pair drawn again costs budget and "
        "brings no new pair; the diamond marks the distinct pairs of both kinds together. The figure shows what was "
        f"spent, not what it was worth.{without}{style.remarks(setup)}"
    )
    return Drawing(f"allocation.{file_name(style.title(setup))}", caption, figure)


def _means(students: Sequence[Student]) -> dict[str, float]:
    """Pairs in a batch, over all steps of all seeds."""
    steps = sum(student.steps for student in students)
    names = {name for student in students for name in student.relations}
    return {name: sum(student.relations.get(name, 0) for student in students) / steps for name in names if steps}


def _part(means: Mapping[str, float], part: str) -> float:
    use, _, is_new = part.partition(", ")
    distinct = means.get(f"unique_{use}", 0.0)
    return distinct if is_new == "distinct" else means.get(use, 0.0) - distinct


def _add_part(
    figure: go.Figure, names: Sequence[str], part: str, values: Sequence[float], colour: str, pattern: str
) -> None:
    figure.add_bar(
        y=list(names),
        x=list(values),
        name=part,
        orientation="h",
        marker={
            "color": colour,
            "pattern": {"shape": pattern, "fillmode": "overlay", "fgcolor": "#4d5763", "size": 6, "solidity": 0.12},
        },
        hovertemplate="%{x:.3f}<extra>%{fullData.name}</extra>",
    )


def _add_union(figure: go.Figure, names: Sequence[str], values: Sequence[float | None]) -> None:
    figure.add_scatter(
        y=list(names),
        x=list(values),
        name="distinct altogether",
        mode="markers",
        marker={"symbol": "diamond", "size": 12, "color": "#ffffff", "line": {"color": "#1d232b", "width": 1.5}},
        hovertemplate="%{x:.3f}<extra>%{fullData.name}</extra>",
    )


def accuracy_against_budget(setups: Sequence[Setup]) -> list[Drawing | Missing]:
    """One figure for each dataset: a line for each method over the setups that differ in the budget alone."""
    by_data: dict[tuple[str, str, str], list[Setup]] = defaultdict(list)
    for setup in setups:
        by_data[_ground(setup)].append(setup)
    return [_against_budget(group) for group in by_data.values()]


def _ground(setup: Setup) -> tuple[str, str, str]:
    first = max((student for group in setup.students.values() for student in group), key=_teacher, default=None)
    return (setup.dataset, first.data_hash, _teacher(first)) if first else (setup.dataset, "", "")


def _teacher(student: Student) -> str:
    return "" if student.teacher_id == "none" else student.teacher_id


def _against_budget(setups: Sequence[Setup]) -> Drawing | Missing:
    kind, dataset = "Accuracy against relation budget", setups[0].dataset
    lines = {key: points for key, points in _lines(setups).items() if len(points) > 1}
    if not lines:
        reason = "no method was run, and its report split read, at two budgets with all else equal"
        return Missing(kind, dataset, reason)
    figure = style.figure(height=420)
    budgets = sorted({budget for points in lines.values() for budget in points})
    for method, students in _without_budget(setups).items():
        _add_level(figure, method, students, budgets)
    named: set[str] = set()
    for (method, _), points in lines.items():
        _add_line(figure, method, points, is_named=method not in named)
        named.add(method)
    ticks = {"tickvals": budgets, "ticktext": [str(budget) for budget in budgets]}
    figure.update_xaxes(title_text="Relation budget (pairs in a batch, pilots included)", type="log", **ticks)
    figure.update_yaxes(title_text="Report accuracy (%)")
    teacher = _ground(setups[0])[2]
    caption = (
        f"{kind}: {dataset}. Lines join the means of runs that differ in the budget and seed alone; points are single "
        "runs. Level lines are methods that spend no relations. Budgets that were not run are not shown to lie on the "
        "lines, and nothing here says that neighbouring points differ by more than chance."
    )
    return Drawing(f"accuracy-budget.{file_name(dataset, teacher[:8])}", caption, figure)


def _spends(method: str, students: Iterable[Student]) -> bool:
    """Whether the budget means anything to the method."""
    if method in METHODS:
        return is_sampled(method)
    return any(student.relations.get("main") for student in students)


def _held(student: Student) -> frozenset[tuple[str, str]]:
    """What must agree for two budgets of a method to be joined: all settings that concern it but the budget."""
    settings = student.settings
    concern = relevant_settings(student.method) if student.method in METHODS else tuple(settings)
    return frozenset((name, settings.get(name, "")) for name in concern if name not in ("relation_budget", "seed"))


def _lines(setups: Iterable[Setup]) -> dict[tuple[str, frozenset[Any]], dict[int, list[Student]]]:
    lines: dict[tuple[str, frozenset[Any]], dict[int, list[Student]]] = defaultdict(lambda: defaultdict(list))
    for setup in setups:
        for method, students in setup.students.items():
            for student in students if _spends(method, students) else ():
                budget = student.settings.get("relation_budget", "")
                if percent(student) is not None and budget.isdecimal():
                    lines[method, _held(student)][int(budget)].append(student)
    return lines


def _without_budget(setups: Iterable[Setup]) -> dict[str, list[Student]]:
    """The CE student and KD stand in many setups: each run counts once."""
    found: dict[str, dict[str, Student]] = defaultdict(dict)
    for setup in setups:
        for method, students in setup.students.items():
            if not _spends(method, students):
                found[method].update({one.run_id: one for one in students if percent(one) is not None})
    return {method: list(students.values()) for method, students in found.items() if students}


def _add_level(figure: go.Figure, method: str, students: Sequence[Student], budgets: Sequence[int]) -> None:
    mean = fmean(percents(students))
    figure.add_scatter(
        x=[budgets[0], budgets[-1]],
        y=[mean, mean],
        name=style.plain(method_label(method)),
        mode="lines",
        line={"color": style.colour(method), "dash": style.dash(method), "width": 2},
        hovertemplate="mean %{y:.3f} %, no relations<extra>%{fullData.name}</extra>",
    )


def _add_line(figure: go.Figure, method: str, points: Mapping[int, Sequence[Student]], *, is_named: bool) -> None:
    budgets = sorted(points)
    shared = {"name": style.plain(method_label(method)), "legendgroup": style.plain(method)}
    marker = {"color": style.colour(method), "symbol": style.symbol(method)}
    runs = [(budget, student) for budget in budgets for student in points[budget]]
    figure.add_scatter(
        x=[budget for budget, _ in runs],
        y=percents(student for _, student in runs),
        customdata=[student.seed for _, student in runs],
        mode="markers",
        showlegend=False,
        marker={**marker, "size": 8, "opacity": 0.4},
        hovertemplate="seed %{customdata}, budget %{x}: %{y:.3f} %<extra>%{fullData.name}</extra>",
        **shared,
    )
    figure.add_scatter(
        x=budgets,
        y=[fmean(percents(points[budget])) for budget in budgets],
        mode="lines+markers",
        showlegend=is_named,
        line={"color": style.colour(method), "dash": style.dash(method), "width": 2},
        marker={**marker, "size": 10},
        hovertemplate="mean at budget %{x}: %{y:.3f} %<extra>%{fullData.name}</extra>",
        **shared,
    )
