"""What a setup is called: its dataset, and only what tells it from the other setups of that dataset."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from rapid_lab.comparison.records import Student
from rapid_lab.comparison.relevance import TEACHER_SETTINGS, needs_teacher, relevant_settings
from rapid_lab.config import DATASETS, SETTINGS

SHORT = 8  # hexadecimal digits of a hash that a person reads


def labelled(anchors: Sequence[Student]) -> list[tuple[str, Student]]:
    """The anchors of all setups in the order of a report, each with its setup's name."""
    datasets: dict[str, list[Student]] = defaultdict(list)
    for anchor in anchors:
        datasets[anchor.dataset].append(anchor)
    return [pair for name in sorted(datasets, key=_dataset_place) for pair in _of_dataset(name, datasets[name])]


def _of_dataset(dataset: str, anchors: list[Student]) -> list[tuple[str, Student]]:
    settings = [name for name in SETTINGS if _differs(name, anchors)]
    has_several_hashes = len({anchor.data_hash for anchor in anchors}) > 1
    ordered = sorted(
        anchors, key=lambda anchor: (anchor.data_hash, *(natural(_value(anchor, name)) for name in settings))
    )
    labels = []
    for anchor in ordered:
        said = [f"{name} {value}" for name in settings if (value := _value(anchor, name)) is not None]
        data = [f"data {anchor.data_hash[:SHORT]}"] if has_several_hashes else []
        labels.append(", ".join([dataset, *data, *said]))
    counts = Counter(labels)
    # The id of a teacher tells a reader nothing, so it is said only where nothing else tells two setups apart.
    return [
        (f"{label}, teacher {anchor.teacher_id[:SHORT]}" if counts[label] > 1 else label, anchor)
        for label, anchor in zip(labels, ordered, strict=True)
    ]


def _differs(name: str, anchors: Sequence[Student]) -> bool:
    return len({value for anchor in anchors if (value := _value(anchor, name)) is not None}) > 1


def _value(anchor: Student, name: str) -> str | None:
    """The value of a setting that concerns the anchor's method; None where it does not."""
    is_teachers = name in TEACHER_SETTINGS and needs_teacher(anchor.method)
    return anchor.settings.get(name) if is_teachers or name in relevant_settings(anchor.method) else None


def natural(text: str | None) -> tuple[float, str]:
    """A sorting key: numbers by their size, before words.

    >>> sorted(["256", "none", "64", "1e-5"], key=natural)
    ['1e-5', '64', '256', 'none']
    """
    try:
        return (float(text or "inf"), text or "")
    except ValueError:
        return (float("inf"), text or "")


def _dataset_place(dataset: str) -> tuple[int, str]:
    known = list(DATASETS)
    return (known.index(dataset) if dataset in known else len(known), dataset)
