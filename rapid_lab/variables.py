"""Every environment variable the software reads: what it is for, and what it may be. Nothing heavy is imported here.

Those that hold a place or an address are judged where they are used, by whoever uses them; what has a form of its own
is judged here, before a library meets it.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass

from rapid_lab.errors import SettingError
from rapid_lab.harmless import shown

LEVELS = ("CRITICAL", "DEBUG", "ERROR", "FATAL", "INFO", "NOTSET", "WARN", "WARNING")
NUMBER_LENGTH = 9


@dataclass(frozen=True)
class Variable:
    """What a variable is for, its form in words where it has one, and whether a value has that form."""

    help: str
    form: str = ""
    has_form: Callable[[str], bool] = bool


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= NUMBER_LENGTH


def _is_positive(text: str) -> bool:
    return _is_count(text) and int(text) > 0


def _are_threads(text: str) -> bool:
    """One number, or one for each level of nesting."""
    return all(_is_positive(part.strip()) for part in text.split(","))


_SWITCH = ("", "0", "1", "false", "true", "no", "yes", "off", "on")
_OFFLINE = Variable("whether the hub is left alone", "0 or 1, true or false", lambda text: text.lower() in _SWITCH)

VARIABLES: dict[str, Variable] = {
    "RAPID_DATA_DIR": Variable("folder with local copies of datasets"),
    "RAPID_MODEL_DIR": Variable("folder with local models, looked up by plain names"),
    "RAPID_CACHE_DIR": Variable("folder of teachers, checkpoints and spools"),
    "RAPID_STORAGE": Variable("where studies are kept: a folder, or a PostgreSQL address, which may hold a password"),
    "RAPID_SWEEP_LAUNCHED": Variable("set by a sweep for the workers it starts"),
    "XDG_CACHE_HOME": Variable("folder of the user's caches"),
    "MLFLOW_TRACKING_URI": Variable("the tracking store; may hold a password"),
    "MLFLOW_TRACKING_USERNAME": Variable("user of a tracking server; read by MLflow"),
    "MLFLOW_TRACKING_PASSWORD": Variable("password of a tracking server; read by MLflow"),
    "MLFLOW_TRACKING_TOKEN": Variable("token of a tracking server; read by MLflow"),
    "MLFLOW_REGISTRY_URI": Variable("the model registry; read by MLflow"),
    "MLFLOW_EXPERIMENT_ID": Variable("the experiment of new runs, by number; set by `mlflow run`"),
    "MLFLOW_EXPERIMENT_NAME": Variable("the experiment of new runs, by name"),
    "MLFLOW_RUN_ID": Variable("the run that `mlflow run` has made for this process"),
    "MLFLOW_ENV_ROOT": Variable("where MLflow keeps environments"),
    "MLFLOW_LOGGING_LEVEL": Variable(
        "how much MLflow says", f"one of {', '.join(LEVELS)}", lambda text: text.upper() in LEVELS
    ),
    "MLFLOW_HTTP_REQUEST_TIMEOUT": Variable("seconds for an answer", "an integer above 0", _is_positive),
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": Variable("questions asked again", "an integer of at least 0", _is_count),
    "MLFLOW_DISABLE_TELEMETRY": Variable("set here, for MLflow"),
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": Variable("set here, for MLflow"),
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": Variable("set here, for MLflow"),
    "HF_ENDPOINT": Variable("address of the hub"),
    "HF_HOME": Variable("folder of the hub's caches"),
    "HF_DATASETS_CACHE": Variable("folder of datasets from the hub"),
    "HF_TOKEN": Variable("token of the hub; read by its libraries"),
    "HF_HUB_OFFLINE": _OFFLINE,
    "HF_DATASETS_OFFLINE": _OFFLINE,
    "TRANSFORMERS_OFFLINE": _OFFLINE,
    "PGPASSWORD": Variable("password of PostgreSQL; read by its client"),
    "PGPASSFILE": Variable("file with passwords of PostgreSQL; read by its client"),
    "OMP_NUM_THREADS": Variable("threads of a process", "an integer above 0", _are_threads),
    "RAY_ADDRESS": Variable("the Ray cluster"),
    "RAY_AUTH_TOKEN": Variable("token of the Ray cluster; read by Ray"),
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": Variable("set here, for Ray"),
    "TORCHELASTIC_RUN_ID": Variable("set by torchrun for the ranks it starts"),
    "RANK": Variable("which of all ranks this process is; set by torchrun"),
    "WORLD_SIZE": Variable("how many ranks there are; set by torchrun"),
    "LOCAL_RANK": Variable("which of this machine's ranks this process is; set by torchrun"),
    "LOCAL_WORLD_SIZE": Variable("how many ranks this machine has; set by torchrun"),
    "CUBLAS_WORKSPACE_CONFIG": Variable("set here, for CUDA"),
    "BROWSER_PATH": Variable("the browser that draws pictures; read by kaleido"),
}


def check_variables() -> None:
    """Refuse values that a library would stumble over later, or in silence."""
    for name, variable in VARIABLES.items():
        value = os.environ.get(name, "")
        if value and variable.form and not variable.has_form(value):
            raise SettingError(f"{name} must be {variable.form}, got {shown(value)}: it is {variable.help}")
