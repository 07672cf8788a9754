"""Sections as the HTML page shows them: numbered, grouped, every cell with its runs and remarks."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby

from markupsafe import Markup

from rapid_lab.comparison import style
from rapid_lab.comparison.records import Cell, Drawing, Section, Table
from rapid_lab.objectives import METHODS

TALL = 24  # rows
# A cell's characters: up to the first number they stay on one line, beyond the second they get a wide column.
SHORT, LONG = 36, 120
# With more figures of one kind than this, the page shows one and lets the reader choose.
MOST_AT_ONCE = 2
BADGES = {
    "reproduced": "good",
    "better": "good",
    "not reproduced": "bad",
    "worse": "bad",
    "not comparable": "quiet",
    "not run": "quiet",
    "not shown": "quiet",
}
LABEL_COLOURS = {components.label: style.colour(method) for method, components in METHODS.items()}
# In HTML a script ends at "</", whatever JSON says; the two separators end a line in old JavaScript.
ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def safe_json(document: str) -> Markup:
    """JSON that can stand inside a script element whatever its texts are."""
    return Markup(document.translate(ESCAPES))  # noqa: S704


@dataclass(frozen=True)
class Mark:
    """A remark under a table and the letter that points to it."""

    letter: str
    text: str


@dataclass(frozen=True)
class ShownCell:
    """A cell as the page needs it."""

    text: str
    is_number: bool
    length: str
    is_best: bool
    badge: str
    colour: str
    href: str
    runs: str
    strangers: str
    count: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class ShownColumn:
    """A column's name, and whether it holds numbers."""

    name: str
    is_number: bool


@dataclass(frozen=True)
class ShownRow:
    """A row; `is_again` where its first cell repeats that of the row above."""

    cells: list[ShownCell]
    is_again: bool


@dataclass(frozen=True)
class ShownTable:
    """A table as the page needs it."""

    id: str
    number: int
    title: str
    columns: list[ShownColumn]
    rows: list[ShownRow]
    notes: tuple[str, ...]
    footnotes: list[Mark]
    is_tall: bool


@dataclass(frozen=True)
class ShownFigure:
    """A figure as the page needs it; a caption's first sentence is its heading."""

    id: str
    number: int
    name: str
    heading: str
    text: str
    place: str
    height: int
    document: Markup


@dataclass(frozen=True)
class Group:
    """Figures of one kind."""

    id: str
    heading: str
    figures: list[ShownFigure]

    @property
    def is_chosen(self) -> bool:
        """Whether the reader chooses among them."""
        return len(self.figures) > MOST_AT_ONCE


@dataclass(frozen=True)
class Part:
    """A section as the page needs it."""

    id: str
    heading: str
    paragraphs: tuple[str, ...] = ()
    tables: list[ShownTable] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)

    @property
    def entries(self) -> list[dict[str, str]]:
        """What stands under the part in the contents."""
        tables = [{"id": table.id, "text": table.title} for table in self.tables]
        return tables + [{"id": group.id, "text": group.heading} for group in self.groups]


def shown_parts(sections: Sequence[Section], places: Mapping[str, int]) -> Iterator[Part]:
    """The sections in order; `places` says where in the page's list of runs a run stands."""
    table_numbers, figure_numbers = count(1), count(1)
    for number, section in enumerate(sections, start=1):
        tables = [_table(table, next(table_numbers), places) for table in section.tables]
        figures = [shown_figure(drawing, next(figure_numbers)) for drawing in section.drawings]
        yield Part(f"part-{number}", section.heading, section.paragraphs, tables, _groups(figures))


def _table(table: Table, number: int, places: Mapping[str, int]) -> ShownTable:
    texts = dict.fromkeys(mark for row in table.rows for cell in row for mark in cell.marks)
    marks = {text: Mark(_letter(place), text) for place, text in enumerate(texts)}
    numeric = [_is_numeric([row[place] for row in table.rows]) for place in range(len(table.columns))]
    cells = [
        [_cell(cell, is_number=number, marks=marks, places=places) for cell, number in zip(row, numeric, strict=True)]
        for row in table.rows
    ]
    above = [None, *(row[0].text for row in cells)]
    rows = [ShownRow(row, row[0].text == before) for row, before in zip(cells, above, strict=False)]
    columns = [ShownColumn(name, is_number) for name, is_number in zip(table.columns, numeric, strict=True)]
    is_tall = len(rows) > TALL
    return ShownTable(f"table-{number}", number, table.title, columns, rows, table.notes, list(marks.values()), is_tall)


def _letter(place: int) -> str:
    """a, b, ..., z, aa, ab, ..."""
    more, last = divmod(place, 26)
    return (_letter(more - 1) if more else "") + chr(ord("a") + last)


def _is_numeric(cells: Sequence[Cell]) -> bool:
    """Whether a column is one of numbers, gaps aside."""
    values = [cell.value for cell in cells if cell.value is not None]
    return bool(values) and not any(isinstance(value, str) for value in values)


def _cell(cell: Cell, *, is_number: bool, marks: Mapping[str, Mark], places: Mapping[str, int]) -> ShownCell:
    known = [run_id for run_id in cell.run_ids if run_id in places]
    strangers = [run_id for run_id in cell.run_ids if run_id not in places]
    runs = len(cell.run_ids)
    return ShownCell(
        text=cell.text,
        is_number=is_number,
        length=_length(cell.text),
        is_best=cell.is_best,
        badge=BADGES.get(cell.text, ""),
        colour=LABEL_COLOURS.get(cell.text, ""),
        href=(f"#run-{known[0]}" if known else "#runs") if runs else "",
        runs=" ".join(str(places[run_id]) for run_id in known),
        strangers=" ".join(strangers),
        count="from 1 run" if runs == 1 else f"from {runs} runs",
        marks=tuple(marks[text] for text in cell.marks),
    )


def _length(text: str) -> str:
    """The style of a cell by the length of its text."""
    return "" if len(text) <= SHORT else "long-text" if len(text) <= LONG else "long-text longest-text"


def shown_figure(drawing: Drawing, number: int = 1) -> ShownFigure:
    """The figure's document without its template, which the page gives it."""
    document = json.loads(drawing.figure.to_json())
    document.get("layout", {}).pop("template", None)
    heading, _, text = drawing.caption.partition(". ")
    return ShownFigure(
        id=f"figure-{number}",
        number=number,
        name=drawing.name,
        heading=heading.removesuffix("."),
        text=text,
        place=heading.partition(": ")[2] or heading,
        height=int(document.get("layout", {}).get("height", 450)),
        document=safe_json(json.dumps(document, separators=(",", ":"))),
    )


def _groups(figures: Sequence[ShownFigure]) -> list[Group]:
    """Neighbours whose names begin with the same word before the dot."""
    groups = [list(group) for _, group in groupby(figures, key=lambda figure: figure.name.partition(".")[0])]
    return [Group(f"group-{group[0].number}", group[0].heading.partition(": ")[0], group) for group in groups]
