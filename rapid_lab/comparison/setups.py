"""From students to setups: who may stand in one table, on which seeds, and what must be said of it.

Two students belong together when they agree in the data, in the teacher where both have one, and in every setting that
concerns both. A setup is anchored in a student whose settings no student of a richer method extends; every student
whose settings are a part of the anchor's joins it. So one CE student stands beside every relation budget tried.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache

from rapid_lab.comparison.labels import labelled
from rapid_lab.comparison.marks import marks_of, pairing_marks, setup_notes
from rapid_lab.comparison.pairing import listed, missing, paired_seeds
from rapid_lab.comparison.records import Excluded, Setup, Student
from rapid_lab.comparison.relevance import needs_teacher, relevant_settings
from rapid_lab.objectives import METHODS

Signature = tuple[str, ...]
ORDER = tuple(METHODS)


def build_setups(students: Sequence[Student]) -> tuple[list[Setup], list[Excluded]]:
    """Every setup of the students, and by name and reason every student that is in none."""
    kept, duplicates = without_duplicates(students)
    groups: dict[tuple[str, str, bool], list[Student]] = defaultdict(list)
    for student in kept:
        groups[_data(student)].append(student)
    indices = {data: Group(members) for data, members in groups.items()}
    anchors = [anchor for group in indices.values() for anchor in group.anchors()]
    hashes = {name: [data_hash for other, data_hash, _ in groups if other == name] for name, _, _ in groups}
    setups = [
        make_setup(label, anchor, indices[_data(anchor)], hashes[anchor.dataset]) for label, anchor in labelled(anchors)
    ]
    return setups, [*duplicates, *left_out(kept, setups)]


def _data(student: Student) -> tuple[str, str, bool]:
    # The name already tells the twin from real data; a table must not depend on a name alone.
    return student.dataset, student.data_hash, student.data_source == "twin"


def without_duplicates(students: Sequence[Student]) -> tuple[list[Student], list[Excluded]]:
    """The first student of each method, dataset, seed and config id, and the others with its name."""
    first: dict[tuple[str, str, int, str], Student] = {}
    excluded = []
    for student in students:
        kept = first.setdefault((student.method, student.dataset, student.seed, student.config_id), student)
        if kept is not student:
            verdict = "with the same count" if kept.correct == student.correct else (
                f"though the counts differ ({student.correct} here, {kept.correct} there)"
            )  # fmt: skip
            reason = f"duplicate of run {kept.run_id}, the first of this method, dataset, seed and config, {verdict}"
            excluded.append(Excluded(student.run_id, student.name, reason))
    return list(first.values()), excluded


class Group:
    """Students of the same data, by method and by the settings that concern the method."""

    def __init__(self, students: Iterable[Student]) -> None:
        self.index: dict[str, dict[Signature, list[Student]]] = {}
        for student in students:
            signatures = self.index.setdefault(student.method, {})
            signatures.setdefault(signature(student, student.method), []).append(student)

    def anchors(self) -> list[Student]:
        """One student of each signature that no student of a richer method extends."""
        found = []
        for method, signatures in self.index.items():
            richer = [members[0] for other in self.index if extends(other, method) for members in self.of(other)]
            extended = {signature(student, method) for student in richer}
            found += [members[0] for own, members in signatures.items() if own not in extended]
        return found

    def of(self, method: str) -> Iterable[list[Student]]:
        """Students of a method, those with the same signature together."""
        return self.index[method].values()

    def joined(self, anchor: Student) -> dict[str, dict[int, Student]]:
        """Every student that agrees with the anchor, by method in the paper's order, and by seed."""
        methods = [name for name in ORDER if name in self.index and name in (anchor.method, *poorer(anchor.method))]
        found = {method: self.index[method].get(signature(anchor, method), []) for method in methods}
        return {method: nearest_by_seed(anchor, members) for method, members in found.items() if members}

    def strangers(self, anchor: Student) -> list[Student]:
        """One student of each signature that agrees with the anchor in all but the teacher."""
        methods = [name for name in (anchor.method, *poorer(anchor.method)) if name in self.index]
        return [
            members[0]
            for method in methods
            for (teacher, *own), members in self.index[method].items()
            if [teacher, *own] != [*signature(anchor, method)] and own == [*signature(anchor, method)[1:]]
        ]


def signature(student: Student, method: str) -> Signature:
    """The teacher and the settings of a student, so far as they concern a method."""
    teacher = student.teacher_id if needs_teacher(method) else ""
    return (teacher, *(student.settings.get(name, "") for name in relevant_settings(method)))


def extends(richer: str, method: str) -> bool:
    """Whether one method has all that concerns the other; of two equals, the earlier in the paper's order."""
    more, less = set(relevant_settings(richer)), set(relevant_settings(method))
    if more == less and needs_teacher(richer) == needs_teacher(method):
        return ORDER.index(richer) < ORDER.index(method)
    return more >= less and needs_teacher(richer) >= needs_teacher(method)


@cache
def poorer(method: str) -> tuple[str, ...]:
    """The methods whose students may join a setup anchored in this one."""
    return tuple(other for other in ORDER if extends(method, other))


def nearest_by_seed(anchor: Student, candidates: Sequence[Student]) -> dict[int, Student]:
    """For each seed the student with most of the anchor's settings, also those that do not concern it."""
    chosen: dict[int, Student] = {}
    for student in candidates:
        best = chosen.setdefault(student.seed, student)
        if len(shared(anchor, student)) > len(shared(anchor, best)):
            chosen[student.seed] = student
    return chosen


def shared(anchor: Student, student: Student) -> set[tuple[str, str]]:
    """The settings in which two students agree."""
    return set(anchor.settings.items()) & set(student.settings.items())


def make_setup(label: str, anchor: Student, group: Group, hashes: Iterable[str]) -> Setup:
    """The setup of an anchor, its methods on paired seeds."""
    joined = group.joined(anchor)
    seeds = paired_seeds({method: set(own) for method, own in joined.items()})
    paired = {method: own for method, own in joined.items() if not missing(seeds, own.keys())}
    students = {method: tuple(own[seed] for seed in seeds) for method, own in paired.items()}
    unpaired = {
        method: tuple(own[seed] for seed in sorted(own)) for method, own in joined.items() if method not in paired
    }
    marks = {
        method: (*marks_of(cell), *pairing_marks(seeds, joined[method]))
        for method, cell in (students | unpaired).items()
    }
    members = [student for cell in (students | unpaired).values() for student in cell]
    notes = setup_notes(members, group.strangers(anchor), hashes)
    marked = {method: said for method, said in marks.items() if said}
    return Setup(label, anchor.dataset, seeds, students, marked, unpaired, notes)


def left_out(students: Iterable[Student], setups: Sequence[Setup]) -> list[Excluded]:
    """Students in no setup: their seed is not paired, or another run of the same meaning stands there."""
    cells = [cell for setup in setups for cell in (*setup.students.values(), *setup.unpaired.values())]
    shown = {student.run_id for cell in cells for student in cell}
    meaning = {_meaning(student): student for cell in cells for student in cell}
    excluded = []
    for student in students:
        if student.run_id in shown:
            continue
        twin = meaning.get(_meaning(student))
        reason = f"unpaired: {listed([student.seed])} is not run by enough of the methods beside it"
        if twin is not None:
            reason = f"run {twin.run_id} differs from it only in settings that do not concern {student.method}"
        excluded.append(Excluded(student.run_id, student.name, reason))
    return excluded


def _meaning(student: Student) -> tuple[object, ...]:
    return (*_data(student), student.method, student.seed, signature(student, student.method))
