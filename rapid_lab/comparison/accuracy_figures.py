"""Figures of accuracy on the report split: gains over the CE student, accuracy against time."""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from statistics import fmean

import plotly.graph_objects as go

from rapid_lab.comparison import style
from rapid_lab.comparison.records import Drawing, Setup, Student
from rapid_lab.comparison.style import Missing
from rapid_lab.comparison.wording import method_label
from rapid_lab.harmless import file_name

BASELINE = "student_ce"
UNREAD = "the report split of these runs was not read"


def percent(student: Student) -> float | None:
    """Accuracy on the report split, where it was read."""
    return 100 * student.correct / student.total if student.correct is not None and student.total else None


def percents(students: Iterable[Student]) -> list[float]:
    """Accuracies of those whose report split was read."""
    return [value for value in map(percent, students) if value is not None]


def gains(setup: Setup) -> Drawing | Missing:
    """Bars: mean gain over the CE student of the same seed; points: each seed's gain."""
    kind = "Gains over the CE student"
    found = _gains_by_method(setup)
    if not found:
        missing = BASELINE not in setup.students
        reason = "there is no CE student to compare with" if missing else f"{UNREAD}, or there is no other method"
        return Missing(kind, style.title(setup), reason)
    figure = style.figure(height=110 + 52 * len(found))
    for row, (method, by_seed) in enumerate(found.items()):
        _add_gain(figure, row, method, by_seed)
    figure.update_xaxes(title_text="Accuracy gain (percentage points)", zeroline=True, zerolinewidth=1.5)
    names = [style.marked_label(setup, method) for method in found]
    edges = [len(found) - 0.4, -0.6]
    figure.update_yaxes(tickvals=list(range(len(names))), ticktext=names, range=edges, showgrid=False)
    figure.update_layout(showlegend=False)
    seeds = style.seed_words(seed for by_seed in found.values() for seed in by_seed)
    caption = (
        f"{kind}: {style.title(setup)}. Each point is one seed: the student's accuracy on the report split minus that "
        f"of the CE student with the same seed; the bar is the mean of {seeds}. The figure shows how large the "
        "differences are and how far the seeds agree. It does not show whether a difference would hold for other "
        f"seeds: that is what the tests in the statistics are for.{style.remarks(setup)}"
    )
    return Drawing(f"gains.{file_name(style.title(setup))}", caption, figure)


def _gains_by_method(setup: Setup) -> dict[str, dict[int, float]]:
    baseline = {student.seed: percent(student) for student in setup.students.get(BASELINE, ())}
    found: dict[str, dict[int, float]] = {}
    for method, students in setup.students.items():
        pairs = {student.seed: (percent(student), baseline.get(student.seed)) for student in students}
        by_seed = {seed: own - base for seed, (own, base) in pairs.items() if own is not None and base is not None}
        if by_seed and method != BASELINE:
            found[method] = by_seed
    return found


def _add_gain(figure: go.Figure, row: int, method: str, by_seed: Mapping[int, float]) -> None:
    mean, name = fmean(by_seed.values()), style.plain(method_label(method))
    # Each seed has a lane of its own in the bar: equal gains would hide one another.
    lanes = [row - 0.22 + 0.44 * (place + 0.5) / len(by_seed) for place in range(len(by_seed))]
    bar = {"color": style.translucent(method, 0.35), "line": {"color": style.colour(method), "width": 1.5}}
    shown = {"name": name, "hovertemplate": "mean %{x:+.3f}<extra>%{fullData.name}</extra>"}
    figure.add_bar(y=[row], x=[mean], width=0.62, orientation="h", marker=bar, **shown)
    figure.add_scatter(
        y=lanes,
        x=list(by_seed.values()),
        customdata=list(by_seed),
        name=name,
        mode="markers",
        marker={"color": style.colour(method), "symbol": style.symbol(method), "size": 9},
        hovertemplate="seed %{customdata}: %{x:+.3f}<extra>%{fullData.name}</extra>",
    )


def accuracy_against_time(setup: Setup) -> Drawing | Missing:
    """Small points: each seed; large points: each method's means."""
    kind = "Accuracy against training time"
    timed = {method: [one for one in group if _is_timed(one)] for method, group in setup.students.items()}
    students = [student for group in timed.values() for student in group]
    devices = sorted({student.device for student in students})
    if len(devices) != 1:
        mixed = f"times on {' and '.join(devices)} are not one scale"
        return Missing(kind, style.title(setup), mixed if devices else "these runs lack a time or a report")
    figure = style.figure(height=420)
    for method, group in timed.items():
        _add_timed(figure, style.marked_label(setup, method), method, group)
    figure.update_xaxes(title_text="Training time (minutes)")
    figure.update_yaxes(title_text="Report accuracy (%)")
    machines = sorted({student.hardware or student.device for student in students})
    one = f"All on {machines[0]}." if len(machines) == 1 else f"These runs are from {' and '.join(machines)}."
    caption = (
        f"{kind}: {style.title(setup)}. Small points are single runs, large ones the means of each method. {one} Time "
        "includes whatever else the machine was doing: the figure shows what these runs took, not what a method must "
        f"take.{style.remarks(setup)}"
    )
    return Drawing(f"accuracy-time.{file_name(style.title(setup))}", caption, figure)


def _is_timed(student: Student) -> bool:
    return percent(student) is not None and isfinite(student.train_minutes)


def _add_timed(figure: go.Figure, name: str, method: str, students: Sequence[Student]) -> None:
    if not students:
        return
    minutes, accuracies = [student.train_minutes for student in students], percents(students)
    shown = "%{y:.3f} % in %{x:.2f} min<extra>%{fullData.name}</extra>"
    marker = {"color": style.colour(method), "symbol": style.symbol(method)}
    figure.add_scatter(
        x=minutes,
        y=accuracies,
        customdata=[student.seed for student in students],
        name=name,
        legendgroup=style.plain(method),
        showlegend=False,
        mode="markers",
        marker={**marker, "size": 9, "opacity": 0.45},
        hovertemplate="seed %{customdata}: " + shown,
    )
    figure.add_scatter(
        x=[fmean(minutes)],
        y=[fmean(accuracies)],
        name=name,
        legendgroup=style.plain(method),
        mode="markers",
        marker={**marker, "size": 14},
        hovertemplate="mean: " + shown,
    )
