"""Values of tensors are checked once, where they enter."""

import math

import pytest
import torch

from rapid_lab.errors import DataError
from rapid_lab.method.validation import validate_batch

LABELS = torch.tensor([0, 2, 1])


def test_a_sound_batch_passes() -> None:
    validate_batch(LABELS, torch.zeros(3, 3), torch.zeros(3, 5))
    validate_batch(LABELS, torch.zeros(3, 3).half(), torch.zeros(3, 5).bfloat16())


@pytest.mark.parametrize(("label", "row"), [(3, 2), (-1, 0)])
def test_a_label_out_of_range_is_named_with_its_row(label: int, row: int) -> None:
    labels = LABELS.clone()
    labels[row] = label
    with pytest.raises(DataError, match=rf"labels must be in 0\.\.2, got {label} at row {row}: "):
        validate_batch(labels, torch.zeros(3, 3), torch.zeros(3, 5))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("which", ["logits", "representations"])
def test_a_value_that_is_not_finite_is_named_with_its_row(which: str, value: float) -> None:
    tensors = {"logits": torch.zeros(3, 3), "representations": torch.zeros(3, 5)}
    tensors[which][1, 2] = value
    with pytest.raises(DataError, match=rf"{which} must be finite, got 1 rows .* the first at row 1: "):
        validate_batch(LABELS, **tensors)


def test_one_class_is_refused() -> None:
    with pytest.raises(DataError, match="at least 2 classes, got 1: the margin needs a runner-up"):
        validate_batch(torch.zeros(3, dtype=torch.int64), torch.zeros(3, 1), torch.zeros(3, 5))


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("which", ["logits", "representations"])
def test_a_missing_row_is_refused(which: str) -> None:
    tensors = {"logits": torch.zeros(3, 3), "representations": torch.zeros(3, 5)}
    tensors[which] = tensors[which][:2]
    with pytest.raises(DataError, match=f"{which} must have one row for each label, got 2 rows for 3 labels"):
        validate_batch(LABELS, **tensors)
