"""Named random streams: every use of chance has its own, derived from (seed, purpose, position).

Nothing is saved to resume: the stream of a step is made from its name. Nothing depends on a rank or on what was drawn
before. Dropout reads torch's global generators, so they are seeded from the stream "dropout" before each forward.
"""

import hashlib

import torch

Purpose = str


def derived_seed(seed: int, purpose: Purpose, *position: int) -> int:
    """63 bits of a hash over the name of the stream.

    >>> derived_seed(42, "pairs", 1, 2) == derived_seed(42, "pairs", 1, 2) != derived_seed(42, "pairs", 2, 1)
    True
    """
    name = "/".join(map(str, (seed, purpose, *position)))
    digest = hashlib.blake2b(name.encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def stream(seed: int, purpose: Purpose, *position: int) -> torch.Generator:
    """A generator on the CPU, so that the numbers are the same whatever the device."""
    return torch.Generator().manual_seed(derived_seed(seed, purpose, *position))


def seed_dropout(seed: int, *position: int) -> None:
    """Seed the global generators, which dropout reads, for one forward."""
    torch.manual_seed(derived_seed(seed, "dropout", *position))
