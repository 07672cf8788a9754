"""Methods x seeds: every run of a comparison, one after the other, each in a process of its own.

What is finished is skipped, what was interrupted goes on, and a run that fails does not stop the others. Ends with
a table of what the store now holds.
"""

import json
import statistics
import sys
from collections.abc import Sequence
from typing import Any

from rapid_lab.cli.parsing import Parser, parsed
from rapid_lab.cli.progress import watcher
from rapid_lab.cli.run import given_settings, settings_parser
from rapid_lab.cli.tables import text_table
from rapid_lab.config import SETTINGS, Value, resolve
from rapid_lab.errors import SettingError
from rapid_lab.harmless import shown
from rapid_lab.objectives import METHODS, PAPER_METHODS

PAPER_SEEDS = [42, 43, 44]


def run(arguments: Sequence[str]) -> None:
    """Parse, run all, print the table."""
    options = vars(parsed(parser(), arguments))
    as_json = options.pop("json")
    methods = _listed("method", options.pop("methods"), options.pop("method"), PAPER_METHODS)
    seeds = _listed("seed", options.pop("seeds"), options.pop("seed"), PAPER_SEEDS)
    given = given_settings(options)
    resolve(given)

    from rapid_lab.experiment.suite import run_suite

    outcome = run_suite(given, [str(method) for method in methods], [int(str(seed)) for seed in seeds], watcher)
    print(json.dumps(outcome, indent=1) if as_json else rendered(outcome["runs"]))
    for warning in outcome["warnings"]:
        print(warning, file=sys.stderr)
    if outcome["failed"]:
        raise SettingError(f"{len(outcome['failed'])} of the runs failed: {'; '.join(outcome['failed'])}")


def parser() -> Parser:
    """The options of this command."""
    parser = settings_parser("rapid-lab suite", __doc__ or "")
    parser.add_argument("--methods", help=f"comma-separated (default {','.join(PAPER_METHODS)})", metavar="NAMES")
    parser.add_argument("--seeds", help="comma-separated (default 42,43,44)", metavar="NUMBERS")
    return parser


def _listed(name: str, several: str | None, one: str | None, default: Sequence[Value]) -> list[Value]:
    if several is not None and one is not None:
        raise SettingError(f"{name} must be given once, got both --{name} and --{name}s: they name the same thing")
    asked = several if several is not None else one
    if asked is None:
        return list(default)
    values = [SETTINGS[name].parse(part.strip()) for part in asked.split(",") if part.strip()]
    if not values:
        raise SettingError(f"{name}s must be a list such as a,b, got {shown(asked)}: it is empty")
    if len(set(values)) < len(values):
        raise SettingError(f"{name}s must differ, got {shown(asked)}: a run counts once")
    return values


def rendered(runs: Sequence[dict[str, Any]]) -> str:
    """Report accuracy (mean and population standard deviation over seeds), relations and time of each method."""
    header = [
        "data",
        "method",
        "report %",
        "seeds",
        "main",
        "pilot",
        "unique main",
        "unique pilot",
        "union",
        "minutes",
    ]
    rows = []
    for dataset, method in dict.fromkeys((run["dataset"], run["method"]) for run in runs):
        members = [run for run in runs if (run["dataset"], run["method"]) == (dataset, method)]
        steps = sum(run["steps"] for run in members)
        spent = [
            sum(run["relations"][name] for run in members) / steps
            for name in ("main", "pilot", "unique_main", "unique_pilot", "unique_union")
        ]
        minutes = statistics.mean(run["train_seconds"] for run in members) / 60
        rows.append(
            [dataset, METHODS[method].label, _accuracy(members), str(len(members))]
            + [f"{mean:.3f}" for mean in spent]
            + [f"{minutes:.2f}"]
        )
    return text_table(header, rows)


def _accuracy(members: Sequence[dict[str, Any]]) -> str:
    shares = [100 * run["report"]["correct"] / run["report"]["total"] for run in members if run["report"]]
    return f"{statistics.mean(shares):.3f} +- {statistics.pstdev(shares):.3f}" if shares else "-"
