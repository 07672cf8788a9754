"""Batches for tests: asymmetric, of unequal widths, so that a sign or index slip cannot hide."""

from dataclasses import dataclass, field, replace
from typing import Any

import oracle
import torch
from hypothesis import strategies as st
from torch import Tensor

from rapid_lab.method.proposal import PairProposal, build_proposal
from rapid_lab.method.relations import Pairs
from rapid_lab.method.update import TeacherSignals, UpdateInfo, relational_update, teacher_signals

SCORES = {"entropy_power": 1.0, "reliability_power": 1.0, "entropy_floor": 0.01, "reliability_floor": 0.05}
UPDATE = {
    "gate_strength": 0.5,
    "residual_mix": 0.3,
    "relation_budget": 8,
    "relation_cap": 4096,
    "pilot_fraction": 0.25,
    "pair_defense": 0.1,
    "endpoint_defense": 0.05,
    "residual_floor": 1e-6,
}


@dataclass(frozen=True)
class Case:
    """A batch and its settings, as the library and as the oracle take them."""

    student: Tensor
    teacher: Tensor
    logits: Tensor
    labels: Tensor
    uniforms: Tensor
    temperature: float = 1.7
    scores: dict[str, Any] = field(default_factory=lambda: dict(SCORES))
    update: dict[str, Any] = field(default_factory=lambda: dict(UPDATE))

    @property
    def batch_size(self) -> int:
        return len(self.student)

    @property
    def signals(self) -> TeacherSignals:
        return teacher_signals(self.logits, self.labels, temperature=self.temperature, **self.scores)

    def with_update(self, **changes: Any) -> "Case":
        return replace(self, update={**self.update, **changes})

    def run(self, student: Tensor | None = None, **changes: Any) -> tuple[Tensor, UpdateInfo]:
        rows = self.student if student is None else student
        options = {**self.update, **changes}
        return relational_update(rows, self.teacher, self.signals, uniforms=self.uniforms, **options)

    def run_with_gradient(self, **changes: Any) -> tuple[Tensor, Tensor, UpdateInfo]:
        rows = self.student.clone().requires_grad_()
        loss, info = self.run(rows, **changes)
        (gradient,) = torch.autograd.grad(loss, rows)
        return loss.detach(), gradient, info

    def trace(self, info: UpdateInfo | None = None) -> oracle.Trace:
        """The oracle on the pairs the library drew, or on any pair where only exact values are read."""
        count = self.update["relation_budget"]
        return oracle.algorithm1(
            self.student.double().tolist(),
            self.teacher.double().tolist(),
            self.logits.double().tolist(),
            self.labels.tolist(),
            temperature=self.temperature,
            pilot_pairs=pair_list(info.pilot_pairs) if info else [(0, 1)] * count,
            main_pairs=pair_list(info.main_pairs) if info else [(0, 1)] * count,
            **self.scores,
            **self.update,
        )


def pair_list(pairs: Pairs) -> list[tuple[int, int]]:
    return list(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))


def make_case(
    batch_size: int = 6,
    *,
    seed: int = 0,
    student_dim: int = 5,
    teacher_dim: int = 7,
    classes: int = 4,
    **update: Any,
) -> Case:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    case = Case(
        student=normal(batch_size, student_dim) * (1 + torch.arange(batch_size)[:, None] / 3),
        teacher=normal(batch_size, teacher_dim) + 0.3,
        logits=2 * normal(batch_size, classes),
        labels=torch.randint(0, classes, (batch_size,), generator=generator),
        uniforms=torch.rand(64, 3, generator=generator, dtype=torch.float64),
    )
    return case.with_update(**update)


def shares(*, includes_zero: bool = True) -> st.SearchStrategy[float]:
    """Numbers of [0, 1] with both ends often among them."""
    low = 0.0 if includes_zero else 0.01
    return st.one_of(st.sampled_from([low, 1.0]), st.floats(low, 1.0))


@st.composite
def cases(draw: st.DrawFn, min_batch: int = 2, max_batch: int = 6) -> Case:
    """Any batch of this size under any settings, degenerate ones among them."""
    case = make_case(
        draw(st.integers(min_batch, max_batch)),
        seed=draw(st.integers(0, 2**32)),
        classes=draw(st.integers(2, 5)),
        gate_strength=draw(shares()),
        residual_mix=draw(shares()),
        relation_budget=draw(st.integers(1, 20)),
        relation_cap=draw(st.integers(1, 20)),
        pilot_fraction=draw(shares()),
        pair_defense=draw(shares(includes_zero=False)),
        endpoint_defense=draw(shares()),
    )
    scores = {
        "entropy_power": draw(st.sampled_from([0.0, 0.5, 1.0, 3.0])),
        "reliability_power": draw(st.sampled_from([0.0, 1.0, 2.0])),
        "entropy_floor": 0.01,
        "reliability_floor": draw(st.sampled_from([0.001, 0.05, 1.0])),
    }
    return replace(case, scores=scores, temperature=draw(st.floats(0.5, 3.0)))


@st.composite
def proposals(draw: st.DrawFn, min_batch: int = 2, max_batch: int = 6) -> PairProposal:
    """A proposal with any endpoint distribution, one endpoint with nearly all the mass among them."""
    size = draw(st.integers(min_batch, max_batch))
    logs = draw(st.lists(st.floats(-30, 30), min_size=size, max_size=size))
    endpoints = torch.softmax(torch.tensor(logs, dtype=torch.float64), 0)
    return build_proposal(endpoints, endpoint_defense=draw(shares()), pair_defense=draw(shares(includes_zero=False)))
