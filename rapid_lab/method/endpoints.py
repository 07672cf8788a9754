"""Section 3.3: how often an example should be an endpoint of an evaluated pair.

Scores are kept as logarithms and distributions in float64: no power can underflow a distribution, and the
sampler of section 3.4 needs more digits than float32 has.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from rapid_lab.errors import SettingError
from rapid_lab.method.calibration import check_classes
from rapid_lab.method.relations import Pairs
from rapid_lab.ranges import check

# A residual of one, in integer ticks: more digits than its float32 has, and room for 2^21 pilots.
RESIDUAL_TICKS = 2**40


def normalised_entropy(probs: Float[Tensor, "batch classes"]) -> Float[Tensor, " batch"]:
    """u_i = H(p_cal) / log C, between 0 (certain) and 1 (uniform).

    >>> normalised_entropy(torch.tensor([[0.5, 0.5], [1.0, 0.0]]))
    tensor([1., 0.])
    """
    check_classes(probs)
    return torch.special.entr(probs).sum(1) / math.log(probs.shape[1])


def static_log_scores(
    entropy: Float[Tensor, " batch"],
    reliability: Float[Tensor, " batch"],
    *,
    entropy_power: float,
    reliability_power: float,
    entropy_floor: float,
) -> Float[Tensor, " batch"]:
    """log s_static = alpha log max(u, floor) + beta log r, with r already floored by the gate."""
    check(entropy_power=entropy_power, reliability_power=reliability_power, entropy_floor=entropy_floor)
    floored = entropy.double().clamp_min(entropy_floor)
    return entropy_power * floored.log() + reliability_power * reliability.double().log()


def normalise(log_scores: Float[Tensor, " batch"]) -> Float[Tensor, " batch"]:
    """a_i = s_i / sum_j s_j, from logarithms."""
    return torch.softmax(log_scores, dim=0)


def mean_residuals(residuals: Float[Tensor, " pilots"], pilots: Pairs, *, batch_size: int) -> Float[Tensor, " batch"]:
    """d_i = D_i / max(N_i, 1): the mean residual of the pilots that touch i, zero where none does.

    A pair drawn twice counts twice.
    """
    # Sums of integers: exact, and the same in whatever order a GPU adds them.
    ticks = (residuals.double() * RESIDUAL_TICKS).long()
    zeros, once = torch.zeros(batch_size, dtype=torch.int64, device=residuals.device), torch.ones_like(ticks)
    counts = zeros.index_add(0, pilots.first, once).index_add_(0, pilots.second, once)
    sums = zeros.index_add_(0, pilots.first, ticks).index_add_(0, pilots.second, ticks)
    return sums / (counts.clamp_min_(1) * RESIDUAL_TICKS).double()


def residual_probs(
    mean_residual: Float[Tensor, " batch"], reliability: Float[Tensor, " batch"], *, residual_floor: float
) -> Float[Tensor, " batch"]:
    """a_res proportional to r_i max(d_i, floor), with r already floored by the gate."""
    check(residual_floor=residual_floor)
    scores = mean_residual.clamp_min(residual_floor) * reliability
    return scores / scores.sum()


def mix(
    static: Float[Tensor, " batch"], residual: Float[Tensor, " batch"], *, residual_mix: float
) -> Float[Tensor, " batch"]:
    """a_t = (1 - tau_t) a_static + tau_t a_res, of *normalised* distributions."""
    check(residual_mix=residual_mix)
    return torch.lerp(static, residual, residual_mix)


def residual_mix_at(epoch: int, *, epochs: int, warmup_epochs: int, max_residual_mix: float) -> float:
    """tau_t: zero for W = min(W0, E - 1) warm-up epochs, then linear to tau_max; epochs count from 1.

    >>> [residual_mix_at(t, epochs=4, warmup_epochs=2, max_residual_mix=0.5) for t in (1, 2, 3, 4)]
    [0.0, 0.0, 0.25, 0.5]
    """
    check(epoch=epoch, max_residual_mix=max_residual_mix)
    if epoch > epochs:
        raise SettingError(f"epoch must be at most epochs, got {epoch} of {epochs}: the schedule ends there")
    adaptive_epochs = epochs - num_warmup_epochs(epochs=epochs, warmup_epochs=warmup_epochs)
    return max_residual_mix * max(0, epoch - epochs + adaptive_epochs) / adaptive_epochs


def num_warmup_epochs(*, epochs: int, warmup_epochs: int) -> int:
    """W = min(W0, E - 1): at least the last epoch adapts."""
    check(epochs=epochs, warmup_epochs=warmup_epochs)
    return min(warmup_epochs, epochs - 1)
