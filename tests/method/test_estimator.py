"""Section 3.4: Theorems 1 and 2, proved by enumeration of every draw."""

import itertools

import pytest
import torch
from cases import Case, cases, make_case
from hypothesis import assume, given
from torch import Tensor

from rapid_lab.errors import SettingError
from rapid_lab.method.endpoints import mix, normalise, residual_probs
from rapid_lab.method.estimator import corrected_loss, corrections, effective_sample_fraction
from rapid_lab.method.gate import pair_weights
from rapid_lab.method.proposal import PairProposal, build_proposal, sample_uniform_pairs
from rapid_lab.method.relations import Pairs, all_pairs, no_pairs, num_pairs, residual_lookup
from rapid_lab.method.update import adapted_endpoints


def proposal_of(case: Case, rows: Tensor, num_pilots: int) -> PairProposal:
    """The proposal Algorithm 1 makes after some pilots."""
    pilots = sample_uniform_pairs(case.uniforms[:num_pilots], batch_size=case.batch_size)
    endpoints = adapted_endpoints(
        residual_lookup(rows, case.teacher, use_matrix=False),
        pilots if num_pilots else no_pairs(),
        case.signals,
        residual_mix=case.update["residual_mix"],
        residual_floor=case.update["residual_floor"],
    )
    return build_proposal(
        endpoints,
        endpoint_defense=case.update["endpoint_defense"],
        pair_defense=case.update["pair_defense"],
    )


def estimate(case: Case, rows: Tensor, proposal: PairProposal, pairs: Pairs) -> Tensor:
    """The corrected loss of these main draws."""
    return corrected_loss(
        residual_lookup(rows, case.teacher, use_matrix=False)(pairs),
        pair_weights(case.signals.reliability, pairs, gate_strength=case.update["gate_strength"]),
        corrections(proposal.probs_at(pairs), num_pairs=num_pairs(case.batch_size)),
    )


def each(pairs: Pairs) -> list[Pairs]:
    return [Pairs(*(part[k : k + 1] for part in pairs)) for k in range(pairs.first.numel())]


@given(cases())
def test_theorem_1_the_loss_is_conditionally_unbiased(case: Case) -> None:
    pairs = all_pairs(case.batch_size)
    proposal = proposal_of(case, case.student, num_pilots=3)
    draws = torch.stack([estimate(case, case.student, proposal, pair) for pair in each(pairs)])
    mean = (proposal.probs_at(pairs) * draws).sum()
    assert float(mean) == pytest.approx(case.trace().exact_loss, rel=2e-5, abs=1e-7)


@given(cases())
def test_theorem_2_the_stopped_gradient_is_conditionally_unbiased(case: Case) -> None:
    pairs = all_pairs(case.batch_size)
    proposal = proposal_of(case, case.student, num_pilots=3)
    rows = case.student.clone().requires_grad_()
    mean = torch.zeros(rows.shape, dtype=torch.float64)
    for probability, pair in zip(proposal.probs_at(pairs), each(pairs), strict=True):
        (gradient,) = torch.autograd.grad(estimate(case, rows, proposal, pair), rows)
        mean += probability * gradient
    expected = torch.tensor(case.trace().exact_gradient, dtype=torch.float64)
    torch.testing.assert_close(mean, expected, rtol=1e-4, atol=1e-6)


def test_two_draws_are_right_on_average_over_all_sequences() -> None:
    case = make_case(3)
    pairs = all_pairs(3)
    proposal = proposal_of(case, case.student, num_pilots=2)
    probs = proposal.probs_at(pairs)
    mean = torch.zeros((), dtype=torch.float64)
    for first, second in itertools.product(range(3), repeat=2):
        draws = Pairs(*(part[[first, second]] for part in pairs))
        mean += probs[first] * probs[second] * estimate(case, case.student, proposal, draws)
    assert float(mean) == pytest.approx(case.trace().exact_loss, rel=1e-6)


def test_a_proposal_that_is_not_detached_breaks_the_gradient_identity() -> None:
    case = make_case(5)
    pairs = all_pairs(5)
    rows = case.student.clone().requires_grad_()
    exact = torch.tensor(case.trace().exact_gradient)

    def attached_proposal() -> PairProposal:
        """The same proposal with its residuals, means and scores left in the graph."""
        pilots = sample_uniform_pairs(case.uniforms[:4], batch_size=5)
        residuals = residual_lookup(rows, case.teacher, use_matrix=False)(pilots).abs().double()
        touches = torch.stack([(pilots.first == i) | (pilots.second == i) for i in range(5)]).double()
        means = touches @ residuals / touches.sum(1).clamp_min(1)
        residual = residual_probs(means, case.signals.reliability, residual_floor=1e-6)
        mixed = mix(normalise(case.signals.static_log_scores), residual, residual_mix=case.update["residual_mix"])
        proposal = build_proposal(mixed, endpoint_defense=0.05, pair_defense=0.1)
        torch.testing.assert_close(
            proposal.endpoint_probs.detach(), proposal_of(case, rows.detach(), num_pilots=4).endpoint_probs
        )
        return proposal

    def mean_gradient(proposal: PairProposal) -> Tensor:
        """sum_k sg(q_k) grad X_k, with q inside X attached to the rows or not."""
        probs = proposal.probs_at(pairs)
        residuals = residual_lookup(rows, case.teacher, use_matrix=False)(pairs)
        weights = pair_weights(case.signals.reliability, pairs, gate_strength=case.update["gate_strength"])
        estimates = weights * residuals.square() / (num_pairs(5) * probs)
        return torch.autograd.grad((probs.detach() * estimates).sum(), rows)[0].float()

    stopped = mean_gradient(proposal_of(case, rows.detach(), num_pilots=4))
    attached = mean_gradient(attached_proposal())
    torch.testing.assert_close(stopped, exact, rtol=1e-4, atol=1e-6)
    assert (attached - exact).norm() > 0.01 * exact.norm()


@given(cases(min_batch=4))
def test_clipping_a_correction_biases_the_estimate_downwards(case: Case) -> None:
    pairs = all_pairs(case.batch_size)
    probs = proposal_of(case, case.student, num_pilots=3).probs_at(pairs)
    count = num_pairs(case.batch_size)
    plain = corrections(probs, num_pairs=count)
    assume(plain.max() > 1.01)
    clipped = corrections(probs, num_pairs=count, correction_clip=1.0)
    assert clipped.max() == 1.0
    integrand = residual_lookup(case.student, case.teacher, use_matrix=True)(pairs).square().double()
    assume(integrand[plain > 1.01].sum() > 1e-6)
    assert (probs * clipped * integrand).sum() < (probs * plain * integrand).sum()


def test_a_clip_below_the_mean_correction_is_refused() -> None:
    with pytest.raises(SettingError, match=r"correction_clip must be of at least 1, got 0.5: the mean correction"):
        corrections(torch.full((3,), 1 / 3), num_pairs=3, correction_clip=0.5)


def test_the_effective_sample_fraction_is_one_for_equal_draws_and_one_over_k_for_a_single_voice() -> None:
    assert float(effective_sample_fraction(torch.full((8,), 0.3))) == pytest.approx(1.0)
    assert float(effective_sample_fraction(torch.tensor([1.0, 0, 0, 0]))) == pytest.approx(0.25)
