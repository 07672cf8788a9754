"""`rapid-lab compare` on a store that real runs have written: tables, files, the logged run, and no torch."""

import csv
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from comparison.stores import log_student
from tracking.programs import MLFLOW_WARNINGS

from rapid_lab import names
from rapid_lab.cli import main
from rapid_lab.tracking.door import client
from rapid_lab.tracking.store import find_runs

pytestmark = pytest.mark.filterwarnings(MLFLOW_WARNINGS)
QUICK = ["--data", "twin", "--epochs", "2", "--warmup-epochs", "1", "--teacher-epochs", "1", "--log-model", "false"]
# Like a laptop that has no torch: to import it fails, and is remembered for those who would catch the failure.
WITHOUT_TORCH = """
import sys

class Missing:
    asked = []

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers"):
            self.asked.append(name)
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Missing())
from rapid_lab.cli import main
code = main(sys.argv[1:])
sys.exit(code or (f"asked for: {Missing.asked}" if Missing.asked else 0))
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, Any]]]:
    """A folder with the store of a real suite on the twin, and the suite's own account of it."""
    folder = tmp_path_factory.mktemp("lab")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("RAPID_CACHE_DIR", str(folder / "cache"))
        patch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
        suite = [sys.executable, "-m", "rapid_lab", "suite", *QUICK, "--methods", "student_ce,rapid", "--seeds", "7,8"]
        done = subprocess.run([*suite, "--json"], capture_output=True, text=True, check=True)
        yield folder, json.loads(done.stdout)


