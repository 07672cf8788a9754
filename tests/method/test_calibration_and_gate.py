"""Section 3.2: temperature, calibrated probabilities, reliability, the normalised gate."""

import math

import pytest
import torch
from cases import Case, cases
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from rapid_lab.errors import SettingError
from rapid_lab.method.calibration import calibrated_probs, fit_temperature, margin, mean_nll
from rapid_lab.method.gate import mean_gate, pair_weights, reliability
from rapid_lab.method.relations import all_pairs


def test_the_temperature_minimises_the_negative_log_likelihood(generator: torch.Generator) -> None:
    logits = 3 * torch.randn(400, 4, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(torch.softmax(logits / 2.3, 1), 1, generator=generator).squeeze(1)
    fit = fit_temperature(logits, labels)
    best = minimize_scalar(
        lambda log: float(mean_nll(logits, labels, temperature=math.exp(log))),
        bounds=(-3, 3),
        method="bounded",
    )
    assert fit.temperature == pytest.approx(math.exp(best.x), rel=1e-4)
    assert fit.temperature == pytest.approx(2.3, rel=0.2)
    assert fit.nll_after == pytest.approx(best.fun, rel=1e-9)
    assert fit.nll_after < fit.nll_before
    assert not fit.is_at_bound


@pytest.mark.parametrize(("labels", "bound"), [([0, 1], 0.01), ([1, 0], 100.0)], ids=["all right", "all wrong"])
def test_a_split_without_an_optimum_gives_the_bound_and_says_so(labels: list[int], bound: float) -> None:
    fit = fit_temperature(torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor(labels))
    assert fit.temperature == bound
    assert fit.is_at_bound


def test_the_margin_is_top_one_minus_top_two_whatever_the_label() -> None:
    torch.testing.assert_close(margin(torch.tensor([[0.1, 0.6, 0.3]])), torch.tensor([0.3]))


def test_reliability_is_the_root_of_label_probability_times_margin_floored() -> None:
    probs = torch.tensor([[0.7, 0.2, 0.1], [0.7, 0.2, 0.1], [0.4, 0.4, 0.2]])
    labels = torch.tensor([0, 2, 1])
    expected = torch.tensor([math.sqrt(0.7 * 0.5), math.sqrt(0.1 * 0.5), 0.05])
    torch.testing.assert_close(reliability(probs, labels, reliability_floor=0.05), expected)


def test_half_precision_logits_are_calibrated_in_float32() -> None:
    logits = torch.tensor([[8.0, -3.0], [0.5, 1.0]])
    for dtype in (torch.float16, torch.bfloat16):
        probs = calibrated_probs(logits.to(dtype), temperature=1.5)
        assert probs.dtype == torch.float32
        torch.testing.assert_close(probs, torch.softmax(logits / 1.5, 1))


@given(cases())
def test_proposition_1_the_normalised_gate_preserves_scale(case: Case) -> None:
    trust = case.signals.reliability.double()
    pairs = all_pairs(case.batch_size)
    strength = case.update["gate_strength"]
    weights = pair_weights(trust, pairs, gate_strength=strength)
    torch.testing.assert_close(weights.mean(), torch.ones((), dtype=torch.float64))
    scaled = pair_weights(7.5 * trust, pairs, gate_strength=strength)
    torch.testing.assert_close(scaled, weights)


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=9))
def test_the_mean_gate_is_the_average_over_unordered_pairs(values: list[float]) -> None:
    trust = torch.tensor(values, dtype=torch.float64)
    pairs = all_pairs(len(values))
    torch.testing.assert_close(mean_gate(trust), (trust[pairs.first] * trust[pairs.second]).mean())


@pytest.mark.parametrize("low", [1e-6, 1e-4, 0.05])
def test_the_only_pair_of_two_examples_has_weight_one_however_unequal_they_are(low: float) -> None:
    weights = pair_weights(torch.tensor([1.0, low]), all_pairs(2), gate_strength=1)
    assert weights.tolist() == pytest.approx([1.0], rel=1e-6)


def test_the_gate_has_exact_endpoints() -> None:
    trust = torch.tensor([0.2, 0.5, 0.9])
    pairs = all_pairs(3)
    assert pair_weights(trust, pairs, gate_strength=0).tolist() == [1.0, 1.0, 1.0]
    products = torch.tensor([0.1, 0.18, 0.45])
    torch.testing.assert_close(pair_weights(trust, pairs, gate_strength=1), products / products.mean())
    halfway = pair_weights(trust, pairs, gate_strength=0.5)
    torch.testing.assert_close(halfway, 0.5 + 0.5 * products / products.mean())


@pytest.mark.parametrize("strength", [-0.01, 1.01, math.nan])
def test_a_gate_strength_outside_its_range_is_refused_by_name(strength: float) -> None:
    with pytest.raises(SettingError, match=r"gate_strength must be in \[0, 1\], got .*: it mixes"):
        pair_weights(torch.ones(2), all_pairs(2), gate_strength=strength)
