"""Data as people have it: long texts, rows twice, and training rows that are in the report split."""

import json
from pathlib import Path
from typing import Any

import pytest
from data.conftest import MakeFolder
from data.test_local_data import found, parquet
from test_cli_run import real as real
from tracking.programs import MLFLOW_WARNINGS

from rapid_lab import names
from rapid_lab.cli import main
from rapid_lab.data import twin
from rapid_lab.data.examples import Examples, rows_within
from rapid_lab.errors import DataError
from rapid_lab.tracking.artifacts import read_text
from rapid_lab.tracking.runs import existing_run

LONG = "word " * 200_000  # a megabyte
ROWS = "label{0}text\n0{0}{1}\n1{0}short\n"


@pytest.mark.parametrize(
    "files",
    [
        {"train_csv": ROWS.format(",", LONG)},
        {"train_csv": None, "train_tsv": ROWS.format("\t", LONG)},
        {"train_csv": None, "train_parquet": parquet(label=[0, 1], text=[LONG, "short"])},
    ],
    ids=["csv", "tsv", "parquet"],
)
def test_a_text_of_a_megabyte_is_a_text(make_folder: MakeFolder, files: dict[str, Any]) -> None:
    data = found(make_folder(**files))
    assert [len(text) for text in data.train.texts] == [len(LONG), 5]


def test_a_long_text_in_quotes_with_line_ends_is_one_text(make_folder: MakeFolder) -> None:
    text = "line\n" * 100_000
    assert found(make_folder(train_csv=f'label,text\n0,"{text}"\n1,b\n')).train.texts == [text, "b"]


def test_rows_that_are_there_twice_are_two_rows(make_folder: MakeFolder) -> None:
    data = found(make_folder(train_csv="label,text\n0,same\n0,same\n1,same\n1,other\n"))
    assert len(data.train) == 4
    assert data.warnings == ()


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (parquet(text=[b"caf\xe9", b"b"], label=[0, 1]), "row 1 has b'caf"),
        (parquet(text=[["a"], ["b"]], label=[0, 1]), r"row 1 has \['a'\] where a text should be"),
        (parquet(text=["a", "b"], label=[0.0, 1.0]), "found 0.0, 1.0"),
        (parquet(text=["a", "b"], label=[2**62, 0]), "not 0..C-1 without gaps"),
        (parquet(text=[], label=[]), "is empty"),
        (parquet(text=[None, None], label=[0, 1]), "row 1 has no text"),
        (parquet(text=[LONG.encode(), b"b"], label=[0, 1]), "row 1 has b'word"),
    ],
)
def test_what_is_no_text_or_label_in_parquet_is_named_shortly(
    make_folder: MakeFolder, content: bytes, part: str
) -> None:
    with pytest.raises(DataError, match=part) as error:
        found(make_folder(train_csv=None, train_parquet=content))
    assert len(str(error.value)) < 1000


def test_parquet_whose_strings_are_no_utf_8_is_refused(make_folder: MakeFolder) -> None:
    content = parquet(text=["cafXYZ", "b"], label=[0, 1]).replace(b"cafXYZ", b"caf\xff\xfeZ")
    with pytest.raises(DataError, match=r"train\.parquet is no readable parquet file"):
        found(make_folder(train_csv=None, train_parquet=content))


def test_training_rows_in_the_report_split_are_counted_and_warned_of(make_folder: MakeFolder) -> None:
    data = found(
        make_folder(
            train_csv="label,text\n0,a b\n1,c\n1,c\n0,d\n",
            test_csv="label,text\n1,a  b \n0,c\n1,new\n",
        )
    )
    assert data.train_rows_in_report == 3
    (warning,) = data.warnings
    assert "3 of 4 training rows have a text that is in the report split too" in warning


def test_without_shared_rows_nothing_is_said(make_folder: MakeFolder) -> None:
    data = found(make_folder())
    assert (data.train_rows_in_report, data.warnings) == (0, ())


def test_blanks_and_labels_do_not_tell_texts_apart_but_letters_do() -> None:
    one, other = Examples([" a\tb ", "A b", "c"], [0, 1, 0]), Examples(["a b"], [1])
    assert (rows_within(one, other), rows_within(other, one)) == (1, 1)


@pytest.mark.parametrize("dataset", twin.TWINS)
def test_no_training_text_of_the_twin_is_in_its_report_split(dataset: str) -> None:
    train, report = (twin.make_split(dataset, split) for split in ("train", "report"))
    assert rows_within(train, report) == 0


@pytest.mark.filterwarnings(MLFLOW_WARNINGS)
@pytest.mark.usefixtures("store")
def test_the_record_of_a_run_has_the_number_of_shared_rows(
    real: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word for name, value in real.items() for word in (f"--{name.replace('_', '-')}", value)]
    tiny = [
        "--method",
        "student_ce",
        "--epochs",
        "1",
        "--student-layers",
        "1",
        "--max-length",
        "8",
        "--log-model=false",
    ]
    assert main(["run", *words, *tiny, "--json"]) == 0
    shown = capsys.readouterr()
    summary = json.loads(shown.out)
    said = "64 of 64 training rows have a text that is in the report split too"
    assert said in shown.err
    assert said in summary["warnings"][0]
    run = existing_run(summary["run_id"])
    assert json.loads(read_text(run, names.RESULT))["data"]["train_rows_in_report"] == 64
    assert (
        "64 training rows have a text of the report split"
        in run.client.get_run(run.run_id).data.tags[names.DESCRIPTION]
    )
