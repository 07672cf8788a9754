"""Files that are whole or not there: tensors with their description in one safetensors file, replaced atomically.

The file carries a checksum over all of its bytes, which is held against them whenever it is opened.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import psutil
from safetensors import SafetensorError, safe_open
from torch import Tensor

from rapid_lab.checksums import checksum
from rapid_lab.errors import DataError, unwritable

FIELD = b'"checksum":"'
BLANK = b"00000000"
LENGTH_BYTES, HEADER_LIMIT = 8, 100_000_000  # of the safetensors format
CHUNK_BYTES = 2**20


class DamagedError(DataError):
    """A file is not what was written: its bytes and its checksum do not belong together."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends well, and is removed otherwise."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(path)
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as fault:
        raise unwritable(fault, path) from fault
    except SafetensorError as fault:  # which has the system's words for it, and no number
        raise DataError(f"{path} cannot be written: {fault}") from fault
    finally:
        with contextlib.suppress(OSError):
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
    with replacing(path) as temporary:
        save_file(plain, temporary, metadata={"description": json.dumps(description), "checksum": BLANK.decode()})
        with temporary.open("rb+") as file:
            place, _, measured = _measured(file)
            file.seek(place)
            file.write(measured.encode())


def _measured(file: BinaryIO) -> tuple[int, str, str]:
    """Where the checksum stands, what it says, and what it should say: that of the file with the blank in its place.

    The file is read and not mapped: what a run holds in memory stays what it works with.
    """
    length = file.read(LENGTH_BYTES)
    header = file.read(min(int.from_bytes(length, "little"), HEADER_LIMIT))
    start = header.find(FIELD) + len(FIELD)
    if start < len(FIELD):
        raise ValueError("it has no checksum")
    end = start + len(BLANK)
    chunks = iter(lambda: file.read(CHUNK_BYTES), b"")
    found = checksum(part for parts in ((length, header[:start], BLANK, header[end:]), chunks) for part in parts)
    return LENGTH_BYTES + start, header[start:end].decode("latin-1"), found


def open_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors mapped into memory, read when touched, and their description; DamagedError where a byte is not right."""
    try:
        with path.open("rb") as file:
            _, noted, measured = _measured(file)
        if noted != measured:
            raise ValueError(f"its checksum is {noted}, that of its content {measured}")
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return tensors, json.loads(file.metadata()["description"])
    except OSError as fault:  # of the disk or of permissions: what it holds may be whole
        raise DataError(f"{path.name} in {path.parent.name} cannot be read: {fault.strerror or fault}") from fault
    # RuntimeError is torch's: a dtype or shape that the bytes cannot have. ValueError includes what JSON refuses.
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as fault:
        raise DamagedError(f"{path.name} in {path.parent.name} is damaged: {fault}") from fault
