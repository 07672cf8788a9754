"""Close the runs that are RUNNING in the tracking store for processes of this machine which are gone.

They end as KILLED, and one that has its whole record as FINISHED; asking for them again goes on with them. Runs of
living processes, of other machines, those that do not say which process they are of, and those with a run below
them that may be at work are left alone.
"""

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rapid_lab.cli.flush import rendered as rendered_spools
from rapid_lab.cli.parsing import Parser, parsed

if TYPE_CHECKING:
    from rapid_lab.tracking.reaping import Found


def run(arguments: Sequence[str]) -> None:
    """Parse, send what is in spools, close, print."""
    options = parsed(parser(), arguments)

    from rapid_lab.tracking.reaping import reap
    from rapid_lab.tracking.spool_flush import send_left_behind
    from rapid_lab.tracking.store import existing_store

    existing_store()
    # First: a run may have ended long ago, and only its last words be in a spool.
    sent = [] if options.dry_run else send_left_behind()
    found = reap(is_dry=options.dry_run)
    closed = [one for one in found if one.status is not None]
    left = [one for one in found if one.status is None]
    if options.json:
        document = {
            "is_dry_run": options.dry_run,
            "closed": [dataclasses.asdict(one) for one in closed],
            "left_alone": [{"run_id": one.run_id, "name": one.name, "reason": one.reason} for one in left],
            "spools": [dataclasses.asdict(one) for one in sent],
        }
        print(json.dumps(document, indent=1))
    else:
        print("\n".join([*([rendered_spools(sent)] if sent else []), *_lines(closed, left, is_dry=options.dry_run)]))


def parser() -> Parser:
    """The options of this command."""
    parser = Parser(prog="rapid-lab reap", description=__doc__)
    parser.add_argument("--dry-run", action="store_true", help="say what would be closed, and change nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def _lines(closed: "Sequence[Found]", left: "Sequence[Found]", *, is_dry: bool) -> list[str]:
    verb = "would be closed" if is_dry else "closed"
    lines = [f"{verb} as {one.status}: run {one.run_id} {one.name} ({one.reason})" for one in closed]
    lines += [f"left alone: run {one.run_id} {one.name} ({one.reason})" for one in left]
    return lines or ["No run is RUNNING."]
