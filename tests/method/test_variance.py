"""Section 3.5 and the appendix: exact variances, oracles, bounds; brute force on every formula."""

import itertools

import pytest
import torch
from cases import Case, cases, make_case, proposals
from hypothesis import assume, given
from torch import Tensor

from rapid_lab.method.estimator import corrections, effective_sample_fraction
from rapid_lab.method.proposal import PairProposal, build_proposal, sample_pairs
from rapid_lab.method.relations import all_pairs, num_pairs
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


def statistics_of(case: Case) -> PairStatistics:
    return pair_statistics(
        case.student, case.teacher, case.signals.reliability, gate_strength=case.update["gate_strength"]
    )


def some_probs(count: int, seed: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(torch.randn(count, generator=generator, dtype=torch.float64), 0)


@given(cases(min_batch=3))
def test_the_conditional_variance_is_that_of_the_equation(case: Case) -> None:
    """Both variances against the oracle's, which has its gradients pair by pair."""
    _, info = case.run()
    assume(not case.trace(info).is_enumerated)
    trace = case.trace(info)
    statistics = statistics_of(case)
    probs = torch.tensor(list(trace.pair_probs.values()), dtype=torch.float64)
    variance = loss_variance(statistics.integrand, probs, num_draws=trace.num_main)
    assert float(variance) == pytest.approx(trace.loss_variance, rel=1e-4, abs=1e-9)
    variance = gradient_variance(statistics, probs, num_draws=trace.num_main)
    assert float(variance) == pytest.approx(trace.gradient_variance, rel=1e-3, abs=1e-8)


def test_the_variance_of_two_draws_is_that_of_all_sequences() -> None:
    integrand, probs = torch.tensor([0.2, 0.0, 1.3], dtype=torch.float64), some_probs(3)
    single = integrand / (3 * probs)
    outcomes = [(probs[i] * probs[j], (single[i] + single[j]) / 2) for i, j in itertools.product(range(3), repeat=2)]
    mean = sum(chance * value for chance, value in outcomes)
    variance = sum(chance * (value - mean) ** 2 for chance, value in outcomes)
    torch.testing.assert_close(loss_variance(integrand, probs, num_draws=2), variance)


def test_the_variance_is_the_squared_loss_times_chi_square_over_the_draws() -> None:
    integrand, probs = torch.rand(10, dtype=torch.float64), some_probs(10)
    ideal = integrand / integrand.sum()
    expected = (ideal.square() / probs).sum() - 1
    torch.testing.assert_close(chi_square(integrand, probs), expected)
    torch.testing.assert_close(loss_variance(integrand, probs, num_draws=7), integrand.mean().square() / 7 * expected)


def test_the_law_of_total_variance_holds_over_pilots() -> None:
    """Every pilot realisation has the same conditional mean, so only its conditional variances remain."""
    integrand = torch.tensor([0.2, 0.7, 1.3], dtype=torch.float64)
    by_pilot = [some_probs(3, seed) for seed in range(3)]
    outcomes = [(probs[i] / 3, integrand[i] / (3 * probs[i])) for probs in by_pilot for i in range(3)]
    mean = sum(chance * value for chance, value in outcomes)
    total = sum(chance * (value - mean) ** 2 for chance, value in outcomes)
    conditional = torch.stack([loss_variance(integrand, probs, num_draws=1) for probs in by_pilot])
    torch.testing.assert_close(conditional.mean(), total)


@given(cases(min_batch=3), proposals(min_batch=3))
def test_proposition_4_no_proposal_has_less_loss_variance_than_the_loss_oracle(
    case: Case, proposal: PairProposal
) -> None:
    integrand = statistics_of(case).integrand
    best = loss_variance(integrand, loss_oracle(integrand), num_draws=4)
    assert float(best) == pytest.approx(0, abs=1e-12)
    size = proposal.endpoint_probs.numel()
    assume(size == case.batch_size)
    for other in (some_probs(len(integrand)), proposal.probs_at(all_pairs(size))):
        assert loss_variance(integrand, other, num_draws=4) >= best
        ideal = integrand / integrand.sum()
        if (ideal - other).abs().max() > 1e-3:
            assert loss_variance(integrand, other, num_draws=4) > best


@given(cases(min_batch=3))
def test_no_proposal_has_less_gradient_variance_than_the_gradient_oracle(case: Case) -> None:
    statistics = statistics_of(case)
    count = len(statistics.integrand)
    best = gradient_variance(statistics, gradient_oracle(statistics.squared_gradients), num_draws=4)
    uniform = torch.full((count,), 1 / count, dtype=torch.float64)
    for probs in (uniform, some_probs(count)):
        assert gradient_variance(statistics, probs, num_draws=4) >= best * (1 - 1e-9)


def test_the_squared_pair_gradients_of_the_closed_form_are_those_of_autograd() -> None:
    case = make_case(5)
    rows = torch.cat((case.student[:4], torch.zeros(1, 5))).requires_grad_()  # a zero vector among them
    trust = case.signals.reliability
    statistics = pair_statistics(rows, case.teacher, trust, gate_strength=0.5)
    pairs = all_pairs(5)

    def unit(rows: Tensor) -> Tensor:
        return rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)

    student, teacher = unit(rows.double()), unit(case.teacher.double())
    gates = (
        0.5
        + 0.5
        * (trust[pairs.first] * trust[pairs.second]).double()
        / (trust[pairs.first] * trust[pairs.second]).double().mean()
    )
    for index, (i, j) in enumerate(zip(pairs.first, pairs.second, strict=True)):
        integrand = gates[index] * (teacher[i] @ teacher[j] - student[i] @ student[j]) ** 2
        (gradient,) = torch.autograd.grad(integrand, rows, retain_graph=True)
        expected = gradient.double().square().sum()
        torch.testing.assert_close(statistics.squared_gradients[index], expected, rtol=1e-4, atol=1e-9)


