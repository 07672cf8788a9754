"""Training and selection: floor(0.9 N) examples and the rest, by the split's own seed."""

import hashlib
from dataclasses import dataclass

import torch

from rapid_lab.errors import DataError
from rapid_lab.seeds import stream


@dataclass(frozen=True)
class Split:
    """Positions in the official training split, and the hash that records them."""

    train: list[int]
    selection: list[int]
    indices_hash: str


def split_indices(count: int, *, split_seed: int) -> Split:
    """The split of so many examples: the same on every machine and for every method.

    >>> split = split_indices(67349, split_seed=1729)
    >>> len(split.train), len(split.selection)
    (60614, 6735)
    """
    if count < 2:
        raise DataError(f"the training split has {count} examples: it takes two to train and to select")
    order = torch.randperm(count, generator=stream(split_seed, "split"))
    # In integers: 0.9 N in floating point can fall below a whole number.
    train_count = count * 9 // 10
    name = f"{train_count} of {count}: ".encode() + order.numpy().astype("<i8").tobytes()
    return Split(order[:train_count].tolist(), order[train_count:].tolist(), hashlib.sha256(name).hexdigest())
