"""What must be said of a cell or a setup, in words: a mark never removes a number, it tells how to read it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from rapid_lab.comparison.labels import SHORT
from rapid_lab.comparison.pairing import listed, missing
from rapid_lab.comparison.records import Student
from rapid_lab.objectives import METHODS


def marks_of(students: Sequence[Student]) -> tuple[str, ...]:
    """Marks of a cell made from these students, whatever their pairing."""
    found = []
    if any(student.is_biased for student in students):
        clips = sorted({student.settings.get("correction_clip", "?") for student in students if student.is_biased})
        found.append(f"biased: corrections are clipped at {', '.join(clips)}")
    if len({student.source_hash for student in students}) > 1:
        found.append(f"source differs: {_by_source(students)}")
    if len({student.device for student in students}) > 1:
        found.append(f"devices differ: {', '.join(sorted({student.device for student in students}))}")
    return tuple(found)


def _by_source(students: Iterable[Student]) -> str:
    seeds: dict[str, list[int]] = defaultdict(list)
    for student in students:
        seeds[student.source_hash].append(student.seed)
    return "; ".join(f"{source[:SHORT]} ({listed(sorted(own))})" for source, own in seeds.items())


def pairing_marks(seeds: Sequence[int], own: Mapping[int, Student]) -> tuple[str, ...]:
    """What a method's seeds lack of the paired ones, or have besides."""
    lacking = missing(seeds, own.keys())
    if lacking:
        return (f"unpaired: {listed(sorted(own))} only, without {listed(lacking)} of the other methods",)
    extra = sorted(own.keys() - set(seeds))
    return (f"unpaired {listed(extra)} left out: not every method has them",) if extra else ()


def setup_notes(members: Sequence[Student], strangers: Sequence[Student], hashes: Iterable[str]) -> tuple[str, ...]:
    """What the whole setup needs said: other sources, other teachers, other data under the same name."""
    notes = []
    sources: dict[str, set[str]] = defaultdict(set)
    for student in members:
        sources[student.source_hash].add(METHODS[student.method].label)
    if len(sources) > 1:
        each = "; ".join(f"{source[:SHORT]} ({', '.join(sorted(who))})" for source, who in sources.items())
        notes.append(f"Not all runs have the same source: {each}.")
    if strangers:
        each = ", ".join(sorted({f"{METHODS[s.method].label} of teacher {s.teacher_id[:SHORT]}" for s in strangers}))
        notes.append(f"Runs whose teacher differs are not in this comparison: {each}.")
    others = sorted({other[:SHORT] for other in hashes} - {members[0].data_hash[:SHORT]})
    if others:
        notes.append(
            f"The store has {members[0].dataset} with other data hashes ({', '.join(others)}) than "
            f"{members[0].data_hash[:SHORT]}: they share no cell."
        )
    return tuple(notes)
