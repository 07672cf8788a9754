"""Folders of train.{csv,tsv,parquet} with test.* or validation.*.

A file is read as bytes, once per use, so that what is hashed is what is parsed.
"""

import csv
import hashlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rapid_lab.data.examples import Columns, Examples, report_examples, rows_within, training_examples
from rapid_lab.errors import DataError
from rapid_lab.folders import is_file

KINDS = ("csv", "tsv", "parquet")


@dataclass(frozen=True)
class ReportFile:
    """A report split on disk: its form is checked and its bytes are hashed, its examples stay there until read."""

    path: Path
    columns: Columns
    num_labels: int
    sha256: str

    def read(self) -> Examples:
        """The examples, if the file is still the one the run began with."""
        content = _content(self.path)
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise DataError(f"{self.path} has changed since this run began: its results would belong to no data")
        texts, labels = _parsed(self.path, content, self.columns)
        return report_examples(texts, labels, where=str(self.path), num_labels=self.num_labels)


def split_file(folder: Path, names: Sequence[str]) -> Path:
    """The file of the first of these splits that the folder has."""
    where = f"the dataset's folder {str(folder)!r}"
    for name in names:
        found = [path for kind in KINDS if is_file(path := folder / f"{name}.{kind}")]
        if len(found) > 1:
            raise DataError(f"{where} has {' and '.join(path.name for path in found)}: which one is meant?")
        if found:
            return found[0]
    wanted = " or ".join(f"{name}.{{{','.join(KINDS)}}}" for name in names)
    try:
        held = ", ".join(sorted(path.name for path in folder.iterdir())) or "nothing"
    except OSError as error:
        raise DataError(f"{where} cannot be read: {error.strerror}") from None
    raise DataError(f"{where} has no {wanted}: it holds {held}")


def read_training(path: Path, columns: Columns) -> tuple[Examples, int]:
    """The training split and its number of classes."""
    texts, labels = _parsed(path, _content(path), columns)
    return training_examples(texts, labels, where=str(path))


def report_file(path: Path, columns: Columns, num_labels: int, train: Examples) -> tuple[ReportFile, int]:
    """The report split, identified, and how many training rows are in it.

    Faults of form are found now, before any model is loaded; nothing of the examples is kept but that number.
    """
    report = ReportFile(path, columns, num_labels, hashlib.sha256(_content(path)).hexdigest())
    return report, rows_within(train, report.read())


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None


def _parsed(path: Path, content: bytes, columns: Columns) -> tuple[list[object], list[object]]:
    """The columns of texts and labels, unchecked."""
    if path.suffix == ".parquet":
        return _parquet_columns(path, content, columns)
    rows = _rows(path, _decoded(path, content))
    header = next(rows, [])
    text, label = (header.index(name) for name in columns.among(header, where=str(path)))
    texts: list[object] = []
    labels: list[object] = []
    for row in rows:
        texts.append(row[text])
        labels.append(row[label])
    return texts, labels


def _parquet_columns(path: Path, content: bytes, columns: Columns) -> tuple[list[object], list[object]]:
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        names = columns.among(file.schema_arrow.names, where=str(path))
        table = file.read(columns=list(names))
        return table.column(names[0]).to_pylist(), table.column(names[1]).to_pylist()
    except DataError:
        raise
    except Exception as error:
        # Of a file with a flipped byte pyarrow raises whatever it meets: no UTF-8, no such type, no such time.
        raise DataError(f"{path} is no readable parquet file: {error}") from None


def _decoded(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DataError(f"{path}, line {line} is not UTF-8: {error.reason}") from None


def _rows(path: Path, text: str) -> Iterator[list[str]]:
    """The header, then every row of as many fields; blank lines are left out."""
    lines = io.StringIO(text, newline="")
    if path.suffix == ".tsv":
        reader = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    else:
        reader = csv.reader(lines, strict=True)
    width = None
    # A text may be as long as its file; the limit belongs to the whole process, and is what Python's own would be.
    limit = csv.field_size_limit(max(len(text), 2**17))
    try:
        for row in reader:
            width = width or len(row)
            if row and len(row) != width:
                raise DataError(f"{path}, line {reader.line_num} has {len(row)} fields, the header has {width}")
            if row:
                yield row
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num} is broken: {error}") from None
    finally:
        csv.field_size_limit(limit)
