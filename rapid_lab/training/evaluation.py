"""Predictions of a model on an encoded set, in float32 on the host, by row."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rapid_lab.batches import Encoded, in_order
from rapid_lab.models import forward
from rapid_lab.training.distributed import ALONE, Ranks
from rapid_lab.training.resources import autocast

EVALUATION_BATCH = 128


class Predictions(NamedTuple):
    """Logits and pooled representations of every example, in the order of the set."""

    logits: Float[Tensor, "examples classes"]
    pooled: Float[Tensor, "examples dim"]


class Score(NamedTuple):
    """Counts first: rates are derived where they are shown."""

    correct: int
    total: int
    nll: float

    @property
    def accuracy(self) -> float:
        """Share of right predictions."""
        return self.correct / self.total


def predict(model: nn.Module, encoded: Encoded, device: torch.device, dtype: torch.dtype) -> Predictions:
    """Every example once, dropout off; the model's mode is put back."""
    batches = in_order(encoded, batch_size=EVALUATION_BATCH)
    parts = _predicted(model, encoded, batches, device, dtype)
    return Predictions(_by_row(batches, [part.logits for part in parts]), _by_row(batches, [p.pooled for p in parts]))


def evaluate(
    model: nn.Module, encoded: Encoded, device: torch.device, dtype: torch.dtype, ranks: Ranks = ALONE
) -> Score:
    """The score on a whole set. Each rank predicts every so-manieth batch; the batches are those of one process."""
    batches = in_order(encoded, batch_size=EVALUATION_BATCH)[ranks.rank :: ranks.size]
    logits = [part.logits for part in _predicted(model, encoded, batches, device, dtype)]
    everyones = [part for parts in ranks.everyones(list(zip(batches, logits, strict=True))) for part in parts]
    return score(_by_row([rows for rows, _ in everyones], [part for _, part in everyones]), encoded.labels)


@torch.no_grad()
def _predicted(
    model: nn.Module, encoded: Encoded, batches: Sequence[list[int]], device: torch.device, dtype: torch.dtype
) -> list[Predictions]:
    was_training = model.training
    model.eval()
    parts = []
    for rows in batches:
        batch = encoded.batch(rows, device)
        with autocast(device, dtype):
            outputs = forward(model, batch.ids, batch.mask)
        parts.append(Predictions(outputs.logits.float().cpu(), outputs.pooled.float().cpu()))
    model.train(was_training)
    return parts


def _by_row(batches: Sequence[list[int]], values: list[Tensor]) -> Tensor:
    """Values of batches, put in the order of the set."""
    rows = torch.tensor([row for batch in batches for row in batch])
    order = torch.empty_like(rows)
    order[rows] = torch.arange(len(rows))
    return torch.cat(values)[order]


def score(logits: Float[Tensor, "examples classes"], labels: Tensor) -> Score:
    """Right predictions and mean negative log-likelihood, in float64."""
    nll = torch.nn.functional.cross_entropy(logits.double(), labels)
    return Score(int((logits.argmax(1) == labels).sum()), len(labels), float(nll))
