"""Section 3.2: the calibration temperature, and what is read from calibrated probabilities."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rapid_lab.errors import SettingError
from rapid_lab.ranges import check

# Outside these the likelihood is flat: a separable split would send the temperature to zero.
TEMPERATURE_BOUNDS = (0.01, 100.0)


class TemperatureFit(NamedTuple):
    """The fitted temperature and the mean negative log-likelihood before (at 1) and after."""

    temperature: float
    nll_before: float
    nll_after: float
    is_at_bound: bool


def calibrated_probs(logits: Float[Tensor, "batch classes"], *, temperature: float) -> Float[Tensor, "batch classes"]:
    """p_cal = softmax(z / T_cal), in float32 at least."""
    check(temperature=temperature)
    return torch.softmax(_widened(logits) / temperature, dim=1)


def check_classes(probs: Float[Tensor, "batch classes"]) -> None:
    """Refuse a single class."""
    if probs.shape[1] < 2:
        raise SettingError(f"probs must have at least 2 classes, got {probs.shape[1]}: the margin needs a runner-up")


def margin(probs: Float[Tensor, "batch classes"]) -> Float[Tensor, " batch"]:
    """m = top-one minus top-two probability, whatever the label."""
    check_classes(probs)
    top = probs.topk(2, dim=1).values
    return top[:, 0] - top[:, 1]


def mean_nll(
    logits: Float[Tensor, "batch classes"], labels: Int[Tensor, " batch"], *, temperature: float
) -> Float[Tensor, ""]:
    """Mean negative log-likelihood of the labels at this temperature."""
    check(temperature=temperature)
    return torch.nn.functional.cross_entropy(_widened(logits) / temperature, labels)


def fit_temperature(
    logits: Float[Tensor, "batch classes"], labels: Int[Tensor, " batch"], *, iterations: int = 100
) -> TemperatureFit:
    """The positive T_cal that minimises the negative log-likelihood of z / T_cal, in float64.

    The likelihood is convex in 1 / T with the derivative mean(E_p[z] - z_y), which is bisected on a
    logarithmic scale; where the optimum lies outside TEMPERATURE_BOUNDS the bound is returned and marked.

    >>> logits = torch.tensor([[4.0, 0.0], [4.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    >>> fit_temperature(logits, torch.tensor([0, 0, 1, 1])).temperature  # right 3 times of 4: 4 / log(3)
    3.64095690...
    """
    logits = logits.double()
    label_logits = logits.gather(1, labels[:, None]).squeeze(1)

    def slope(temperature: float) -> float:
        probs = torch.softmax(logits / temperature, dim=1)
        return float(((probs * logits).sum(1) - label_logits).mean())

    coldest, hottest = TEMPERATURE_BOUNDS
    low, high = coldest, hottest
    for _ in range(iterations):
        middle = (low * high) ** 0.5
        # A positive slope in 1 / T asks for a smaller 1 / T, hence a higher temperature.
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    temperature = (low * high) ** 0.5
    wants_hotter, wants_colder = slope(hottest) > 0, slope(coldest) <= 0
    if wants_hotter or wants_colder:
        temperature = hottest if wants_hotter else coldest
    return TemperatureFit(
        temperature,
        float(mean_nll(logits, labels, temperature=1.0)),
        float(mean_nll(logits, labels, temperature=temperature)),
        is_at_bound=wants_hotter or wants_colder,
    )


class ReliabilityDiagram(NamedTuple):
    """Examples by their confidence: how many in each bin, how sure on average, how often right; None in empty bins."""

    counts: list[int]
    confidences: list[float | None]
    accuracies: list[float | None]

    @property
    def expected_calibration_error(self) -> float:
        """Mean distance between confidence and accuracy, weighted by the examples of each bin."""
        gaps = [
            count * abs(confidence - accuracy)
            for count, confidence, accuracy in zip(*self, strict=True)
            if confidence is not None and accuracy is not None
        ]
        return sum(gaps) / sum(self.counts)


def reliability_diagram(
    logits: Float[Tensor, "batch classes"], labels: Int[Tensor, " batch"], *, temperature: float, num_bins: int = 15
) -> ReliabilityDiagram:
    """Confidence against accuracy of softmax(z / T) in bins of equal width; a confidence of 1 is in the last.

    >>> logits = torch.tensor([[9.0, 0.0], [0.2, 0.0]])
    >>> reliability_diagram(logits, torch.tensor([0, 1]), temperature=1.0, num_bins=2).counts
    [0, 2]
    """
    confidence, predicted = calibrated_probs(logits.double(), temperature=temperature).max(1)
    bins = (confidence * num_bins).long().clamp_max(num_bins - 1)
    counts = torch.bincount(bins, minlength=num_bins)

    def means(values: Tensor) -> list[float | None]:
        sums = torch.bincount(bins, weights=values.double(), minlength=num_bins)
        return [total / count if count else None for total, count in zip(sums.tolist(), counts.tolist(), strict=True)]

    return ReliabilityDiagram(counts.tolist(), means(confidence), means(predicted == labels))


def _widened(logits: Tensor) -> Tensor:
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
