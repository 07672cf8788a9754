"""Metric values on their way to the store: a thread sends them in batches, the caller does not wait for it."""

import threading
import time
from collections.abc import Mapping
from queue import Empty, SimpleQueue

from mlflow import MlflowClient
from mlflow.entities import Metric
from mlflow.exceptions import MlflowException

from rapid_lab.tracking.door import client as open_client
from rapid_lab.tracking.door import reason, told_as
from rapid_lab.tracking.errors import TrackingError

BATCH_VALUES = 900  # MLflow takes 1000
BATCH_SECONDS = 5.0
QUEUE_LIMIT = 10_000
FLUSH_SECONDS = 300.0
RETRY_SECONDS = (0.5, 2.0, 8.0)
# Asking again does not help with these. Whatever else goes wrong may pass.
PERMANENT = frozenset(
    {
        "INVALID_PARAMETER_VALUE",
        "RESOURCE_DOES_NOT_EXIST",
        "INVALID_STATE",
        "PERMISSION_DENIED",
        "UNAUTHENTICATED",
        "ENDPOINT_NOT_FOUND",
    }
)

Values = tuple[int, dict[str, float], int]
Answer = SimpleQueue[None]


class MetricWriter:
    """Values of one run, sent by a thread through `log_batch`: 900 at once, or what there is after 5 s.

    `put` only adds to a queue. When `QUEUE_LIMIT` calls wait in it, the store cannot follow, and `put` waits until it
    has: that is back pressure, not a lost value. A fault that repeats is kept and raised by the next `flush` or
    `close`; the values that come after it are dropped, so that the store never has a hole before its last step.

    The queues are SimpleQueue because their methods cannot be cut in half: an exception raised by a signal handler
    inside `queue.Queue.put` may leave a lock behind that is never released, and the flush after it would hang.
    """

    def __init__(
        self,
        run_id: str,
        *,
        client: MlflowClient | None = None,
        stored_steps: Mapping[str, int] | None = None,
        batch_seconds: float = BATCH_SECONDS,
        queue_limit: int = QUEUE_LIMIT,
    ) -> None:
        self.run_id = run_id
        self._client = client or open_client()
        self._stored_steps = dict(stored_steps or {})
        self._last_steps = dict(self._stored_steps)
        self._batch_seconds = batch_seconds
        self._queue_limit = queue_limit
        self._queue: SimpleQueue[Values | Answer | None] = SimpleQueue()
        self._error: TrackingError | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="metric-writer", daemon=True)
        self._thread.start()

    def put(self, step: int, values: Mapping[str, float], timestamp_ms: int | None = None) -> None:
        """Take the values of one step, except those that were in the store before this process came.

        A resumed run repeats the steps after its checkpoint, and some of those are stored. NaN is kept as NaN; the
        sqlite store keeps infinities as the largest float.
        """
        if self._is_closed:
            raise TrackingError(f"metrics of step {step} came after the writer of run {self.run_id} was closed")
        timestamp_ms = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
        fresh = {key: float(value) for key, value in values.items() if self._is_fresh(key, step)}
        for key in fresh:
            self._last_steps[key] = max(step, self._last_steps.get(key, step))
        while self._queue.qsize() >= self._queue_limit and self._thread.is_alive():
            time.sleep(0.01)
        if fresh:
            self._queue.put((step, fresh, timestamp_ms))

    def last_step(self, key: str) -> int | None:
        """The highest step of this metric, stored or on its way."""
        return self._last_steps.get(key)

    def flush(self, timeout: float = FLUSH_SECONDS) -> None:
        """Return when all values so far are stored; raise TrackingError when they cannot be, or not in time."""
        if not self._is_closed:
            answer: Answer = SimpleQueue()
            self._queue.put(answer)
            try:
                answer.get(timeout=timeout)
            except Empty:
                raise TrackingError(f"metrics of run {self.run_id} were not stored within {timeout:g} s") from None
        if self._error is not None:
            raise self._error

    def close(self, timeout: float = FLUSH_SECONDS) -> None:
        """Flush and end the thread. Closing again does nothing, or raises the kept fault again."""
        try:
            self.flush(timeout)
        finally:
            if not self._is_closed:
                self._is_closed = True
                self._queue.put(None)

    def _is_fresh(self, key: str, step: int) -> bool:
        stored = self._stored_steps.get(key)
        return stored is None or step > stored

    def _work(self) -> None:
        batch: list[Metric] = []
        deadline = 0.0
        while True:
            item = self._next(deadline - time.monotonic() if batch else None)
            if isinstance(item, tuple):
                step, values, timestamp_ms = item
                # A step goes whole into one batch, which is one transaction: a kill leaves no half-stored step.
                if batch and len(batch) + len(values) > BATCH_VALUES:
                    batch = self._send(batch)
                deadline = deadline if batch else time.monotonic() + self._batch_seconds
                batch += [Metric(key, value, timestamp_ms, step) for key, value in values.items()]
                continue
            batch = self._send(batch)
            if isinstance(item, SimpleQueue):
                item.put(None)
            elif item is None:
                return

    def _next(self, seconds: float | None) -> Values | Answer | Empty | None:
        """The next thing in the queue; Empty when the waiting batch is due."""
        try:
            return self._queue.get(timeout=None if seconds is None else max(0.0, seconds))
        except Empty as nothing:
            return nothing

    def _send(self, batch: list[Metric]) -> list[Metric]:
        """Store the batch, asking again where that may help; the empty batch that follows it."""
        for start in range(0, len(batch) if self._error is None else 0, BATCH_VALUES):
            try:
                self._store(batch[start : start + BATCH_VALUES])
            except Exception as error:
                self._error = TrackingError(f"storing metrics of run {self.run_id} failed: {reason(error)}")
                self._error.__cause__ = error
                break
        return []

    def _store(self, metrics: list[Metric]) -> None:
        for seconds in RETRY_SECONDS:
            try:
                self._client.log_batch(self.run_id, metrics)
            except MlflowException as error:
                if error.error_code in PERMANENT:
                    raise
                # A batch that was stored although its answer got lost is stored once: MLflow knows the same values.
                time.sleep(seconds)
            else:
                return
        self._client.log_batch(self.run_id, metrics)


def stored_steps(run_id: str, *, client: MlflowClient | None = None) -> dict[str, int]:
    """The highest step in the store for every metric of a run.

    MLflow keeps the latest value of each metric, by step, in a table of its own: one query, however long the run.
    """
    with told_as(f"reading the metrics of run {run_id}"):
        latest = (client or open_client()).get_run(run_id).data._metric_objs
    return {metric.key: int(metric.step) for metric in latest}


def logged_steps(run_id: str, key: str) -> int | None:
    """The highest step in the store for one metric of a run; None where there is none."""
    return stored_steps(run_id).get(key)
