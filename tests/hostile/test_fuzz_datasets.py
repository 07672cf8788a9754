"""Files of texts, whole and broken: read as they are, or refused by name before a model is looked for."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hostile.commands import check_refusal, left_in, quiet_machine, tried
from hypothesis import given, settings
from hypothesis import strategies as st

NO_MODEL = "is not on this machine"  # the data was accepted: the next thing is the model
CELLS = st.one_of(
    st.sampled_from(["0", "1", "2", "-1", "", " ", "x", "nan", "1.0", '"', "'", "\0", "\n", "a\tb", "a,b", "9" * 5000]),
    st.text(max_size=8),
)
ROWS = st.lists(st.lists(CELLS, min_size=1, max_size=3), max_size=6)
HEADERS = st.sampled_from([["label", "text"], ["text", "label"], ["label"], ["label", "text", "text"], ["a", "b"], []])
VALUES = st.one_of(
    st.none(),
    st.integers(-3, 3),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    st.booleans(),
    st.binary(max_size=4),
    st.dates(),
    st.datetimes(),
    st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-10, max_value=10),
    st.lists(st.integers(0, 1), max_size=2),
)


@pytest.fixture(scope="module", autouse=True)
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with quiet_machine(tmp_path_factory.mktemp("machine")) as folder:
        (folder / "texts").mkdir()
        yield folder


def separated(rows: list[list[str]], *, delimiter: str, is_quoted: bool) -> bytes:
    if not is_quoted:
        return "\n".join(delimiter.join(row) for row in rows).encode("utf-8", "surrogatepass")
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows(rows)
    return text.getvalue().encode("utf-8", "surrogatepass")


@st.composite
def separated_files(draw: st.DrawFn) -> tuple[str, bytes]:
    kind = draw(st.sampled_from(["csv", "tsv"]))
    rows = [*([header] if (header := draw(HEADERS)) else []), *draw(ROWS)]
    return kind, separated(rows, delimiter="," if kind == "csv" else "\t", is_quoted=draw(st.booleans()))


@st.composite
def parquet_files(draw: st.DrawFn) -> tuple[str, bytes]:
    count = draw(st.integers(0, 5))
    columns: dict[str, Any] = {}
    for name in draw(HEADERS):
        kind = draw(st.sampled_from(range(len(VALUES.original_strategies))))  # type: ignore[attr-defined]
        values = VALUES.original_strategies[kind]  # type: ignore[attr-defined]
        columns[name] = draw(st.lists(st.one_of(st.none(), values), min_size=count, max_size=count))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    content = bytearray(sink.getvalue().to_pybytes())
    for place, value in draw(st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=3)):
        content[place] = value
    return "parquet", bytes(content[: draw(st.sampled_from([len(content), len(content) // 2, len(content) - 1]))])


FILES = st.one_of(
    separated_files(),
    parquet_files(),
    st.tuples(st.sampled_from(["csv", "tsv", "parquet"]), st.binary(max_size=60)),
)
SPLITS = st.sampled_from(["train", "test"])
GOOD = b"label,text\n0,bad\n1,good\n1,fine\n0,dull\n"


def check_file(machine: Path, split: str, kind: str, content: bytes) -> None:
    folder = machine / "texts"
    for path in folder.iterdir():
        path.unlink()
    for name in ("train", "test"):
        (folder / f"{name}.csv").write_bytes(GOOD)
    (folder / f"{split}.csv").unlink()
    (folder / f"{split}.{kind}").write_bytes(content)
    before = left_in(machine)
    ending = tried("run", ["--data", "auto", "--dataset", str(folder)])
    check_refusal(ending, f"{split}.{kind}", NO_MODEL)
    assert ending.code == 2
    assert left_in(machine) == before


@given(split=SPLITS, file=FILES)
@settings(max_examples=100)
def test_a_file_is_read_or_refused_by_name(machine: Path, split: str, file: tuple[str, bytes]) -> None:
    check_file(machine, split, *file)


@pytest.mark.soak
@given(split=SPLITS, file=FILES)
@settings(max_examples=3000)
def test_thousands_of_files_are_read_or_refused_by_name(machine: Path, split: str, file: tuple[str, bytes]) -> None:
    check_file(machine, split, *file)
