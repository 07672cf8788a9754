"""Section 3.3: static and adaptive endpoint scores, mixing, the schedule."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rapid_lab.errors import SettingError
from rapid_lab.method.endpoints import (
    mean_residuals,
    mix,
    normalise,
    normalised_entropy,
    residual_mix_at,
    residual_probs,
    static_log_scores,
)
from rapid_lab.method.relations import unordered


def test_entropy_is_normalised_by_the_logarithm_of_the_number_of_classes() -> None:
    probs = torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(normalised_entropy(probs), torch.tensor([1.0, 0.5, 0.0]))


def test_one_class_has_no_entropy_to_normalise() -> None:
    with pytest.raises(SettingError, match="at least 2 classes, got 1"):
        normalised_entropy(torch.ones(3, 1))


def test_static_scores_are_floored_entropy_and_reliability_to_their_powers() -> None:
    entropy, trust = torch.tensor([0.5, 0.001, 0.2]), torch.tensor([0.3, 0.9, 0.05])
    log_scores = static_log_scores(entropy, trust, entropy_power=2.0, reliability_power=0.5, entropy_floor=0.01)
    scores = torch.tensor([0.5**2 * 0.3**0.5, 0.01**2 * 0.9**0.5, 0.2**2 * 0.05**0.5], dtype=torch.float64)
    torch.testing.assert_close(log_scores.exp(), scores, rtol=1e-6, atol=0)
    torch.testing.assert_close(normalise(log_scores), scores / scores.sum(), rtol=1e-6, atol=0)


def test_powers_of_zero_give_the_uniform_endpoint_distribution() -> None:
    scores = static_log_scores(
        torch.rand(5), torch.rand(5) + 0.1, entropy_power=0, reliability_power=0, entropy_floor=0.01
    )
    assert normalise(scores).tolist() == [0.2] * 5


def test_no_power_underflows_the_endpoint_distribution() -> None:
    scores = static_log_scores(
        torch.tensor([0.01, 0.02, 0.01]),
        torch.tensor([0.05, 0.05, 0.05]),
        entropy_power=5000.0,
        reliability_power=5000.0,
        entropy_floor=0.01,
    )
    assert normalise(scores).tolist() == [0.0, 1.0, 0.0]


def test_repeated_pilots_count_repeatedly_and_absent_endpoints_have_zero() -> None:
    pilots = unordered(torch.tensor([0, 0, 1]), torch.tensor([1, 1, 3]), batch_size=5)
    means = mean_residuals(torch.tensor([0.1, 0.1, 0.7]), pilots, batch_size=5)
    torch.testing.assert_close(means, torch.tensor([0.1, 0.3, 0.0, 0.7, 0.0], dtype=torch.float64))


def test_residual_scores_are_reliability_times_floored_residual() -> None:
    means, trust = torch.tensor([0.2, 0.0, 0.1], dtype=torch.float64), torch.tensor([0.5, 1.0, 0.25])
    scores = torch.tensor([0.1, 0.01, 0.025], dtype=torch.float64)
    torch.testing.assert_close(residual_probs(means, trust, residual_floor=0.01), scores / scores.sum())


def test_normalised_distributions_are_mixed_not_scores() -> None:
    static = torch.tensor([0.9, 0.1], dtype=torch.float64)
    residual = torch.tensor([0.2, 0.8], dtype=torch.float64)
    mixed = mix(static, residual, residual_mix=0.25)
    torch.testing.assert_close(mixed, torch.tensor([0.725, 0.275], dtype=torch.float64))


def test_ten_epochs_mix_as_the_paper_says() -> None:
    schedule = [residual_mix_at(t, epochs=10, warmup_epochs=2, max_residual_mix=0.5) for t in range(1, 11)]
    assert schedule == [0, 0, 0.0625, 0.125, 0.1875, 0.25, 0.3125, 0.375, 0.4375, 0.5]


@given(st.integers(1, 50), st.integers(0, 60), st.floats(0, 1))
def test_the_last_epoch_always_reaches_the_largest_mix(epochs: int, warmup: int, largest: float) -> None:
    mixes = [
        residual_mix_at(t, epochs=epochs, warmup_epochs=warmup, max_residual_mix=largest) for t in range(1, epochs + 1)
    ]
    assert mixes[-1] == largest
    assert mixes == sorted(mixes)
    assert all(mix == 0 for mix in mixes[: min(warmup, epochs - 1)])


@pytest.mark.parametrize("epoch", [0, 4])
def test_epochs_count_from_one_to_the_last(epoch: int) -> None:
    with pytest.raises(SettingError, match="epoch"):
        residual_mix_at(epoch, epochs=3, warmup_epochs=1, max_residual_mix=0.5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("entropy_power", -0.1),
        ("reliability_power", -1.0),
        ("entropy_floor", 0.0),
        ("entropy_floor", math.inf),
        ("entropy_power", math.nan),
    ],
)
def test_negative_powers_and_floors_at_zero_are_refused_by_name(name: str, value: float) -> None:
    options = {"entropy_power": 1.0, "reliability_power": 1.0, "entropy_floor": 0.01, name: value}
    with pytest.raises(SettingError, match=rf"^{name} must be .*, got {value!r}: "):
        static_log_scores(torch.rand(3), torch.rand(3), **options)


def test_a_residual_floor_at_zero_is_refused() -> None:
    with pytest.raises(SettingError, match=r"residual_floor must be in \(0, 2\], got 0: an endpoint no pilot"):
        residual_probs(torch.rand(3, dtype=torch.float64), torch.rand(3), residual_floor=0)
