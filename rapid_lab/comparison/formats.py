"""A table as Markdown, LaTeX, CSV and JSON: names from the store are text in all of them, and never code."""

import csv
import io
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from rapid_lab.comparison.records import Cell, Student, Table
from rapid_lab.comparison.rounding import NOTHING
from rapid_lab.harmless import file_name, one_line

LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "%": r"\%",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "±": r"\ensuremath{\pm}",
}
# A spreadsheet takes a text that begins so for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")
SPREAD = " ± "


def marks_in(table: Table) -> list[str]:
    """The table's marks, each once, in the order of its cells: the first is footnote 1."""
    return list(dict.fromkeys(mark for row in table.rows for cell in row for mark in cell.marks))


def markdown(table: Table) -> str:
    """A heading, the table, its footnotes and notes."""
    marks = marks_in(table)
    lines = [table.columns, ["---"] * len(table.columns)]
    body = [
        "| " + " | ".join(_markdown_text(text) if line is table.columns else text for text in line) + " |"
        for line in lines
    ]
    body += ["| " + " | ".join(_markdown_cell(cell, marks) for cell in row) + " |" for row in table.rows]
    footnotes = [f"<sup>{number}</sup> {_markdown_text(mark)}" for number, mark in enumerate(marks, start=1)]
    notes = [_markdown_text(note) for note in table.notes]
    return "\n\n".join([f"### {_markdown_text(table.title)}", "\n".join(body), *footnotes, *notes]) + "\n"


def _markdown_cell(cell: Cell, marks: list[str]) -> str:
    text = _markdown_text(cell.text)
    text = f"**{text}**" if cell.is_best else text
    return text + (f" <sup>{_numbers(cell, marks)}</sup>" if cell.marks else "")


def _markdown_text(text: str) -> str:
    # Not an HTML entity but a backslash where Markdown takes one, so that the source stays readable.
    return (
        re.sub(r"([\\`*_\[\]|~#])", r"\\\1", one_line(text))
        .replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
    )


def latex(table: Table) -> str:
    """A floating table in booktabs style; needs no package but booktabs."""
    marks = marks_in(table)
    names = [column for column, _ in enumerate(table.columns) if not _is_numeric(table, column)]
    alignment = "".join("l" if column in names else "r" for column, _ in enumerate(table.columns))
    lines = [" & ".join(_latex_text(title) for title in table.columns) + r" \\", r"\midrule"]
    for number, row in enumerate(table.rows):
        if number and _begins_group(table, number):
            lines.append(r"\midrule")
        lines.append(" & ".join(_latex_cell(cell, marks) for cell in row) + r" \\")
    footnotes = [rf"\textsuperscript{{{number}}} {_latex_text(mark)}" for number, mark in enumerate(marks, start=1)]
    below = [rf"\par\smallskip{{\footnotesize {text}\par}}" for text in (*footnotes, *map(_latex_text, table.notes))]
    return "\n".join(
        [
            "% Needs \\usepackage{booktabs} and \\usepackage[T1]{fontenc}.",
            r"\begin{table}[t]",
            r"\centering",
            r"\small",
            rf"\caption{{{_latex_text(table.title)}}}",
            rf"\label{{tab:{file_name(table.name).replace('_', '-')}}}",
            rf"\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            *below,
            r"\end{table}",
            "",
        ]
    )


def _begins_group(table: Table, number: int) -> bool:
    """Whether a rule belongs above a row: where the first column changes, if it repeats at all."""
    first = [row[0].text for row in table.rows]
    return len(set(first)) < len(first) and first[number] != first[number - 1]


def _is_numeric(table: Table, column: int) -> bool:
    return any(isinstance(row[column].value, int | float) for row in table.rows)


def _latex_cell(cell: Cell, marks: list[str]) -> str:
    text = "--" if cell.text == NOTHING else _latex_text(cell.text)
    text = rf"\textbf{{{text}}}" if cell.is_best else text
    return text + (rf"\textsuperscript{{{_numbers(cell, marks)}}}" if cell.marks else "")


