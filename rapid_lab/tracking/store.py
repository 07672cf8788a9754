"""The tracking store: made once however many processes come first, its experiments, and the runs found in it."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from filelock import FileLock, Timeout
from mlflow.exceptions import MlflowException
from mlflow.store.db.utils import _initialize_tables, create_sqlalchemy_engine
from mlflow.utils.credentials import get_default_host_creds
from mlflow.utils.rest_utils import http_request_safe
from sqlalchemy import NullPool, create_engine, inspect
from sqlalchemy.exc import SQLAlchemyError

from rapid_lab.errors import SettingError
from rapid_lab.folders import check_writable, is_file, is_folder
from rapid_lab.harmless import shown
from rapid_lab.tracking.advisory import advisory_lock
from rapid_lab.tracking.door import client, reason, sqlite_path, told_as, tracking_uri
from rapid_lab.tracking.redaction import without_secrets

LOCK_SECONDS = 120
ANSWER_SECONDS = 5
PAGE_SIZE = 1000
DATABASES = ("sqlite", "postgresql", "mysql")


def prepare_store() -> str:
    """The tracking URI, once its store is there and answers; safe when several processes come first together."""
    uri = check_store()
    if _scheme(uri) == "sqlite":
        _prepare_sqlite(uri)
    elif _scheme(uri) == "postgresql":
        _prepare_postgres(uri)
    return uri


def check_store() -> str:
    """The tracking URI of a store that answers, or that can be made here; nothing is made yet."""
    uri = tracking_uri()
    scheme = _scheme(uri)
    if scheme == "sqlite":
        _check_file(uri)
    elif scheme in ("http", "https"):
        _check_server(uri)
    elif scheme in DATABASES:
        _check_answer(uri)
    elif scheme in ("", "file"):
        raise _unusable(uri, "MLflow no longer writes folders of files; sqlite:///mlflow.db is its default")
    else:
        _open(uri)
    return uri


def _scheme(uri: str) -> str:
    try:
        return urlsplit(uri).scheme.partition("+")[0]
    except ValueError as error:
        raise _unusable(uri, str(error)) from None


def _open(uri: str) -> None:
    try:
        client()
    except (MlflowException, SQLAlchemyError, ImportError, ValueError) as error:
        raise _unusable(uri, reason(error)) from error


def _check_file(uri: str) -> None:
    path = sqlite_path(uri)
    if path is None:
        raise _unusable(uri, "a store in memory ends with its process, and so would the record")
    if is_folder(path):
        raise _unusable(uri, "it is a folder")
    check_writable("the folder of MLFLOW_TRACKING_URI", path.parent)


def _check_answer(uri: str) -> bool:
    """Whether a database has MLflow's tables, asked once: MLflow makes them, and asks an absent one for minutes."""
    is_remote = _scheme(uri) != "sqlite"
    try:
        engine = create_engine(uri, connect_args={"connect_timeout": ANSWER_SECONDS} if is_remote else {})
        with closing(engine.connect()) as connection:
            has_runs = inspect(connection).has_table("runs")
        engine.dispose()
    except (SQLAlchemyError, ImportError, ValueError, UnicodeError) as error:
        raise _unusable(uri, reason(error)) from error
    return bool(has_runs)


def existing_store() -> str:
    """The tracking URI of a store that is there already: for readers, who must not make an empty one."""
    uri = tracking_uri()
    scheme = _scheme(uri)
    if scheme in DATABASES:
        _check_database(uri)
    elif scheme in ("http", "https"):
        _check_server(uri)
    elif scheme in ("", "file"):
        raise _unusable(uri, "MLflow no longer reads folders of files; sqlite:///mlflow.db is its default")
    _open(uri)
    return uri


def _check_database(uri: str) -> None:
    path = sqlite_path(uri)
    if _scheme(uri) == "sqlite" and (path is None or not is_file(path)):
        raise _unusable(uri, "there is no such file; the first run makes it")
    if not _check_answer(uri):
        raise _unusable(uri, "it is a database without the tables of MLflow")


def _prepare_sqlite(uri: str) -> None:
    path = Path(str(sqlite_path(uri)))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Two processes that make the tables together destroy the store for good.
        with FileLock(f"{path}.lock", timeout=LOCK_SECONDS):
            if not path.exists():
                _make_sqlite(path)
            _use_write_ahead_log(path)
            client()
    except Timeout:
        raise _unusable(uri, f"another process has held {path}.lock for {LOCK_SECONDS} s") from None
    except (OSError, sqlite3.Error, SQLAlchemyError, MlflowException) as error:
        raise _unusable(uri, reason(error)) from error


