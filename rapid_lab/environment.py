"""Make the active virtual environment the one that the bare `mlflow run .` uses: `python -m rapid_lab.environment`.

MLflow keeps an environment for each `python_env.yaml` in a folder named by a hash over that file and the requirements
it refers to, and builds it with pyenv where there is none. A link of that name to the environment that `make setup`
has installed from the same files spares the building. The name comes from private functions of MLflow, so whatever
they do is checked here, and said.
"""

import os
import sys
from pathlib import Path
from typing import Literal, NamedTuple

# Before mlflow: the package sets what mlflow reads while it is imported.
from rapid_lab import tracking as tracking
from rapid_lab.errors import SettingError
from rapid_lab.tracking.provenance import ROOT

State = Literal["registered", "elsewhere", "built", "broken", "missing"]
MEND = f"{Path(sys.executable).name} -m rapid_lab.environment"
WITHOUT = "`mlflow run . --env-manager local` works without it"


class Registration(NamedTuple):
    """Where MLflow looks for the environment of this project, and what is there.

    `registered` is this environment, `elsewhere` a link to another one that works, `built` one that MLflow made
    itself, `broken` a link to nothing or a folder that is no environment.
    """

    path: Path
    state: State


def register(environment: Path | None = None, project: Path = ROOT) -> Registration:
    """Link the environment under the name MLflow looks for; what MLflow built itself under that name stays."""
    environment = _usable(Path(sys.prefix) if environment is None else environment)
    found = registration(environment, project)
    if found.state in ("registered", "built"):
        return found
    if found.path.is_dir() and not found.path.is_symlink():
        raise SettingError(
            f"{found.path} must be an environment or not be there, got a folder without bin/activate: "
            "an installation of MLflow's own may have been cut short; remove the folder"
        )
    found.path.parent.mkdir(parents=True, exist_ok=True)
    # Made beside it and moved there, so that nobody ever finds half of it.
    draft = found.path.with_name(f".{found.path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    draft.symlink_to(environment, target_is_directory=True)
    draft.replace(found.path)
    return Registration(found.path, "registered")


def registration(environment: Path | None = None, project: Path = ROOT) -> Registration:
    """What is registered now; nothing is made or changed."""
    environment = Path(sys.prefix) if environment is None else environment
    path = registered_path(project)
    if not os.path.lexists(path):
        return Registration(path, "missing")
    if not (path / "bin" / "activate").is_file():
        return Registration(path, "broken")
    if not path.is_symlink():
        return Registration(path, "built")
    return Registration(path, "registered" if path.samefile(environment) else "elsewhere")


def registered_path(project: Path = ROOT) -> Path:
    """The folder in which MLflow looks for the environment of a project."""
    description = project / "python_env.yaml"
    if not description.is_file():
        raise SettingError(
            f"the project must be a folder with a python_env.yaml, got {str(project)!r}: `mlflow run` starts from there"
        )
    try:
        from mlflow.utils.environment import _PythonEnv
        from mlflow.utils.virtualenv import _get_mlflow_virtualenv_root, _get_virtualenv_name

        name = _get_virtualenv_name(_PythonEnv.from_yaml(str(description)), project)
        root = Path(_get_mlflow_virtualenv_root())
    except (ImportError, AttributeError, TypeError) as error:
        raise SettingError(
            "mlflow must be the version of the lock file: this one names its environments in another way "
            f"({type(error).__name__}: {error}), so none can be registered; {WITHOUT}"
        ) from error
    if any(character.isspace() for character in str(root)):
        raise SettingError(
            f"MLFLOW_ENV_ROOT must be a path without spaces, got {str(root)!r}: MLflow hands it to a shell unquoted"
        )
    return root.absolute() / name


def _usable(environment: Path) -> Path:
    if not (environment / "pyvenv.cfg").is_file() or not (environment / "bin" / "activate").is_file():
        raise SettingError(
            f"python must be that of a virtual environment, got {str(environment)!r}: "
            f"`make setup` makes .venv, and {WITHOUT}"
        )
    return environment.absolute()


def main() -> int:
    """Register, and say what was done."""
    try:
        path, state = register()
    except (SettingError, OSError) as error:
        print(f"rapid_lab.environment: {error}", file=sys.stderr)
        return 2
    done = "is there already, built by MLflow" if state == "built" else f"is {sys.prefix}"
    print(f"mlflow run: the environment {path.name} {done}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