def _latex_text(text: str) -> str:
    return "".join(_latex_character(character) for character in one_line(text))


def _latex_character(character: str) -> str:
    if character in LATEX or character.isascii():
        return LATEX.get(character, character)
    # Which letters a LaTeX has depends on its fonts; a code point compiles everywhere.
    return f"[U+{ord(character):04X}]"


def comma_separated(table: Table) -> str:
    """A row for each row; mean and deviation in columns of their own, then marks and run ids, and notes below.

    A note is a line of one field that begins with '# ', which every reader of CSV takes as a short row.
    """
    spread = [any(row[column].spread is not None for row in table.rows) for column, _ in enumerate(table.columns)]
    header = [name for title, has in zip(table.columns, spread, strict=True) for name in _titles(title, has_spread=has)]
    lines = [[*header, "marks", "run_ids"]]
    for row in table.rows:
        values = [text for cell, has in zip(row, spread, strict=True) for text in _values(cell, has_spread=has)]
        marks = dict.fromkeys(mark for cell in row for mark in cell.marks)
        runs = dict.fromkeys(run_id for cell in row for run_id in cell.run_ids)
        lines.append([*values, "; ".join(marks), " ".join(runs)])
    lines += [[f"# {note}"] for note in table.notes]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_harmless(field) for field in line] for line in lines)
    return text.getvalue()


def _titles(title: str, *, has_spread: bool) -> list[str]:
    return [title, f"{title} std"] if has_spread else [title]


def _values(cell: Cell, *, has_spread: bool) -> list[str]:
    text = "" if cell.text == NOTHING else cell.text
    if not has_spread:
        return [text]
    return text.split(SPREAD) if cell.spread is not None else [text, ""]


def _harmless(field: str) -> str:
    """A text that no spreadsheet takes for a formula; numbers stay numbers."""
    field = one_line(field)
    return f"'{field}" if field.startswith(FORMULA) and not NUMBER.fullmatch(field) else field


def document(table: Table, students: Mapping[str, Student]) -> dict[str, Any]:
    """The table for machines: every cell with the runs it came from and what each was made with."""
    return {
        "name": table.name,
        "title": table.title,
        "columns": list(table.columns),
        "rows": [[_cell_document(cell, students) for cell in row] for row in table.rows],
        "notes": list(table.notes),
    }


def _cell_document(cell: Cell, students: Mapping[str, Student]) -> dict[str, Any]:
    return {
        "text": cell.text,
        "value": _finite(cell.value),
        "spread": _finite(cell.spread),
        "is_best": cell.is_best,
        "marks": list(cell.marks),
        "runs": [_provenance(run_id, students.get(run_id)) for run_id in cell.run_ids],
    }


def _finite(value: float | int | str | None) -> float | int | str | None:
    """JSON has no word for a number that is none."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _provenance(run_id: str, student: Student | None) -> dict[str, Any]:
    if student is None:
        return {"run_id": run_id}
    return {
        "run_id": run_id,
        "seed": student.seed,
        "config_id": student.config_id,
        "source_hash": student.source_hash,
        "schema_version": student.schema_version,
        "correct": student.correct,
        "total": student.total,
    }


def json_text(table: Table, students: Mapping[str, Student]) -> str:
    """The document as a file has it, a line for each row: indented further it would be mostly spaces."""
    whole = document(table, students)
    head = [f"{json.dumps(name)}: {_json(value)}" for name, value in whole.items() if name != "rows"]
    rows = ",\n  ".join(_json(row) for row in whole["rows"])
    return "{\n " + ",\n ".join([*head, f'"rows": [\n  {rows}\n ]']) + "\n}\n"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def written(table: Table, students: Mapping[str, Student]) -> dict[str, str]:
    """The table in every format, by the suffix of its file."""
    return {
        "md": markdown(table),
        "tex": latex(table),
        "csv": comma_separated(table),
        "json": json_text(table, students),
    }


def _numbers(cell: Cell, marks: list[str]) -> str:
    return ",".join(str(marks.index(mark) + 1) for mark in cell.marks)
