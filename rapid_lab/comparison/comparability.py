"""Why a cell of ours may not stand beside one of the paper's: each is held to the settings it depends on."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from rapid_lab.comparison.published import GPU, Claim, protocol, published_seeds, report_examples
from rapid_lab.comparison.records import Setup, Student
from rapid_lab.comparison.relevance import TEACHER_SETTINGS, needs_teacher, relevant_settings
from rapid_lab.config import SETTINGS, Value
from rapid_lab.errors import SettingError
from rapid_lab.objectives import METHODS

# What the number of relations depends on: no model, no teacher, and no training where nothing adapts.
ALLOCATION = ("batch_size", "relation_budget")
ADAPTIVE_ALLOCATION = (*ALLOCATION, "pilot_fraction", "epochs", "warmup_epochs", "max_residual_mix")
MODELS = ("teacher_model", "student_model")


@dataclass(frozen=True)
class Candidate:
    """Students of ours for a cell of the paper, and what speaks against setting them beside it."""

    setup: Setup
    students: tuple[Student, ...]
    reasons: tuple[str, ...]


def find_candidate(claim: Claim, setups: Sequence[Setup]) -> Candidate | None:
    """Of all setups that ran this method on this dataset or a relative of it, the one nearest to the paper.

    Nearest is: the same data, then fewest reasons against it, then most seeds, then first. Results play no part.
    """
    found = [
        Candidate(setup, students, tuple(reasons_against(claim, setup, students)))
        for setup in setups
        if plain_dataset(setup.dataset) == claim.dataset
        for students in _students_of(claim, setup)
    ]

    def distance(candidate: Candidate) -> tuple[bool, int, int]:
        return candidate.setup.dataset != claim.dataset, len(candidate.reasons), -len(candidate.students)

    return min(found, key=distance, default=None)


def _students_of(claim: Claim, setup: Setup) -> list[tuple[Student, ...]]:
    known = {**setup.unpaired, **setup.students}
    if claim.method:
        return [known[claim.method]] if known.get(claim.method) else []
    # A teacher is that of any student that has one.
    return [students for method, students in known.items() if students and needs_teacher(method)][:1]


def plain_dataset(name: str) -> str:
    """The dataset a twin or a copy of another size is called after.

    >>> plain_dataset("agnews-twin"), plain_dataset("agnews[60324]"), plain_dataset("sst2")
    ('agnews', 'agnews', 'sst2')
    """
    return name.partition("[")[0].removesuffix("-twin")


def reasons_against(claim: Claim, setup: Setup, students: Sequence[Student]) -> list[str]:
    """Everything that keeps these students' cell from being the paper's."""
    reasons = [*_data_reasons(claim, setup, students)]
    for name in settings_that_matter(claim):
        values = {student.settings.get(name, "not recorded") for student in students}
        expected = protocol(claim.dataset)[name]
        if any(not is_equal(name, value, expected) for value in values):
            reasons.append(f"other {_spoken(name)}: {', '.join(sorted(values))}, the paper's is {expected}")
    if claim.method and "relation_budget" in settings_that_matter(claim):
        reasons += _cap_reasons(claim, students)
    if is_judged_by_seeds(claim) and not set(published_seeds()) <= {student.seed for student in students}:
        wanted = ", ".join(map(str, published_seeds()))
        reasons.append(f"fewer seeds: {', '.join(str(s.seed) for s in students)}, the paper's are {wanted}")
    if any(student.is_biased for student in students):
        reasons.append("corrections are clipped, so the estimator is biased")
    if claim.kind in ("minutes", "peak memory"):
        reasons += _hardware_reasons(students)
    return reasons


def settings_that_matter(claim: Claim) -> tuple[str, ...]:
    """The settings of the paper's protocol that can change this cell."""
    known = protocol(claim.dataset)
    if claim.kind == "teacher":
        return tuple(name for name in ("batch_size", "split_seed", *TEACHER_SETTINGS) if name in known)
    if claim.kind == "relations" and not depends_on_models(claim):
        return ADAPTIVE_ALLOCATION if METHODS[claim.method].is_adaptive else ALLOCATION
    teacher = TEACHER_SETTINGS if needs_teacher(claim.method) else ()
    return tuple(name for name in (*relevant_settings(claim.method), *teacher) if name in known)


def depends_on_models(claim: Claim) -> bool:
    """Whether a relation count is more than sizes and uniform draws: the distinct pairs of any other proposal."""
    return claim.what == "unique_main" and METHODS[claim.method].has_static_proposal


def is_judged_by_seeds(claim: Claim) -> bool:
    """Whether the verdict rests on the spread between seeds."""
    return claim.kind in ("accuracy", "seed accuracy", "minutes", "peak memory")


def is_equal(name: str, text: str, expected: Value) -> bool:
    """Whether a stored parameter is the paper's value; models are compared by the last part of their name."""
    if name in MODELS:
        return PurePosixPath(text).name == expected
    try:
        return SETTINGS[name].parse(text) == expected
    except SettingError:
        return False


def _data_reasons(claim: Claim, setup: Setup, students: Sequence[Student]) -> list[str]:
    if setup.dataset.endswith("-twin") or any(student.data_source == "twin" for student in students):
        return [f"twin: {setup.dataset} is generated text, not {claim.dataset}"]
    if setup.dataset != claim.dataset:
        return [f"other data: {setup.dataset} is not the official {claim.dataset}"]
    totals = {student.total for student in students}
    if claim.kind in ("accuracy", "seed accuracy") and totals != {report_examples(claim.dataset)}:
        sizes = ", ".join("none" if total is None else f"{total:,}" for total in totals)
        return [f"other report split: {sizes} examples, the paper's has {report_examples(claim.dataset):,}"]
    return []


def _cap_reasons(claim: Claim, students: Sequence[Student]) -> list[str]:
    budget = protocol(claim.dataset)["relation_budget"]
    caps = {student.settings.get("relation_cap", "") for student in students}
    low = sorted(cap for cap in caps if cap.isdecimal() and int(cap) < int(budget or 0))
    return [f"other budget: capped at {', '.join(low)}, the paper's is {budget}"] if low else []


def _hardware_reasons(students: Sequence[Student]) -> list[str]:
    others = sorted({student.hardware for student in students if (student.device, student.hardware) != ("cuda", GPU)})
    return [f"other hardware: {', '.join(others)}, the paper's is one {GPU}"] if others else []


def _spoken(name: str) -> str:
    return {"relation_budget": "budget", "teacher_model": "teacher model", "student_model": "student model"}.get(
        name, name
    )
