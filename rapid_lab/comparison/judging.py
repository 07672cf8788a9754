"""One published cell beside ours: reproduced, not reproduced, not comparable or not run, and why."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from rapid_lab import names
from rapid_lab.comparison.comparability import Candidate, depends_on_models, find_candidate
from rapid_lab.comparison.published import Claim, batches_an_epoch, protocol, published_seeds
from rapid_lab.comparison.records import Details, Setup, Student
from rapid_lab.comparison.rounding import mean, rounded, signed
from rapid_lab.comparison.statistics import distinct_variance, t_half_width

Outcome = Literal["reproduced", "not reproduced", "not comparable", "not run"]
OUTCOMES: tuple[Outcome, ...] = ("reproduced", "not reproduced", "not comparable", "not run")
STANDARD_ERRORS = 4
ALLOCATION = [names.RELATIONS_MAIN, names.RELATIONS_PILOT]
TEACHER_METRICS = {
    "report_accuracy": names.TEACHER_REPORT_ACCURACY,
    "calibration_temperature": names.TEACHER_TEMPERATURE,
    "selection_nll_before": names.TEACHER_NLL_BEFORE,
    "selection_nll_after": names.TEACHER_NLL_AFTER,
}


@dataclass(frozen=True)
class Judged:
    """A published cell with ours and the verdict on it."""

    claim: Claim
    outcome: Outcome
    reason: str
    ours: Fraction | None = None
    students: tuple[Student, ...] = ()
    marks: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Our number with the paper's decimals."""
        return "" if self.ours is None else rounded(self.ours, self.claim.decimals)


def judge(claim: Claim, setups: Sequence[Setup], details: Details) -> Judged:
    """The verdict on a claim by whatever was run."""
    candidate = find_candidate(claim, setups)
    if candidate is None:
        return Judged(claim, "not run", f"no complete run of {claim.method or 'a teacher'} on {claim.dataset}")
    students, marks = candidate.students, candidate.setup.marks.get(claim.method, ())
    ours = our_value(claim, students, details)
    if ours is None:
        return Judged(claim, "not run", _absence(claim), students=students)
    if candidate.reasons:
        return Judged(claim, "not comparable", "; ".join(candidate.reasons), ours, students, marks)
    outcome, reason = _comparable(claim, candidate, ours, details)
    return Judged(claim, outcome, reason, ours, students, marks)


def our_value(claim: Claim, students: Sequence[Student], details: Details) -> Fraction | None:
    """Our number of the same name, exactly; None where there is none."""
    if claim.kind == "relations":
        return mean_a_step(claim.what, students)
    if claim.kind == "teacher":
        return _teacher_value(claim, students[0].teacher_id, details)
    values = measured(claim, students)
    if claim.seed is not None:
        return next((value for value, s in zip(values, students, strict=False) if s.seed == claim.seed), None)
    return mean(values) if values else None


def mean_a_step(name: str, students: Sequence[Student]) -> Fraction | None:
    """Relations of this name a step, over all students; None where one has not logged them."""
    if any(name not in student.relations for student in students):
        return None
    return Fraction(sum(s.relations[name] for s in students), sum(s.steps for s in students))


def measured(claim: Claim, students: Sequence[Student]) -> list[Fraction]:
    """What each student measured of the claim's kind; nothing where one has not."""
    if claim.kind in ("minutes", "peak memory"):
        logged = [s.train_minutes if claim.kind == "minutes" else s.peak_mb for s in students]
        return [Fraction(value) for value in logged] if all(map(math.isfinite, logged)) else []
    counts = [(s.correct, s.total) for s in students]
    shares = [Fraction(100 * correct, total) for correct, total in counts if correct is not None and total]
    return shares if len(shares) == len(students) else []


def _absence(claim: Claim) -> str:
    if claim.seed is not None:
        return f"no run of {claim.method} on {claim.dataset} with seed {claim.seed} has read the report split"
    what = "no teacher's run with this figure" if claim.kind == "teacher" else "no run with this figure"
    return f"{what} in the store"


def _teacher_value(claim: Claim, teacher_id: str, details: Details) -> Fraction | None:
    value = details.teachers.get(teacher_id, {}).get(TEACHER_METRICS[claim.what])
    document = details.calibration.get(teacher_id)
    if value is None and document is not None:
        value = {
            "calibration_temperature": document["temperature"],
            "selection_nll_before": document["before"]["nll"],
            "selection_nll_after": document["after"]["nll"],
        }.get(claim.what)
    if value is None:
        return None
    return Fraction(value) * (100 if claim.what == "report_accuracy" else 1)


