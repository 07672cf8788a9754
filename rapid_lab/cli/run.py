"""One run, from a dataset's name to a tracked student.

A finished run of the same settings is found, not repeated; an unfinished one goes on where it stopped.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rapid_lab.cli import Parser
from rapid_lab.cli.progress import Lines
from rapid_lab.config import SETTINGS, Value, read_config, resolve


def run(arguments: Sequence[str]) -> None:
    """Parse, run, print."""
    parser = settings_parser("rapid-lab run", __doc__ or "")
    parser.add_argument("--force", action="store_true", help="run again though a finished run exists")
    options = vars(parser.parse_args(_dashed(arguments)))
    as_json, is_forced = options.pop("json"), options.pop("force")
    given = given_settings(options)
    settings = resolve(given)

    from rapid_lab.experiment.run import run_experiment

    watcher = Lines(f"{settings.method} {settings.dataset} seed {settings.seed}", settings.epochs)
    outcome = run_experiment(given, watcher, is_forced=is_forced)
    summary = {
        "run_id": outcome.run_id,
        "config_id": outcome.config_id,
        "is_reused": outcome.is_reused,
        "dataset": outcome.result["dataset"],
        "method": outcome.result["method"],
        "selected_epoch": outcome.result["selected_epoch"],
        "report": outcome.result["report"],
        "relations": outcome.result["relations"],
        "steps": outcome.result["steps"],
        "warnings": list(outcome.warnings),
    }
    print(json.dumps(summary, indent=1) if as_json else _rendered(summary))
    for warning in outcome.warnings:
        watcher.say(warning)


def settings_parser(prog: str, description: str) -> argparse.ArgumentParser:
    """A parser with an option for every setting."""
    parser = Parser(prog=prog, description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", metavar="FILE", help="settings from a TOML file; options here come after it")
    for setting in SETTINGS.values():
        parser.add_argument(setting.flag, help=setting.description.replace("%", "%%"), metavar="VALUE")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def given_settings(options: dict[str, Any]) -> dict[str, Value]:
    """The settings a user named, from the file and from options."""
    config = options.pop("config")
    given = read_config(Path(config)) if config else {}
    given |= {name: SETTINGS[name].parse(text) for name, text in options.items() if text is not None}
    return given


def _dashed(arguments: Sequence[str]) -> list[str]:
    """Option names with underscores, as `mlflow run -P` brings them, are the same options."""
    return [word.replace("_", "-") if word.startswith("--") and "=" not in word else word for word in arguments]


def _rendered(summary: dict[str, Any]) -> str:
    found = "found, not run again" if summary["is_reused"] else "finished"
    lines = [f"{summary['method']} on {summary['dataset']}: {found} (run {summary['run_id']})"]
    report = summary["report"]
    if report:
        lines.append(
            f"report split: {report['correct']} of {report['total']} right, {100 * report['accuracy']:.2f} %"
        )
    relations, steps = summary["relations"], summary["steps"]
    lines.append(f"relations a batch: {relations['main'] / steps:.3f} main, {relations['pilot'] / steps:.3f} pilot")
    return "\n".join(lines)
