"""Sections as one HTML page that needs no other file and no network, and figures as files of their own."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from rapid_lab.comparison import style
from rapid_lab.comparison.page import Part, safe_json, shown_figure, shown_parts
from rapid_lab.comparison.records import Drawing, Excluded, Section, Student
from rapid_lab.comparison.wording import method_label
from rapid_lab.errors import SettingError
from rapid_lab.objectives import METHODS

HERE = Path(__file__).parent
LAST_PARTS = (Part("runs", "Runs"), Part("excluded", "Runs left out"), Part("facts", "How this report was made"))
# Pixels of a picture; twice as many points, so that it prints.
WIDTH, SCALE = 960, 2


def html_report(
    title: str,
    sections: Sequence[Section],
    *,
    excluded: Sequence[Excluded],
    students: Sequence[Student],
    run_link: Callable[[Student], str] | None,
    facts: Mapping[str, str],
) -> str:
    """The whole report as one page: tables with their runs, figures, what was left out, and the facts behind it."""
    parts = shown_parts(sections, {student.run_id: place for place, student in enumerate(students)})
    return rendered(
        "report.html.j2",
        title=title,
        parts=[*parts, *LAST_PARTS],
        cards=_cards(students, excluded),
        methods=_methods(students),
        warnings=_warnings(students),
        students=[_run(student, run_link) for student in students],
        excluded=excluded,
        facts=facts,
        plotly=Markup(get_plotlyjs()) if any(section.drawings for section in sections) else None,  # noqa: S704
    )


def rendered(template: str, **values: Any) -> str:
    """A template of this folder with the page's style and script; every text in it is escaped."""
    loader = FileSystemLoader(HERE)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    own = {"style": _own("report.css"), "script": _own("report.js")}
    templates = safe_json(json.dumps({"light": style.LIGHT, "dark": style.DARK}))
    return environment.get_template(template).render(templates=templates, **own, **values)


def _own(name: str) -> Markup:
    return Markup((HERE / name).read_text(encoding="utf-8"))  # noqa: S704


def _run(student: Student, run_link: Callable[[Student], str] | None) -> dict[str, Any]:
    link = safe_link(run_link(student)) if run_link else ""
    names = ("run_id", "name", "method", "dataset", "seed", "config_id", "source_hash", "schema_version", "device")
    return {"id": f"run-{student.run_id}", "link": link, **{name: getattr(student, name) for name in names}}


def safe_link(address: str) -> str:
    """The address where a browser may follow it; empty where it would run something."""
    if any(ord(char) <= ord(" ") for char in address):
        return ""
    try:
        scheme = urlsplit(address).scheme.lower()
    except ValueError:
        return ""
    return address if scheme in ("http", "https") or (not scheme and address.startswith(("/", "#", "./"))) else ""


def _cards(students: Sequence[Student], excluded: Sequence[Excluded]) -> list[dict[str, Any]]:
    numbers = {
        "run": len(students),
        "method": len({student.method for student in students}),
        "dataset": len({student.dataset for student in students}),
        "seed": len({student.seed for student in students}),
    }
    cards = [{"number": number, "text": word if number == 1 else f"{word}s"} for word, number in numbers.items()]
    return [*cards, {"number": len(excluded), "text": "left out"}]


def _methods(students: Sequence[Student]) -> list[dict[str, str]]:
    """In the paper's order, then by name."""
    found, order = {student.method for student in students}, list(METHODS)
    ranked = sorted(found, key=lambda method: (order.index(method) if method in order else len(order), method))
    return [{"label": method_label(method), "colour": style.colour(method)} for method in ranked]


def _warnings(students: Sequence[Student]) -> list[str]:
    """What a reader has to know before the first number."""
    warnings = []
    twins = sorted({student.dataset for student in students if student.data_source == "twin"})
    if twins:
        warnings.append(f"The texts of {' and '.join(twins)} are generated: these are no results on real data.")
    if any(student.is_biased for student in students):
        warnings.append("Some runs clip their corrections, which makes their estimator biased: they are marked.")
    return warnings


def write_drawings(drawings: Sequence[Drawing], folder: Path, static: Literal["png", "svg"] | None) -> list[Path]:
    """Each figure as an interactive page, and as a picture where `static` asks for one; the files written."""
    pictures = _pictures(drawings, folder, static) if static else []
    folder.mkdir(parents=True, exist_ok=True)
    # Once beside the pages instead of in each of them: it is forty times as large as a figure.
    library = folder / "plotly.min.js"
    library.write_text(get_plotlyjs(), encoding="utf-8")
    pages = [folder / f"{drawing.name}.html" for drawing in drawings]
    for drawing, page in zip(drawings, pages, strict=True):
        page.write_text(rendered("drawing.html.j2", figure=shown_figure(drawing)), encoding="utf-8")
    return [*pages, *pictures, library]


def _pictures(drawings: Sequence[Drawing], folder: Path, static: str) -> list[Path]:
    """By kaleido, in a browser of its own that asks no host for anything."""
    try:
        import kaleido
        from kaleido.errors import ChromeNotFoundError
    except ImportError:
        reason = "pictures need another package; pip install 'rapid-lab[static]' brings it"
        raise SettingError(f"static must be left out where kaleido is not installed, got {static}: {reason}") from None
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{drawing.name}.{static}" for drawing in drawings]
    asked = [_picture(drawing, path, static) for drawing, path in zip(drawings, paths, strict=True)]
    try:
        kaleido.write_fig_from_object_sync(asked, kopts={"mathjax": False})
    except ChromeNotFoundError:
        reason = "kaleido draws with a browser; install chromium, or name one in BROWSER_PATH"
        raise SettingError(f"static must be left out where there is no Chromium, got {static}: {reason}") from None
    return paths


def _picture(drawing: Drawing, path: Path, static: str) -> dict[str, Any]:
    figure = drawing.figure.to_dict()
    figure["layout"]["paper_bgcolor"] = "#ffffff"
    options = {"format": static, "width": WIDTH, "height": figure["layout"].get("height", 450), "scale": SCALE}
    return {"fig": figure, "path": path, "opts": options}