def test_the_mean_gradient_is_that_of_the_exact_target() -> None:
    case = make_case(6)
    expected = torch.tensor(case.trace().exact_gradient, dtype=torch.float64).square().sum()
    torch.testing.assert_close(statistics_of(case).squared_mean_gradient, expected, rtol=1e-5, atol=0)


def test_a_pair_that_contributes_but_cannot_be_drawn_leaves_no_finite_variance() -> None:
    """Two equal rows: their similarity is one, its slope zero, and the gradient oracle never draws them."""
    case = make_case(4)
    rows = case.student.clone()
    rows[1] = rows[0]
    found = pair_statistics(rows, case.teacher, case.signals.reliability, gate_strength=0.5)
    # The similarity is one up to float32's rounding, which differs between processors.
    slopes = found.squared_gradients.where(found.squared_gradients > 1e-6, 0.0)
    statistics = found._replace(squared_gradients=slopes)
    oracle = gradient_oracle(slopes)
    assert oracle[0] == 0
    assert statistics.integrand[0] > 0
    assert loss_variance(statistics.integrand, oracle, num_draws=4) == torch.inf
    assert gradient_variance(statistics, oracle, num_draws=4).isfinite()
    assert 0 < expected_sample_fraction(oracle) < 1


def test_the_sample_fraction_tends_to_its_expectation(generator: torch.Generator) -> None:
    """Tolerance of 2 %, which is 20 standard errors at a million draws."""
    endpoints = torch.tensor([0.4, 0.25, 0.05, 0.18, 0.12], dtype=torch.float64)
    proposal = build_proposal(endpoints, endpoint_defense=0.05, pair_defense=0.1)
    draws = sample_pairs(proposal, torch.rand(10**6, 3, generator=generator, dtype=torch.float64))
    sample = effective_sample_fraction(corrections(proposal.probs_at(draws), num_pairs=10))
    expected = expected_sample_fraction(proposal.probs_at(all_pairs(5)))
    assert 0.1 < float(expected) < 0.95
    assert float(sample) == pytest.approx(float(expected), rel=0.02)


def test_without_replacement_the_uniform_variance_shrinks_by_the_finite_population_factor() -> None:
    """Every subset of two of five pairs, against two draws with replacement."""
    integrand = torch.tensor([0.1, 0.9, 0.4, 0.0, 2.0], dtype=torch.float64)
    means = torch.stack([integrand[list(subset)].mean() for subset in itertools.combinations(range(5), 2)])
    with_replacement = loss_variance(integrand, torch.full((5,), 0.2, dtype=torch.float64), num_draws=2)
    factor = without_replacement_factor(num_pairs=5, num_draws=2)
    torch.testing.assert_close(means.var(correction=0), factor * with_replacement)
    assert without_replacement_factor(num_pairs=496, num_draws=256) == pytest.approx(0.485, abs=5e-4)


def test_a_student_equal_to_its_teacher_has_nothing_to_estimate() -> None:
    case = make_case(4)
    statistics = pair_statistics(case.teacher, case.teacher, case.signals.reliability, gate_strength=0.5)
    uniform = torch.full((num_pairs(4),), 1 / 6, dtype=torch.float64)
    torch.testing.assert_close(loss_oracle(statistics.integrand), uniform)
    assert float(loss_variance(statistics.integrand, uniform, num_draws=3)) == 0
    assert float(chi_square(statistics.integrand, uniform)) == 0
    assert float(gradient_variance(statistics, uniform, num_draws=3)) == 0
