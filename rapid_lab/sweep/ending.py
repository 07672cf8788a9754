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
from rapid_lab.tracking.runs import TrackedRun

BEST = "best.toml"


def conclude(
    plan: Plan, study: Study, run: TrackedRun, found: Outlook, document: dict[str, Any], reports: Mapping[int, Any]
) -> None:
    """Everything the study has found so far, on its run."""
    rows = trial_rows(plan, study)
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
    plan: Plan, study: Study, run: TrackedRun, found: Outlook, reports: Mapping[int, Any]
) -> dict[str, Any]:
    """The study as `--json` prints it."""
    rows = trial_rows(plan, study)
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
        "trials": [{**row, **({"report": reports[row["trial"]]} if row["trial"] in reports else {})} for row in rows],
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


def read_reports(plan: Plan, study: Study, laboratory: Laboratory, say: Say) -> dict[int, dict[str, Any]]:
    """The report split once, at the end: of every point of a grid, of a front, or of the winner alone."""
    rows = trial_rows(plan, study)
    if plan.sweep.is_grid:
        chosen = complete(rows)
    elif len(plan.objectives) == 2:
        chosen = front(plan, rows)
    else:
        chosen = [row for row in (best_row(plan, rows),) if row]
    return {row["trial"]: _report(plan, row, laboratory, say) for row in chosen}


def _report(plan: Plan, row: Row, laboratory: Laboratory, say: Say) -> dict[str, Any]:
    """Counts over all seeds of a trial, and on its run."""
    correct, total = 0, 0
    for seed in plan.seeds:
        found = laboratory.report({**plan.settings_of(row["params"]), "seed": seed}, row["run_id"])
        if isinstance(found, str):
            raise DataError(f"the report of trial {row['trial']}, seed {seed}, could not be read: {found}")
        correct, total = correct + found["correct"], total + found["total"]
    report = {"correct": correct, "total": total, "accuracy": correct / total}
    say(f"trial {row['trial']}: report {100 * report['accuracy']:.2f} %")
    run = TrackedRun(row["run_id"], "", client())
    run.log_metrics(0, {names.REPORT_ACCURACY: report["accuracy"]})
    run.flush()
    run.set_tags({names.REPORT: "once"})
    return report
