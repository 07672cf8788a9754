import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from comparison.browsers import chromium, needs_chromium, opened
from comparison.samples import details, setup

from rapid_lab.comparison.figures import figures_section
from rapid_lab.comparison.records import Drawing
from rapid_lab.comparison.report import write_drawings
from rapid_lab.errors import SettingError


@pytest.fixture(scope="module")
def drawings() -> tuple[Drawing, ...]:
    made = [setup(methods=("student_ce", "rapid"))]
    return figures_section(made, details(made)).drawings


def test_every_figure_is_a_page_that_shares_one_copy_of_plotly(drawings: tuple[Drawing, ...], tmp_path: Path) -> None:
    paths = write_drawings(drawings, tmp_path / "new" / "figures", None)
    assert [path.name for path in paths] == [*(f"{drawing.name}.html" for drawing in drawings), "plotly.min.js"]
    assert all(path.stat().st_size < 200_000 for path in paths[:-1])


@needs_chromium
def test_a_page_of_its_own_draws_its_figure(drawings: tuple[Drawing, ...], tmp_path: Path) -> None:
    paths = write_drawings(drawings[:1], tmp_path, None)
    with chromium() as browser, opened(browser, paths[0], scheme="dark") as (page, _):
        assert page.locator(".js-plotly-plot .main-svg").count() > 0
        assert "Gains over the CE student" in page.locator("figcaption").inner_text()


@needs_chromium
def test_pictures_are_drawn_where_kaleido_is_installed(drawings: tuple[Drawing, ...], tmp_path: Path) -> None:
    pytest.importorskip("kaleido")
    write_drawings(drawings[:2], tmp_path, "svg")
    for drawing in drawings[:2]:
        root = ElementTree.parse(tmp_path / f"{drawing.name}.svg").getroot()  # noqa: S314
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert root.get("width") == "1920"


def test_without_kaleido_the_message_names_the_extra_and_nothing_is_written(
    drawings: tuple[Drawing, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kaleido", None)
    with pytest.raises(SettingError, match=r"static must be .* got png: .*pip install 'rapid-lab\[static\]'"):
        write_drawings(drawings, tmp_path / "figures", "png")
    assert not (tmp_path / "figures").exists()


def test_without_a_browser_the_message_says_how_to_name_one(
    drawings: tuple[Drawing, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("kaleido")
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SettingError, match=r"static must be .* got svg: .*BROWSER_PATH"):
        write_drawings(drawings[:1], tmp_path / "figures", "svg")
