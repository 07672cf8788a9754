import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from comparison.browsers import PATIENCE, Scheme, chromium, needs_chromium, opened
from comparison.samples import (
    HOSTILE,
    all_students,
    details,
    digest,
    excluded,
    prose,
    results_table,
    setup,
    student,
    verdict_table,
)
from playwright.sync_api import Browser, Page, expect

from rapid_lab.comparison.figures import figures_section
from rapid_lab.comparison.page import safe_json
from rapid_lab.comparison.records import Cell, Excluded, Section, Setup, Table
from rapid_lab.comparison.report import html_report, safe_link
from rapid_lab.objectives import PAPER_METHODS

METHODS = ("student_ce", "kd", "rapid")
SETUPS = [
    setup("agnews", 256, METHODS),
    setup("agnews", 64, METHODS),
    setup("sst2", 64, METHODS, marks={"rapid": ("biased: corrections are clipped at 10",)}),
]
LINK = "http://127.0.0.1:5000/#/experiments/1/runs/"


def sections(setups: Sequence[Setup]) -> list[Section]:
    tables = [results_table(made) for made in setups]
    return [
        prose("Means over paired seeds.", tables=tables),
        figures_section(setups, details(setups)),
        Section("Claims", (), (verdict_table(),)),
    ]


def report(setups: Sequence[Setup]) -> str:
    return html_report(
        "A comparison",
        sections(setups),
        excluded=excluded(),
        students=all_students(setups),
        run_link=lambda one: f"{LINK}{one.run_id}",
        facts={"Store": "sqlite:///mlflow.db", "Made": "2026-11-18"},
    )


def small(*tables: Table, **changes: object) -> str:
    """A report of tables alone, which needs no plotly."""
    values: dict[str, object] = {"excluded": [], "students": [], "run_link": None, "facts": {}}
    return html_report("Small", [Section("Part", (), tables)], **{**values, **changes})  # type: ignore[arg-type]


