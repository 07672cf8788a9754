"""One MLflow run: started, adopted from `mlflow run` or from a process that died, or made a pointer to another."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from mlflow import MlflowClient
from mlflow.entities import Run, RunStatus
from mlflow.exceptions import MlflowException
from mlflow.tracking.context.registry import resolve_tags
from mlflow.utils.mlflow_tags import MLFLOW_GIT_REPO_URL

from rapid_lab import names
from rapid_lab.errors import SettingError
from rapid_lab.harmless import is_storable, shown
from rapid_lab.tracking.clock import now_ms
from rapid_lab.tracking.door import client as open_client
from rapid_lab.tracking.door import reason, told_as
from rapid_lab.tracking.errors import TrackingError
from rapid_lab.tracking.launched import take_launched_id
from rapid_lab.tracking.processes import this_process
from rapid_lab.tracking.redaction import message_of, without_user
from rapid_lab.tracking.signals import Interrupted, ignore_termination
from rapid_lab.tracking.spool import Entry
from rapid_lab.tracking.spool_delivery import AwayError, carry_out
from rapid_lab.tracking.spool_flush import send_left_behind
from rapid_lab.tracking.writer import FLUSH_SECONDS, MetricWriter, stored_steps

Status = Literal["FINISHED", "FAILED", "KILLED"]
PARAM_LENGTH = 6000  # MLflow cuts what is longer, and does not say so
TAG_LENGTH = 8000


@dataclass
class TrackedRun:
    """A handle on one MLflow run; there is no active run behind it, so several can be open at once.

    What the store does not take because it does not answer is kept in a spool, and sent in its order when the store
    answers again or, after this process, by `rapid-lab flush`. Only what the store refuses is an error.
    """

    run_id: str
    experiment_id: str
    client: MlflowClient = field(repr=False)
    stored_steps: dict[str, int] = field(default_factory=dict, repr=False)
    process: str | None = field(default=None, repr=False)  # set where this process owns the run
    start_time: int = field(default=0, repr=False)  # no run ends before it, also where the clock was set back
    _writer: MetricWriter | None = field(default=None, init=False, repr=False)

    @property
    def writer(self) -> MetricWriter:
        """The threads that keep and send this run's metrics, started at the first use."""
        if self._writer is None:
            self._writer = MetricWriter(
                self.run_id, client=self.client, stored_steps=self.stored_steps, process=self.process
            )
        return self._writer

    @property
    def is_away(self) -> bool:
        """Whether the store did not answer when it was given something last."""
        return self._writer is not None and self._writer.is_away

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Set tags, or change them; a value too long for MLflow ends in '...'."""
        self._do({"do": "tags", "tags": {name: _cut(value, TAG_LENGTH) for name, value in tags.items()}})

    def log_params(self, params: Mapping[str, object], *, keeps_first: bool = False) -> None:
        """Log parameters once: the same value again is skipped, another value is refused before any is logged.

        Where the first value is to be kept, another one later is no fault.
        """
        texts = {name: _cut(written(value), PARAM_LENGTH) for name, value in params.items()}
        self._do({"do": "params", "params": texts, "keeps_first": keeps_first})

    def log_metrics(self, step: int, values: Mapping[str, float], timestamp_ms: int | None = None) -> None:
        """Give the values of one step to the writer; what a resumed run has in the store already is left out."""
        self.writer.put(step, values, timestamp_ms)

    def next_step(self, key: str) -> int:
        """The first step of this metric that the store does not have."""
        return self.stored_steps.get(key, -1) + 1

    def log_artifact_text(self, name: str, text: str) -> None:
        """Keep a text as an artifact; folders in the name are made."""
        self._do({"do": "files", "folder": None, "files": {name: text}})

    def log_artifact_file(self, path: Path, folder: str | None = None) -> None:
        """Keep a file as an artifact under its own name."""
        self._do({"do": "files", "folder": folder, "files": {path.name: path}})

    def log_artifact_folder(self, folder: Path) -> None:
        """Keep every file of a folder, with its folders, as artifacts."""
        files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
        self._do({"do": "files", "folder": None, "files": files})

    def log_input(self, *, name: str, digest: str, source: str, profile: str) -> None:
        """Name a data set as an input of the run; source and profile are JSON."""
        self._do({"do": "input", "name": name, "digest": digest, "source": source, "profile": profile})

    def set_tags_by_parent(self, parent_run_id: str, child: Mapping[str, str], other: Mapping[str, str]) -> None:
        """Set one kind of tags where the run is a child of that parent, and the other kind where it is not."""
        self._do({"do": "tags by parent", "parent": parent_run_id, "child": dict(child), "other": dict(other)})

    def set_description(self, markdown: str) -> None:
        """What the MLflow UI shows above the run."""
        self.set_tags({names.DESCRIPTION: markdown})

    def flush(self, timeout: float = FLUSH_SECONDS) -> None:
        """Return when every metric so far is stored, or in the spool of a store that does not answer."""
        if self._writer is not None:
            self._writer.flush(timeout)

    def finish(self, status: Status, timeout: float = FLUSH_SECONDS) -> None:
        """Store what is left and end the run; where the store does not answer, end it here and say how to go on.

        A run whose metrics were refused ends as FAILED. That is raised where the run was thought to be FINISHED; one
        that has failed already has a fault of its own, which matters more.
        """
        is_told = self._writer is not None and self._writer.is_told
        fault = self._fault(timeout)
        ending = "FAILED" if fault and status == "FINISHED" else status
        try:
            self._do({"do": "status", "status": ending, "time": max(now_ms(), self.start_time)})
            if self._writer is not None and not self._writer.close(timeout):
                _say(f"{self._writer.reason}. What run {self.run_id} has logged is kept: `rapid-lab flush` sends it")
        except TrackingError as error:
            fault = fault or error
        if fault and status == "FINISHED":
            raise fault
        if fault and not is_told:
            _say(str(fault))

    def fail(self, fault: BaseException) -> None:
        """End as FAILED with the reason above the run; a store or disk that does not take it is said, not raised."""
        try:
            self.set_description(f"Failed: {message_of(fault)}")
        except TrackingError as error:
            if error is not fault:
                _say(str(error))
        self.finish("FAILED")

    def leave(self) -> None:
        """Store what is left, or leave it in the spool; the run stays as it is."""
        if self._writer is not None and not self._writer.close():
            _say(f"{self._writer.reason}. What run {self.run_id} has logged is kept: `rapid-lab flush` sends it")

    def _fault(self, timeout: float) -> TrackingError | None:
        try:
            self.flush(timeout)
        except TrackingError as error:
            return error
        return None

    def _do(self, entry: Entry) -> None:
        """Do it now, if everything before it is stored and the store answers; else keep it in its turn."""
        why = ""
        if self._writer is not None and self._writer.is_closed and not self._writer.is_broken:
            self._writer = None  # what comes after the end has a spool of its own
        if self._writer is None or self._writer.is_broken or self._writer.flush():
            try:
                carry_out(self.client, self.run_id, entry)
            except AwayError as error:
                why = str(error)
            else:
                return
        self.writer.keep(entry, why or self.writer.reason)


@contextmanager
def ended_in_order(run: TrackedRun) -> Iterator[None]:
    """Whatever ends this block early ends the run: a signal as KILLED, a fault as FAILED with its reason."""
    try:
        yield
    except Interrupted:
        run.finish("KILLED")
        raise
    except BaseException as fault:
        ignore_termination()
        run.fail(fault)
        raise


def start_run(
    experiment_id: str, name: str, tags: Mapping[str, str], *, parent_run_id: str | None = None
) -> TrackedRun:
    """A new run, RUNNING, with the tags MLflow sets on its own (user, source), this process and these."""
    parent = {} if parent_run_id is None else {names.PARENT: parent_run_id}
    process = str(this_process())
    cut = {key: _cut(value, TAG_LENGTH) for key, value in {**tags, names.PROCESS: process}.items()}
    client, now = open_client(), now_ms()
    with told_as(f"starting run {name!r}"):
        # With its tags at once: a process killed in between would leave a run that nobody can find again.
        run = client.create_run(experiment_id, now, _context_tags() | parent | cut, name)
    return TrackedRun(run.info.run_id, experiment_id, client, process=process, start_time=now)


def _context_tags() -> dict[str, str]:
    """What MLflow knows of user and source; the address of the repository without who may push to it."""
    tags = {name: str(value) for name, value in resolve_tags().items()}
    return tags | {name: without_user(tags[name]) for name in (MLFLOW_GIT_REPO_URL,) if name in tags}


def launched_or_new_run(experiment_id: str, name: str, tags: Mapping[str, str]) -> TrackedRun:
    """The run that `mlflow run` made for this process, else a new one; runs started below it get runs of their own."""
    launched = take_launched_id()
    if launched is None:
        return start_run(experiment_id, name, tags)
    tracked = adopt_run(launched)
    tracked.set_tags({**tags, "mlflow.runName": name})
    return tracked


def adopt_run(run_id: str) -> TrackedRun:
    """A run that exists, RUNNING again: made by `mlflow run`, or left behind by a process that died.

    What it has logged stays: what its last process left in a spool here is sent first, and metrics of steps it has in
    the store are not logged twice. Whether its process is really dead is for the caller to know.
    """
    client = open_client()
    run = _existing(client, run_id)
    send_left_behind(run_id)
    process = str(this_process())
    repository = run.data.tags.get(MLFLOW_GIT_REPO_URL, "")
    with told_as(f"adopting run {run_id}"):
        if without_user(repository) != repository:  # which `mlflow run` has written as it is
            client.set_tag(run_id, MLFLOW_GIT_REPO_URL, without_user(repository))
        # The process first: a run that is RUNNING for a dead one may be closed by `rapid-lab reap`.
        client.set_tag(run_id, names.PROCESS, process)
        client.update_run(run_id, status="RUNNING")
    stored = stored_steps(run_id, client=client)
    return TrackedRun(run_id, run.info.experiment_id, client, stored, process, run.info.start_time or 0)


def existing_run(run_id: str) -> TrackedRun:
    """A run of the store to read from; its status stays."""
    client = open_client()
    return TrackedRun(run_id, _existing(client, run_id).info.experiment_id, client)


def is_finished(run: TrackedRun) -> bool:
    """Whether the store has the run as FINISHED: one that was killed after its last word is not."""
    with told_as(f"reading the status of run {run.run_id}"):
        return bool(run.client.get_run(run.run_id).info.status == "FINISHED")


def point_launched_to(target_run_id: str) -> None:
    """Where nothing has taken the run that `mlflow run` made: the record is another run's, and it points there."""
    launched = take_launched_id()
    if launched is not None:
        make_pointer(launched, target_run_id)


