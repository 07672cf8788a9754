"""The teacher of a dataset: fine-tuned, calibrated and cached, or found if it is."""

import json
from collections.abc import Sequence
from typing import Any

from rapid_lab.cli.parsing import Parser, parsed
from rapid_lab.cli.progress import watcher
from rapid_lab.cli.run import given_settings, settings_parser
from rapid_lab.config import resolve


def run(arguments: Sequence[str]) -> None:
    """Parse, make the teacher, print what is known of it."""
    options = vars(parsed(parser(), arguments))
    as_json = options.pop("json")
    given = given_settings(options)
    settings = resolve(given)

    from rapid_lab.experiment.teacher import teacher_experiment
    from rapid_lab.tracking.runs import launched_or_new_run, point_launched_to

    with watcher(settings.dataset) as watching:
        summary = teacher_experiment(given, watching, launched_or_new_run)
    point_launched_to(summary["run_id"])
    print(json.dumps(summary, indent=1) if as_json else _rendered(summary))
    for warning in summary["warnings"]:
        watching.say(warning)


def parser() -> Parser:
    """The options of this command."""
    return settings_parser("rapid-lab teacher", __doc__ or "")


def _rendered(summary: dict[str, Any]) -> str:
    before, after, report = summary["nll_before"], summary["nll_after"], summary["report"]
    lines = [
        f"teacher {summary['teacher_id']} of {summary['dataset']} (run {summary['run_id']})",
        f"temperature {summary['temperature']:.4f}: selection NLL {before:.4f} to {after:.4f}",
    ]
    if report:
        lines.append(f"report split: {report['correct']} of {report['total']} right, {100 * report['accuracy']:.2f} %")
    return "\n".join(lines)
