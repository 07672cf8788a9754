"""Names that would like to be something else: through `mlflow run`, filters of the store, sweeps, `compare`, files."""

import contextlib
import html
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from comparison.stores import log_student
from comparison.test_formats import check_latex
from hypothesis import given
from hypothesis import strategies as st
from test_mlflow_run import Place, make_place
from tracking.programs import MLFLOW_WARNINGS
from trivial_sweep import GRID, LABORATORY

from rapid_lab import names
from rapid_lab.cli import main
from rapid_lab.harmless import file_name, one_line
from rapid_lab.sweep.driver import main as sweep_main
from rapid_lab.sweep.plan import DataFacts
from rapid_lab.tracking.store import experiment_id, find_runs, prepare_store

pytestmark = pytest.mark.filterwarnings(MLFLOW_WARNINGS)
HOSTILE = [
    'it\'s "quoted" `so`',
    "'; DROP TABLE runs; --",
    "x' OR tags.`rapid.method` = 'rapid",
    "$(touch trap); touch trap | touch trap & touch trap",
    "../../trap",
    "/etc/trap",
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "</title></script><svg onload=alert(1)>",
    "javascript:alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "\\input{/etc/passwd} & % $ # _ { } ~ ^ \\end{tabular}",
    "%s %n %(x)s 100%_",
    "back\\slash\\",
    "two\nlines\r\n| a | b |",
    "\u202egnp.live\u2066\u200b",
    '=HYPERLINK("http://x")',
    "\x1b]0;title\x07\x1b[31m",
    "a" * 300,
    "名前" * 100,
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("place"))


def test_hostile_names_come_through_mlflow_run_as_they_are_and_no_shell_sees_them(place: Place, tmp_path: Path) -> None:
    trap = Path("trap")
    column = "$(touch trap)'\"`touch trap`;touch trap"
    folder = tmp_path / 'it\'s $(touch trap) `touch trap`; "touch" trap & <b> %_\\ {method} \u202ex\ny'
    folder.mkdir()
    quoted = '"' + column.replace('"', '""') + '"'
    for split in ("train", "test"):
        (folder / f"{split}.csv").write_text(f"label,{quoted}\n0,a\n1,b\n0,c\n1,d\n", encoding="utf-8")
    code, output = place.run(dataset=str(folder), text_column=column, student_model="no/such-model")
    run = place.runs()[-1]
    assert (code, run.info.status) == (1, "FAILED"), output
    # The texts were found in that folder under that column: what is missing is the model.
    assert run.data.tags[names.DESCRIPTION].startswith("the model 'no/such-model' is not on this machine"), output
    for where in (Path.cwd(), tmp_path, folder, place.folder, Path(names.__file__).parents[1]):
        assert not (where / trap).exists()


@pytest.mark.soak
def test_an_unknown_parameter_with_a_password_is_refused_without_repeating_it(place: Place) -> None:
    code, output = place.run(data="twin", storage="postgresql://me:hunter22@host/db")
    run = place.runs()[-1]
    assert (code, run.info.status) == (1, "FAILED"), output
    assert run.data.tags[names.DESCRIPTION].startswith("storage must have no password on the command line")
    assert "hunter22" not in run.data.tags[names.DESCRIPTION]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory, made_store: Path) -> Iterator[dict[str, Any]]:
    """A comparison of students whose datasets, methods, names and hardware are hostile; in a folder of its own."""
    folder = tmp_path_factory.mktemp("hostile") / "inner"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
        patch.setenv("RAPID_CACHE_DIR", str(folder / "cache"))
        prepare_store()
        for name in HOSTILE:
            tags = {names.DATASET: name, names.HARDWARE: name, names.STUDY_NAME: name}
            log_student("student_ce", name=name, tags=tags)
            log_student("rapid", name=name, tags={**tags, names.METHOD: name})
        with (folder.parent / "shown.txt").open("w", encoding="utf-8") as shown, contextlib.redirect_stdout(shown):
            assert main(["compare", "--output", "out", "--no-log", "--ui", "javascript:alert(1)"]) == 0
        yield {"folder": folder, "shown": (folder.parent / "shown.txt").read_text(encoding="utf-8")}


