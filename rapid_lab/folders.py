"""Folders that users name, and where things are kept between runs. Nothing heavy is imported here."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from rapid_lab.errors import SettingError, unwritable
from rapid_lab.harmless import shown


def path_of(text: str) -> Path:
    """The path of a text, a leading ~ expanded where somebody has such a home."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def is_folder(path: Path) -> bool:
    """Whether a folder is there; a name that no file system takes is none, and neither is one that may not be seen."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def is_file(path: Path) -> bool:
    """The same of a file."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def check_writable(setting: str, path: Path) -> None:
    """Refuse what is no folder that can be written to, or made; nothing is made."""
    try:
        nearest = next(folder for folder in (path.absolute(), *path.absolute().parents) if os.path.lexists(folder))
        path.exists()  # a name that is too long is noticed here
        is_usable, why = nearest.is_dir() and os.access(nearest, os.W_OK), f"{nearest} is not"
    except (OSError, ValueError) as error:
        is_usable, why = False, str(getattr(error, "strerror", None) or error)
    if not is_usable:
        raise SettingError(f"{setting} must be a folder that can be written to, got {shown(str(path))}: {why}")


def cache_folder() -> Path:
    """Where teachers, signals, checkpoints and spools are kept: RAPID_CACHE_DIR, else a folder of the user's cache."""
    named = os.environ.get("RAPID_CACHE_DIR")
    return path_of(named or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/rapid-lab")


def check_cache_folder() -> None:
    """Refuse a cache that cannot be kept, before anything is made."""
    variables = ("RAPID_CACHE_DIR", "XDG_CACHE_HOME", "HOME")
    check_writable(next((name for name in variables if os.environ.get(name)), variables[0]), cache_folder())


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file, which is made with its folder and goes with its process, however that ends."""
    lock = FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        raise unwritable(error, path.parent) from error
    try:
        yield
    finally:
        lock.release()
