"""The command line: `rapid-lab X` and `python -m rapid_lab X`. Commands are imported when they are called."""

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from rapid_lab.errors import DataError, SettingError
from rapid_lab.tracking.errors import TrackingError
from rapid_lab.tracking.launched import launched_run

COMMANDS = {
    "run": "one run, from a dataset to a tracked student",
    "teacher": "the teacher of a dataset: fine-tuned, calibrated, cached",
    "suite": "methods x seeds, each run once",
    "demo": "the six methods on three seeds of the embedded twin",
    "compare": "the tracking store as the paper's tables, statistics, figures and a report",
    "variance": "the variance of every proposal on real batches of a run",
    "account": "the paper's relation table from sizes alone, without training",
    "flush": "send what runs logged while the tracking store did not answer",
    "reap": "close the runs of processes that are gone",
    "doctor": "what is installed and found, what is missing, and the command that mends it",
}


def truth(text: str) -> bool:
    """What follows a switch, where something does: `mlflow run -P json=true` arrives as `--json true`."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"must be alone, or followed by true or false, got {text!r}")
    return text.lower() == "true"


# For `add_argument`: on where it is named, and where it is followed by `true`.
SWITCH: dict[str, Any] = {"nargs": "?", "const": True, "default": False, "type": truth, "metavar": "true"}


class Parser(argparse.ArgumentParser):
    """Argparse with one message, and no abbreviations: a prefix may become ambiguous in the next release."""

    def __init__(self, **options: object) -> None:
        super().__init__(allow_abbrev=False, **options)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and exiting."""
        raise SettingError(message)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 2 and one message on standard error for what the user can mend."""
    parser = Parser(prog="rapid-lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", metavar="command", required=True, parser_class=Parser)
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary, add_help=False)
    try:
        command, rest = parser.parse_known_args(arguments)
        module = importlib.import_module(f"rapid_lab.cli.{command.command}")
        with launched_run():
            module.run(rest)
    except (SettingError, DataError, TrackingError) as error:
        print(f"rapid-lab: {error}", file=sys.stderr)
        return 2
    return 0
