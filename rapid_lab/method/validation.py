"""Values of tensors, checked once where data and teacher signals enter on the CPU, never inside the step."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rapid_lab.errors import DataError, SettingError


def check_rows(**tensors: Tensor) -> None:
    """Refuse tensors that do not have one row for each example."""
    rows = {name: tensor.shape[0] for name, tensor in tensors.items()}
    if len(set(rows.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in rows.items())
        raise SettingError(
            f"{', '.join(rows)} must have one row for each example, got {listed}: rows are paired by position"
        )


def check_draws(uniforms: Float[Tensor, "rows columns"], count: int) -> None:
    """Refuse uniforms that are too few, too narrow or too coarse for this many draws."""
    if uniforms.shape[0] < count or uniforms.shape[1] != 3 or uniforms.dtype != torch.float64:
        raise SettingError(
            f"uniforms must be float64 of at least {count} rows and 3 columns, got {uniforms.dtype} of "
            f"{tuple(uniforms.shape)}: a draw reads one row"
        )


def validate_batch(
    labels: Int[Tensor, " batch"],
    logits: Float[Tensor, "logit_batch classes"],
    representations: Float[Tensor, "row_batch dim"],
) -> None:
    """Refuse labels out of range and teacher signals that are not finite, naming the first bad row."""
    for name, tensor in (("logits", logits), ("representations", representations)):
        if tensor.shape[0] != labels.shape[0]:
            raise DataError(
                f"{name} must have one row for each label, got {tensor.shape[0]} rows for {labels.shape[0]} labels: "
                "rows are paired by position"
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
