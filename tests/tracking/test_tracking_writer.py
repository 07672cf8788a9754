"""Values reach the store in batches, from a thread, all of them or with an error that says so."""

import json
import math
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tracking.programs import MLFLOW_WARNINGS

from rapid_lab.names import STEP_METRICS
from rapid_lab.tracking.door import client
from rapid_lab.tracking.errors import TrackingError
from rapid_lab.tracking.runs import start_run
from rapid_lab.tracking.spool import ASIDE, left_behind, spool_folder
from rapid_lab.tracking.store import experiment_id, prepare_store
from rapid_lab.tracking.writer import MetricWriter, stored_steps

pytestmark = pytest.mark.filterwarnings(MLFLOW_WARNINGS)


@pytest.fixture
def run_id(store: Path) -> str:
    return start_run(experiment_id("writer"), "a run", {}).run_id


class Server(ThreadingHTTPServer):
    """Speaks as much of MLflow's protocol as storing metrics takes, and fails as often as it is told to."""

    failures = 0
    is_refusing = False
    delay_seconds = 0.0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.batches: list[list[dict[str, Any]]] = []
        self.gate = threading.Event()  # while it is closed, batches get no answer
        self.gate.set()

    @property
    def steps(self) -> list[int]:
        return [int(metric["step"]) for batch in self.batches for metric in batch]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_batch = self.path.endswith("/runs/log-batch")
        time.sleep(self.server.delay_seconds if is_batch else 0)
        self.server.gate.wait(30 if is_batch else 0)
        is_failing = is_batch and self.server.failures > 0
        if is_failing:
            self.server.failures -= 1
        elif is_batch and not self.server.is_refusing:
            self.server.batches.append(body["metrics"])
        self.send_response(500 if is_failing else 400 if self.server.is_refusing else 200)
        self.end_headers()
        refusal = {"error_code": "INVALID_PARAMETER_VALUE", "message": "no such thing"}
        self.wfile.write(json.dumps(refusal if self.server.is_refusing else {}).encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing: tests are silent."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        monkeypatch.setenv("RAPID_CACHE_DIR", str(tmp_path / "cache"))
        monkeypatch.setattr("rapid_lab.tracking.writer.PAUSES", (0.05, 0.1))
        yield server
        server.shutdown()
        thread.join()


def test_every_value_of_every_step_is_stored(run_id: str) -> None:
    writer = MetricWriter(run_id)
    for step in range(200):
        writer.put(step, dict.fromkeys(STEP_METRICS, step + 0.5))
    writer.close()
    for name in STEP_METRICS:
        history = [(metric.step, metric.value) for metric in client().get_metric_history(run_id, name)]
        assert history == [(step, step + 0.5) for step in range(200)]


def test_the_highest_stored_step_is_that_of_the_history(run_id: str) -> None:
    writer = MetricWriter(run_id)
    for step in (0, 7, 3):
        writer.put(step, {"loss/total": 1.0, "a/nan": math.nan})
    writer.put(9, {"loss/ce": 1.0})
    writer.close()
    for key in ("loss/total", "loss/ce", "a/nan"):
        history = client().get_metric_history(run_id, key)
        assert stored_steps(run_id)[key] == max(metric.step for metric in history)
    assert stored_steps(run_id) == {"loss/total": 7, "a/nan": 7, "loss/ce": 9}


def test_a_value_that_is_not_finite_is_stored_as_near_as_the_store_can(run_id: str) -> None:
    writer = MetricWriter(run_id)
    for step, value in enumerate((math.nan, math.inf, -math.inf)):
        writer.put(step, {"loss/total": value})
    writer.close()
    nan, largest, smallest = (metric.value for metric in client().get_metric_history(run_id, "loss/total"))
    assert math.isnan(nan)
    assert largest == -smallest > 1e308


def test_a_step_is_never_split_between_batches_and_a_batch_is_never_too_large(server: Server) -> None:
    writer = MetricWriter("0" * 32)
    for step in range(100):
        writer.put(step, {f"metric/{index}": 1.0 for index in range(13)})
    writer.close()
    assert [len(batch) for batch in server.batches] == [897, 403]


def test_more_values_than_a_batch_takes_are_stored_too(server: Server) -> None:
    writer = MetricWriter("0" * 32)
    writer.put(0, {f"metric/{index}": 1.0 for index in range(2000)})
    writer.close()
    assert [len(batch) for batch in server.batches] == [900, 900, 200]


def test_values_are_sent_after_a_while_without_being_asked_for(server: Server) -> None:
    writer = MetricWriter("0" * 32, batch_seconds=0.05)
    writer.put(4, {"loss/total": 1.0})
    deadline = time.monotonic() + 5
    while not server.batches and time.monotonic() < deadline:
        time.sleep(0.01)
    assert server.steps == [4]
    writer.close()


def test_a_failure_that_passes_costs_no_value(server: Server) -> None:
    server.failures = 5
    writer = MetricWriter("0" * 32)
    writer.put(1, {"loss/total": 1.0})
    assert writer.close()
    assert server.steps == [1]


def test_a_store_that_does_not_answer_is_not_waited_for_and_gets_everything_in_order_later(server: Server) -> None:
    server.failures = 10**9
    writer = MetricWriter("0" * 32)
    for step in range(500):
        writer.put(step, {"loss/total": 1.0})
        assert step % 100 or not writer.flush()
    assert (writer.is_away, server.steps) == (True, [])
    server.failures = 0
    assert writer.close()
    assert (writer.is_away, server.steps) == (False, list(range(500)))
    assert left_behind() == []


def test_what_is_refused_is_raised_at_the_next_flush_and_leaves_no_hole(server: Server) -> None:
    server.is_refusing = True
    writer = MetricWriter("0" * 32)
    writer.put(1, {"loss/total": 1.0})
    with pytest.raises(TrackingError, match=r"storing metrics of run 0+ failed: .*no such thing"):
        writer.flush()
    server.is_refusing = False
    with pytest.raises(TrackingError, match="storing metrics"):
        writer.put(2, {"loss/total": 1.0})
    with pytest.raises(TrackingError, match="storing metrics"):
        writer.close()
    assert server.steps == []
    assert left_behind() == []
    assert len(list((spool_folder() / ASIDE).glob("*.jsonl"))) == 1


def test_putting_never_waits_for_the_store_and_goes_to_the_disk(server: Server) -> None:
    server.gate.clear()
    writer = MetricWriter("0" * 32)
    for step in range(5000):
        writer.put(step, {"loss/total": 1.0})
    deadline = time.monotonic() + 30
    while num_lines() < 5001 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (num_lines(), server.batches) == (5001, [])
    server.gate.set()
    assert writer.close()
    assert server.steps == list(range(5000))


def num_lines() -> int:
    return sum(path.read_bytes().count(b"\n") for path in left_behind())


def test_a_flush_that_takes_too_long_leaves_the_rest_to_the_threads(server: Server) -> None:
    server.gate.clear()
    writer = MetricWriter("0" * 32)
    writer.put(0, {"loss/total": 1.0})
    assert not writer.flush(timeout=0.1)
    server.gate.set()
    assert writer.close()
    assert server.steps == [0]


def test_a_long_spool_of_which_all_is_stored_is_emptied(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rapid_lab.tracking.spool.COMPACT_BYTES", 10_000)
    writer = MetricWriter("0" * 32)
    for step in range(1000):
        writer.put(step, {"loss/total": 1.0})
        assert step % 200 or writer.flush()
    assert num_lines() <= 1000 - 800  # fewer where the last ones are stored already
    assert writer.close()
    assert server.steps == list(range(1000))


def test_a_closed_writer_takes_no_more(run_id: str) -> None:
    writer = MetricWriter(run_id)
    writer.close()
    writer.close()
    with pytest.raises(TrackingError, match="metrics of step 5 came after the writer"):
        writer.put(5, {"loss/total": 1.0})


def test_a_server_that_answers_is_a_store(server: Server) -> None:
    assert prepare_store() == f"http://127.0.0.1:{server.server_port}"
