"""The paper's component table as values: each method is the one before with one component more."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Components:
    """What a student's objective is made of."""

    label: str
    has_distillation: bool = False
    has_relations: bool = False
    has_gate: bool = False
    has_static_proposal: bool = False
    is_adaptive: bool = False
    is_exact: bool = False  # all pairs, outside the relation budget


STUDENT_CE = Components("Student CE")
KD = replace(STUDENT_CE, label="KD", has_distillation=True)
UNIFORM = replace(KD, label="Uniform relational", has_relations=True)
GATED = replace(UNIFORM, label="Reliability-gated", has_gate=True)
STATIC = replace(GATED, label="Static influence", has_static_proposal=True)
RAPID = replace(STATIC, label="RAPID", is_adaptive=True)
EXACT = replace(GATED, label="Exact gated target", is_exact=True)

METHODS = {
    "student_ce": STUDENT_CE,
    "kd": KD,
    "uniform": UNIFORM,
    "gated": GATED,
    "static": STATIC,
    "rapid": RAPID,
    "exact": EXACT,
}
# The six of the paper's tables. Any other method takes part where it is asked for by name.
PAPER_METHODS = ("student_ce", "kd", "uniform", "gated", "static", "rapid")