def make_pointer(run_id: str, target_run_id: str) -> None:
    """Turn a run without metrics into a pointer to the run that has them, with that run's status."""
    client = open_client()
    run, target = _existing(client, run_id), _existing(client, target_run_id)
    if run_id == target_run_id or run.data.metrics:
        raise TrackingError(f"run {run_id} cannot point to {target_run_id}: it has a record of its own")
    link = f"#/experiments/{target.info.experiment_id}/runs/{target_run_id}"
    pointer = TrackedRun(run_id, run.info.experiment_id, client)
    pointer.set_tags({names.KIND: names.POINTER, names.POINTS_TO: target_run_id})
    pointer.set_description(f"Already run: see [{_label(target)}]({link}).")
    with told_as(f"ending run {run_id}"):
        if RunStatus.is_terminated(RunStatus.from_string(target.info.status)):
            client.set_terminated(run_id, target.info.status)
        else:
            client.update_run(run_id, status=target.info.status)


def written(value: object) -> str:
    """A setting's value as the text that reads back as it."""
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _existing(client: MlflowClient, run_id: str) -> Run:
    if not is_storable(run_id):
        raise SettingError(f"run id must be Unicode without NUL, got {shown(run_id)}: no store has such a name")
    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        raise SettingError(
            f"run id must name a run of the tracking store, got {shown(run_id)}: {reason(error)}"
        ) from error
    if run.info.lifecycle_stage != "active":
        raise SettingError(f"run id must not name a deleted run, got {run_id!r}: `mlflow runs restore` brings it back")
    return run


def _label(run: Run) -> str:
    """A run's name as the text of a markdown link: one line, no brackets."""
    return "".join(c if c.isprintable() and c not in "[]\\" else " " for c in run.info.run_name or run.info.run_id)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."


def _say(message: str) -> None:
    print(f"rapid-lab: {message}", file=sys.stderr)
