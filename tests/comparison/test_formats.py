"""One table in four formats, in which a hostile name is text and nothing else."""

import csv
import html
import io
import json
import math
import re

import pandas as pd
import pytest
from comparison.stores import make_student

from rapid_lab.comparison.formats import comma_separated, json_text, latex, markdown, written
from rapid_lab.comparison.records import Cell, Setup, Table
from rapid_lab.comparison.setups import build_setups
from rapid_lab.comparison.tables import main_results, paper_tables

HOSTILE = [
    '=HYPERLINK("http://x")',
    "+1+cmd|' /C calc'!A0",
    "@SUM(A1)",
    "-2+3",
    "\tx",
    "<script>alert(1)</script>",
    "a|b`c*d_e[f](g)~h#i",
    "\\input{secret} & % $ # _ { } ~ ^ \\",
    "}\\end{tabular}{",
    "two\nlines\rand\u2028more",
    "café 中文 ± \x00\x1b[31m",
    "**bold**",
]


def table_of(*texts: str) -> Table:
    rows = tuple(
        (Cell(text, text), Cell("94.285 ± 0.054", 94.2849, 0.0538, is_best=True, marks=(text,))) for text in texts
    )
    return Table("hostile", "A title & more", ("Name_1", "Accuracy (%)"), rows, ("A note with 5 % & _",))


def paper_setup() -> Setup:
    students = [
        make_student(method, seed=seed, correct=80 + seed) for method in ("student_ce", "rapid") for seed in (1, 2)
    ]
    (setup,), _ = build_setups(students)
    return setup


def cells_of(line: str) -> list[str]:
    return re.split(r"(?<!\\)&", line.removesuffix(r" \\"))


def check_latex(text: str) -> None:
    """Braces and environments balance, and every row has as many cells as the table has columns."""
    plain = re.sub(r"\\[{}]", "", text)
    depth = 0
    for character in plain:
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert depth == 0
    environments: list[str] = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            environments.append(name)
        else:
            assert environments.pop() == name
    assert environments == []
    columns = re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)
    assert columns is not None
    body = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
    rows = [line for line in body.splitlines() if line.endswith(r" \\")]
    assert rows
    assert {len(cells_of(row)) for row in rows} == {len(columns[1])}
    # What has a meaning for TeX stands only where the table itself put it.
    assert not re.search(r"(?<!\\)[%$#_^~]", text.partition("\n")[2])
    assert text.isascii()


@pytest.mark.parametrize("name", HOSTILE)
def test_latex_is_balanced_and_escaped_whatever_the_names(name: str) -> None:
    text = latex(table_of(name, "plain"))
    check_latex(text)
    assert "\\input{" not in text.replace("\\textbackslash{}input", "")


def test_the_papers_tables_are_latex_in_booktabs_style() -> None:
    for table in paper_tables([paper_setup()]):
        text = latex(table)
        check_latex(text)
        assert [text.count(rule) for rule in (r"\toprule", r"\bottomrule")] == [1, 1]
        assert "|" not in text
    assert r"\textbf{81.500 \ensuremath{\pm} 0.500}" in latex(main_results([paper_setup()]))


def test_setups_are_parted_by_a_rule() -> None:
    setups, _ = build_setups([make_student("kd", dataset) for dataset in ("agnews", "sst2")] + [make_student("rapid")])
    lines = latex(main_results(setups)).splitlines()
    rules = [number for number, line in enumerate(lines) if line == r"\midrule"]
    assert len(rules) == 2
    assert lines[rules[1] + 1].startswith("sst2")


@pytest.mark.parametrize("name", HOSTILE)
def test_csv_has_no_formula_and_reads_back(name: str) -> None:
    header, first, second, note = csv.reader(io.StringIO(comma_separated(table_of(name, "plain"))))
    assert header == ["Name_1", "Accuracy (%)", "Accuracy (%) std", "marks", "run_ids"]
    assert first[1:3] == ["94.285", "0.054"]
    assert note == ["# A note with 5 % & _"]
    assert len(first) == len(second) == len(header)
    for field in (*first, *second):
        assert not field.startswith(("=", "+", "-", "@", "\t", "\r"))
        assert field.isprintable()


def test_negative_numbers_stay_numbers_in_csv() -> None:
    table = Table(
        "t", "t", ("Gain",), ((Cell("-0.044", -0.044),), (Cell("+0.132", 0.132),), (Cell("-"),), (Cell("-x"),))
    )
    assert [row[0] for row in csv.reader(io.StringIO(comma_separated(table)))][1:] == ["-0.044", "+0.132", "", "'-x"]


def test_csv_columns_are_numbers_to_pandas() -> None:
    frame = pd.read_csv(io.StringIO(comma_separated(main_results([paper_setup()]))))
    assert frame["Report accuracy (%)"].dropna().tolist() == [81.5, 81.5]
    assert frame["Report accuracy (%) std"].dropna().tolist() == [0.5, 0.5]
    assert frame["run_ids"].dropna().str.split().map(len).tolist() == [2, 4]


@pytest.mark.parametrize("name", HOSTILE)
def test_markdown_shows_a_name_as_it_is_and_runs_nothing(name: str) -> None:
    text = markdown(table_of(name, "plain"))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 4
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {3}
    assert re.sub(r"</?sup>", "", text).count("<") == 0
    shown = html.unescape(re.sub(r"\\(.)", r"\1", re.split(r"(?<!\\)\|", rows[2])[1].strip()))
    assert shown == "".join(c if c.isprintable() else " " for c in name).strip()


def test_markdown_has_bold_best_values_footnotes_and_notes() -> None:
    rows = ((Cell("1", 1, is_best=True, marks=("odd", "old")),), (Cell("2", marks=("old",)),))
    blocks = markdown(Table("t", "T", ("A",), rows, ("Read me",))).split("\n\n")
    assert blocks == [
        "### T",
        "| A |\n| --- |\n| **1** <sup>1,2</sup> |\n| 2 <sup>2</sup> |",
        "<sup>1</sup> odd",
        "<sup>2</sup> old",
        "Read me\n",
    ]


def test_every_number_in_json_has_its_runs_with_source_config_and_schema() -> None:
    setup = paper_setup()
    students = {student.run_id: student for cell in setup.students.values() for student in cell}
    document = json.loads(json_text(main_results([setup]), students))
    assert document["columns"][2] == "Report accuracy (%)"
    assert document["notes"]
    cell = document["rows"][1][2]
    assert (cell["text"], cell["value"], cell["spread"], cell["is_best"]) == ("81.500 ± 0.500", 81.5, 0.5, True)
    first = setup.students["rapid"][0]
    assert cell["runs"][0] == {
        "run_id": first.run_id,
        "seed": 1,
        "config_id": first.config_id,
        "source_hash": first.source_hash,
        "schema_version": 1,
        "correct": 81,
        "total": 100,
    }


def test_a_number_that_is_none_is_null_in_json() -> None:
    table = Table("t", "t", ("A",), ((Cell("not a number", math.nan, math.inf),),))
    (cell,) = json.loads(json_text(table, {}), parse_constant=pytest.fail)["rows"][0]
    assert (cell["value"], cell["spread"]) == (None, None)


def test_every_format_has_the_tables_notes() -> None:
    table = table_of("plain")
    formats = written(table, {})
    assert sorted(formats) == ["csv", "json", "md", "tex"]
    for text in formats.values():
        assert re.search(r"A note with 5 \\?% (\\?&|&amp;) \\?_", text)
