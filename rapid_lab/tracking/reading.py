"""The tracking store read: runs with all that was logged of them, metric histories, artifacts. Nothing is written."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from mlflow.artifacts import download_artifacts
from mlflow.entities import Experiment, Metric, Run
from mlflow.exceptions import MlflowException
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from mlflow.utils.file_utils import local_file_uri_to_path

from rapid_lab import names
from rapid_lab.config import nearest
from rapid_lab.errors import SettingError
from rapid_lab.harmless import is_storable, shown
from rapid_lab.tracking.door import client, reason, told_as, tracking_uri
from rapid_lab.tracking.launched import launched_id
from rapid_lab.tracking.store import PAGE_SIZE, existing_store, tag_filter

Names = Sequence[str]
RUNS_AT_ONCE = 500  # ids in one question to a database


@dataclass(frozen=True)
class Wanted:
    """Which runs to read: all of the store where nothing is said."""

    experiments: Names = ()
    run_ids: Names = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    datasets: Names = ()

    def matches(self, tags: Mapping[str, str]) -> bool:
        """Whether a run with these tags is wanted."""
        is_of_dataset = not self.datasets or tags.get(names.DATASET) in self.datasets
        return is_of_dataset and all(tags.get(name) == value for name, value in self.tags.items())


@dataclass(frozen=True)
class StoredRun:
    """A run as the store has it; times in milliseconds since 1970, of each metric the latest value and its step."""

    run_id: str
    experiment_id: str
    name: str
    status: str
    start_time: int
    end_time: int | None
    artifact_uri: str
    tags: Mapping[str, str]
    params: Mapping[str, str]
    metrics: Mapping[str, tuple[float, int]]


def read_runs(wanted: Wanted) -> list[StoredRun]:
    """The wanted runs, oldest first; deleted ones are not among them."""
    existing_store()
    experiments = _experiments(wanted.experiments)
    if wanted.run_ids:
        found = _named(wanted.run_ids, experiments)
    else:
        found = [_stored(run) for run in _searched(list(experiments), tag_filter(wanted.tags))]
    # The filter narrows; equality decides. A run that was made for this very command has nothing in it yet.
    matching = [run for run in found if wanted.matches(run.tags) and run.run_id != launched_id()]
    return sorted(matching, key=lambda run: (run.start_time, run.run_id))


def read_teachers() -> list[StoredRun]:
    """The teachers' runs of the whole store, whatever students were asked for."""
    return read_runs(Wanted(tags={names.KIND: names.TEACHER}))


def _experiments(named: Names) -> dict[str, str]:
    """Names of the active experiments by id: those asked for, else all."""
    known = {str(item.experiment_id): str(item.name) for item in _all_experiments()}
    for name in named:
        if name not in known.values():
            hint = nearest(name, list(known.values()))
            raise SettingError(f"experiment must be one of the tracking store, got {shown(name)}: {hint}")
    return {number: name for number, name in known.items() if not named or name in named}


def _all_experiments() -> list[Experiment]:
    found: list[Experiment] = []
    token = None
    while True:
        with told_as("reading the experiments"):
            page = client().search_experiments(max_results=PAGE_SIZE, page_token=token)
        found += page
        token = page.token
        if not token:
            return found


def _searched(experiment_ids: list[str], query: str) -> list[Run]:
    found: list[Run] = []
    token = None
    while experiment_ids:
        with told_as("reading the runs"):
            page = client().search_runs(experiment_ids, query, max_results=PAGE_SIZE, page_token=token)
        found += page
        token = page.token
        if not token:
            break
    return found


def _named(run_ids: Names, experiments: Mapping[str, str]) -> list[StoredRun]:
    found = {}
    for run_id in run_ids:
        if not is_storable(run_id):
            raise SettingError(f"run must be Unicode without NUL, got {shown(run_id)}: no store has such a name")
        try:
            run = client().get_run(run_id)
        except MlflowException as error:
            raise SettingError(
                f"run must be an id of the tracking store, got {shown(run_id)}: {reason(error)}"
            ) from error
        if run.info.lifecycle_stage != "active":
            raise SettingError(f"run must not be deleted, got {run_id!r}: `mlflow runs restore` brings it back")
        if run.info.experiment_id in experiments:
            found[run_id] = _stored(run)
    return list(found.values())


def _stored(run: Run) -> StoredRun:
    info, data = run.info, run.data
    return StoredRun(
        run_id=info.run_id,
        experiment_id=info.experiment_id,
        name=info.run_name or info.run_id,
        status=info.status,
        start_time=info.start_time or 0,
        end_time=info.end_time,
        artifact_uri=info.artifact_uri,
        tags=dict(data.tags),
        params=dict(data.params),
        metrics={metric.key: (metric.value, int(metric.step)) for metric in data._metric_objs},
    )


def metric_histories(run_ids: Sequence[str], key: str) -> dict[str, list[tuple[int, float]]]:
    """By run: step and value of everything logged of a metric, by step; of a step logged twice the later value."""
    found: dict[str, dict[int, float]] = {}
    for run_id, metric in sorted(_logged(run_ids, key), key=lambda pair: pair[1].timestamp):
        found.setdefault(run_id, {})[int(metric.step)] = float(metric.value)
    return {run_id: sorted(values.items()) for run_id, values in found.items()}


def _logged(run_ids: Sequence[str], key: str) -> Iterator[tuple[str, Metric]]:
    store = client()._tracking_client.store
    with told_as(f"reading {key}"):
        if not isinstance(store, SqlAlchemyStore):
            for run_id in run_ids:
                yield from ((run_id, metric) for metric in client().get_metric_history(run_id, key))
            return
        # A database answers for many runs in one query; over HTTP there is no such question.
        for start in range(0, len(run_ids), RUNS_AT_ONCE):
            some = run_ids[start : start + RUNS_AT_ONCE]
            yield from ((one.run_id, one) for one in store.get_metric_history_bulk(some, key, None))


def artifact_path(run: StoredRun, name: str, scratch: Path) -> Path | None:
    """The artifact as a file, fetched into `scratch` unless it is one here; None where it cannot be had."""
    uri = f"{run.artifact_uri.rstrip('/')}/{name}"
    if urlsplit(uri).scheme in ("", "file"):
        path = Path(local_file_uri_to_path(uri))
    else:
        try:
            target = str(scratch / run.run_id)
            path = Path(download_artifacts(artifact_uri=uri, dst_path=target, tracking_uri=tracking_uri()))
        except (MlflowException, OSError):
            return None
    return path if path.is_file() else None
