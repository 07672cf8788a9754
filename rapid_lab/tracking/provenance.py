"""What a number was made with: source, lock file, commit, versions, hardware, command. No mlflow, no torch."""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

import rapid_lab
from rapid_lab.tracking.redaction import redact, redact_arguments

__all__ = [
    "command_line",
    "git_state",
    "hardware",
    "lock_hash",
    "provenance",
    "redact",
    "source_hash",
    "versions",
]

PACKAGE = Path(rapid_lab.__file__).resolve().parent
ROOT = PACKAGE.parent
PACKAGES = ("torch", "transformers", "datasets", "mlflow", "numpy")
MIB = 2**20


def source_hash(package: Path = PACKAGE) -> str:
    """SHA-256 over the package's Python files, their relative paths and contents, in the order of the paths."""
    digest = hashlib.sha256()
    for name, path in sorted((path.relative_to(package).as_posix(), path) for path in package.rglob("*.py")):
        content = path.read_bytes()
        # With the length, no two different packages write the same bytes.
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


# Of the code as it was when this process read it: a file that changes later has not run here.
SOURCE_HASH = source_hash()


def lock_hash(root: Path = ROOT) -> str | None:
    """SHA-256 of requirements.lock; None where there is none."""
    path = root / "requirements.lock"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def git_state(root: Path = ROOT) -> dict[str, Any]:
    """Commit, and whether tracked files differ from it; empty where the package lies in no repository of its own.

    Files git does not track do not make it dirty: the store and its artifacts may lie beside the code, and new source
    files show in `source_hash`.
    """
    top = _git(root, "rev-parse", "--show-toplevel")
    # Installed into an environment inside somebody else's repository, the package is not that repository's.
    if not top or Path(top).resolve() != root.resolve():
        return {}
    commit = _git(root, "rev-parse", "HEAD")
    changes = _git(root, "status", "--porcelain", "--untracked-files=no")
    return {} if commit is None or changes is None else {"commit": commit, "is_dirty": bool(changes)}


def _git(root: Path, *arguments: str) -> str | None:
    git = shutil.which("git")
    if git is None:
        return None
    # A hook sets GIT_DIR and its like, which would answer for another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = [git, "-C", str(root), *arguments]
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=10, check=False, env=environment
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def versions() -> dict[str, str]:
    """Python and the packages that can move a number, as installed, without importing them."""
    found = {"python": platform.python_version(), "rapid_lab": rapid_lab.__version__}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def hardware() -> dict[str, Any]:
    """Processor, memory and system; the GPU's name where torch has been imported already."""
    found: dict[str, Any] = {
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu_count": os.cpu_count(),
        "memory_mb": psutil.virtual_memory().total // MIB,
    }
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
        found["gpu_count"] = torch.cuda.device_count()
    return found


def command_line() -> str:
    """The command as it was typed, without its secrets."""
    return redact_arguments(sys.orig_argv)


def provenance() -> dict[str, Any]:
    """All of it, as JSON takes it."""
    return {
        "source_hash": SOURCE_HASH,
        "lock_hash": lock_hash(),
        "git": git_state(),
        "versions": versions(),
        "hardware": hardware(),
        "command": command_line(),
    }
