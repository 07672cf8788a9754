"""Checksums of what is read back: a line of JSON, a text, a file. A changed byte is noticed for certain.

CRC-32, since it is against chance and not against people: it finds every change within four bytes in a row, misses one
in four thousand million others, needs no dependency, and reads more than a gigabyte in a second.
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

TEXT_MARK = "# checksum "


def checksum(parts: Iterable[bytes]) -> str:
    """Eight hexadecimal digits over bytes that come in parts.

    >>> checksum([b"rapid", b" lab"]) == checksum([b"rapid lab"])
    True
    """
    value = 0
    for part in parts:
        value = zlib.crc32(part, value)
    return f"{value:08x}"


def encoded(entry: Mapping[str, Any]) -> bytes:
    """An entry as a line with its checksum."""
    text = json.dumps(entry, separators=(",", ":")).encode()
    return f"{checksum([text])} ".encode() + text + b"\n"


def decoded(line: bytes) -> dict[str, Any] | None:
    """The entry of a line; None where it is not what was written."""
    found, _, text = line.removesuffix(b"\n").partition(b" ")
    if not line.endswith(b"\n") or found != checksum([text]).encode():
        return None
    entry: dict[str, Any] = json.loads(text)
    return entry


def sealed(text: str) -> str:
    """A text with its checksum in a first line, a comment in TOML: what is cut off at the end is noticed."""
    return f"{TEXT_MARK}{checksum([text.encode()])}\n{text}"


def is_sealed(text: str) -> bool:
    """Whether a text says what its checksum is."""
    return text.startswith(TEXT_MARK)


def is_intact(text: str) -> bool:
    """Whether a text is what was sealed.

    >>> [is_intact(text) for text in (sealed("a = 1\\n"), sealed("a = 1\\n").replace("= 1", "= 2"), "a = 1\\n")]
    [True, False, False]
    """
    return sealed(text.partition("\n")[2]) == text
