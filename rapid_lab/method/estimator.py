"""Section 3.4: the corrected estimate of the gated target, and how concentrated its corrections are."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from rapid_lab.ranges import check


def corrections(
    pair_probs: Float[Tensor, " pairs"], *, num_pairs: int, correction_clip: float | None = None
) -> Float[Tensor, " pairs"]:
    """1 / (M q): at most 1 / eps. A clip makes the estimator biased and is off unless asked for."""
    correction = (pair_probs * num_pairs).reciprocal_().float()
    if correction_clip is None:
        return correction
    check(correction_clip=correction_clip)
    return correction.clamp_max(correction_clip)


class _CorrectedLoss(torch.autograd.Function):
    """Only the residuals get a gradient: everything else is a constant of the estimate."""

    @staticmethod
    def forward(ctx: Any, residuals: Tensor, weights: Tensor, correction: Tensor) -> Tensor:
        slopes = residuals * weights.float() * correction
        ctx.save_for_backward(slopes)
        return slopes.dot(residuals) / residuals.numel()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (slopes,) = ctx.saved_tensors
        return slopes * (gradient * (2 / slopes.numel())), None, None


def corrected_loss(
    residuals: Float[Tensor, " pairs"],
    weights: Float[Tensor, " pairs"],
    correction: Float[Tensor, " pairs"],
) -> Float[Tensor, ""]:
    """1 / K_m sum_k w_k d_k^2 / (M q_k) over the main draws; differentiates only through the residuals d."""
    loss: Tensor = _CorrectedLoss.apply(residuals, weights, correction)
    return loss


def effective_sample_fraction(correction: Float[Tensor, " pairs"]) -> Float[Tensor, ""]:
    """(sum c)^2 / (K_m sum c^2): 1 when every draw counts alike, 1 / K_m when one draw is everything.

    >>> effective_sample_fraction(torch.tensor([1.0, 1.0, 2.0]))  # 16 / (3 * 6)
    tensor(0.8889)
    """
    total = correction.sum()
    return total * total / (correction.numel() * correction.dot(correction))
