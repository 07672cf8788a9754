"""Real processes for tests that need several, or one that can be killed."""

import os
import subprocess
import sys
from pathlib import Path

import rapid_lab

# Where mlflow is loaded its own deprecations are not our faults.
MLFLOW_WARNINGS = "ignore:The ``noload`` loader strategy:DeprecationWarning"


def start(program: str, folder: Path, *, stdin: bool = False) -> subprocess.Popen[str]:
    """A process of its own, in that folder, with the default store of it; with `stdin` it can be told something."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW")}
    environment["PYTHONPATH"] = str(Path(rapid_lab.__file__).parent.parent)
    command = [sys.executable, "-c", program]
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        text=True,
        stdin=subprocess.PIPE if stdin else None,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def outcome(process: subprocess.Popen[str]) -> str:
    """Standard output of a process that ends well and says nothing on standard error."""
    output, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, "")
    return output
