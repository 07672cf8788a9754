"""Texts with labels, and the checks that every source passes."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from rapid_lab.errors import DataError
from rapid_lab.harmless import shown

TEXT_COLUMNS = ("text", "sentence", "content", "review")
LABEL_COLUMNS = ("label", "labels", "class")
SHOWN_VALUES = 8


@dataclass(frozen=True)
class Columns:
    """The columns a user named; None where they are to be found."""

    text: str | None = None
    label: str | None = None

    def among(self, found: Sequence[str], *, where: str) -> tuple[str, str]:
        """The columns of texts and labels among those found."""
        text = _column("text", self.text, TEXT_COLUMNS, found, where)
        return text, _column("label", self.label, LABEL_COLUMNS, found, where)


def _column(kind: str, named: str | None, candidates: Sequence[str], found: Sequence[str], where: str) -> str:
    wanted = candidates if named is None else (named,)
    present = [name for name in wanted if name in found]
    columns = ", ".join(map(repr, found)) or "none"
    if not present:
        reason = f"no {kind} column ({' or '.join(wanted)})"
        raise DataError(f"{where} has {reason}: the columns found are {columns}; {kind}_column names another")
    if list(found).count(present[0]) > 1:
        raise DataError(f"{where} has the column {present[0]!r} twice: the columns found are {columns}")
    return present[0]


@dataclass(frozen=True)
class Examples:
    """Texts and their labels, in the order of the source."""

    # A corpus is no message: the texts stay out of whatever prints an object that holds them.
    texts: list[str] = field(repr=False)
    labels: list[int] = field(repr=False)

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def content_hash(self) -> str:
        """sha256 over labels and texts; lengths are part of it, so no two corpora share a byte string."""
        digest = hashlib.sha256()
        for text, label in zip(self.texts, self.labels, strict=True):
            content = text.encode("utf-8", "surrogatepass")
            digest.update(f"{label} {len(content)} ".encode())
            digest.update(content)
        return digest.hexdigest()


def rows_within(examples: Examples, others: Examples) -> int:
    """How many of the examples have a text that is among the others' too, whatever the labels; blanks do not count."""
    texts = {_plain(text) for text in others.texts}
    return sum(_plain(text) in texts for text in examples.texts)


def _plain(text: str) -> str:
    return " ".join(text.split())


def training_examples(texts: Sequence[object], labels: Sequence[object], *, where: str) -> tuple[Examples, int]:
    """A training split that can be used, and its number of classes."""
    examples = Examples(_texts(texts, where), _labels(labels, where))
    classes = sorted(set(examples.labels))
    if len(classes) == 1:
        raise DataError(f"{where} has one class only, {classes[0]}: there is nothing to tell apart")
    if classes != list(range(len(classes))):
        raise DataError(f"{where} has labels that are not 0..C-1 without gaps: found {_shown(classes)}")
    return examples, len(classes)


def report_examples(texts: Sequence[object], labels: Sequence[object], *, where: str, num_labels: int) -> Examples:
    """A report split whose labels are among the training classes."""
    examples = Examples(_texts(texts, where), _labels(labels, where))
    strangers = sorted(set(examples.labels) - set(range(num_labels)))
    if strangers:
        raise DataError(f"{where} has labels outside the training classes 0..{num_labels - 1}: {_shown(strangers)}")
    return examples


def _texts(texts: Sequence[object], where: str) -> list[str]:
    if not texts:
        raise DataError(f"{where} is empty: it has no rows")
    checked = []
    for row, text in enumerate(texts, start=1):
        if text is None or (isinstance(text, str) and not text.strip()):
            raise DataError(f"{where}, row {row} has no text")
        if not isinstance(text, str):
            raise DataError(f"{where}, row {row} has {shown(text)} where a text should be")
        checked.append(text)
    return checked


def _labels(labels: Sequence[object], where: str) -> list[int]:
    distinct = {label if isinstance(label, str) else repr(label): label for label in labels}
    codes = {key: _integer(label) for key, label in distinct.items()}
    if None in codes.values():
        bad = next(row for row, label in enumerate(labels, start=1) if _integer(label) is None)
        found = _shown(list(distinct.values()))
        raise DataError(f"{where} has labels that are not 0..C-1, first in row {bad}: found {found}")
    return [code for label in labels if (code := codes[label if isinstance(label, str) else repr(label)]) is not None]


def _integer(label: object) -> int | None:
    """The label as an integer: one already, or digits; True and 1.0 are something else."""
    if isinstance(label, str):
        return int(label) if re.fullmatch(r"\s*-?[0-9]{1,9}\s*", label) else None
    return label if isinstance(label, int) and not isinstance(label, bool) else None


def _shown(values: Sequence[object]) -> str:
    text = ", ".join(map(shown, values[:SHOWN_VALUES]))
    return f"{text}, ... ({len(values)} values)" if len(values) > SHOWN_VALUES else text