@pytest.fixture
def in_lab(lab: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    folder, suite = lab
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    return suite


def compared(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["compare", *arguments, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["compare", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def test_the_tables_are_the_runs_own_counts(
    in_lab: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = compared(capsys, "--no-log", "--output", str(tmp_path))
    rows = document["tables"]["main_results"]["rows"]
    assert [(row[0]["text"], row[1]["text"]) for row in rows] == [
        ("agnews-twin", "Student CE"),
        ("agnews-twin", "RAPID"),
    ]
    for method, row in zip(("student_ce", "rapid"), rows, strict=True):
        own = {run["run_id"]: run for run in in_lab["runs"] if run["method"] == method}
        assert {run["run_id"]: run["correct"] for run in row[2]["runs"]} == {
            run_id: run["report"]["correct"] for run_id, run in own.items()
        }
        assert {run["config_id"] for run in row[2]["runs"]} == {run["config_id"] for run in own.values()}
        assert [run["seed"] for run in row[2]["runs"]] == [7, 8]
    relations = document["tables"]["relations"]["rows"][1]
    spent = [run for run in in_lab["runs"] if run["method"] == "rapid"]
    for cell, name in zip(relations[2:], ("main", "pilot", "unique_main", "unique_pilot", "unique_union"), strict=True):
        total, steps = sum(run["relations"][name] for run in spent), sum(run["steps"] for run in spent)
        assert cell["value"] == total / steps


@pytest.mark.usefixtures("in_lab")
def test_the_report_is_written_whole_and_logged_as_a_comparison_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = compared(capsys, "--output", str(tmp_path / "out"))
    files = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert {f"tables/main_results.{suffix}" for suffix in ("md", "tex", "csv", "json")} <= files
    assert {str(tmp_path / "out" / name) for name in files} >= set(document["files"])
    report = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    run = client().get_run(document["run_id"])
    assert (run.info.status, run.data.tags[names.KIND]) == ("FINISHED", names.COMPARISON)
    assert run.data.tags[names.COMPLETE] == "true"
    kept = {item.path for item in client().list_artifacts(document["run_id"])}
    assert kept == {"report.html", "tables"}
    logged = Path(client().download_artifacts(document["run_id"], "report.html", str(tmp_path)))
    assert logged.read_text(encoding="utf-8") == report
    shown = document["tables"]["main_results"]["rows"][1][2]
    assert shown["text"] in report
    for one in shown["runs"]:
        assert f"/runs/{one['run_id']}" in report
    with (tmp_path / "out" / "tables" / "main_results.csv").open(encoding="utf-8", newline="") as file:
        assert next(csv.reader(file))[:3] == ["Data", "Method", "Report accuracy (%)"]
    # A comparison is in the store now, and is no student of the next one.
    again = compared(capsys, "--no-log", "--output", str(tmp_path / "again"))
    assert again["tables"]["main_results"] == document["tables"]["main_results"]


@pytest.mark.usefixtures("in_lab")
def test_without_logging_the_store_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = [run.run_id for run in find_runs("0", {})]
    assert compared(capsys, "--no-log", "--output", str(tmp_path))["run_id"] is None
    assert [run.run_id for run in find_runs("0", {})] == before


@pytest.mark.usefixtures("in_lab")
def test_a_person_sees_the_main_table_and_where_the_report_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "--no-log", "--output", str(tmp_path / "shown")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["Data", "Method"]
    assert sum(bool(re.search(r"\d+\.\d{3} ± \d+\.\d{3}\*", line)) for line in lines) >= 1
    assert lines[-1].startswith(f"Report: {tmp_path / 'shown' / 'report.html'}")


def test_torch_is_never_imported(lab: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    program = [sys.executable, "-c", WITHOUT_TORCH, "compare", "--output", str(tmp_path / "out"), "--json"]
    done = subprocess.run(program, capture_output=True, text=True, cwd=lab[0], check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["report"].endswith("report.html")


def test_runs_are_filtered_by_run_tag_dataset_and_experiment(
    in_lab: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = ["--no-log", "--output", str(tmp_path)]

    def methods(*arguments: str) -> list[str]:
        rows = compared(capsys, *output, *arguments)["tables"]["main_results"]["rows"]
        return [row[1]["text"] for row in rows]

    first, second = (run["run_id"] for run in in_lab["runs"] if run["method"] == "rapid")
    assert methods("--run", f"{first},{second}") == ["RAPID"]
    assert methods("--tag", f"{names.METHOD}=student_ce") == ["Student CE"]
    assert methods("--dataset", "agnews-twin", "--experiment", "Default") == ["Student CE", "RAPID"]
    assert "got none among 0 runs" in refused(capsys, "--dataset", "agnews")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tag", "rapid.method"], "tag must be name=value, got 'rapid.method'"),
        (["--static", "gif"], "argument --static: invalid choice: 'gif'"),
        (["--experiment", "nowhere"], "experiment must be one of the tracking store, got 'nowhere'"),
        (["--run", "f" * 32], "run must be an id of the tracking store"),
        (["--colour", "red"], "colour is no setting: no name is near to it"),
    ],
)
@pytest.mark.usefixtures("in_lab")
def test_bad_input_is_refused_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, *arguments)


@pytest.mark.usefixtures("store")
def test_an_empty_store_and_one_of_refused_runs_and_a_newer_one_are_told_apart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "must hold a finished student, got none among 0 runs" in refused(capsys)
    newer = str(names.SCHEMA_VERSION + 1)
    log_student(tags={names.SCHEMA: newer})
    assert f"schema version {names.SCHEMA_VERSION}, got {newer}: a newer rapid-lab has written it" in refused(capsys)
    run_id = log_student(status="FAILED", seed=5)
    message = refused(capsys)
    assert f"rapid agnews seed 5 ({run_id}): incomplete: it is FAILED" in message


def test_no_store_is_made_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///missing.db")
    assert "there is no such file" in refused(capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("store")
def test_counts_alone_are_enough_and_a_hostile_name_is_only_a_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "../../<script>alert(1)</script>\x1b[31m=1+1"
    for method in ("student_ce", "rapid"):
        log_student(method, relations=None, tags={names.DATASET: hostile})
    assert main(["compare", "--output", str(tmp_path / "out")]) == 0
    assert "\x1b" not in capsys.readouterr().out
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert all(re.fullmatch(r"[\w.-]+", path.name) for path in written)
    for path in written:
        if path.name in ("report.html", "main_results.md"):
            assert "<script>alert(1)" not in path.read_text(encoding="utf-8")
