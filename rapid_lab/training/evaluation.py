"""Predictions of a model on an encoded set, in float32 on the host, by row."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rapid_lab.batches import Encoded, in_order
from rapid_lab.models import forward
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


@torch.no_grad()
def predict(model: nn.Module, encoded: Encoded, device: torch.device, dtype: torch.dtype) -> Predictions:
    """Every example once, dropout off; the model's mode is put back."""
    was_training = model.training
    model.eval()
    rows, logits, pooled = [], [], []
    for members in in_order(encoded, batch_size=EVALUATION_BATCH):
        batch = encoded.batch(members, device)
        with autocast(device, dtype):
            outputs = forward(model, batch.ids, batch.mask)
        rows += members
        logits.append(outputs.logits.float().cpu())
        pooled.append(outputs.pooled.float().cpu())
    model.train(was_training)
    order = torch.empty(len(rows), dtype=torch.int64)
    order[torch.tensor(rows)] = torch.arange(len(rows))
    return Predictions(torch.cat(logits)[order], torch.cat(pooled)[order])


def score(logits: Float[Tensor, "examples classes"], labels: Tensor) -> Score:
    """Right predictions and mean negative log-likelihood, in float64."""
    nll = torch.nn.functional.cross_entropy(logits.double(), labels)
    return Score(int((logits.argmax(1) == labels).sum()), len(labels), float(nll))
