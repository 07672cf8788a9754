"""The end of a study: its table, plots and best settings on its run, and the report split where it was asked for."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from optuna.study import Study

from rapid_lab import names
from rapid_lab.errors import DataError
from rapid_lab.sweep.laboratory import Laboratory, Say
from rapid_lab.sweep.outcome import (
    Row,
    best_config,
    best_row,
    complete,
    front,
    front_share,
    rendered,
    rows_csv,
    trial_rows,
)
from rapid_lab.sweep.plan import Plan
from rapid_lab.sweep.study import Outlook
from rapid_lab.tracking.door import client
from rapid_lab.tracking.errors import TrackingError
from rapid_lab.tracking.redaction import message_of
from rapid_lab.tracking.runs import TrackedRun
from rapid_lab.tracking.writer import stored_steps

BEST = "best.toml"
REPORT = "report "  # and a trial's number: the attribute of a study that keeps the trial's report


def conclude(plan: Plan, study: Study, run: TrackedRun, found: Outlook, report_faults: Mapping[int, str]) -> None:
    """Everything the study has found so far, on its run."""
    rows, reports = trial_rows(plan, study), known_reports(study)
    document = study_document(plan, study, run, found, report_faults)
    run.log_artifact_text("trials.csv", rows_csv(plan, rows))
    run.log_artifact_text("study.json", json.dumps({**document, "plan": plan.document()}, indent=1))
    run.log_artifact_text("table.txt", rendered(plan, rows, reports) + "\n")
    keep_best(plan, run, rows)
    keep_plots(plan, study, run, rows)
    run.set_tags(
        {
            names.COMPLETE: str(document["is_complete"]).lower(),
            names.REPORT: "once" if reports else "never",
            names.DESCRIPTION: _description(plan, rows, found),
        }
    )


def keep_best(plan: Plan, run: TrackedRun, rows: Sequence[Row]) -> None:
    """The best settings as files for `rapid-lab run --config`: one, or one for each trial of the front."""
    best = best_row(plan, rows)
    if best is None:
        return
    run.log_artifact_text(BEST, best_config(plan, best))
    if len(plan.objectives) == 2:
        for row in front(plan, rows):
            run.log_artifact_text(f"front/trial-{row['trial']}.toml", best_config(plan, row))


def keep_plots(plan: Plan, study: Study, run: TrackedRun, rows: Sequence[Row]) -> None:
    """Optuna's plots and the curve."""
    from rapid_lab.sweep.plots import study_pages

    for name, page in study_pages(plan, study, rows):
        run.log_artifact_text(name, page)


def study_document(
    plan: Plan, study: Study, run: TrackedRun, found: Outlook, report_faults: Mapping[int, str]
) -> dict[str, Any]:
    """The study as `--json` prints it."""
    rows = trial_rows(plan, study)
    parts = {"report": known_reports(study), "report_fault": report_faults}
    best = best_row(plan, rows)
    document: dict[str, Any] = {
        "study": plan.study,
        "sweep": plan.sweep.name,
        "dataset": plan.data.name,
        "run_id": run.run_id,
        "objectives": list(plan.objectives),
        "seeds": list(plan.seeds),
        "target": found.target,
        "finished": found.finished,
        "failed": found.failed,
        "is_complete": found.is_over and not found.failed,
        "notes": plan.notes(),
        "trials": [
            row | {name: part[row["trial"]] for name, part in parts.items() if row["trial"] in part} for row in rows
        ],
        "best": best["trial"] if best else None,
    }
    if len(plan.objectives) == 2:
        document["front"] = [row["trial"] for row in front(plan, rows)]
        document["hypervolume"] = front_share(plan, rows)
    return document


def _description(plan: Plan, rows: Sequence[Row], found: Outlook) -> str:
    lines = [
        f"Sweep **{plan.sweep.name}** on **{plan.data.name}**: {found.finished} of {found.target} trials, "
        f"each the mean of seeds {', '.join(str(seed) for seed in plan.seeds)}; {found.failed} failed."
    ]
    best = best_row(plan, rows)
    if best is not None:
        where = ", ".join(f"{name} {value}" for name, value in best["params"].items())
        lines.append(f"Best: trial {best['trial']} ({where}), selection accuracy {100 * best['accuracy']:.2f} %.")
        lines.append(f"Its settings are in `{BEST}`: `rapid-lab run --config {BEST}`.")
    return "\n\n".join(lines)


def known_reports(study: Study) -> dict[int, dict[str, Any]]:
    """The reports that were read so far, by trial."""
    kept = study.user_attrs.items()
    return {int(name.removeprefix(REPORT)): report for name, report in kept if name.startswith(REPORT)}


def read_reports(plan: Plan, study: Study, laboratory: Laboratory, say: Say) -> dict[int, str]:
    """Read the reports that are not known yet, and keep each in the study; why one could not be read, by trial."""
    faults = {}
    for row in _reported(plan, trial_rows(plan, study)):
        if row["trial"] in known_reports(study):
            continue
        try:
            study.set_user_attr(f"{REPORT}{row['trial']}", _report(plan, row, laboratory, say))
        except (DataError, TrackingError) as fault:
            faults[row["trial"]] = message_of(fault)
            say(f"trial {row['trial']}: the report could not be read: {message_of(fault)}")
    return faults


def _reported(plan: Plan, rows: Sequence[Row]) -> list[Row]:
    """Every point of a grid, a front, or the winner alone."""
    if plan.sweep.is_grid:
        return complete(rows)
    if len(plan.objectives) == 2:
        return front(plan, rows)
    return [row for row in (best_row(plan, rows),) if row]


def _report(plan: Plan, row: Row, laboratory: Laboratory, say: Say) -> dict[str, Any]:
    """Counts over all seeds of a trial, and on its run."""
    correct, total = 0, 0
    for seed in plan.seeds:
        found = laboratory.report({**plan.settings_of(row["params"]), "seed": seed}, row["run_id"])
        if isinstance(found, str):
            raise DataError(f"seed {seed}: {found}")
        correct, total = correct + found["correct"], total + found["total"]
    report = {"correct": correct, "total": total, "accuracy": correct / total}
    say(f"trial {row['trial']}: report {100 * report['accuracy']:.2f} %")
    # With what it has: whoever was killed right here has logged it already.
    run = TrackedRun(row["run_id"], "", client(), stored_steps(row["run_id"]))
    run.log_metrics(0, {names.REPORT_ACCURACY: report["accuracy"]})
    run.set_tags({names.REPORT: "once"})
    run.leave()
    return report
