"""Dispatch modes that watch what a piece of code asks of the device."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Operations whose result the host must wait for on a GPU: values, or shapes that depend on values.
SYNCHRONISING = {
    "_local_scalar_dense", "bincount", "equal", "is_nonzero", "item", "masked_select", "nonzero",
    "repeat_interleave", "unique2", "_unique2", "unique_consecutive", "unique_dim",
}  # fmt: skip


class NoHostSync(TorchDispatchMode):
    """Fails on operations that would make the host wait for a GPU."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        is_mask_index = name in ("index", "index_put", "index_put_") and any(
            isinstance(leaf, torch.Tensor) and leaf.dtype == torch.bool for leaf in tree_leaves(args[1])
        )
        if name in SYNCHRONISING or is_mask_index:
            raise AssertionError(f"{name} would synchronise with the host")
        return func(*args, **(kwargs or {}))


class LargestTensor(TorchDispatchMode):
    """Remembers the number of elements of the largest tensor made."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.numel = max(self.numel, leaf.numel())
        return result


def largest_tensor(action: Callable[[], object]) -> int:
    with LargestTensor() as mode:
        action()
    return mode.numel
