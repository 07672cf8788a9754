"""Which experiment of the tracking store a run belongs to, and whether there is a place to keep runs at all."""

import os
import re

from rapid_lab.errors import SettingError
from rapid_lab.folders import check_cache_folder
from rapid_lab.harmless import is_storable, shown
from rapid_lab.tracking.store import check_store, experiment_id

NAME_LENGTH = 500


def check_places() -> None:
    """Refuse a cache or a store that cannot be used, before any data is read; nothing is made."""
    check_cache_folder()
    _check_names()
    check_store()


def current_experiment() -> str:
    """The one `mlflow run` chose, else MLFLOW_EXPERIMENT_NAME, else MLflow's own default, as `mlflow run` would."""
    return os.environ.get("MLFLOW_EXPERIMENT_ID") or experiment_id(_experiment_name())


def _experiment_name() -> str:
    return os.environ.get("MLFLOW_EXPERIMENT_NAME") or "Default"


def _check_names() -> None:
    number, name = os.environ.get("MLFLOW_EXPERIMENT_ID", ""), os.environ.get("MLFLOW_EXPERIMENT_NAME", "")
    run_id = os.environ.get("MLFLOW_RUN_ID", "")
    if number and not re.fullmatch("[0-9]{1,18}", number):
        raise SettingError(f"MLFLOW_EXPERIMENT_ID must be a number, got {shown(number)}: MLflow names experiments so")
    if name and not (name.strip() and is_storable(name) and len(name) <= NAME_LENGTH):
        raise SettingError(
            f"MLFLOW_EXPERIMENT_NAME must be Unicode of at most {NAME_LENGTH} characters, got {shown(name)}: "
            "the MLflow UI lists runs under it"
        )
    if run_id and not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", run_id):
        raise SettingError(f"MLFLOW_RUN_ID must be the id of a run, got {shown(run_id)}: `mlflow run` sets it")
