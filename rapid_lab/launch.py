"""What torchrun says of this process: which of how many it is. Read from the environment, without torch."""

import os
from typing import NamedTuple

from rapid_lab.errors import SettingError


class RankError(RuntimeError):
    """A rank of this run has ended or does not answer, so that none can go on."""


class Launch(NamedTuple):
    """The place of this process among those that train one student; alone where torchrun has not started it."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1


def launch() -> Launch:
    """The place torchrun has given this process."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:  # WORLD_SIZE and its like may be another launcher's
        return Launch()
    try:
        return Launch(
            rank=int(os.environ["RANK"]),
            size=int(os.environ["WORLD_SIZE"]),
            local_rank=int(os.environ["LOCAL_RANK"]),
            local_size=int(os.environ["LOCAL_WORLD_SIZE"]),
        )
    except KeyError as missing:
        raise SettingError(
            f"TORCHELASTIC_RUN_ID must be set by torchrun alone, got it without {missing}: torchrun sets both"
        ) from None
