"""One run, from a dataset's name to a tracked student.

A finished run of the same settings is found, not repeated; an unfinished one goes on where it stopped.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rapid_lab.cli.parsing import SWITCH, Parser, parsed
from rapid_lab.cli.progress import watcher
from rapid_lab.config import SETTINGS, Value, read_config, resolve
from rapid_lab.launch import launch


def run(arguments: Sequence[str]) -> None:
    """Parse, run, print; of several ranks the first one does, and the others train along."""
    if launch().size == 1:
        _run(arguments)
        return
    from rapid_lab.experiment.crew import Crew
    from rapid_lab.experiment.follower import follow
    from rapid_lab.training.distributed import join

    crew = Crew(join())
    if not crew.ranks.is_first:
        follow(crew)
    with crew.led():
        _run(arguments, crew=crew)


def _run(arguments: Sequence[str], **more: Any) -> None:
    options = vars(parsed(parser(), arguments))
    as_json, is_forced = options.pop("json"), options.pop("force")
    given = given_settings(options)
    settings = resolve(given)

    from rapid_lab.experiment.run import run_experiment

    with watcher(f"{settings.method} {settings.dataset} seed {settings.seed}") as watching:
        outcome = run_experiment(given, watching, is_forced=is_forced, **more)
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
        watching.say(warning)


def parser() -> Parser:
    """The options of this command."""
    parser = settings_parser("rapid-lab run", __doc__ or "")
    parser.add_argument("--force", **SWITCH, help="run again though a finished run exists")
    return parser


def settings_parser(prog: str, description: str) -> Parser:
    """A parser with an option for every setting."""
    parser = Parser(prog=prog, description=description)
    parser.add_argument("--config", metavar="FILE", help="settings from a TOML file; options here come after it")
    for setting in SETTINGS.values():
        parser.add_argument(setting.flag, help=setting.description.replace("%", "%%"), metavar="VALUE")
    parser.add_argument("--json", **SWITCH, help="print one JSON document")
    return parser


def given_settings(options: dict[str, Any]) -> dict[str, Value]:
    """The settings a user named, from the file and from options."""
    config = options.pop("config")
    given = read_config(Path(config)) if config is not None else {}
    given |= {name: SETTINGS[name].parse(text) for name, text in options.items() if text is not None}
    return given


def _rendered(summary: dict[str, Any]) -> str:
    found = "found, not run again" if summary["is_reused"] else "finished"
    lines = [f"{summary['method']} on {summary['dataset']}: {found} (run {summary['run_id']})"]
    report = summary["report"]
    if report:
        lines.append(f"report split: {report['correct']} of {report['total']} right, {100 * report['accuracy']:.2f} %")
    relations, steps = summary["relations"], summary["steps"]
    lines.append(f"relations a batch: {relations['main'] / steps:.3f} main, {relations['pilot'] / steps:.3f} pilot")
    return "\n".join(lines)