def _prepare_postgres(uri: str) -> None:
    """One process of all machines at a time: of those that make the tables together all but one would crash."""
    try:
        engine = create_engine(uri, poolclass=NullPool, connect_args={"connect_timeout": ANSWER_SECONDS})
        with closing(advisory_lock(engine, "tracking store", seconds=LOCK_SECONDS)):
            client()
    except (SQLAlchemyError, ImportError, MlflowException) as error:
        raise _unusable(uri, reason(error)) from error


def _make_sqlite(path: Path) -> None:
    """Make the tables in a draft beside the file: whoever is killed meanwhile leaves no half-made store."""
    draft = path.with_name(f"{path.name}.draft")
    draft.unlink(missing_ok=True)
    engine = create_sqlalchemy_engine(f"sqlite:///{draft}")
    try:
        _initialize_tables(engine)
    finally:
        engine.dispose()
    draft.replace(path)


def _use_write_ahead_log(path: Path) -> None:
    """About twice the parallel writes. The file keeps the mode; a file system that cannot do it keeps its own."""
    with closing(sqlite3.connect(path, timeout=20)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")


def _check_server(uri: str) -> None:
    """Ask once, shortly: MLflow itself would ask an absent server for minutes."""
    search = "/api/2.0/mlflow/experiments/search"
    credentials = get_default_host_creds(uri)
    try:
        http_request_safe(credentials, search, "POST", json={"max_results": 1}, max_retries=0, timeout=ANSWER_SECONDS)
    except (MlflowException, ValueError) as error:
        message = f"tracking server {without_secrets(uri)} cannot be reached: {reason(error)}"
        raise SettingError(f"MLFLOW_TRACKING_URI must name a server that answers: {message}") from error


def _unusable(uri: str, why: str) -> SettingError:
    return SettingError(
        f"MLFLOW_TRACKING_URI must name a store that can be used, got {shown(without_secrets(uri))}: {why}"
    )


def experiment_id(name: str) -> str:
    """The experiment of this name, made where there is none; whoever comes second finds the first one's."""
    if not name.strip():
        raise SettingError(f"experiment must be a name, got {shown(name)}: the MLflow UI lists runs under it")
    found = _experiment(name)
    if found is not None:
        return found
    try:
        return str(client().create_experiment(name))
    except MlflowException as error:
        found = _experiment(name) if error.error_code == "RESOURCE_ALREADY_EXISTS" else None
        if found is None:
            raise SettingError(f"experiment must be a name MLflow takes, got {name!r}: {reason(error)}") from error
        return found


def _experiment(name: str) -> str | None:
    with told_as("looking for the experiment"):
        experiment = client().get_experiment_by_name(name)
    if experiment is None:
        return None
    if experiment.lifecycle_stage != "active":
        mend = f"`mlflow experiments restore -x {experiment.experiment_id}` brings it back"
        raise SettingError(f"experiment must not be a deleted one, got {name!r}: {mend}")
    return str(experiment.experiment_id)


@dataclass(frozen=True)
class RunSummary:
    """A run as a search finds it; start_time in milliseconds since 1970."""

    run_id: str
    status: str
    tags: dict[str, str]
    start_time: int


def find_runs(experiment_id: str, tags: Mapping[str, str]) -> list[RunSummary]:
    """The runs of an experiment with all these tags, newest first; deleted runs are not among them."""
    found: list[RunSummary] = []
    query, token = tag_filter(tags), None
    while True:
        with told_as("searching runs"):
            page = client().search_runs([experiment_id], query, max_results=PAGE_SIZE, page_token=token)
        for run in page:
            summary = RunSummary(run.info.run_id, run.info.status, dict(run.data.tags), run.info.start_time)
            # The filter narrows; equality decides.
            if all(summary.tags.get(name) == value for name, value in tags.items()):
                found.append(summary)
        token = page.token
        if not token:
            return found


def tag_filter(tags: Mapping[str, str]) -> str:
    """MLflow's filter for those tags that cannot break out of it: its strings know no escapes."""
    plain = [(name, value) for name, value in tags.items() if _is_plain(name) and _is_plain(value)]
    return " AND ".join(f"tags.`{name}` = '{value}'" for name, value in plain)


def _is_plain(text: str) -> bool:
    return text.isprintable() and text.strip() == text != "" and not set(text) & set("'\"`\\")
