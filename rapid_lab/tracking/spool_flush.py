"""What dead processes have left in their spools, sent: by `rapid-lab flush`, and before a run goes on."""

from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout
from mlflow import MlflowClient

from rapid_lab import names
from rapid_lab.tracking.door import client as open_client
from rapid_lab.tracking.errors import TrackingError
from rapid_lab.tracking.redaction import redact
from rapid_lab.tracking.spool import Spool, left_behind, remove_orphans, spool_folder
from rapid_lab.tracking.spool_delivery import FAULTS, AwayError, Delivery, RefusalError, carry_out, told

LOCK_SECONDS = 600.0

SENT = "sent"
DAMAGED = "damaged"  # what was whole is sent, the file is set aside
REFUSED = "refused"  # the store does not want it: set aside
SUPERSEDED = "superseded"  # another process has taken the run over and logged it anew: set aside
LIVE = "live"  # of a process that is not dead
ELSEWHERE = "elsewhere"  # of another store than the current one


@dataclass(frozen=True)
class Sent:
    """What became of one spool."""

    spool: str
    run_id: str
    outcome: str
    num_metrics: int = 0
    num_operations: int = 0
    notes: list[str] = field(default_factory=list)


def send_left_behind(run_id: str | None = None) -> list[Sent]:
    """Send the spools of dead processes, of all runs or of one; raise TrackingError where the store stops answering.

    One process at a time does it: what two of them sent together would arrive in no order. Of one run it is sent for
    somebody who goes on with it, and who repeats what comes after a damaged line; so nothing of that is sent.
    """
    if not left_behind(run_id):
        return []
    client = open_client()
    try:
        with FileLock(spool_folder() / "flush.lock", timeout=LOCK_SECONDS):
            remove_orphans()
            return [_sent(path, client, is_resumed=run_id is not None) for path in left_behind(run_id)]
    except Timeout:
        raise TrackingError(f"another process has been sending spools for {LOCK_SECONDS:g} s: try again") from None


def _sent(path: Path, client: MlflowClient, *, is_resumed: bool) -> Sent:
    spool = Spool.reopen(path)
    if spool is None:
        return Sent(path.name, path.name.partition(".")[0], LIVE)
    try:
        return _sent_open(spool, client, is_resumed=is_resumed)
    finally:
        spool.close()


def _sent_open(spool: Spool, client: MlflowClient, *, is_resumed: bool) -> Sent:
    run_id = spool.header.get("run_id", spool.path.name.partition(".")[0])
    if not spool.header:
        return _aside(spool, Sent(spool.path.name, run_id, DAMAGED, notes=list(spool.damages)))
    if spool.header["store"] != redact(client.tracking_uri):
        return Sent(spool.path.name, run_id, ELSEWHERE, notes=[f"MLFLOW_TRACKING_URI was {spool.header['store']}"])
    delivery = Delivery(spool, client, run_id, is_strict=is_resumed)
    try:
        owner = _owner(client, run_id)
        if spool.header["process"] not in (None, owner):
            return _aside(spool, Sent(spool.path.name, run_id, SUPERSEDED, notes=[f"it is now of process {owner}"]))
        while delivery.send(is_partial=True):
            pass
    except RefusalError as error:
        return _aside(spool, _summary(delivery, REFUSED, [str(error)]))
    except AwayError as error:
        raise AwayError(f"{error}. What is left stays in {spool.path.name}") from error
    return _done(delivery)


def _owner(client: MlflowClient, run_id: str) -> str | None:
    """The process that the run belongs to now."""
    try:
        owner: str | None = client.get_run(run_id).data.tags.get(names.PROCESS)
    except FAULTS as error:
        raise told(f"reading run {run_id}", error) from error
    return owner


def _done(delivery: Delivery) -> Sent:
    spool = delivery.spool
    torn = [f"{spool.torn} is cut off and was left out"] if spool.torn else []
    if not spool.damages:
        spool.remove()
        return _summary(delivery, SENT, torn)
    notes = [f"{damage} is damaged and was left out" for damage in spool.damages]
    if not delivery.is_strict:
        carry_out(delivery.client, delivery.run_id, {"do": "tags", "tags": {names.DAMAGED: "; ".join(notes)[:500]}})
    return _aside(spool, _summary(delivery, DAMAGED, notes + torn))


def _summary(delivery: Delivery, outcome: str, notes: list[str]) -> Sent:
    counts = delivery.num_metrics, delivery.num_operations
    return Sent(delivery.spool.path.name, delivery.run_id, outcome, *counts, notes)


def _aside(spool: Spool, sent: Sent) -> Sent:
    spool.set_aside()
    return sent
