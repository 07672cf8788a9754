"""Section 3.5 and the appendix: every proposal judged on the same batch, at the same budget.

This is what stands behind `rapid-lab variance`: the state may come from any method, since proposals are compared
on one target. Ratios are to uniform draws with replacement, which spend all K on main relations.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from rapid_lab.errors import SettingError
from rapid_lab.method.budget import allocate
from rapid_lab.method.endpoints import normalise
from rapid_lab.method.proposal import build_proposal, sample_uniform_pairs
from rapid_lab.method.relations import all_pairs, no_pairs, num_pairs, residual_lookup
from rapid_lab.method.update import TeacherSignals, adapted_endpoints
from rapid_lab.method.validation import check_draws, check_rows
from rapid_lab.method.variance import (
    PairStatistics,
    chi_square,
    expected_sample_fraction,
    gradient_oracle,
    gradient_variance,
    loss_oracle,
    loss_variance,
    pair_statistics,
    without_replacement_factor,
)


class Judgement(NamedTuple):
    """One proposal on one batch. For RAPID the mean over pilot realisations: the law of total variance."""

    main: int
    loss_variance: float
    gradient_variance: float
    chi_square: float
    ess_fraction: float


class Spread(NamedTuple):
    """A ratio over batches: its quartiles, and the ratio of the summed variances."""

    low_quartile: float
    median: float
    high_quartile: float
    pooled: float


class ProposalSummary(NamedTuple):
    """One proposal over batches, relative to uniform at equal K."""

    proposal: str
    num_batches: int
    main: float
    loss_ratio: Spread
    gradient_ratio: Spread
    chi_square: float
    ess_fraction: float


def judge_batch(
    student: Float[Tensor, "batch student_dim"],
    teacher: Float[Tensor, "batch teacher_dim"],
    signals: TeacherSignals,
    *,
    pilot_uniforms: Float64[Tensor, "realisations pilot_rows 3"],
    gate_strength: float,
    residual_mix: float,
    relation_budget: int,
    relation_cap: int,
    pilot_fraction: float,
    pair_defense: float,
    endpoint_defense: float,
    residual_floor: float,
) -> dict[str, Judgement]:
    """Exact variances of every proposal for the gated target of this batch."""
    check_rows(student=student, teacher=teacher, **signals._asdict())
    batch_size = student.shape[0]
    allocation = allocate(
        batch_size,
        relation_budget=relation_budget,
        relation_cap=relation_cap,
        pilot_fraction=pilot_fraction,
        is_adaptive=residual_mix > 0,
    )
    if allocation.is_enumerated or allocation.main == 0:
        raise SettingError(
            f"relation_budget must be below the {num_pairs(batch_size)} pairs of the batch, got {relation_budget}: "
            "a batch that is enumerated has no variance to judge"
        )
    if len(pilot_uniforms) == 0:
        raise SettingError(
            "pilot_uniforms must hold at least one realisation, got none: RAPID's variance is their mean"
        )
    budget = allocation.main + allocation.pilot
    pairs = all_pairs(batch_size, student.device)
    statistics = pair_statistics(student, teacher, signals.reliability, gate_strength=gate_strength)
    residual_at = residual_lookup(student.detach(), teacher, use_matrix=True)

    def probs_of(endpoints: Tensor) -> Tensor:
        proposal = build_proposal(endpoints, endpoint_defense=endpoint_defense, pair_defense=pair_defense)
        return proposal.probs_at(pairs)

    uniform = judge(statistics, torch.full_like(statistics.integrand, 1 / num_pairs(batch_size)), main=budget)
    kept = without_replacement_factor(num_pairs=num_pairs(batch_size), num_draws=budget)
    adapted = []
    for uniforms in pilot_uniforms:
        pilots = no_pairs(student.device)
        check_draws(uniforms, allocation.pilot)
        if allocation.pilot:
            pilots = sample_uniform_pairs(uniforms[: allocation.pilot], batch_size=batch_size)
        endpoints = adapted_endpoints(
            residual_at, pilots, signals, residual_mix=residual_mix, residual_floor=residual_floor
        )
        adapted.append(judge(statistics, probs_of(endpoints), main=allocation.main))
    return {
        "uniform": uniform,
        "uniform without replacement": uniform._replace(
            loss_variance=kept * uniform.loss_variance, gradient_variance=kept * uniform.gradient_variance
        ),
        "static": judge(statistics, probs_of(normalise(signals.static_log_scores)), main=budget),
        "rapid": _mean(adapted),
        "loss oracle": judge(statistics, loss_oracle(statistics.integrand), main=budget),
        "gradient oracle": judge(statistics, gradient_oracle(statistics.squared_gradients), main=budget),
    }


def judge(statistics: PairStatistics, pair_probs: Float64[Tensor, " pairs"], *, main: int) -> Judgement:
    """The exact variances of `main` corrected draws from these pair probabilities."""
    return Judgement(
        main,
        float(loss_variance(statistics.integrand, pair_probs, num_draws=main)),
        float(gradient_variance(statistics, pair_probs, num_draws=main)),
        float(chi_square(statistics.integrand, pair_probs)),
        float(expected_sample_fraction(pair_probs)),
    )


def summarise(batches: Sequence[dict[str, Judgement]]) -> list[ProposalSummary]:
    """Ratios to uniform over batches, proposal by proposal, in the order judged."""
    if not batches:
        raise SettingError("batches must hold at least one judged batch, got none: there is nothing to compare")
    return [
        ProposalSummary(
            name,
            len(batches),
            sum(batch[name].main for batch in batches) / len(batches),
            _ratios([(batch[name].loss_variance, batch["uniform"].loss_variance) for batch in batches]),
            _ratios([(batch[name].gradient_variance, batch["uniform"].gradient_variance) for batch in batches]),
            sum(batch[name].chi_square for batch in batches) / len(batches),
            sum(batch[name].ess_fraction for batch in batches) / len(batches),
        )
        for name in batches[0]
    ]


def _mean(judgements: Sequence[Judgement]) -> Judgement:
    columns = list(zip(*judgements, strict=True))
    return Judgement(judgements[0].main, *(sum(column) / len(column) for column in columns[1:]))


def _ratios(pairs: Sequence[tuple[float, float]]) -> Spread:
    """A batch on which uniform draws have no variance tells nothing and counts as a ratio of one."""
    ratios = sorted(value / reference if reference > 0 else 1.0 for value, reference in pairs)
    values, references = (sum(column) for column in zip(*pairs, strict=True))
    pooled = values / references if references > 0 else 1.0
    return Spread(_quantile(ratios, 0.25), _quantile(ratios, 0.5), _quantile(ratios, 0.75), pooled)


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Linear interpolation that infinities pass through."""
    position = share * (len(ordered) - 1)
    low = int(position)
    if position == low:
        return ordered[low]
    return (low + 1 - position) * ordered[low] + (position - low) * ordered[low + 1]
