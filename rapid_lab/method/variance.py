"""Section 3.5 and the appendix: what an estimator's variance really is, on one batch, exactly.

All functions take vectors over the M unordered pairs of a batch, in the order of `all_pairs`, so that any
proposal can be judged on any state, whatever method trains. They cost O(M) and belong to diagnosis, not to the
step. Gradients are those in representation space: with respect to the student rows.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from rapid_lab.method.gate import pair_weights
from rapid_lab.method.relations import NORM_FLOOR, Pairs, all_pairs, row_scales, similarity_matrix, unit
from rapid_lab.method.target import gated_target


class PairStatistics(NamedTuple):
    """The gated integrand f = w l of every pair, |g|^2 of its gradient, and |G|^2 of the mean gradient."""

    integrand: Float64[Tensor, " pairs"]
    squared_gradients: Float64[Tensor, " pairs"]
    squared_mean_gradient: Float64[Tensor, ""]


def pair_statistics(
    student: Float[Tensor, "batch student_dim"],
    teacher: Float[Tensor, "batch teacher_dim"],
    reliability: Float[Tensor, " batch"],
    *,
    gate_strength: float,
) -> PairStatistics:
    """Everything the variances of a batch are made of.

    |g_ij|^2 = 4 w^2 d^2 (1 - c^2) (1 / |h_i|^2 + 1 / |h_j|^2), without backpropagation through single pairs.
    """
    rows = student.detach().float().requires_grad_()
    with torch.enable_grad():
        loss = gated_target(rows, teacher, reliability, gate_strength=gate_strength)
        (mean_gradient,) = torch.autograd.grad(loss, rows)
    with torch.no_grad():
        pairs = all_pairs(len(rows), rows.device)
        similarities = similarity_matrix(rows)[pairs.first, pairs.second].double()
        squared_residuals = (similarity_matrix(teacher)[pairs.first, pairs.second].double() - similarities).square()
        weights = pair_weights(reliability, pairs, gate_strength=gate_strength).double()
        return PairStatistics(
            weights * squared_residuals,
            4 * weights.square() * squared_residuals * _squared_slopes(rows, pairs, similarities),
            mean_gradient.double().square().sum(),
        )


def _squared_slopes(
    rows: Float[Tensor, "batch dim"], pairs: Pairs, similarities: Float64[Tensor, " pairs"]
) -> Float64[Tensor, " pairs"]:
    """|dc/dh_i|^2 + |dc/dh_j|^2; below the norm floor `unit` is linear and nothing is projected out."""
    scales = row_scales(rows).double()
    is_above_floor = scales < 1 / NORM_FLOOR
    squared_lengths = unit(rows).double().square().sum(1).where(~is_above_floor, 1.0)
    slopes = torch.zeros_like(similarities)
    for here, there in ((pairs.first, pairs.second), (pairs.second, pairs.first)):
        projected = squared_lengths[there] - is_above_floor[here] * similarities.square()
        slopes += scales[here].square() * projected.clamp_min(0)
    return slopes


def loss_variance(
    integrand: Float64[Tensor, " pairs"], pair_probs: Float64[Tensor, " pairs"], *, num_draws: int
) -> Float64[Tensor, ""]:
    """Var(L_hat) = 1/K_m [1/M^2 sum f^2 / q - L^2], in its centred form, which cannot cancel."""
    error = _corrected(integrand, pair_probs) - integrand.mean()
    # A pair that contributes but cannot be drawn leaves no finite variance: the estimate misses it for good.
    unreachable = torch.where(integrand > 0, torch.inf, 0.0)
    return torch.where(pair_probs > 0, pair_probs * error.square(), unreachable).sum() / num_draws


def chi_square(integrand: Float64[Tensor, " pairs"], pair_probs: Float64[Tensor, " pairs"]) -> Float64[Tensor, ""]:
    """chi^2(pi || q) of the ideal pi = f / F to the proposal; K_m Var = L^2 chi^2. Zero where F is."""
    return loss_variance(integrand, pair_probs, num_draws=1) / _positive(integrand.mean().square())


def gradient_variance(
    statistics: PairStatistics, pair_probs: Float64[Tensor, " pairs"], *, num_draws: int
) -> Float64[Tensor, ""]:
    """Trace of the gradient covariance: 1/K_m [1/M^2 sum |g|^2 / q - |G|^2]."""
    second_moment = _corrected(statistics.squared_gradients, pair_probs).mean()
    return (second_moment - statistics.squared_mean_gradient).clamp_min(0) / num_draws


def loss_oracle(integrand: Float64[Tensor, " pairs"]) -> Float64[Tensor, " pairs"]:
    """q*_loss proportional to f: the unrestricted scalar optimum, with zero variance."""
    return _normalised(integrand)


def gradient_oracle(squared_gradients: Float64[Tensor, " pairs"]) -> Float64[Tensor, " pairs"]:
    """q*_grad proportional to |g|: the unrestricted trace optimum."""
    return _normalised(squared_gradients.sqrt())


def expected_sample_fraction(pair_probs: Float64[Tensor, " pairs"]) -> Float64[Tensor, ""]:
    """(E c)^2 / E c^2 over the pairs that can be drawn: what `effective_sample_fraction` tends to with many draws."""
    reachable = (pair_probs > 0).double()
    return reachable.mean().square() / _corrected(reachable, pair_probs).mean()


def without_replacement_factor(*, num_pairs: int, num_draws: int) -> float:
    """(M - K) / (M - 1): what drawing uniform pairs without replacement leaves of their variance.

    >>> round(without_replacement_factor(num_pairs=496, num_draws=256), 3)
    0.485
    """
    return (num_pairs - num_draws) / max(num_pairs - 1, 1)


def _corrected(values: Float64[Tensor, " pairs"], pair_probs: Float64[Tensor, " pairs"]) -> Float64[Tensor, " pairs"]:
    """values / (M q), where a pair that contributes nothing needs no probability."""
    return torch.where(values == 0, 0.0, values / (len(values) * pair_probs))


def _normalised(scores: Float64[Tensor, " pairs"]) -> Float64[Tensor, " pairs"]:
    """Scores as probabilities; uniform where all are zero and nothing is to be preferred."""
    return torch.where(scores.sum() > 0, scores / _positive(scores.sum()), 1 / max(len(scores), 1))


def _positive(value: Float64[Tensor, ""]) -> Float64[Tensor, ""]:
    return value.clamp_min(torch.finfo(torch.float64).tiny)
