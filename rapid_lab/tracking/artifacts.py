"""What a run keeps besides numbers: the data it read, and the student as a model others can load."""

import json
import logging
import tempfile
import warnings
from pathlib import Path
from typing import Any

from mlflow.entities import LoggedModelStatus
from mlflow.exceptions import MlflowException

from rapid_lab.tracking.door import told_as
from rapid_lab.tracking.provenance import versions
from rapid_lab.tracking.runs import TrackedRun

MODEL_NAME = "student"


def log_dataset(run: TrackedRun, *, name: str, digest: str, source: str, rows: dict[str, int]) -> None:
    """The data as an input of the run, with the number of rows of each part."""
    run.log_input(name=name, digest=digest[:36], source=json.dumps({"source": source}), profile=json.dumps(rows))


def read_text(run: TrackedRun, name: str) -> str:
    """An artifact of a run, as text."""
    with told_as(f"reading {name} of run {run.run_id}"), tempfile.TemporaryDirectory() as folder:
        return Path(run.client.download_artifacts(run.run_id, name, folder)).read_text(encoding="utf-8")


def logged_model(run: TrackedRun) -> str | None:
    """The id of the student that was logged as a model; None where there is none, or none that is whole."""
    return next((model_id for model_id, is_whole in _models(run) if is_whole), None)


def _models(run: TrackedRun) -> list[tuple[str, bool]]:
    """Every model of a run, and whether it is whole: MLflow names it on the run before its files are there."""
    with told_as(f"looking for the model of run {run.run_id}"):
        outputs = run.client.get_run(run.run_id).outputs
        names = [output.model_id for output in outputs.model_outputs] if outputs else []
        found = [(name, _status(run, name)) for name in names]
    return [(name, status == LoggedModelStatus.READY) for name, status in found if status is not None]


def _status(run: TrackedRun, model_id: str) -> LoggedModelStatus | None:
    try:
        return run.client.get_logged_model(model_id).status
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":  # deleted
            return None
        raise


def model_weights(model_id: str) -> dict[str, Any]:
    """The weights of a student that was logged as a model."""
    import mlflow.artifacts
    from safetensors.torch import load_file

    with told_as(f"reading the model {model_id}"), tempfile.TemporaryDirectory() as folder:
        mlflow.artifacts.download_artifacts(f"models:/{model_id}", dst_path=folder)
        return {
            name: tensor for path in Path(folder).rglob("*.safetensors") for name, tensor in load_file(path).items()
        }


def log_student(run: TrackedRun, model: Any, tokenizer: Any) -> None:
    """The selected student as an MLflow model: a transformers pipeline for text classification."""
    with warnings.catch_warnings():  # of MLflow about its own code, while it is imported
        warnings.simplefilter("ignore", UserWarning)
        import mlflow.pyfunc
        import mlflow.transformers

    # It misses the licence and the card of a model that was trained here.
    logging.getLogger("mlflow.transformers").setLevel(logging.ERROR)
    found = versions()
    # Named here, or MLflow would load the model in another process to find them out.
    requirements = [f"{name}=={found[name].partition('+')[0]}" for name in ("torch", "transformers", "mlflow")]
    unfinished = [model_id for model_id, is_whole in _models(run) if not is_whole]
    with told_as(f"logging the model of run {run.run_id}"), mlflow.start_run(run_id=run.run_id):
        for model_id in unfinished:  # left by a process killed in between
            run.client.delete_logged_model(model_id)
        mlflow.transformers.log_model(
            transformers_model={"model": model, "tokenizer": tokenizer},
            name=MODEL_NAME,
            task="text-classification",
            pip_requirements=requirements,
        )