def table(*cells: Cell) -> Table:
    columns = tuple(f"column {place}" for place in range(len(cells)))
    return Table("name", "Title", columns, (cells,))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("report") / "report.html"
    made.write_text(report(SETUPS), encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def surface(page: Page) -> str:
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def tick_colour(page: Page) -> str:
    return page.evaluate("document.querySelector('.xtick text').style.fill")


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_table_and_figure_is_there_without_an_error_or_a_request(
    browser: Browser, path: Path, scheme: Scheme
) -> None:
    with opened(browser, path, scheme=scheme) as (page, _):
        wanted = sections(SETUPS)
        tables = [made for section in wanted for made in section.tables]
        assert page.locator(".table table").count() == len(tables)
        assert page.locator(".table table tbody tr").count() == sum(len(made.rows) for made in tables)
        drawings = [drawing for section in wanted for drawing in section.drawings]
        assert page.locator("figure .chart").count() == len(drawings)
        assert page.locator("figure:not([hidden]) .js-plotly-plot .main-svg").count() >= 7
        assert page.locator("figure:not([hidden]) .js-plotly-plot svg path").count() > 100


@needs_chromium
def test_light_and_dark_follow_the_system_and_then_the_reader(browser: Browser, path: Path) -> None:
    with opened(browser, path, scheme="dark") as (page, _):
        dark, dark_tick = surface(page), tick_colour(page)
        page.get_by_label("Change between light and dark").click()
        light, light_tick = surface(page), tick_colour(page)
        assert (dark, light) == ("rgb(18, 22, 27)", "rgb(251, 250, 247)")
        assert dark_tick != light_tick
        page.get_by_label("Change between light and dark").press("Enter")
        assert (surface(page), tick_colour(page)) == (dark, dark_tick)
        page.reload()
        assert page.evaluate("document.documentElement.dataset.theme") is None


@needs_chromium
def test_the_page_turns_with_the_system_while_it_is_open(browser: Browser, path: Path) -> None:
    with opened(browser, path) as (page, _):
        before = tick_colour(page)
        page.emulate_media(color_scheme="dark")
        page.wait_for_function(f"document.querySelector('.xtick text').style.fill !== '{before}'")


@needs_chromium
def test_the_reader_chooses_among_many_figures_of_a_kind(browser: Browser, path: Path) -> None:
    with opened(browser, path) as (page, _):
        group = page.locator(".group", has=page.get_by_role("heading", name="Gains over the CE student"))
        assert group.locator("figure:visible").count() == 1
        group.locator("select").select_option(label="sst2, budget 64")
        assert group.locator("figure:visible").count() == 1
        expect(group.locator("figure:visible figcaption")).to_contain_text("sst2, budget 64")
        expect(group.locator("figure:visible .main-svg").first).to_be_visible()


@needs_chromium
def test_a_cell_opens_its_runs_by_mouse_and_by_keyboard(browser: Browser, path: Path) -> None:
    one = SETUPS[0].students["kd"]
    with opened(browser, path) as (page, _):
        cell = page.locator("#table-1 tbody tr").nth(1).locator("a.runs").first
        cell.click()
        box = page.get_by_role("dialog", name="Runs of this cell")
        expect(box).to_be_visible()
        links = box.get_by_role("link")
        found = [links.nth(place).get_attribute("href") for place in range(links.count())]
        assert found == [f"{LINK}{each.run_id}" for each in one]
        text = box.inner_text()
        for each in one:
            assert f"seed {each.seed}" in text
        assert f"config {one[0].config_id} \u00b7 source {one[0].source_hash[:10]} \u00b7 schema 1" in text
        page.keyboard.press("Escape")
        expect(box).to_be_hidden()
        cell.press("Enter")
        expect(box).to_be_visible()


@needs_chromium
def test_at_400_pixels_only_tables_scroll_sideways(browser: Browser, path: Path) -> None:
    with opened(browser, path, width=400) as (page, _):
        assert page.evaluate("document.documentElement.scrollWidth") == 400
        assert page.evaluate("[...document.querySelectorAll('.scroll')].some(box => box.scrollWidth > box.clientWidth)")
        widths = page.evaluate("[...document.querySelectorAll('.js-plotly-plot .main-svg')].map(s => s.clientWidth)")
        assert max(widths) <= 400


@needs_chromium
def test_paper_is_light_and_shows_every_figure(browser: Browser, path: Path) -> None:
    with opened(browser, path, scheme="dark") as (page, _):
        shown = "[...document.querySelectorAll('figure')].filter(f => !f.hidden && f.querySelector('.main-svg')).length"
        on_screen = page.evaluate(shown)
        tick = "document.querySelector('.xtick text').style.fill"
        page.evaluate(f"addEventListener('beforeprint', () => window.printed = [{shown}, {tick}])")
        page.pdf()
        printed, colour = page.evaluate("window.printed")
        assert printed == page.locator("figure").count() > on_screen
        assert colour == "rgb(77, 87, 99)"
        assert page.evaluate(shown) == on_screen


@pytest.fixture
def blank_page(tmp_path: Path) -> Iterator[str]:
    """An address that serves an empty page: really, since a browser whose requests are answered by the test may hang
    at frames that have a process of their own."""
    (tmp_path / "blank.html").write_text('<!doctype html><link rel="icon" href="data:,">', encoding="utf-8")
    handler = partial(QuietHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/blank.html"
        server.shutdown()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@needs_chromium
def test_the_report_works_in_a_sandboxed_frame_as_the_mlflow_ui_shows_it(
    browser: Browser, path: Path, blank_page: str
) -> None:
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    page, faults = context.new_page(), []
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(blank_page)
    page.evaluate(
        """text => {
            const frame = document.createElement("iframe");
            frame.setAttribute("sandbox", "allow-scripts");
            frame.style = "width: 1000px; height: 800px";
            frame.src = URL.createObjectURL(new Blob([text], {type: "text/html"}));
            document.body.append(frame);
        }""",
        path.read_text(encoding="utf-8"),
    )
    frame = page.frame_locator("iframe")
    expect(frame.locator(".js-plotly-plot .main-svg").first).to_be_attached()
    frame.get_by_label("Change between light and dark").click()
    assert faults == []
    context.close()


@needs_chromium
def test_hostile_names_are_shown_and_never_run(browser: Browser, tmp_path: Path) -> None:
    hostile = setup(
        methods=(*PAPER_METHODS, HOSTILE),
        label=f"agnews {HOSTILE}",
        marks={"rapid": (HOSTILE,)},
        dataset=f"agnews {HOSTILE}",
    )
    students = [replace(one, name=HOSTILE, config_id=HOSTILE, source_hash=HOSTILE) for one in all_students([hostile])]
    page_text = html_report(
        HOSTILE,
        [replace(section, heading=HOSTILE, paragraphs=(HOSTILE,)) for section in sections([hostile])],
        excluded=[Excluded(HOSTILE, HOSTILE, HOSTILE)],
        students=students,
        run_link=lambda _: "javascript:window.hit=1",
        facts={HOSTILE: HOSTILE},
    )
    made = tmp_path / "report.html"
    made.write_text(page_text, encoding="utf-8")
    with opened(browser, made) as (page, _):
        assert page.title() == HOSTILE
        page.locator("#table-1 a.runs").first.click()
        expect(page.get_by_role("dialog")).to_contain_text("<script>")
        page.keyboard.press("Escape")
        for place in page.locator(".js-plotly-plot .nsewdrag").all():
            place.hover(force=True)
        assert page.locator("a[href^='javascript']").count() == 0
        assert page.locator("img").count() == 0
        assert page.evaluate("window.hit") is None


def test_the_file_names_no_other_place_but_the_links_to_runs() -> None:
    text = small(table(Cell("a")), students=[student("rapid")], run_link=lambda one: LINK + one.run_id)
    assert re.findall(r'(?:src|href)="(?!#|data:,)([^"]*)"', text) == [LINK + student("rapid").run_id]
    assert "@import" not in text
    assert "url(" not in text


def test_plotly_is_in_the_file_once_and_only_with_figures() -> None:
    assert "plotly.js v" not in small(table(Cell("a")))
    assert report(SETUPS[:1]).count("plotly.js v") == 1


def test_the_best_value_is_bold() -> None:
    assert "<strong>94.2</strong>" in small(table(Cell("RAPID"), Cell("94.2", 94.2, is_best=True)))


def test_equal_remarks_share_a_letter_and_are_said_once_under_the_table() -> None:
    cells = (Cell("m"), Cell("1", 1, marks=("clipped", "unpaired")), Cell("2", 2, marks=("unpaired",)))
    text = small(table(*cells))
    assert re.findall(r'class="mark" href="#table-1-(\w)"', text) == ["a", "b", "b"]
    assert text.count("<sup>b</sup> unpaired") == 1


def test_a_cell_links_to_its_first_run_without_any_script() -> None:
    one = student("rapid")
    text = small(table(Cell("m"), Cell("1", 1, run_ids=(one.run_id,))), students=[one])
    assert f'href="#run-{one.run_id}"' in text
    assert f'<tr id="run-{one.run_id}">' in text


def test_a_run_that_is_no_student_is_named_in_its_cell() -> None:
    text = small(table(Cell("m"), Cell("1", 1, run_ids=(digest("teacher"),))))
    assert f'data-strangers="{digest("teacher")}"' in text


def test_runs_left_out_are_listed_with_their_reasons() -> None:
    assert "the run is FAILED: it did not finish" in small(excluded=excluded())
    assert "No run of the store was left out." in small()


def test_generated_texts_and_biased_estimators_are_announced_first() -> None:
    twin = student("rapid", dataset="agnews-twin", data_source="twin", is_biased=True)
    text = small(students=[twin])
    assert "The texts of agnews-twin are generated" in text
    assert "makes their estimator biased" in text
    assert 'class="warning">The texts' not in small(students=[student("rapid")])


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)",
        "JavaScript:alert(1)",
        "java\nscript:alert(1)",
        "\x01javascript:alert(1)",
        " javascript:alert(1)",
        "data:text/html,x",
        "vbscript:x",
        "http://[",
        "",
    ],
)
def test_an_address_that_could_run_something_is_no_link(address: str) -> None:
    assert safe_link(address) == ""


@pytest.mark.parametrize("address", ["https://host/#/experiments/1/runs/a", "http://127.0.0.1:5000/", "/runs/1", "#a"])
def test_an_address_of_a_page_is_a_link(address: str) -> None:
    assert safe_link(address) == address


def test_json_in_a_script_cannot_end_it() -> None:
    assert safe_json('["</script><!-- & \u2028"]') == '["\\u003c/script\\u003e\\u003c!-- \\u0026 \\u2028"]'


def test_the_27th_remark_has_a_letter_of_its_own() -> None:
    cell = Cell("1", 1, marks=tuple(f"remark {place}" for place in range(28)))
    assert re.findall(r"<sup>(\w+)</sup> remark 2[567]", small(table(cell))) == ["z", "aa", "ab"]
