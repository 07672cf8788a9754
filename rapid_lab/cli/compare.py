"""The tracking store as the paper's tables, with statistics, figures, the claims page and one HTML report.

Reads the store that MLFLOW_TRACKING_URI names (sqlite, PostgreSQL, a server) and nothing else. The main table comes
first; the report is written to the output folder and logged on a run of kind `comparison`.
"""

import argparse
import gc
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rapid_lab.cli.parsing import SWITCH, Parser, parsed
from rapid_lab.cli.tables import text_table
from rapid_lab.errors import SettingError
from rapid_lab.folders import check_writable
from rapid_lab.harmless import file_name, one_line

if TYPE_CHECKING:
    from rapid_lab.comparison.assembly import Comparison
    from rapid_lab.comparison.records import Cell
    from rapid_lab.tracking.reading import Wanted

MAIN = "main_results"
FILTERS = (
    ("experiment", "NAME", "only runs of this experiment"),
    ("dataset", "NAME", "only runs of this dataset, as tables name it"),
    ("tag", "NAME=VALUE", "only runs with this tag"),
    ("run", "IDS", "only these runs, comma-separated"),
)
OBJECTS = 200_000  # between two looks for garbage; at Python's own 700 they take a third of the time to the main table
SHOWN = 10  # runs without a table that a terminal has room for


def run(arguments: Sequence[str]) -> None:
    """Parse, read, print the main table, write and log the report."""
    with rare_collection():
        _run(arguments)


@contextmanager
def rare_collection() -> Iterator[None]:
    """Look for garbage rarely: a store is millions of small objects that are needed to the end."""
    before = gc.get_threshold()
    gc.set_threshold(OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _run(arguments: Sequence[str]) -> None:
    options = parsed(parser(), arguments)
    folder = Path(options.output)
    check_writable("output", folder)
    wanted = _wanted(options)

    from rapid_lab.comparison.assembly import read_comparison

    comparison = read_comparison(wanted)
    if not options.json:
        print(_rendered(comparison), flush=True)
    summary = _report(comparison, folder, options)
    print(json.dumps(_document(comparison, summary)) if options.json else _closing(summary))


def parser() -> Parser:
    """The options of this command."""
    parser = Parser(prog="rapid-lab compare", description=__doc__)
    for name, metavar, text in FILTERS:
        parser.add_argument(f"--{name}", metavar=metavar, action="append", default=[], help=f"{text}; may be repeated")
    parser.add_argument("--output", metavar="FOLDER", default="comparison", help="where files go (default comparison)")
    parser.add_argument("--static", choices=("png", "svg"), help="figures as pictures too")
    parser.add_argument(
        "--ui", metavar="URL", help="the MLflow UI that cells link to (default the server, or mlflow ui)"
    )
    parser.add_argument("--no-log", **SWITCH, help="log no comparison run: the store stays as it is")
    parser.add_argument("--json", **SWITCH, help="print one JSON document")
    return parser


def _wanted(options: argparse.Namespace) -> "Wanted":
    tags = dict(_pair(text) for text in options.tag)
    run_ids = [part.strip() for text in options.run for part in text.split(",") if part.strip()]

    from rapid_lab.tracking.reading import Wanted

    return Wanted(tuple(options.experiment), tuple(run_ids), tags, tuple(options.dataset))


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise SettingError(f"tag must be name=value, got {text!r}: runs are chosen by equality")
    return name, value


def _report(comparison: "Comparison", folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    from rapid_lab.comparison.assembly import make_sections
    from rapid_lab.comparison.details import details_of
    from rapid_lab.comparison.output import log_comparison, write_report
    from rapid_lab.tracking.reading import read_teachers

    with tempfile.TemporaryDirectory() as scratch:
        students = list(comparison.students.values())
        details = details_of(students, comparison.runs, read_teachers(), Path(scratch))
        sections = make_sections(comparison, details)
    paths = write_report(comparison, sections, folder, static=options.static, ui=options.ui)
    run_id = None if options.no_log else log_comparison(comparison, folder, paths)
    return {"report": str(paths[0]), "files": [str(path) for path in paths], "run_id": run_id}


def _rendered(comparison: "Comparison") -> str:
    """The main table for a terminal, its marks and notes, and what is in no table."""
    from rapid_lab.comparison.formats import marks_in

    table = comparison.table(MAIN)
    marks = marks_in(table)
    rows = [[_plain(cell, marks) for cell in row] for row in table.rows]
    lines = [text_table(table.columns, rows), "", "* highest mean of its setup"]
    lines += [f"[{number}] {mark}" for number, mark in enumerate(marks, start=1)]
    lines += [f"{setup.label}: {note}" for setup in comparison.setups for note in setup.notes]
    lines += [f"not in a table: {one.name} ({one.run_id}): {one.reason}" for one in comparison.excluded[:SHOWN]]
    if len(comparison.excluded) > SHOWN:
        lines.append(f"not in a table: {len(comparison.excluded) - SHOWN} more runs, all named in the report")
    return "\n".join(one_line(line) for text in lines for line in text.splitlines() or [""])


def _plain(cell: "Cell", marks: Sequence[str]) -> str:
    numbers = "".join(f" [{marks.index(mark) + 1}]" for mark in cell.marks)
    return f"{cell.text}{'*' if cell.is_best else ''}{numbers}"


def _document(comparison: "Comparison", summary: dict[str, Any]) -> dict[str, Any]:
    from rapid_lab.comparison.formats import document

    tables: dict[str, Any] = {}
    for table in comparison.tables:
        tables[file_name(table.name, taken=tables)] = document(table, comparison.students)
    return {
        **summary,
        "setups": [
            {"label": setup.label, "dataset": setup.dataset, "seeds": setup.seeds, "notes": setup.notes}
            for setup in comparison.setups
        ],
        "tables": tables,
        "excluded": [vars(one) for one in comparison.excluded],
    }


def _closing(summary: dict[str, Any]) -> str:
    logged = f"\nComparison run: {summary['run_id']}" if summary["run_id"] else ""
    return f"\nReport: {summary['report']} ({len(summary['files'])} files){logged}"
