"""Section 3.4: the defended factorised pair proposal, sampled exactly and evaluated only where drawn.

Randomness comes in as float64 uniforms in [0, 1): the same numbers and the same endpoint probabilities give the same
pairs on every device and rank. The inverse distribution functions are sums of integers: exact, deterministic on CUDA
(cumulative sums of floats are not), and unable to draw a pair of an example with itself.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from rapid_lab.method.relations import Pairs, num_pairs, unordered
from rapid_lab.ranges import check

# Probability one, in integer ticks: products with a float64 uniform stay exact to one tick.
TICKS = 2**52
# Below this chance that two endpoints differ, its rounding error would show in the probabilities.
LEAST_ACCEPTANCE = 1e-8


class PairProposal(NamedTuple):
    """q = (1 - eps) 2 a_i a_j / Z(a) + eps / M, held in O(B)."""

    endpoint_probs: Float64[Tensor, " batch"]
    first_mass: Float64[Tensor, " batch"]  # a_i (1 - a_i)
    acceptance: Float64[Tensor, ""]  # Z(a), their sum
    uniform_share: float | Float64[Tensor, ""]  # eps

    def probs_at(self, pairs: Pairs) -> Float64[Tensor, " pairs"]:
        """The exact probability of each of these unordered pairs."""
        endpoints = self.endpoint_probs
        scaled = endpoints * ((2 - 2 * self.uniform_share) / self.acceptance)
        factorised = endpoints.index_select(0, pairs.first) * scaled.index_select(0, pairs.second)
        return factorised + self.uniform_share / num_pairs(endpoints.numel())


def build_proposal(
    endpoint_probs: Float[Tensor, " batch"], *, endpoint_defense: float, pair_defense: float
) -> PairProposal:
    """Endpoint defence first (towards 1 / B), then pair defence (towards 1 / M).

    Z(a) = sum a_i (1 - a_i) = 1 - sum a_i^2 is the chance that two independent endpoints differ.
    """
    check(endpoint_defense=endpoint_defense, pair_defense=pair_defense)
    endpoints = endpoint_probs.double() * (1 - endpoint_defense)
    endpoints += endpoint_defense / max(endpoints.numel(), 1)
    first_mass = endpoints * (1 - endpoints)
    acceptance = first_mass.sum()
    if endpoint_defense > 2 * LEAST_ACCEPTANCE:  # then Z is above LEAST_ACCEPTANCE whatever the scores
        return PairProposal(endpoints, first_mass, acceptance, pair_defense)
    # One endpoint may hold all the mass: no pair is left to draw by it, so the draw is uniform.
    has_pairs = acceptance > LEAST_ACCEPTANCE
    uniform_share = torch.where(has_pairs, torch.full_like(acceptance, pair_defense), torch.ones_like(acceptance))
    return PairProposal(endpoints, first_mass, acceptance.clamp_min(LEAST_ACCEPTANCE), uniform_share)


def _uniform_endpoints(
    left: Float64[Tensor, " pairs"], right: Float64[Tensor, " pairs"], batch_size: int
) -> tuple[Int64[Tensor, " pairs"], Int64[Tensor, " pairs"]]:
    first = (left * batch_size).long()
    second = (right * (batch_size - 1)).long()
    return first, second + (second >= first)  # shifted past the first


def sample_uniform_pairs(uniforms: Float64[Tensor, "pairs 3"], *, batch_size: int) -> Pairs:
    """IID uniform pairs: i uniform of B, j uniform of the other B - 1. The third column is not read."""
    left, right, _ = uniforms.unbind(1)
    first, second = _uniform_endpoints(left, right, batch_size)
    return unordered(first, second, batch_size=batch_size)


def sample_pairs(proposal: PairProposal, uniforms: Float64[Tensor, "pairs 3"]) -> Pairs:
    """IID draws from the proposal in O(B + K log B): no rejection, no B x B tensor.

    With the uniform share a uniform pair; otherwise i with probability a_i (1 - a_i) / Z, and j by the inverse
    distribution function of a with i's interval cut out.
    """
    batch_size = proposal.endpoint_probs.numel()
    left, right, branch = uniforms.unbind(1)
    ticks = (proposal.endpoint_probs * TICKS).long()
    upper = ticks.cumsum(0)
    first_upper = (proposal.first_mass * TICKS).long().cumsum(0)

    first = torch.searchsorted(first_upper, (left * first_upper[-1]).long(), right=True)
    # The two clamps act only where no mass is left and the draw is uniform, or where a score was not finite.
    first = first.clamp_max_(batch_size - 1)
    own = ticks.index_select(0, first)
    target = (right * (upper[-1] - own)).long()
    target += own * (target >= upper.index_select(0, first) - own)
    second = torch.searchsorted(upper, target, right=True).clamp_max_(batch_size - 1)

    uniform_first, uniform_second = _uniform_endpoints(left, right, batch_size)
    is_uniform = branch < proposal.uniform_share
    first = torch.where(is_uniform, uniform_first, first)
    second = torch.where(is_uniform, uniform_second, second)
    return unordered(first, second, batch_size=batch_size)
