"""Files that are whole or not there: tensors with their description in one safetensors file, replaced atomically."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
from torch import Tensor

from rapid_lab.errors import DataError


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends well, and is removed otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _remove_abandoned(path: Path) -> None:
    """Remove what processes that were killed while writing `path` have left."""
    for temporary in path.parent.glob(f".{path.name}.*.tmp"):
        owner = temporary.name.split(".")[-2]
        if owner.isdecimal() and not psutil.pid_exists(int(owner)):
            temporary.unlink(missing_ok=True)


def save_tensors(path: Path, tensors: Mapping[str, Tensor], description: Mapping[str, Any]) -> None:
    """Write tensors and a JSON description as one safetensors file."""
    from safetensors.torch import save_file

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(description)
    with replacing(path) as temporary:
        save_file(plain, temporary, metadata={"description": text, "digest": _header_digest(text, plain)})


def _header_digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    """A hash of all but the tensors' values, which stay unread until they are touched."""
    shapes = sorted(f"{name} {tensor.dtype} {tuple(tensor.shape)}" for name, tensor in tensors.items())
    return hashlib.sha256("\n".join([text, *shapes]).encode()).hexdigest()


def open_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors mapped into memory, read when touched, and their description."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if metadata["digest"] != _header_digest(metadata["description"], tensors):
            raise ValueError("its header is not the one that was written")
        return tensors, json.loads(metadata["description"])
    # RuntimeError is torch's: a dtype or shape that the bytes cannot have. ValueError includes what JSON refuses.
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RuntimeError) as fault:
        raise DataError(f"{path.name} in {path.parent.name} is damaged: {fault}. Remove it to make it anew") from fault
