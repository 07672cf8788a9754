"""Which experiment of the tracking store a run belongs to."""

import os

from rapid_lab.tracking.store import experiment_id


def current_experiment() -> str:
    """The one `mlflow run` chose, else MLFLOW_EXPERIMENT_NAME, else MLflow's own default, as `mlflow run` would."""
    return os.environ.get("MLFLOW_EXPERIMENT_ID") or experiment_id(os.environ.get("MLFLOW_EXPERIMENT_NAME", "Default"))
