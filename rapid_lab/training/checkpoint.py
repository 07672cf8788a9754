"""The state of an unfinished run in one file: weights, optimizer, what was logged, and where to go on.

Random streams are named, and the learning rate follows from the step, so neither is stored.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rapid_lab.errors import DataError
from rapid_lab.files import DamagedError, open_tensors, save_tensors
from rapid_lab.reach import said


@dataclass
class Progress:
    """How far a run has come; `step` counts the steps done within `epoch`."""

    epoch: int = 1
    step: int = 0
    seconds: float = 0.0
    parts: int = 1
    selected_epoch: int = 0
    scaler: dict[str, float] = field(default_factory=dict)  # of the gradients, in fp16
    epochs: list[dict[str, Any]] = field(default_factory=list)


def save_checkpoint(
    path: Path, progress: Progress, model: nn.Module, optimizer: Optimizer, table: Tensor, selected: dict[str, Tensor]
) -> None:
    """Everything a resumed run needs."""
    tensors = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
    tensors |= {f"selected/{name}": tensor for name, tensor in selected.items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer/{index}/{name}": tensor for name, tensor in state.items()}
    save_tensors(path, tensors | {"ledger": table}, asdict(progress))


Contents = tuple[dict[str, Tensor], dict[str, Any]]


def read_checkpoint(path: Path, say: Callable[[str], None]) -> Contents | None:
    """What a checkpoint holds; None where there is none, or a damaged one, which is said: then all begins anew."""
    if not path.exists():
        return None
    try:
        return open_tensors(path)
    except DamagedError as damage:
        say(f"{damage}; the training begins anew")
        return None


def restore_checkpoint(
    path: Path, contents: Contents, model: nn.Module, optimizer: Optimizer
) -> tuple[Progress, Tensor, dict[str, Tensor]]:
    """Put model and optimizer back, and return the progress, the ledger so far and the selected weights."""
    tensors, description = contents
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "selected": {}, "optimizer": {}, "ledger": {}}
    state = optimizer.state_dict()
    state["state"] = {}
    try:
        for name, tensor in tensors.items():
            kind, _, rest = name.partition("/")
            parts[kind][rest] = tensor
        for name, tensor in parts["optimizer"].items():
            index, _, key = name.partition("/")
            state["state"].setdefault(int(index), {})[key] = tensor.clone()
        model.load_state_dict(parts["model"])
        optimizer.load_state_dict(state)
        progress, table = Progress(**description), tensors["ledger"].clone()
    except (KeyError, TypeError, ValueError, RuntimeError) as fault:
        raise DataError(
            f"{path.name} in {path.parent.name} is of another training: {said(fault)}. Remove it to begin anew"
        ) from fault
    progress.parts += 1
    return progress, table, {name: tensor.clone() for name, tensor in parts["selected"].items()}


def copied(model: nn.Module) -> dict[str, Tensor]:
    """The weights as they are now, on the host."""
    return {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}


def adamw(model: nn.Module, *, learning_rate: float, weight_decay: float) -> Optimizer:
    """AdamW, fused, without decay on biases and normalisation."""
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    decayed = [parameter for _, parameter in named if parameter.ndim > 1]
    plain = [parameter for _, parameter in named if parameter.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=learning_rate, fused=True)