def test_hostile_names_stay_in_their_folder_and_off_the_terminal(compared: dict[str, Any]) -> None:
    folder = compared["folder"]
    assert sorted(path.name for path in folder.parent.iterdir()) == ["inner", "shown.txt"]
    written = [path for path in (folder / "out").rglob("*") if path.is_file()]
    assert all(re.fullmatch(r"[a-z0-9_.-]{1,120}", path.name) for path in written)
    assert len({path.relative_to(folder) for path in written}) == len(written)
    assert all(character.isprintable() or character == "\n" for character in compared["shown"])


class Elements(HTMLParser):
    """Tags and attributes as a browser finds them, scripts aside."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_hostile_names_are_text_in_the_html_report(compared: dict[str, Any]) -> None:
    text = (compared["folder"] / "out" / "report.html").read_text(encoding="utf-8")
    elements = Elements()
    elements.feed(text)
    assert {"img", "svg", "iframe", "object"} & {tag for tag, _ in elements.found} == set()
    for tag, attributes in elements.found:
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        assert not str(attributes.get("href", "")).lower().startswith(("javascript", "data:text"))
    for name in HOSTILE[:4]:
        assert html.escape(name).replace("&#x27;", "&#39;").replace("&quot;", "&#34;") in text
    assert "<script>alert(1)" not in text


def test_hostile_names_are_text_in_latex_csv_and_json(compared: dict[str, Any]) -> None:
    tables = compared["folder"] / "out" / "tables"
    check_latex((tables / "main_results.tex").read_text(encoding="utf-8"))
    for path in tables.glob("*.tex"):
        assert not re.search(r"\\(input|write|immediate|include)\b", path.read_text(encoding="utf-8"))
    for path in tables.glob("*.csv"):
        assert not re.search(r'(?m)(^|,)"?[=@]', path.read_text(encoding="utf-8"))
    document = json.loads((tables / "main_results.json").read_text(encoding="utf-8"))
    assert {one_line(name) for name in HOSTILE} <= {one_line(row[0]["text"]) for row in document["rows"]}


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.usefixtures("compared")
def test_a_filter_finds_what_has_exactly_this_name_and_nothing_else(name: str) -> None:
    for tag in (names.DATASET, names.STUDY_NAME):
        found = find_runs("0", {tag: name})
        assert len(found) == 2
        assert {run.tags[tag] for run in found} == {name}


@pytest.mark.usefixtures("compared")
def test_an_experiment_of_a_hostile_name_is_found_again() -> None:
    for name in HOSTILE:
        assert experiment_id(name) == experiment_id(name)


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.usefixtures("store")
def test_a_study_named_after_a_hostile_dataset_is_a_file_of_its_folder(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from dataclasses import replace

    laboratory = replace(LABORATORY, facts=lambda given, say: DataFacts(name, "hash", 1800, is_twin=True))
    assert sweep_main(GRID, ["--dry-run", "--json"], laboratory) == 0
    study = json.loads(capsys.readouterr().out)["study"]
    assert re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,99}", study)
    assert sweep_main(GRID, ["--dry-run", "--study", name], laboratory) == 2
    assert "study must be letters, digits" in capsys.readouterr().err


@given(parts=st.lists(st.text(), min_size=1, max_size=3), taken=st.sets(st.text(max_size=3)))
def test_a_file_name_is_a_file_name_whatever_it_is_made_of(parts: list[str], taken: set[str]) -> None:
    name = file_name(*parts, taken=taken)
    assert re.fullmatch(r"[a-z0-9_][a-z0-9_-]{0,99}", name)
    assert name not in taken


def test_long_names_that_differ_at_their_end_alone_stay_apart() -> None:
    assert file_name("a" * 300) != file_name("a" * 299 + "b")
    assert file_name("名") != file_name("前")
