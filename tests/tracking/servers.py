"""A real tracking server that can be stopped, killed and started again, and something before it that fails."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

START_SECONDS = 180


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class TrackingServer:
    """`mlflow server` over an sqlite store, always at the same port."""

    def __init__(self, store: Path, folder: Path) -> None:
        self.store, self.folder, self.port = store, folder, free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        command = [
            sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{self.store}",
            "--port", str(self.port), "--artifacts-destination", str(self.folder / "served"), "--workers", "1",
        ]  # fmt: skip
        environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
        environment.pop("MLFLOW_TRACKING_URI", None)
        with (self.folder / "server.log").open("a") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            with suppress(OSError), urllib.request.urlopen(f"{self.uri}/health", timeout=1):  # noqa: S310
                return
            time.sleep(0.1)
        pytest.fail("the tracking server did not start")

    def signal(self, number: signal.Signals) -> None:
        """To the server and its workers."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait(timeout=60)


class Passage(ThreadingHTTPServer):
    """Passes requests on to a server, unless it is told to answer something itself."""

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.target = target
        self.status: int | None = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Passing(BaseHTTPRequestHandler):
    server: Passage

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, content = self.server.status or 0, b"<html>somebody in between</html>"
        if not status:
            headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            request = urllib.request.Request(  # noqa: S310
                self.server.target + self.path, data=body or None, headers=headers, method=self.command
            )
            try:
                with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
                    status, content = response.status, response.read()
            except urllib.error.HTTPError as error:
                status, content = error.code, error.read()
            except OSError:
                status = 502
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing: tests are silent."""


@contextmanager
def passage(target: str) -> Iterator[Passage]:
    with Passage(target) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
