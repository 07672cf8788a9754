"""Algorithm 1: the only assembly of sections 3.1 to 3.6.

Nothing here synchronises with the host: counts that depend on the draws stay on the device as tensors.
Gradients flow only through the student's similarity of main pairs; gate, proposal, draws and pilots are
constants.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Float64, Int, Int64
from torch import Tensor

from rapid_lab.method.budget import allocate
from rapid_lab.method.calibration import calibrated_probs
from rapid_lab.method.endpoints import (
    mean_residuals,
    mix,
    normalise,
    normalised_entropy,
    residual_probs,
    static_log_scores,
)
from rapid_lab.method.estimator import corrected_loss, corrections, effective_sample_fraction
from rapid_lab.method.gate import pair_weights, reliability
from rapid_lab.method.proposal import build_proposal, sample_pairs, sample_uniform_pairs
from rapid_lab.method.relations import (
    Pairs,
    ResidualLookup,
    all_pairs,
    count_unique,
    no_pairs,
    num_pairs,
    prefers_matrix,
    residual_lookup,
)
from rapid_lab.method.target import gated_target
from rapid_lab.method.validation import check_draws, check_rows
from rapid_lab.ranges import check


class TeacherSignals(NamedTuple):
    """What the relational term needs of the teacher besides its representations.

    Both are constant over training, so they are made once for a whole split and indexed by batch.
    """

    reliability: Float[Tensor, " batch"]
    static_log_scores: Float64[Tensor, " batch"]


class Spent(NamedTuple):
    """Relations one batch evaluated. Main and pilot are known beforehand; uniques are on the device."""

    main: int
    pilot: int
    unique_main: Int64[Tensor, ""]
    unique_pilot: Int64[Tensor, ""]
    unique_union: Int64[Tensor, ""]


class UpdateInfo(NamedTuple):
    """What the update spent, on which pairs, and how healthy its proposal was."""

    spent: Spent
    main_pairs: Pairs
    pilot_pairs: Pairs
    correction: Float[Tensor, " pairs"]
    ess_fraction: Float[Tensor, ""]
    max_correction: Float[Tensor, ""]


def teacher_signals(
    logits: Float[Tensor, "batch classes"],
    labels: Int[Tensor, " batch"],
    *,
    temperature: float,
    entropy_power: float,
    reliability_power: float,
    entropy_floor: float,
    reliability_floor: float,
) -> TeacherSignals:
    """Step 2: calibrated reliability and static endpoint scores."""
    check_rows(logits=logits, labels=labels)
    probs = calibrated_probs(logits.detach(), temperature=temperature)
    trust = reliability(probs, labels, reliability_floor=reliability_floor)
    scores = static_log_scores(
        normalised_entropy(probs),
        trust,
        entropy_power=entropy_power,
        reliability_power=reliability_power,
        entropy_floor=entropy_floor,
    )
    return TeacherSignals(trust, scores)


def adapted_endpoints(
    residual_at: ResidualLookup,
    pilots: Pairs,
    signals: TeacherSignals,
    *,
    residual_mix: float,
    residual_floor: float,
) -> Float64[Tensor, " batch"]:
    """Step 4 and the mixing of step 5: the endpoint distribution after these pilots; static without any."""
    check(residual_mix=residual_mix, residual_floor=residual_floor)
    static = normalise(signals.static_log_scores)
    if pilots.first.numel() == 0:
        return static
    observed = mean_residuals(residual_at(pilots).abs(), pilots, batch_size=static.numel())
    residual = residual_probs(observed, signals.reliability, residual_floor=residual_floor)
    return mix(static, residual, residual_mix=residual_mix)


def relational_update(
    student: Float[Tensor, "batch student_dim"],
    teacher: Float[Tensor, "batch teacher_dim"],
    signals: TeacherSignals,
    *,
    uniforms: Float64[Tensor, "rows 3"],
    gate_strength: float,
    residual_mix: float,
    relation_budget: int,
    relation_cap: int,
    pilot_fraction: float,
    pair_defense: float,
    endpoint_defense: float,
    residual_floor: float,
    correction_clip: float | None = None,
    use_matrix: bool | None = None,
) -> tuple[Float[Tensor, ""], UpdateInfo]:
    """The corrected relational loss of one batch, and what it spent.

    The float64 `uniforms` in [0, 1) are the only randomness, a row for each relation of the effective budget:
    main draws read the first rows, pilots the last, so that the k-th main draws of two methods share theirs.
    `use_matrix` overrides the choice of backend, which changes no number.
    """
    batch_size = student.shape[0]
    check_rows(student=student, teacher=teacher, **signals._asdict())
    # All of them, also where this batch would not come to use one: a bad setting fails on the first batch.
    check(
        gate_strength=gate_strength,
        residual_mix=residual_mix,
        pair_defense=pair_defense,
        endpoint_defense=endpoint_defense,
        residual_floor=residual_floor,
    )
    if correction_clip is not None:
        check(correction_clip=correction_clip)
    allocation = allocate(
        batch_size,
        relation_budget=relation_budget,
        relation_cap=relation_cap,
        pilot_fraction=pilot_fraction,
        is_adaptive=residual_mix > 0,
    )
    if allocation.main == 0:
        return no_update(student)
    budget = allocation.main + allocation.pilot
    if use_matrix is None:
        use_matrix = prefers_matrix(batch_size, budget)

    residual_at = residual_lookup(student, teacher, use_matrix=use_matrix)
    with torch.no_grad():
        pilots = no_pairs(student.device)
        if allocation.is_enumerated:
            pairs = all_pairs(batch_size, student.device)
            correction = torch.ones_like(pairs.first, dtype=torch.float32)
        else:
            check_draws(uniforms, budget)
            if allocation.pilot:
                pilots = sample_uniform_pairs(uniforms[allocation.main : budget], batch_size=batch_size)
            endpoints = adapted_endpoints(
                residual_at, pilots, signals, residual_mix=residual_mix, residual_floor=residual_floor
            )
            proposal = build_proposal(endpoints, endpoint_defense=endpoint_defense, pair_defense=pair_defense)
            pairs = sample_pairs(proposal, uniforms[: allocation.main])
            correction = corrections(
                proposal.probs_at(pairs), num_pairs=num_pairs(batch_size), correction_clip=correction_clip
            )
        weights = pair_weights(signals.reliability, pairs, gate_strength=gate_strength)
        uniques = count_unique(pairs, pilots, batch_size=batch_size, use_matrix=use_matrix)
        info = UpdateInfo(
            Spent(allocation.main, allocation.pilot, *uniques),
            pairs,
            pilots,
            correction,
            effective_sample_fraction(correction),
            correction.max(),
        )
    return corrected_loss(residual_at(pairs), weights, correction), info


def exact_update(
    student: Float[Tensor, "batch student_dim"],
    teacher: Float[Tensor, "batch teacher_dim"],
    signals: TeacherSignals,
    *,
    gate_strength: float,
) -> tuple[Float[Tensor, ""], UpdateInfo]:
    """The arm `exact`: the gated target itself, which spends all M relations and no pilots."""
    check_rows(student=student, teacher=teacher, **signals._asdict())
    loss = gated_target(student, teacher, signals.reliability, gate_strength=gate_strength)
    count = num_pairs(student.shape[0])
    _, nothing = no_update(student)
    unique = torch.full_like(nothing.spent.unique_main, count)
    spent = Spent(count, 0, unique, nothing.spent.unique_pilot, unique)
    return loss, nothing._replace(spent=spent)


def no_update(student: Float[Tensor, "batch student_dim"]) -> tuple[Float[Tensor, ""], UpdateInfo]:
    """No relations, as for B < 2: an exact zero that keeps its graph and spends nothing."""
    device = student.device
    zero, one = torch.zeros((), dtype=torch.int64, device=device), torch.ones((), device=device)
    none = no_pairs(device)
    info = UpdateInfo(Spent(0, 0, zero, zero, zero), none, none, one.new_empty(0), one, one)
    return student[:0].float().sum(), info
