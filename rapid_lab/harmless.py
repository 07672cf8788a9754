"""What comes from users and from stores, made harmless: for a message, for a terminal, and as the name of a file."""

import hashlib
import re
from collections.abc import Collection

FILE_LENGTH = 80  # with a kind before it and a suffix behind it, far below the 255 bytes of most file systems
DIGEST = 8
SHOWN_LENGTH = 300


def shown(value: object) -> str:
    """A value in a message: as code, and no longer than a reader can bear.

    >>> shown("a\\nb"), shown(1.5), shown("x" * 1000)[-5:], shown(1 << 100_000)
    ("'a\\\\nb'", '1.5', "x'...", 'a number of more than 4300 digits')
    """
    try:
        text = repr(value)
    except ValueError:  # Python writes no number that long
        return "a number of more than 4300 digits"
    except RecursionError:
        return "something nested too deeply"
    return text if len(text) <= SHOWN_LENGTH else f"{text[:SHOWN_LENGTH]}{text[0]}..."


def is_storable(text: str) -> bool:
    """Whether databases and files take it: NUL they do not, and bytes of another encoding arrive as lone surrogates."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def one_line(text: str) -> str:
    """The text without line ends and without what steers a terminal or turns the direction of writing.

    >>> one_line("two\\nlines, \\x1b[31mred, \\u202edlrow")
    'two lines,  [31mred,  dlrow'
    """
    return "".join(character if character.isprintable() else " " for character in text)


def file_name(*parts: str, taken: Collection[str] = ()) -> str:
    """A name from parts that is a file's in its folder and nothing else: one rule wherever a name becomes a file.

    A name that is cut, and one that would be empty, is told from its like by a digest; one that is taken gets a number.

    >>> file_name("pairs", "agnews, budget 64"), file_name("../../etc/passwd"), file_name("pairs", taken=["pairs"])
    ('pairs-agnews-budget-64', 'etc-passwd', 'pairs-2')
    """
    plain = "-".join(filter(None, (re.sub(r"[^a-z0-9_]+", "-", part.lower()).strip("-") for part in parts)))
    if not plain or len(plain) > FILE_LENGTH:
        digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST]
        plain = f"{plain[: FILE_LENGTH - DIGEST - 1]}-{digest}".strip("-")
    number, name = 1, plain
    while name in taken:
        number += 1
        name = f"{plain}-{number}"
    return name
