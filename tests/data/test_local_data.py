"""A local copy: files as they are, and every fault named with its place."""

import csv
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data.conftest import MakeFolder
from hypothesis import given
from hypothesis import strategies as st

from rapid_lab.data.examples import Columns
from rapid_lab.data.local import read_training
from rapid_lab.data.sources import TextData, find_data
from rapid_lab.errors import DataError


def found(folder: Path, **columns: str) -> TextData:
    return find_data(str(folder), "auto", **columns)


def parquet(**columns: list[Any]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return bytes(sink.getvalue())


def test_a_csv_field_keeps_its_commas_quotes_and_newlines(make_folder: MakeFolder) -> None:
    data = found(make_folder(train_csv='label,text\n1,"a, ""b""\nc"\n0,d\n'))
    assert data.train.texts == ['a, "b"\nc', "d"]
    assert data.train.labels == [1, 0]
    assert data.num_labels == 2


def test_a_tsv_has_no_quoting_and_keeps_trailing_blanks(make_folder: MakeFolder) -> None:
    data = found(make_folder(train_csv=None, train_tsv='sentence\tlabel\n" so it begins \t0\nit\'s "fine" \t1\n'))
    assert data.train.texts == ['" so it begins ', 'it\'s "fine" ']


def test_parquet_is_read_with_its_own_types(make_folder: MakeFolder) -> None:
    content = parquet(idx=[7, 8, 9], content=["a", "b", "c"], label=[2, 0, 1])
    data = found(make_folder(train_csv=None, train_parquet=content))
    assert (data.train.texts, data.train.labels, data.num_labels) == (["a", "b", "c"], [2, 0, 1], 3)


def test_a_byte_order_mark_windows_line_ends_and_blank_lines_are_no_data(make_folder: MakeFolder) -> None:
    data = found(make_folder(train_csv="\ufefflabel,text\r\n0,a\r\n\r\n1,b\r\n\r\n"))
    assert data.train.texts == ["a", "b"]


# NUL ends a field in some readers of CSV, a lone surrogate is no UTF-8; everything else must come back.
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")).filter(str.strip)


@given(texts=st.lists(ANY_TEXT, min_size=2, max_size=6))
def test_what_a_csv_writer_wrote_is_what_is_read(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("written") / "train.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("label", "text"), *((row % 2, text) for row, text in enumerate(texts))])
    examples, _ = read_training(path, Columns())
    assert examples.texts == texts


def test_columns_can_be_named(make_folder: MakeFolder) -> None:
    folder = make_folder(train_csv="stars,said,text\n0,a,x\n1,b,y\n", test_csv="stars,said\n1,c\n")
    data = found(folder, text_column="said", label_column="stars")
    assert data.train.texts == ["a", "b"]
    assert data.read_report().texts == ["c"]


BROKEN = {
    "no text column": ("label,body\n0,a\n", ["train.csv", "no text column", "'label', 'body'", "text_column"]),
    "no label column": ("text,y\na,0\n", ["no label column", "'text', 'y'", "label_column"]),
    "a column twice": ("label,text,text\n0,a,b\n", ["'text' twice"]),
    "nothing at all": ("", ["no text column", "none"]),
    "no rows": ("label,text\n", ["train.csv is empty"]),
    "one class": ("label,text\n1,a\n1,b\n", ["one class only, 1"]),
    "a gap": ("label,text\n0,a\n2,b\n", ["not 0..C-1", "found 0, 2"]),
    "labels from one": ("label,text\n1,a\n2,b\n", ["not 0..C-1", "found 1, 2"]),
    "negative labels": ("label,text\n-1,a\n1,b\n", ["not 0..C-1", "found -1, 1"]),
    "words": ("label,text\n0,a\nneg,b\n", ["not 0..C-1, first in row 2", "found '0', 'neg'"]),
    "fractions": ("label,text\n0.0,a\n1.0,b\n", ["found '0.0', '1.0'"]),
    "a missing label": ("label,text\n0,a\n,b\n", ["first in row 2"]),
    "an empty text": ("label,text\n0,a\n1,\n", ["row 2 has no text"]),
    "a blank text": ("label,text\n0,  \n1,a\n", ["row 1 has no text"]),
    "too many fields": ("label,text\n0,a\n1,b,c\n", ["line 3 has 3 fields, the header has 2"]),
    "too few fields": ("label,text\n0,a\n1\n", ["line 3 has 1 fields"]),
    "an open quote": ('label,text\n0,a\n1,"b\n', ["line 3 is broken", "end of data"]),
    "text after a quote": ('label,text\n0,"a" b\n1,c\n', ["line 2 is broken"]),
    "another encoding": (b"label,text\n0,a\n1,caf\xe9\n", ["line 3 is not UTF-8"]),
}


@pytest.mark.parametrize(("content", "parts"), BROKEN.values(), ids=BROKEN)
def test_a_fault_is_named_with_its_file_and_place(
    make_folder: MakeFolder, content: str | bytes, parts: list[str]
) -> None:
    with pytest.raises(DataError) as error:
        found(make_folder(train_csv=content))
    assert all(part in str(error.value) for part in ["train.csv", *parts]), str(error.value)


PARQUET_FAULTS = {
    "no parquet": (b"PAR1 and nothing else", "no readable parquet"),
    "a null text": (parquet(text=["a", None], label=[0, 1]), "row 2 has no text"),
    "a null label": (parquet(text=["a", "b"], label=[0, None]), "first in row 2: found 0, None"),
    "numbers for texts": (parquet(text=[1, 2], label=[0, 1]), "row 1 has 1 where a text should be"),
    "booleans": (parquet(text=["a", "b"], label=[True, False]), "found True, False"),
}


@pytest.mark.parametrize(("content", "part"), PARQUET_FAULTS.values(), ids=PARQUET_FAULTS)
def test_faults_of_parquet_files(make_folder: MakeFolder, content: bytes, part: str) -> None:
    with pytest.raises(DataError, match=part):
        found(make_folder(train_csv=None, train_parquet=content))


def test_many_wrong_labels_are_counted_not_listed(make_folder: MakeFolder) -> None:
    rows = "".join(f"{10 * row},t\n" for row in range(200))
    with pytest.raises(DataError, match=r"found 0, 10, 20, 30, 40, 50, 60, 70, \.\.\. \(200 values\)"):
        found(make_folder(train_csv="label,text\n" + rows))


@pytest.mark.parametrize(
    ("files", "part"),
    [
        ({"train_csv": None}, r"^the dataset's folder .* has no train\.\{csv,tsv,parquet\}: it holds test.csv"),
        ({"test_csv": None}, "no test.* or validation"),
        ({"train_tsv": "label\ttext\n"}, r"train.csv and train.tsv"),
    ],
)
def test_a_folder_has_one_file_for_each_split(make_folder: MakeFolder, files: dict[str, Any], part: str) -> None:
    with pytest.raises(DataError, match=part):
        found(make_folder(**files))


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("label,text\n2,a\n", r"outside the training classes 0\.\.1: 2"),
        ("label,text\n", "test.csv is empty"),
        ("label,body\n0,a\n", "no text column"),
        ("label,text\n0,\n", "row 1 has no text"),
    ],
)
def test_a_report_split_that_cannot_be_used_is_refused_before_any_model(
    make_folder: MakeFolder, content: str, part: str
) -> None:
    with pytest.raises(DataError, match=part):
        found(make_folder(test_csv=content))


