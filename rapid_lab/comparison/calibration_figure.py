"""The teacher's reliability diagram before and after its temperature was fitted."""

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from rapid_lab.comparison import style
from rapid_lab.comparison.records import Details, Drawing, Setup
from rapid_lab.comparison.style import Missing
from rapid_lab.harmless import file_name

KIND = "Calibration of the teacher"
STATES = {"before": ("#8a8f98", "diamond"), "after": ("#0072b2", "circle")}


def calibrations(setups: Sequence[Setup], details: Details) -> list[Drawing | Missing]:
    """One figure for each teacher that any student learned from."""
    found: dict[str, str] = {}
    for setup in setups:
        for student in (student for students in setup.students.values() for student in students):
            if student.teacher_id not in ("", "none"):
                found.setdefault(student.teacher_id, setup.dataset)
    if not found:
        return [Missing(KIND, "", "no student here had a teacher")]
    return [_calibration(teacher_id, dataset, details) for teacher_id, dataset in found.items()]


def _calibration(teacher_id: str, dataset: str, details: Details) -> Drawing | Missing:
    document = details.calibration.get(teacher_id)
    where = f"{dataset}, teacher {teacher_id[:8]}"
    if document is None:
        return Missing(KIND, where, "the teacher's run has no calibration document in the store")
    grid = make_subplots(2, 1, shared_xaxes=True, row_heights=[0.74, 0.26], vertical_spacing=0.05)
    figure = style.dressed(grid, height=520)
    ideal = {"color": style.FAINT, "width": 1.5, "dash": "dot"}
    figure.add_scatter(x=[0, 1], y=[0, 1], mode="lines", line=ideal, name="ideal", hoverinfo="skip", row=1, col=1)
    for state in STATES:
        _add_state(figure, state, document[state], int(document["bins"]))
    figure.update_xaxes(range=[0, 1], title_text="Confidence: mean probability of the predicted class", row=2)
    figure.update_xaxes(range=[0, 1], row=1)
    figure.update_yaxes(title_text="Share that was right", range=[0, 1.02], row=1)
    figure.update_yaxes(title_text="Examples", type="log", dtick=1, row=2)
    figure.update_layout(barmode="group", bargap=0.1)
    before, after = document["before"], document["after"]
    caption = (
        f"{KIND}: {where}. A point on the dotted line is a bin whose examples are right as often as the teacher is "
        f"confident. One temperature ({document['temperature']:.4f}) moves the expected calibration error from "
        f"{before['ece']:.4f} to {after['ece']:.4f} and the negative log likelihood from {before['nll']:.4f} to "
        f"{after['nll']:.4f}. It was fitted on this {document['split']} split, so the figure shows the fit, not what "
        "it would be on new texts; bins with few examples (below) move by chance."
    )
    return Drawing(f"calibration.{file_name(dataset, teacher_id[:8])}", caption, figure)


def _add_state(figure: go.Figure, state: str, values: Mapping[str, Any], bins: int) -> None:
    colour, symbol = STATES[state]
    full = [place for place, count in enumerate(values["count"]) if count]
    figure.add_scatter(
        x=[values["confidence"][place] for place in full],
        y=[values["accuracy"][place] for place in full],
        customdata=[values["count"][place] for place in full],
        name=state,
        legendgroup=state,
        mode="lines+markers",
        line={"color": colour, "width": 2, "dash": "dash" if state == "before" else "solid"},
        marker={"symbol": symbol, "size": 9},
        hovertemplate="confidence %{x:.3f}, right %{y:.3f}, %{customdata} examples<extra>%{fullData.name}</extra>",
        row=1,
        col=1,
    )
    figure.add_bar(
        x=[(place + 0.5) / bins for place in full],
        y=[values["count"][place] for place in full],
        name=state,
        legendgroup=state,
        showlegend=False,
        marker={"color": colour},
        hovertemplate="%{y} examples<extra>%{fullData.name}</extra>",
        row=2,
        col=1,
    )
