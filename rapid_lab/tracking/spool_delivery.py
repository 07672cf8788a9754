"""From a spool to the store: metrics in batches, everything else one by one, in order, and again where it was lost.

What is sent twice is stored once: MLflow knows a metric by its key, step, time and value, and a tag, a parameter, an
artifact or a status that is set again is what it was.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag
from mlflow.exceptions import MlflowException, RestException
from sqlalchemy.exc import SQLAlchemyError

from rapid_lab.names import PARENT
from rapid_lab.tracking.door import reason
from rapid_lab.tracking.errors import TrackingError
from rapid_lab.tracking.spool import NUMBER, Entry, Spool

Item = TypeVar("Item")
BATCH_VALUES = 900  # MLflow takes 1000
BATCH_SIZE = 100  # the most tags or params MLflow takes at once
# What MLflow says of a request that is wrong and stays wrong. Whatever else happens may pass.
REFUSALS = frozenset({"INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "INVALID_STATE"})
# OSError includes what `requests` raises, and a full disk under the artifacts.
FAULTS = (MlflowException, SQLAlchemyError, OSError)


class RefusalError(TrackingError):
    """The store does not want it, and will not want it later."""


class AwayError(TrackingError):
    """The store did not take it, but may take it later."""


def told(doing: str, error: Exception) -> TrackingError:
    """What a fault of the store means."""
    message = f"{doing} failed: {reason(error)}"
    is_refusal = isinstance(error, MlflowException) and error.error_code in REFUSALS
    # An answer that is not MLflow's own comes from something in between, whatever code it has.
    is_from_between = not isinstance(error, RestException) and "API request to endpoint" in str(error)
    return RefusalError(message) if is_refusal and not is_from_between else AwayError(message)


class Delivery:
    """Takes entries out of a spool and stores them; a strict one stops before the first that is damaged."""

    def __init__(self, spool: Spool, client: MlflowClient, run_id: str, *, is_strict: bool) -> None:
        self.spool, self.client, self.run_id, self.is_strict = spool, client, run_id, is_strict
        self.num_metrics = self.num_operations = 0
        self._batch: list[Metric] = []
        self._next: Entry | None = None
        self._taken = 0

    def send(self, *, is_partial: bool) -> bool:
        """Store the next batch or operation; False where there is none, or one that may still grow.

        What could not be stored is the next again.
        """
        is_full = self._fill()
        if self._batch and (is_full or is_partial):
            self._store_metrics()
        elif self._next is not None and not self._batch:
            carry_out(self.client, self.run_id, self._next, self.spool)
            self.num_operations += 1
            self._taken, self._next = self._next[NUMBER], None
        else:
            return False
        self.spool.acknowledge(self._taken)
        return True

    def _fill(self) -> bool:
        """Read what fits into a batch; whether it is full.

        A step goes whole into one batch, which is one transaction: a kill leaves no half-stored step.
        """
        while True:
            entry = self._next or self.spool.read()
            if entry is None or (self.is_strict and self.spool.damages):
                return False
            values = entry.get("values", {})
            if entry["do"] != "metrics" or (self._batch and len(self._batch) + len(values) > BATCH_VALUES):
                self._next = entry
                return True
            self._batch += [Metric(key, value, entry["time"], entry["step"]) for key, value in values.items()]
            self._taken, self._next = entry[NUMBER], None

    def _store_metrics(self) -> None:
        doing = f"storing metrics of run {self.run_id}"
        try:
            for start in range(0, len(self._batch), BATCH_VALUES):
                self.client.log_batch(self.run_id, self._batch[start : start + BATCH_VALUES])
        except FAULTS as error:
            raise told(doing, error) from error
        self.num_metrics += len(self._batch)
        self._batch = []


def carry_out(client: MlflowClient, run_id: str, entry: Entry, spool: Spool | None = None) -> None:
    """Do to the run what an entry says; its files are those the spool keeps, or the ones it names."""
    kind = entry["do"]
    try:
        if kind == "tags":
            for tags in _batches([RunTag(name, value) for name, value in entry["tags"].items()]):
                client.log_batch(run_id, tags=tags)
        elif kind == "params":
            _log_params(client, run_id, entry["params"], keeps_first=entry["keeps_first"])
        elif kind == "tags by parent":
            is_child = client.get_run(run_id).data.tags.get(PARENT) == entry["parent"]
            carry_out(client, run_id, {"do": "tags", "tags": entry["child" if is_child else "other"]})
        elif kind == "input":
            _log_input(client, run_id, entry)
        elif kind == "files":
            _log_files(client, run_id, entry, spool)
        elif kind == "status":
            client.set_terminated(run_id, entry["status"], entry["time"])
        else:
            raise RefusalError(f"{kind} of run {run_id} is nothing this release knows: a newer one wrote it")
    except FAULTS as error:
        raise told(_doing(run_id, entry), error) from error


def _doing(run_id: str, entry: Entry) -> str:
    if entry["do"] == "files":
        names = list(entry["digests"] if "digests" in entry else entry["files"])
        return f"keeping {names[0] if len(names) == 1 else 'the files'} of run {run_id}"
    return {
        "tags": f"setting tags of run {run_id}",
        "tags by parent": f"setting tags of run {run_id}",
        "input": f"logging the data of run {run_id}",
        "params": f"logging params of run {run_id}",
        "status": f"ending run {run_id}",
    }[entry["do"]]


def _log_params(client: MlflowClient, run_id: str, params: Mapping[str, str], *, keeps_first: bool) -> None:
    """The same value again is skipped; another value too, or it is refused before any is logged."""
    logged = client.get_run(run_id).data.params
    for name, text in params.items():
        if not keeps_first and logged.get(name, text) != text:
            raise RefusalError(f"{name} of run {run_id} must stay {logged[name]!r}, got {text!r}: a parameter is final")
    for batch in _batches([Param(name, text) for name, text in params.items() if name not in logged]):
        client.log_batch(run_id, params=batch)


def _log_input(client: MlflowClient, run_id: str, entry: Entry) -> None:
    dataset = Dataset(entry["name"], entry["digest"], "rapid-lab", entry["source"], profile=entry["profile"])
    client.log_inputs(run_id, [DatasetInput(dataset, [InputTag("mlflow.data.context", "training")])])


def _log_files(client: MlflowClient, run_id: str, entry: Entry, spool: Spool | None) -> None:
    if "kept" in entry:
        folder = spool.kept(entry) if spool is not None else None
        if folder is not None:
            client.log_artifacts(run_id, str(folder), entry["folder"])
        return
    for name, source in entry["files"].items():
        place = entry["folder"]
        if isinstance(source, Path):
            parent = Path(name).parent.as_posix()
            inside = "/".join(part for part in (place, parent if parent != "." else None) if part)
            client.log_artifact(run_id, str(source), inside or None)
        else:
            client.log_text(run_id, source, name)


def _batches(items: Sequence[Item]) -> list[Sequence[Item]]:
    return [items[start : start + BATCH_SIZE] for start in range(0, len(items), BATCH_SIZE)]


def in_spool(entry: dict[str, Any], spool: Spool) -> Entry:
    """An entry as the spool takes it: files and texts are copied into it."""
    if entry["do"] != "files":
        return entry
    return {"do": "files", "folder": entry["folder"], **spool.keep(entry["files"])}
