"""A hub on 127.0.0.1: as much of the real one's interface as `datasets` asks for, and the ways it can fail."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
# The hub says why in a header; a stranger's dataset and one that does not exist look the same to it.
FAILURES = {"missing": (404, "RepoNotFound"), "private": (401, "RepoNotFound"), "gated": (403, "GatedRepo")}


class FakeHub(ThreadingHTTPServer):
    """Holds files by repository and path; answers everything with `status` where one is set; may hang."""

    daemon_threads = True

    def __init__(self, files: dict[str, dict[str, bytes]], status: int | None, hangs: bool) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.status = files, status
        self.let_go = threading.Event()
        self.requests: list[str] = []
        self.denied_once: set[str] = set()
        if not hangs:
            self.let_go.set()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that gave up has closed its end."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: FakeHub

    def log_message(self, *args: object) -> None:
        pass

    def answer(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = urlsplit(self.path).path
        self.server.requests.append(f"{self.command} {path}")
        self.server.let_go.wait()
        parts = path.strip("/").split("/")
        parts = parts[1:] if parts[0] == "api" else parts
        name = parts[2] if len(parts) > 2 else ""
        if self.server.status is not None:
            self.send(self.server.status)
        elif name in FAILURES or name in self.server.denied_once:
            self.server.denied_once.discard(name)
            status, code = FAILURES.get(name, FAILURES["missing"])
            self.send(status, headers={"X-Error-Code": code, "X-Error-Message": code})
        elif parts[0] == "datasets" and name:
            self.answer_dataset("/".join(parts[1:3]), parts[3:])
        else:
            self.send(200, b"{}")

    do_GET = do_HEAD = do_POST = answer  # noqa: N815

    def answer_dataset(self, repo: str, rest: list[str]) -> None:
        files = self.server.files.get(repo, {})
        if rest[:1] == ["resolve"]:
            self.answer_file(files.get("/".join(rest[2:])))
        elif rest[:1] == ["tree"]:
            self.send(200, json.dumps([_entry(path, content) for path, content in files.items()]).encode())
        elif rest[:1] == ["paths-info"]:
            asked = json.loads(self.body)["paths"]
            self.send(200, json.dumps([_entry(path, files[path]) for path in asked if path in files]).encode())
        else:
            siblings = [{"rfilename": path} for path in files]
            self.send(200, json.dumps({"id": repo, "sha": COMMIT, "siblings": siblings}).encode())

    def answer_file(self, content: bytes | None) -> None:
        if content is None:
            self.send(404, headers={"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        else:
            etag = f'"{hashlib.sha1(content, usedforsecurity=False).hexdigest()}"'
            self.send(200, content, headers={"ETag": etag, "X-Repo-Commit": COMMIT})

    def send(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _entry(path: str, content: bytes) -> dict[str, object]:
    oid = hashlib.sha1(content, usedforsecurity=False).hexdigest()
    return {"type": "file", "path": path, "size": len(content), "oid": oid}


@contextmanager
def fake_hub(
    files: dict[str, dict[str, bytes]] | None = None, *, status: int | None = None, hangs: bool = False
) -> Iterator[FakeHub]:
    hub = FakeHub(files or {}, status, hangs)
    serving = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    serving.start()
    try:
        yield hub
    finally:
        hub.let_go.set()
        hub.shutdown()
        hub.server_close()
