"""Workers on a Ray cluster: the same command with `--worker` on as many nodes as were asked for, GPUs included.

Ray only places and restarts them. What is done and what is left stands in the study, so a node that is lost loses its
seat and nothing else: Ray starts the worker again elsewhere, and the trial it had is found dead and repeated. The only
module that imports ray.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rapid_lab.errors import SettingError
from rapid_lab.sweep.launching import LAUNCHED, THREADS, threads_each
from rapid_lab.sweep.options import Options
from rapid_lab.tracking.redaction import redact

# What a worker on another node must know besides its command.
PASSED_ON = ("MLFLOW_", "RAPID_", "PG", "HF_", "RAY_AUTH")
LOST_NODES = 100
CONNECT_SECONDS = 5


def connect(options: Options) -> None:
    """Join the cluster that RAY_ADDRESS names, or one on this machine; refuse what no worker could use."""
    ray = _ray()
    _check_address()
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR", ignore_reinit_error=True)
    except Exception as error:
        raise _unreachable(str(error)) from None
    machines = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
    check_cluster(options, num_machines=len(machines), num_gpus=ray.cluster_resources().get("GPU", 0))


def check_cluster(options: Options, *, num_machines: int, num_gpus: float) -> None:
    """Refuse a cluster whose workers could not do what is asked of them."""
    if num_machines > 1 and "://" not in options.storage:
        raise SettingError(
            f"storage must be postgresql+psycopg://... on {num_machines} machines, got {options.storage!r}: "
            "a folder is safe for the processes of one"
        )
    if options.gpus_per_worker > num_gpus:
        raise SettingError(
            f"gpus_per_worker must be at most {num_gpus:g}, got {options.gpus_per_worker:g}: the cluster has no more"
        )


def _check_address() -> None:
    """Knock once: Ray itself would knock at an absent cluster for minutes."""
    address = os.environ.get("RAY_ADDRESS", "")
    parts = urlsplit(address if "://" in address else f"//{address}")
    if parts.hostname is None or ":" not in parts.netloc:
        return
    try:
        socket.create_connection((parts.hostname, parts.port or 0), timeout=CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise _unreachable(str(error)) from None


def _unreachable(why: str) -> SettingError:
    address = os.environ.get("RAY_ADDRESS", "this machine")
    reason = next(iter(why.strip().splitlines()), "no answer")
    return SettingError(f"engine must be a cluster that answers, got ray at {address!r}: {redact(reason)}")


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise SettingError("engine must be installed, got 'ray': pip install 'rapid-lab[ray]' brings it") from None
    return ray


class RayWorkers:
    """Tasks that work on one study."""

    def __init__(self, command: Sequence[str], options: Options, say: Callable[[str], None]) -> None:
        self._ray, self._say = _ray(), say
        script, *words = command
        passed = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
        # A worker that is lost with its process or node is started again; one that ends by itself is not.
        task = self._ray.remote(num_cpus=1, num_gpus=options.gpus_per_worker, max_retries=LOST_NODES)(work)
        text = Path(script).read_text(encoding="utf-8")
        threads = threads_each(options.num_workers)
        self._left = [
            task.remote(text, words, {**passed, LAUNCHED: "1", THREADS: str(threads)}, str(Path.cwd()))
            for _ in range(options.num_workers)
        ]
        self._faults: list[str] = []

    @property
    def is_over(self) -> bool:
        """Whether all have ended."""
        done, self._left = (
            self._ray.wait(self._left, num_returns=len(self._left), timeout=0) if self._left else ([], [])
        )
        for reference in done:
            try:
                code, last = self._ray.get(reference)
            except Exception as error:
                self._faults.append(f"a worker was lost: {redact(str(error).strip().splitlines()[0])}")
            else:
                if code:
                    self._faults.append(f"a worker ended with code {code}: {redact(last)}")
        return not self._left

    def faults(self) -> list[str]:
        """How those ended who did not end well."""
        return self._faults

    def end(self) -> None:
        """Ask all to end in order, and let the cluster go."""
        for reference in self._left:
            self._ray.cancel(reference, force=False)
        if self._left:
            self._ray.wait(self._left, num_returns=len(self._left), timeout=120)
        self._ray.shutdown()


def work(script: str, words: Sequence[str], environment: dict[str, str], folder: str) -> tuple[int, str]:
    """One worker on the node this runs on: its exit code and its last words."""
    where = folder if Path(folder).is_dir() else None
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "sweep.py"
        path.write_text(script, encoding="utf-8")
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, str(path), *words, "--worker"],
            stdin=subprocess.PIPE,  # never written to: it closes when this task is gone
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
            cwd=where,
        )
        try:
            # Read, not communicated with: that would close its standard input, which means the end.
            lines = list(process.stderr or ())
            process.wait()
        except BaseException:
            process.send_signal(signal.SIGTERM)
            process.wait()
            raise
    return process.returncode, lines[-1].strip() if lines else ""
