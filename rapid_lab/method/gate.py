"""Section 3.2: which relations to trust. Reliability is part of the target, not of the proposal."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rapid_lab.method.calibration import margin
from rapid_lab.method.relations import Pairs
from rapid_lab.ranges import check


def reliability(
    probs: Float[Tensor, "batch classes"], labels: Int[Tensor, " batch"], *, reliability_floor: float
) -> Float[Tensor, " batch"]:
    """r_i = max(r_min, sqrt(p_cal(y_i) m_i)): calibrated probability of the *label* times the margin.

    >>> reliability(torch.tensor([[0.75, 0.25]]), torch.tensor([1]), reliability_floor=0.05)  # sqrt(1/4 * 1/2)
    tensor([0.3536])
    """
    check(reliability_floor=reliability_floor)
    label_probs = probs.gather(1, labels[:, None]).squeeze(1)
    return torch.sqrt(label_probs * margin(probs)).clamp_min(reliability_floor)


def mean_gate(reliability: Float[Tensor, " batch"]) -> Float[Tensor, ""]:
    """Average of r_i r_j over unordered pairs, in O(B); in float64, since two large numbers cancel."""
    size, wide = reliability.numel(), reliability.double()
    total = wide.sum()
    return torch.addcmul(wide.dot(wide), total, total, value=-1) / (-size * (size - 1))


def pair_weights(
    reliability: Float[Tensor, " batch"], pairs: Pairs, *, gate_strength: float
) -> Float[Tensor, " pairs"]:
    """w_ij = (1 - lambda) + lambda r_i r_j / mean gate; exactly 1 at lambda = 0."""
    check(gate_strength=gate_strength)
    if gate_strength == 0:
        return torch.ones_like(pairs.first, dtype=reliability.dtype)
    normalised = reliability * (gate_strength / mean_gate(reliability)).to(reliability.dtype)
    gates = normalised.index_select(0, pairs.first) * reliability.index_select(0, pairs.second)
    return gates.add_(1 - gate_strength)
