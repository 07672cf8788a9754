"""How figures look: one colour, symbol and dash for each method, a light and a dark template, text made harmless."""

import html
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from rapid_lab.comparison.records import Setup
from rapid_lab.comparison.wording import method_label

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
# The palette of Okabe and Ito, which readers with any common colour blindness can tell apart; grey is the baseline.
COLOURS = {
    "student_ce": "#8a8f98",
    "kd": "#e69f00",
    "uniform": "#56b4e9",
    "gated": "#009e73",
    "static": "#cc79a7",
    "rapid": "#d55e00",
    "exact": "#0072b2",
}
OTHER_COLOURS = ("#a6761d", "#7b6fd0", "#66a61e", "#1b9e9e", "#c2528b")
# Colour is never alone: a method has its own symbol and dash too.
SYMBOLS = {
    "student_ce": "square",
    "kd": "diamond",
    "uniform": "triangle-up",
    "gated": "triangle-down",
    "static": "pentagon",
    "rapid": "circle",
    "exact": "x",
}
DASHES = {"student_ce": "dot", "kd": "dash", "uniform": "dashdot", "gated": "longdash", "static": "longdashdot"}
FAINT = "rgba(128, 132, 140, 0.45)"
MARK = "\u2020"


def colour(method: str) -> str:
    """The method's one colour; a method unknown here gets one by its name, the same in every figure."""
    return COLOURS.get(method) or OTHER_COLOURS[zlib.crc32(method.encode()) % len(OTHER_COLOURS)]


def translucent(method: str, opacity: float) -> str:
    """The method's colour with what is behind it shining through."""
    red, green, blue = (int(colour(method)[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {opacity})"


def symbol(method: str) -> str:
    """The method's marker."""
    return SYMBOLS.get(method, "hexagon")


def dash(method: str) -> str:
    """The method's line."""
    return DASHES.get(method, "solid")


def plain(text: str) -> str:
    """For plotly, which reads tags and links in every text: shown as it is written."""
    return html.escape(text, quote=False)


def marked_label(setup: Setup, method: str) -> str:
    """The method's name for plotly, with a dagger where its cell needs a remark."""
    return plain(method_label(method)) + (f" {MARK}" if setup.marks.get(method) else "")


def remarks(setup: Setup) -> str:
    """The sentences behind the daggers and about methods that are not drawn; empty where there are none."""
    marks = {method: setup.marks[method] for method in setup.students if setup.marks.get(method)}
    marked = ", ".join(f"{method_label(method)} ({'; '.join(said)})" for method, said in marks.items())
    unpaired = ", ".join(map(method_label, setup.unpaired))
    return (f" {MARK} needs a remark: {marked}." if marked else "") + (
        f" Without some of the seeds, and so not drawn: {unpaired}." if unpaired else ""
    )


def title(setup: Setup) -> str:
    """The setup by name, its dataset always in it."""
    return setup.label if setup.dataset in setup.label else ", ".join(filter(None, (setup.dataset, setup.label)))


def seed_words(seeds: Iterable[int]) -> str:
    """The seeds as a reader says them."""
    found = sorted(set(seeds))
    return f"seed {found[0]}" if len(found) == 1 else f"{len(found)} seeds ({', '.join(map(str, found))})"


@dataclass(frozen=True)
class Missing:
    """A figure that has no data: its kind, the setup, and why."""

    kind: str
    where: str
    reason: str


def _template(ink: str, soft: str, grid: str, line: str, hover: str) -> dict[str, Any]:
    axis = {
        "gridcolor": grid,
        "linecolor": line,
        "zerolinecolor": line,
        "tickcolor": line,
        "tickfont": {"color": soft, "size": 12},
        "title": {"font": {"color": soft, "size": 13}, "standoff": 10},
        "zeroline": False,
        "automargin": True,
    }
    layout = {
        "font": {"family": FONT, "color": ink, "size": 13},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "xaxis": axis,
        "yaxis": axis,
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"},
        "hoverlabel": {"bgcolor": hover, "bordercolor": line, "font": {"family": FONT, "color": ink, "size": 13}},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": line, "activecolor": ink},
        "annotationdefaults": {"font": {"color": soft}},
    }
    return {"layout": layout}


LIGHT = _template(ink="#1d232b", soft="#4d5763", grid="#e6e9ee", line="#aab2bd", hover="#ffffff")
DARK = _template(ink="#e8eaee", soft="#aeb6c2", grid="#2b323c", line="#5b6573", hover="#1d232b")
# Checked once: plotly takes a hundred times longer to put a dictionary into a figure.
_LIGHT = go.layout.Template(LIGHT)


def figure(height: int) -> go.Figure:
    """An empty figure in the light template; the page that shows it changes template with the reader's colours."""
    return dressed(go.Figure(), height)


def dressed(made: go.Figure, height: int) -> go.Figure:
    """The figure with the house's template, margins and height."""
    made.update_annotations(font_size=13)
    margin = {"l": 8, "r": 12, "t": 24, "b": 8}
    return made.update_layout(template=_LIGHT, height=height, margin=margin, bargap=0.35)
