"""The command line: `rapid-lab X` and `python -m rapid_lab X`. Commands are imported when they are called."""

import importlib
import sys
from collections.abc import Sequence

from rapid_lab.cli.parsing import Parser
from rapid_lab.errors import DataError, SettingError, TrainingError, told_where_unwritable
from rapid_lab.launch import RankError, launch
from rapid_lab.tracking.errors import TrackingError
from rapid_lab.tracking.launched import launched_run
from rapid_lab.tracking.redaction import hide_secrets_in_tracebacks, message_of
from rapid_lab.variables import check_variables

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 2 and one message on standard error for what the user can mend."""
    if arguments is None:  # the process is this command's, and so are its tracebacks
        hide_secrets_in_tracebacks()
    parser = Parser(prog="rapid-lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", metavar="command", required=True, parser_class=Parser)
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary, add_help=False)
    try:
        check_variables()
        command, rest = parser.parse_known_args(arguments)
        if command.command != "run" and launch().size > 1:
            raise SettingError(
                f"command must be run under torchrun, got {command.command!r}: each rank would do all of it"
            )
        module = importlib.import_module(f"rapid_lab.cli.{command.command}")
        with launched_run(), told_where_unwritable():
            module.run(rest)
    except (SettingError, DataError, TrackingError, TrainingError) as error:
        print(f"rapid-lab: {message_of(error)}", file=sys.stderr)
        return 2
    except RankError as error:
        print(f"rapid-lab: {message_of(error)}", file=sys.stderr)
        return 1
    return 0
