"""The set-up of docker/compose.yaml as processes, with a run, a sweep of two workers and a comparison in it."""

import json
import secrets
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compose_processes import Setup, running

from rapid_lab.tracking.provenance import ROOT

USER = "worker"
EXPERIMENT = "twin"
TINY = ["--data", "twin", "--teacher-epochs", "2", "--epochs", "3"]
SWEEP = ["--epochs", "1", "--relation-budget", "16,32,64,128", "--method", "uniform", "--seeds", "42"]
SECONDS = 600


def passwords() -> dict[str, str]:
    """One for each; a dollar and a quote would break whatever is not quoted."""
    names = ("POSTGRES_PASSWORD", "MLFLOW_DATABASE_PASSWORD", "OPTUNA_PASSWORD", "MLFLOW_ADMIN_PASSWORD")
    made = {name: f"{secrets.token_hex(8)}$X'%" for name in (*names, "MLFLOW_WORKER_PASSWORD")}
    return {**made, "MLFLOW_SECRET_KEY": secrets.token_hex(16), "MLFLOW_WORKER_USERNAME": USER}


@dataclass
class Team:
    """A running set-up, its users, and what they have done in it."""

    setup: Setup
    environment: Mapping[str, str]
    documents: dict[str, Any] = field(default_factory=dict)

    @property
    def uri(self) -> str:
        return f"http://{self.setup.address(5000)}"

    @property
    def admin(self) -> tuple[str, str]:
        return "admin", self.environment["MLFLOW_ADMIN_PASSWORD"]

    @property
    def worker(self) -> tuple[str, str]:
        return USER, self.environment["MLFLOW_WORKER_PASSWORD"]

    def ask(
        self, path: str, user: tuple[str, str] | None, body: Any = None, host: str | None = None
    ) -> tuple[int, str]:
        """Status and text of one request."""
        request = urllib.request.Request(f"{self.uri}{path}")  # noqa: S310
        if user is not None:
            request.add_header("Authorization", f"Basic {b64encode(':'.join(user).encode()).decode()}")
        if host is not None:
            request.add_header("Host", host)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def start(self, *command: str) -> subprocess.Popen[str]:
        """A command in the environment that the compose file gives a worker."""
        variables = {**self.setup.variables("worker"), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env={**variables, "HF_HUB_OFFLINE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def rapid_lab(self, *words: str) -> Any:
        """The document a command prints."""
        return json.loads(finished(self.start(sys.executable, "-m", "rapid_lab", *words, "--json")))


def finished(process: subprocess.Popen[str]) -> str:
    """Standard output of a process that ends well."""
    output, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    return output


@contextmanager
def working_team() -> Iterator[Team]:
    """One run, a sweep by two workers with the compose file's own command, and a comparison, all over HTTP."""
    environment = {
        **passwords(),
        "MLFLOW_EXPERIMENT_NAME": EXPERIMENT,
        "SWEEP_OPTIONS": " ".join([*TINY, *SWEEP, "--study", "team"]),
    }
    # Not under pytest's folder, which PostgreSQL's own user may not enter.
    with tempfile.TemporaryDirectory(prefix="rapid-team-") as folder, running(Path(folder), environment) as setup:
        team = Team(setup, environment)
        body = dict(zip(("username", "password"), team.worker, strict=True))
        assert team.ask("/api/2.0/mlflow/users/create", team.admin, body)[0] == 200
        team.documents["run"] = team.rapid_lab("run", "--method", "rapid", *TINY)
        for worker in [team.start(*setup.command("worker")) for _ in range(2)]:
            finished(worker)
        output = str(Path(folder) / "comparison")
        team.documents["compare"] = team.rapid_lab("compare", "--output", output)
        yield team
