"""Values of tensors, checked once where data and teacher signals enter on the CPU, never inside the step."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rapid_lab.errors import DataError


def validate_batch(
    labels: Int[Tensor, " batch"],
    logits: Float[Tensor, "logit_batch classes"],
    representations: Float[Tensor, "row_batch dim"],
) -> None:
    """Refuse labels out of range and teacher signals that are not finite, naming the first bad row."""
    for name, tensor in (("logits", logits), ("representations", representations)):
        if tensor.shape[0] != labels.shape[0]:
            raise DataError(
                f"{name} must have one row for each label, got {tensor.shape[0]} rows for {labels.shape[0]} labels"
            )
        bad = ~torch.isfinite(tensor).all(1)
        if bad.any():
            row = int(bad.nonzero()[0])
            raise DataError(
                f"{name} must be finite, got {int(bad.sum())} rows with NaN or infinity, the first at row {row}: "
                "one such value spreads to every relation of its batch"
            )
    classes = logits.shape[1]
    if classes < 2:
        raise DataError(f"logits must have at least 2 classes, got {classes}: the margin needs a runner-up")
    wrong = (labels < 0) | (labels >= classes)
    if wrong.any():
        row = int(wrong.nonzero()[0])
        raise DataError(
            f"labels must be in 0..{classes - 1}, got {int(labels[row])} at row {row}: "
            "the gate reads the calibrated probability of the label"
        )