def _comparable(claim: Claim, candidate: Candidate, ours: Fraction, details: Details) -> tuple[Outcome, str]:
    if claim.kind == "teacher":
        return "not comparable", "one training of a teacher on either side: a single value has no spread to judge by"
    if claim.kind == "relations" and claim.what in ("main", "pilot"):
        return _as_printed(claim, ours)
    if claim.kind == "relations":
        return _within_standard_errors(claim, candidate.students, ours, details)
    return _within_interval(claim, candidate.students)


def _as_printed(claim: Claim, ours: Fraction) -> tuple[Outcome, str]:
    is_equal = Fraction(rounded(ours, claim.decimals)) == claim.value
    if is_equal:
        return "reproduced", "equal as printed"
    return "not reproduced", "not equal as printed, and chance has no part in it"


def _within_interval(claim: Claim, students: Sequence[Student]) -> tuple[Outcome, str]:
    values = measured(claim, students)
    is_for_one_more = claim.seed is not None
    half = Fraction(t_half_width([float(value) for value in values], is_for_one_more=is_for_one_more))
    centre = mean(values)
    is_inside = abs(centre - claim.value) <= half + claim.rounding
    low, high, width = (rounded(bound, claim.decimals) for bound in (centre - half, centre + half, 2 * half))
    name = "95 % prediction interval of one more seed" if is_for_one_more else "95 % t interval of the mean"
    where = f"{'inside' if is_inside else 'outside'} our {name}, {low} to {high} (width {width}, {len(values)} seeds)"
    return "reproduced" if is_inside else "not reproduced", where


def _within_standard_errors(
    claim: Claim, students: Sequence[Student], ours: Fraction, details: Details
) -> tuple[Outcome, str]:
    variance = step_variance(claim, students, details)
    if variance is None:
        return "not comparable", "no step table, so no standard error"
    _, batches = batches_an_epoch(claim.dataset)
    epochs = int(protocol(claim.dataset)["epochs"] or 0)
    their_steps = len(published_seeds()) * epochs * batches
    error = math.sqrt(variance * (1 / sum(s.steps for s in students) + 1 / their_steps))
    is_near = abs(ours - claim.value) <= Fraction(STANDARD_ERRORS * error) + claim.rounding
    distance = signed(ours - claim.value, 3)
    where = f"{distance} from it, {'within' if is_near else 'beyond'} {STANDARD_ERRORS} standard errors of {error:.4f}"
    return "reproduced" if is_near else "not reproduced", where


def step_variance(claim: Claim, students: Sequence[Student], details: Details) -> float | None:
    """Variance of a step's distinct pairs about the mean of the steps that spent the same.

    From the step tables where all are there; else, for uniform draws, in closed form; else None.
    """
    found = [details.steps.get(student.run_id) for student in students]
    column = f"relations/{claim.what}"
    tables = [table for table in found if table is not None and {*ALLOCATION, column} <= set(table.columns)]
    if len(tables) < len(students):
        return None if depends_on_models(claim) else uniform_variance(claim, students)
    squares, count = 0.0, 0
    for table in tables:
        # Steps of another allocation have another mean by design, not by chance.
        groups = table.groupby(ALLOCATION)[column]
        squares += float((groups.var(ddof=1).fillna(0.0) * groups.size()).sum())
        count += len(table)
    return squares / count


def uniform_variance(claim: Claim, students: Sequence[Student]) -> float | None:
    """The same where pairs are drawn uniformly; the last partial batch is enumerated and has none."""
    full, batches = batches_an_epoch(claim.dataset)
    settings = protocol(claim.dataset)
    size, epochs, warmup = (int(settings[name] or 0) for name in ("batch_size", "epochs", "warmup_epochs"))
    sampled = Fraction(full, batches)
    if claim.what == "unique_pilot":
        sampled *= Fraction(epochs - warmup, epochs)
    kind = claim.what.removeprefix("unique_")
    spent = mean_a_step(kind, students)
    if spent is None:
        return None
    draws = int(settings["relation_budget"] or 0) if kind == "main" else spent / sampled
    if draws != int(draws):  # not the paper's allocation
        return None
    return float(sampled) * distinct_variance(int(draws), size * (size - 1) // 2)
