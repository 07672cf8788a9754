"""The door to MLflow: which store, a client of it, and its faults told in our words."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mlflow
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from rapid_lab.tracking.errors import TrackingError
from rapid_lab.tracking.redaction import without_secrets

logging.getLogger("mlflow").setLevel((os.environ.get("MLFLOW_LOGGING_LEVEL") or "WARNING").upper())


def tracking_uri() -> str:
    """Where MLflow keeps its record, an sqlite path made absolute: a later change of folder must not move it."""
    uri = str(mlflow.get_tracking_uri())
    path = sqlite_path(uri)
    if path is None or path.is_absolute():
        return uri
    return make_url(uri).set(database=str(Path.cwd() / path)).render_as_string(hide_password=False)


def sqlite_path(uri: str) -> Path | None:
    """The file of an sqlite URI; None where there is none."""
    try:
        url = make_url(uri)
    except (ArgumentError, ValueError):
        return None
    is_file = url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:")
    return Path(str(url.database)) if is_file else None


def client() -> MlflowClient:
    """A client of the current tracking URI; MLflow keeps one store for each URI, so this is cheap."""
    return MlflowClient(tracking_uri())


def reason(error: Exception) -> str:
    """The first line of an error, without passwords."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return without_secrets(lines[0])


@contextmanager
def told_as(doing: str) -> Iterator[None]:
    """Raise what MLflow raises as a TrackingError that says what was being done."""
    try:
        yield
    except MlflowException as error:
        raise TrackingError(f"{doing} failed: {reason(error)}") from error