def test_a_report_split_may_miss_a_class(make_folder: MakeFolder) -> None:
    assert found(make_folder(test_csv="label,text\n1,only this\n")).read_report().labels == [1]


def test_a_report_split_that_changed_meanwhile_is_refused(make_folder: MakeFolder) -> None:
    folder = make_folder()
    data = found(folder)
    (folder / "test.csv").write_text("label,text\n0,easier\n")
    with pytest.raises(DataError, match="changed since"):
        data.read_report()


def test_the_data_hash_follows_texts_labels_and_the_report_split(make_folder: MakeFolder) -> None:
    variants: list[dict[str, str]] = [
        {},
        {"train_csv": "label,text\n0,bad\n1,Good\n"},
        {"train_csv": "label,text\n1,bad\n0,good\n"},
        {"train_csv": "label,text\n1,good\n0,bad\n"},
        {"test_csv": "label,text\n0,fine\n"},
    ]
    hashes = [found(make_folder(f"copy{i}", **files)).data_hash for i, files in enumerate(variants)]
    assert len(set(hashes)) == len(variants)
    assert found(make_folder("elsewhere")).data_hash == hashes[0], "the path is no part of it"


def test_the_format_of_the_training_file_is_no_part_of_the_data_hash(make_folder: MakeFolder) -> None:
    plain = found(make_folder("plain"))
    columns = found(make_folder("columns", train_csv=None, train_parquet=parquet(text=["bad", "good"], label=[0, 1])))
    assert plain.data_hash == columns.data_hash
