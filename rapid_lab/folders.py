"""Where things are kept between runs. Nothing heavy is imported here."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Where teachers, signals, checkpoints and spools are kept: RAPID_CACHE_DIR, else a folder of the user's cache."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rapid-lab"
    return Path(os.environ.get("RAPID_CACHE_DIR", default))
