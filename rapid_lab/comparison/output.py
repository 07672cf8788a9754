"""A comparison as files, and as a run of the tracking store that opens in the MLflow UI."""

import datetime
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import rapid_lab
from rapid_lab import names
from rapid_lab.comparison.assembly import Comparison, summary
from rapid_lab.comparison.formats import written
from rapid_lab.comparison.records import Section, Student, Table
from rapid_lab.experiment.store import current_experiment
from rapid_lab.harmless import file_name
from rapid_lab.tracking.door import tracking_uri
from rapid_lab.tracking.provenance import SOURCE_HASH
from rapid_lab.tracking.redaction import without_secrets, without_user
from rapid_lab.tracking.runs import launched_or_new_run

Static = Literal["png", "svg"]
REPORT_FILE = "report.html"
TABLES = "tables"
FIGURES = "figures"
TITLE = "RAPID lab comparison"
MLFLOW_UI = "http://127.0.0.1:5000"


def facts_of(comparison: Comparison) -> dict[str, str]:
    """Where and with what the comparison was made."""
    kinds = [run.tags.get(names.KIND, "") for run in comparison.runs.values()]
    students = comparison.students.values()
    return {
        "Tracking store": without_secrets(tracking_uri()),
        "Made": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "rapid-lab": rapid_lab.__version__,
        "Source of this comparison": SOURCE_HASH,
        "Sources of its runs": ", ".join(sorted({student.source_hash for student in students})),
        "Schema version": str(names.SCHEMA_VERSION),
        "Runs read": f"{len(kinds)}, of which {kinds.count('')} are not of rapid-lab",
    }


def run_link(ui: str | None) -> Callable[[Student], str]:
    """A student's page in the MLflow UI: of the tracking server, else where `mlflow ui` listens by default."""
    uri = tracking_uri()
    base = (ui or (without_user(uri) if uri.startswith("http") else MLFLOW_UI)).rstrip("/")
    return lambda student: f"{base}/#/experiments/{student.experiment_id}/runs/{student.run_id}"


def write_tables(tables: Iterable[Table], students: Mapping[str, Student], folder: Path) -> list[Path]:
    """Every table in every format."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    taken: set[str] = set()
    for table in tables:
        name = file_name(table.name, taken=taken)
        taken.add(name)
        for suffix, text in written(table, students).items():
            path = folder / f"{name}.{suffix}"
            path.write_text(text, encoding="utf-8")
            paths.append(path)
    return paths


def write_report(
    comparison: Comparison, sections: Sequence[Section], folder: Path, *, static: Static | None, ui: str | None
) -> list[Path]:
    """The report first, then its tables and its figures as files."""
    from rapid_lab.comparison.report import html_report, write_drawings

    page = html_report(
        TITLE,
        sections,
        excluded=comparison.excluded,
        students=list(comparison.students.values()),
        run_link=run_link(ui),
        facts=facts_of(comparison),
    )
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / REPORT_FILE
    report.write_text(page, encoding="utf-8")
    tables = [table for section in sections for table in section.tables]
    drawings = [drawing for section in sections for drawing in section.drawings]
    return [
        report,
        *write_tables(tables, comparison.students, folder / TABLES),
        *write_drawings(drawings, folder / FIGURES, static),
    ]


def log_comparison(comparison: Comparison, folder: Path, paths: Sequence[Path]) -> str:
    """A `comparison` run with report and tables as artifacts, beside the compared runs where they lie together."""
    experiments = {student.experiment_id for student in comparison.students.values()}
    experiment = experiments.pop() if len(experiments) == 1 else current_experiment()
    tags = {
        names.KIND: names.COMPARISON,
        names.COMPLETE: "false",
        names.SOURCE_HASH: SOURCE_HASH,
        names.SCHEMA: str(names.SCHEMA_VERSION),
    }
    run = launched_or_new_run(experiment, f"comparison {', '.join(_datasets(comparison))}", tags)
    try:
        with tempfile.TemporaryDirectory() as temporary:
            _copy(paths, folder, Path(temporary))
            run.log_artifact_folder(Path(temporary))
        run.set_description(f"{summary(comparison)[0]}\n\nOpen **{REPORT_FILE}** under *Artifacts*.")
        run.set_tags({names.COMPLETE: "true"})
    except BaseException:
        run.finish("FAILED")
        raise
    run.finish("FINISHED")
    return run.run_id


def _datasets(comparison: Comparison) -> list[str]:
    return sorted({setup.dataset for setup in comparison.setups})


def _copy(paths: Iterable[Path], folder: Path, target: Path) -> None:
    """Report and tables; the figures are in the report, and each again as a page of its own would be megabytes."""
    for path in paths:
        relative = path.relative_to(folder)
        if relative.parts[0] != FIGURES:
            (target / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / relative)
