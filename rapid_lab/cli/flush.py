"""Send what runs on this machine have logged while the tracking store did not answer.

Spools of runs that are under way are left to them. What cannot be sent is named: lines that are damaged, runs that the
store no longer has or that another process has taken over (both are set aside, beside the spools), and spools of
another store than MLFLOW_TRACKING_URI names.
"""

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rapid_lab.cli.parsing import Parser, parsed
from rapid_lab.errors import DataError

if TYPE_CHECKING:
    from rapid_lab.tracking.spool_flush import Sent


def run(arguments: Sequence[str]) -> None:
    """Parse, send, print."""
    options = parsed(parser(), arguments)

    from rapid_lab.tracking.spool import left_behind
    from rapid_lab.tracking.spool_flush import DAMAGED, send_left_behind
    from rapid_lab.tracking.store import existing_store

    sent: list[Sent] = []
    if left_behind():
        existing_store()
        sent = send_left_behind()
    document = {"spools": [dataclasses.asdict(one) for one in sent]}
    print(json.dumps(document, indent=1) if options.json else rendered(sent))
    damaged = [note for one in sent if one.outcome == DAMAGED for note in one.notes]
    if damaged:
        raise DataError("; ".join(damaged))


def parser() -> Parser:
    """The options of this command."""
    parser = Parser(prog="rapid-lab flush", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def rendered(sent: "Sequence[Sent]") -> str:
    """A line for each spool."""
    lines = [
        f"run {one.run_id}: {one.outcome}, {one.num_metrics} metrics and {one.num_operations} other entries stored"
        + "".join(f"\n  {note}" for note in one.notes)
        for one in sent
    ]
    return "\n".join(lines) or "Nothing is waiting to be sent."
