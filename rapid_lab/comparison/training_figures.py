"""Figures along training: selection accuracy by epoch, and the health of the proposal by step."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from rapid_lab import names
from rapid_lab.comparison import style
from rapid_lab.comparison.records import Details, Drawing, Setup, Student
from rapid_lab.comparison.style import Missing
from rapid_lab.comparison.wording import method_label
from rapid_lab.harmless import file_name

Array = np.ndarray[Any, np.dtype[np.float64]]
# A line on a screen has no room for more; a long run has a hundred times as many steps.
MOST_POINTS = 300
PANELS = {
    names.ESS_FRACTION: "Effective share of the draws",
    names.MAX_CORRECTION: "Largest correction",
    names.RELATIONS_MAIN: "Main pairs in a batch",
    names.RELATIONS_PILOT: "Pilot pairs in a batch",
}


def selection_curves(setup: Setup, details: Details) -> Drawing | Missing:
    """A panel for each method: the seeds' mean and range along the epochs, the other methods' means behind it."""
    kind = "Selection accuracy by epoch"
    curves = {method: _curve(students, details) for method, students in setup.students.items()}
    curves = {method: curve for method, curve in curves.items() if len(curve)}
    if not curves:
        return Missing(kind, style.title(setup), "these runs have no selection accuracy in the store")
    rows = -(-len(curves) // 2)
    titles = [style.marked_label(setup, method) for method in curves]
    grid = make_subplots(
        rows, 2, shared_xaxes="all", shared_yaxes="all", subplot_titles=titles, horizontal_spacing=0.04,
        vertical_spacing=min(0.12, 0.22 / rows),
    )  # fmt: skip
    figure = style.dressed(grid, height=60 + 200 * rows)
    for place, method in enumerate(curves):
        _add_panel(figure, curves, method, row=place // 2 + 1, col=place % 2 + 1)
    figure.update_xaxes(title_text="Epoch", row=rows)
    figure.update_yaxes(title_text="Accuracy (%)", col=1)
    figure.update_layout(showlegend=False)
    caption = (
        f"{kind}: {style.title(setup)}. The line is the mean over {style.seed_words(setup.seeds)}, the band reaches "
        "from the lowest to the highest seed, and the faint lines are the means of the other methods. This is the "
        "selection split, on which each run chose its epoch: it shows how training went, and is no estimate of the "
        f"accuracy on new texts.{style.remarks(setup)}"
    )
    return Drawing(f"selection.{file_name(style.title(setup))}", caption, figure)


def _curve(students: Iterable[Student], details: Details) -> Array:
    """Rows of epoch, mean, lowest, highest."""
    by_epoch: dict[int, list[float]] = defaultdict(list)
    for student in students:
        frame = details.selection.get(student.run_id)
        if frame is not None and {"epoch", "accuracy"} <= set(frame.columns):
            for epoch, accuracy in zip(frame["epoch"], frame["accuracy"], strict=True):
                by_epoch[int(epoch)].append(100 * float(accuracy))
    rows = [(epoch, fmean(values), min(values), max(values)) for epoch, values in sorted(by_epoch.items())]
    return np.array(rows, dtype=np.float64)


def _add_panel(figure: go.Figure, curves: Mapping[str, Array], method: str, *, row: int, col: int) -> None:
    others = [np.vstack([curve[:, :2], [[np.nan, np.nan]]]) for other, curve in curves.items() if other != method]
    if others:
        x, y = np.concatenate(others).T
        faint = {"color": style.FAINT, "width": 1}
        figure.add_scatter(x=x, y=y, mode="lines", line=faint, hoverinfo="skip", row=row, col=col)
    epochs, mean, lowest, highest = curves[method].T
    figure.add_scatter(
        x=np.concatenate([epochs, epochs[::-1]]),
        y=np.concatenate([highest, lowest[::-1]]),
        fill="toself",
        fillcolor=style.translucent(method, 0.22),
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        row=row,
        col=col,
    )
    figure.add_scatter(
        x=epochs,
        y=mean,
        customdata=np.column_stack([lowest, highest]),
        name=style.plain(method_label(method)),
        mode="lines+markers",
        line={"color": style.colour(method), "width": 2.2},
        marker={"symbol": style.symbol(method), "size": 7},
        hovertemplate="epoch %{x}: %{y:.3f} % (%{customdata[0]:.3f} to %{customdata[1]:.3f})"
        "<extra>%{fullData.name}</extra>",
        row=row,
        col=col,
    )


def proposal_health(setup: Setup, details: Details) -> Drawing | Missing:
    """Four panels over the steps: effective sample size, largest correction, main and pilot pairs."""
    kind = "Proposal health"
    tables = {method: _step_tables(students, details) for method, students in setup.students.items()}
    tables = {method: found for method, found in tables.items() if found}
    if not tables:
        return Missing(kind, style.title(setup), "no run with relations has its step table in the store")
    grid = make_subplots(len(PANELS), 1, shared_xaxes=True, subplot_titles=list(PANELS.values()), vertical_spacing=0.06)
    figure = style.dressed(grid, height=720)
    for row, column in enumerate(PANELS, start=1):
        for method, found in tables.items():
            _add_health(figure, style.marked_label(setup, method), method, binned(found, column), row)
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(legend_y=1.05)
    figure.update_xaxes(title_text="Step", row=len(PANELS))
    longest = max(int(table["step"].max()) for found in tables.values() for table in found)
    binning = f" Each point stands for up to {-(-longest // MOST_POINTS)} steps." if longest > MOST_POINTS else ""
    caption = (
        f"{kind}: {style.title(setup)}. The effective share (effective sample size over main pairs) is 1 when all "
        "draws weigh the same and small when few of them carry the estimate; a large correction is one pair that could "
        f"dominate a step. Lines are means over {style.seed_words(setup.seeds)}, except the largest correction, which "
        f"is the largest of them all.{binning} The figure shows whether the proposal stayed usable, not whether it "
        f"lowered the variance.{style.remarks(setup)}"
    )
    return Drawing(f"health.{file_name(style.title(setup))}", caption, figure)


def _step_tables(students: Iterable[Student], details: Details) -> list[Any]:
    """The step tables of the runs that evaluated relations."""
    found = [details.steps.get(student.run_id) for student in students if student.relations.get("main")]
    return [table for table in found if table is not None and len(table) and "step" in table.columns]


def binned(tables: Sequence[Any], column: str) -> tuple[Array, Array]:
    """Steps and values of all tables together in at most MOST_POINTS bins: means, and of corrections the largest."""
    tables = [table for table in tables if column in table.columns]
    if not tables:
        return np.empty(0), np.empty(0)
    steps = np.concatenate([table["step"].to_numpy(np.float64) for table in tables])
    values = np.concatenate([table[column].to_numpy(np.float64) for table in tables])
    steps, values = steps[np.isfinite(values)], values[np.isfinite(values)]
    width = max(1, -(-int(steps.max(initial=0)) // MOST_POINTS))
    _, bins = np.unique((steps - 1) // width, return_inverse=True)
    counts = np.bincount(bins)
    centres = np.bincount(bins, steps) / counts
    if column == names.MAX_CORRECTION:
        largest = np.full(len(counts), -np.inf)
        np.maximum.at(largest, bins, values)
        return centres, largest
    return centres, np.bincount(bins, values) / counts


def _add_health(figure: go.Figure, name: str, method: str, line: tuple[Array, Array], row: int) -> None:
    figure.add_scatter(
        x=np.round(line[0], 1),
        # Six digits are more than a screen shows, and a third of the file's size.
        y=[float(f"{value:.6g}") for value in line[1]],
        name=name,
        legendgroup=style.plain(method),
        showlegend=row == 1,
        mode="lines",
        line={"color": style.colour(method), "dash": style.dash(method), "width": 1.8},
        hovertemplate="step %{x:.0f}: %{y:.4g}<extra>%{fullData.name}</extra>",
        row=row,
        col=1,
    )
