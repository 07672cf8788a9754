"""From texts to padded batches: encoded once, ordered anew each epoch by a named stream."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Int64
from torch import Tensor

from rapid_lab.seeds import stream

# Batches of similar length are made within windows of this many batches, so that epochs stay random.
LENGTH_WINDOW = 50


class Batch(NamedTuple):
    """One padded batch on a device; `rows` are positions in the encoded set, on the host."""

    rows: list[int]
    ids: Int64[Tensor, "batch length"]
    mask: Int64[Tensor, "batch length"]
    labels: Int64[Tensor, " batch"]


@dataclass(frozen=True)
class Encoded:
    """Token ids of every text in one flat tensor, and where each text begins."""

    flat: Tensor
    starts: list[int]
    labels: Int64[Tensor, " examples"]
    padding: int

    def __len__(self) -> int:
        return len(self.starts) - 1

    def digest(self) -> str:
        """SHA-256 over the tokens of every text, where each begins, and the padding."""
        content = hashlib.sha256(self.flat.numpy().tobytes())
        content.update(json.dumps([self.starts, self.padding]).encode())
        return content.hexdigest()

    def length(self, row: int) -> int:
        """Tokens of one text."""
        return self.starts[row + 1] - self.starts[row]

    def subset(self, rows: Sequence[int]) -> "Encoded":
        """These rows alone, in this order."""
        parts = [self.flat[self.starts[row] : self.starts[row + 1]] for row in rows]
        flat = torch.cat(parts) if parts else self.flat[:0]
        return Encoded(flat, _starts(map(len, parts)), self.labels[list(rows)], self.padding)

    def batch(self, rows: Sequence[int], device: torch.device) -> Batch:
        """Pad these rows to the longest of them and send them to the device without waiting for it."""
        longest = max(self.length(row) for row in rows)
        ids = torch.full((len(rows), longest), self.padding, dtype=torch.int64)
        mask = torch.zeros((len(rows), longest), dtype=torch.int64)
        for position, row in enumerate(rows):
            length = self.length(row)
            ids[position, :length] = self.flat[self.starts[row] : self.starts[row] + length]
            mask[position, :length] = 1
        tensors = (ids, mask, self.labels[list(rows)])
        return Batch(list(rows), *(to_device(tensor, device) for tensor in tensors))


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """To the device through pinned memory, so that the copy does not wait."""
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def encode(tokenizer: Any, texts: Sequence[str], labels: Sequence[int], *, max_length: int) -> Encoded:
    """Tokenise every text once, cut to max_length tokens."""
    encoded = tokenizer(
        list(texts), truncation=True, max_length=max_length, padding=False, return_attention_mask=False
    )["input_ids"]
    flat = torch.tensor([token for row in encoded for token in row], dtype=torch.int32)
    padding = tokenizer.pad_token_id or 0
    return Encoded(flat, _starts(map(len, encoded)), torch.tensor(list(labels), dtype=torch.int64), padding)


def _starts(lengths: Any) -> list[int]:
    starts = [0]
    for length in lengths:
        starts.append(starts[-1] + length)
    return starts


def epoch_batches(
    encoded: Encoded, *, batch_size: int, seed: int, epoch: int, group_by_length: bool
) -> list[list[int]]:
    """The rows of each batch of one epoch; the last, partial one is kept and comes last.

    Batches by similar length hold other rows, but are as many, each row once, and the same for every method.
    """
    generator = stream(seed, "order", epoch)
    order = torch.randperm(len(encoded), generator=generator).tolist()
    if not group_by_length:
        return _parts(order, batch_size)
    # The partial batch is set aside before sorting: it would hold the longest texts in every epoch.
    num_full = len(order) // batch_size
    whole, rest = order[: num_full * batch_size], order[num_full * batch_size :]
    windows = [sorted(window, key=encoded.length) for window in _parts(whole, LENGTH_WINDOW * batch_size)]
    full = [rows for window in windows for rows in _parts(window, batch_size)]
    shuffled = [full[index] for index in torch.randperm(num_full, generator=generator).tolist()]
    return shuffled + _parts(rest, batch_size)


def _parts(rows: list[int], size: int) -> list[list[int]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def in_order(encoded: Encoded, *, batch_size: int) -> list[list[int]]:
    """Batches for evaluation: by length, which pads least; the caller puts results back by row."""
    return _parts(sorted(range(len(encoded)), key=encoded.length), batch_size)
