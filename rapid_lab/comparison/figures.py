"""The figures of a comparison: every one there is data for, and a sentence for each there is none for."""

from collections import defaultdict
from collections.abc import Sequence

from rapid_lab.comparison.accuracy_figures import accuracy_against_time, gains
from rapid_lab.comparison.budget_figures import accuracy_against_budget, allocation
from rapid_lab.comparison.calibration_figure import calibrations
from rapid_lab.comparison.records import Details, Drawing, Section, Setup
from rapid_lab.comparison.style import Missing
from rapid_lab.comparison.training_figures import proposal_health, selection_curves


def figures_section(setups: Sequence[Setup], details: Details) -> Section:
    """Every figure the setups have data for, kind by kind, and a sentence for each they have none for."""
    made: list[Drawing | Missing] = [
        *(gains(setup) for setup in setups),
        *accuracy_against_budget(setups),
        *(accuracy_against_time(setup) for setup in setups),
        *(allocation(setup) for setup in setups),
        *(selection_curves(setup, details) for setup in setups),
        *(proposal_health(setup, details) for setup in setups),
        *calibrations(setups, details),
    ]
    missing = [one for one in made if isinstance(one, Missing)]
    drawings = _distinct([one for one in made if isinstance(one, Drawing)])
    return Section("Figures", paragraphs=_sentences(missing), drawings=drawings)


def _distinct(drawings: Sequence[Drawing]) -> tuple[Drawing, ...]:
    """Names are files' names: labels that differ in punctuation alone get a number."""
    seen: dict[str, int] = defaultdict(int)
    named = []
    for drawing in drawings:
        seen[drawing.name] += 1
        number = seen[drawing.name]
        name = drawing.name if number == 1 else f"{drawing.name}-{number}"
        named.append(Drawing(name, drawing.caption, drawing.figure))
    return tuple(named)


def _sentences(missing: Sequence[Missing]) -> tuple[str, ...]:
    """One sentence for each kind and reason, naming all the places."""
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in missing:
        places[one.kind, one.reason].append(one.where)
    return tuple(
        f"Not drawn: {kind[0].lower()}{kind[1:]}{_listed(wheres)}, since {reason}."
        for (kind, reason), wheres in places.items()
    )


def _listed(places: Sequence[str]) -> str:
    named = [place for place in places if place]
    return f" ({'; '.join(named)})" if named else ""
