"""Metric values on their way to the store: into a spool on disk, and from there in batches; nobody waits for either."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from mlflow import MlflowClient

from rapid_lab.tracking.clock import now_ms
from rapid_lab.tracking.door import client as open_client
from rapid_lab.tracking.door import told_as
from rapid_lab.tracking.errors import TrackingError
from rapid_lab.tracking.redaction import redact
from rapid_lab.tracking.spool import Entry, Spool, spool_folder
from rapid_lab.tracking.spool_delivery import BATCH_VALUES, AwayError, Delivery, in_spool

BATCH_SECONDS = 5.0
FLUSH_SECONDS = 300.0
STILL_SECONDS = 15.0  # how long a store that takes nothing is waited for
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)  # seconds between attempts, the last for all that follow
CLOSING_PAUSE = 1.0
POLL_SECONDS = 0.05
BLOCK_SIZE = 1000  # the most entries written at once

Values = tuple[int, dict[str, float], int]
Answer = SimpleQueue[None]


@dataclass(frozen=True)
class _Asked:
    """Somebody waits: for all so far to be stored or, with an entry, for that to be on disk."""

    entry: Entry | None = None
    answer: Answer = field(default_factory=SimpleQueue)


class MetricWriter:
    """Values of one run: a thread writes them to the spool, another sends them, 900 at once or what there is after 5 s.

    `put` only adds to a queue, which the disk empties and not the network. While the store does not answer, values stay
    in the spool and are tried again, in order, with growing pauses. A fault that no waiting mends (a store that
    refuses, a spool that cannot be written) is kept and raised by whatever is asked next; what comes after it is
    dropped, so that the store never has a hole before its last step.

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
        process: str | None = None,
    ) -> None:
        self.run_id = run_id
        self.is_away = False  # whether the store did not take the last that it was given
        self.reason = ""
        self.is_told = False  # whether the fault that is kept was raised
        self._client = client or open_client()
        self._stored_steps = dict(stored_steps or {})
        self._batch_seconds = batch_seconds
        self._process = process
        self._queue: SimpleQueue[Values | _Asked | None] = SimpleQueue()
        self._asked: SimpleQueue[_Asked] = SimpleQueue()
        self._wake = threading.Event()
        self._error: TrackingError | None = None
        self._delivery: Delivery | None = None
        self.is_closed = self._is_over = self._is_stored = self._is_refused = False
        self._num_sent = 0
        self._writing = threading.Thread(target=self._write, name="metric-writer", daemon=True)
        self._sending = threading.Thread(target=self._send, name="metric-sender", daemon=True)
        self._writing.start()
        self._sending.start()

    def put(self, step: int, values: Mapping[str, float], timestamp_ms: int | None = None) -> None:
        """Take the values of one step, except those that were in the store before this process came.

        A resumed run repeats the steps after its checkpoint, and some of those are stored. NaN is kept as NaN; the
        sqlite store keeps infinities as the largest float.
        """
        if self.is_closed:
            raise TrackingError(f"metrics of step {step} came after the writer of run {self.run_id} was closed")
        self._raise_kept()
        timestamp_ms = now_ms() if timestamp_ms is None else timestamp_ms
        fresh = {key: float(value) for key, value in values.items() if self._is_fresh(key, step)}
        if fresh:
            self._queue.put((step, fresh, timestamp_ms))

    def keep(self, entry: Entry, why: str) -> None:
        """Take something else that the store did not take, to be sent in its turn; it is on disk on return."""
        self._raise_kept()
        self.is_away, self.reason = True, why
        asked = _Asked(entry)
        self._queue.put(asked)
        asked.answer.get()
        self._raise_kept()

    @property
    def is_broken(self) -> bool:
        """Whether there is a fault that no waiting mends."""
        return self._error is not None

    def flush(self, timeout: float = FLUSH_SECONDS) -> bool:
        """Wait until all so far is stored; False, with all of it in the spool, where the store takes nothing just now.

        Raise TrackingError where waiting does not help.
        """
        if self.is_closed:
            self._raise_kept()
            return self._is_stored
        return self._stored_within(timeout, is_patient=False)

    def close(self, timeout: float = FLUSH_SECONDS) -> bool:
        """Flush, giving an absent store a little time to come back, and end the threads; whether all is stored.

        What is not stays in the spool. Closing again does nothing, or raises the kept fault again.
        """
        if not self.is_closed:
            self.is_closed = True
            try:
                self._is_stored = self._stored_within(timeout, is_patient=True)
            finally:
                self._end()
        self._raise_kept()
        return self._is_stored

    def _stored_within(self, timeout: float, *, is_patient: bool) -> bool:
        asked = _Asked()
        self._queue.put(asked)
        num_sent, still_since = self._num_sent, time.monotonic()
        deadline = still_since + timeout
        while True:
            self._raise_kept()
            try:
                asked.answer.get(timeout=POLL_SECONDS)
            except Empty:
                now = time.monotonic()
            else:
                self._raise_kept()
                return True
            if self._num_sent != num_sent:
                num_sent, still_since = self._num_sent, now
            is_too_long = now >= deadline or now - still_since >= STILL_SECONDS
            if is_too_long or (self.is_away and not is_patient):
                return False

    def _end(self) -> None:
        self._queue.put(None)
        self._writing.join()
        self._is_over = True
        self._wake.set()
        if self._delivery is None:
            return
        spool = self._delivery.spool
        if self._is_refused:
            spool.set_aside()  # or it would be refused again at every flush
        elif self._is_stored:
            self._sending.join()
            spool.remove()
        else:
            # Not waiting for a request that hangs: if it comes through after all, sending again changes nothing.
            spool.leave()

    def _raise_kept(self) -> None:
        if self._error is not None:
            self.is_told = True
            raise self._error

    def _is_fresh(self, key: str, step: int) -> bool:
        stored = self._stored_steps.get(key)
        return stored is None or step > stored

    def _write(self) -> None:
        """The first thread: from the queue to the disk."""
        num_waiting = 0
        is_over = False
        while not is_over:
            block, asked, is_over = self._taken()
            entries = [{"do": "metrics", "step": step, "values": v, "time": t} for step, v, t in block]
            num_waiting += sum(len(values) for _, values, _ in block)
            try:
                if entries and self._error is None:
                    self._opened().spool.append(entries)
                if asked is not None and asked.entry is not None and self._error is None:
                    spool = self._opened().spool
                    spool.append([in_spool(asked.entry, spool)])
            except OSError as error:
                self._error = TrackingError(f"{spool_folder()} cannot be written to: {error.strerror or error}")
            except Exception as error:
                self._error = TrackingError(f"metrics of run {self.run_id} cannot be kept: {error}")
            if asked is not None and asked.entry is not None:
                asked.answer.put(None)
            elif asked is not None:
                self._asked.put(asked)
            if asked is not None or num_waiting >= BATCH_VALUES:
                num_waiting = 0
                self._wake.set()

    def _taken(self) -> tuple[list[Values], _Asked | None, bool]:
        """Values that wait, who asked after them, and whether that was all there will be."""
        item = self._queue.get()
        block: list[Values] = []
        while isinstance(item, tuple):
            block.append(item)
            if len(block) == BLOCK_SIZE:
                return block, None, False
            try:
                item = self._queue.get_nowait()
            except Empty:
                return block, None, False
        return block, item, item is None

    def _opened(self) -> Delivery:
        if self._delivery is None:
            spool = Spool.create(self.run_id, redact(self._client.tracking_uri), self._process)
            self._delivery = Delivery(spool, self._client, self.run_id, is_strict=True)
        return self._delivery

    def _send(self) -> None:
        """The second thread: from the disk to the store."""
        due, num_failures = time.monotonic() + self._batch_seconds, 0
        waiting: list[_Asked] = []
        while not self._is_over and self._error is None:
            self._wake.wait(max(0.001, due - time.monotonic()))
            self._wake.clear()
            while not self._asked.empty():
                waiting.append(self._asked.get())
            is_due = time.monotonic() >= due
            if num_failures and not is_due and not self.is_closed:
                continue
            try:
                self._send_all(is_partial=is_due or bool(waiting))
            except AwayError as error:
                self.is_away, self.reason = True, str(error)
                pause = PAUSES[min(num_failures, len(PAUSES) - 1)]
                num_failures += 1
                if self.is_closed:
                    pause = min(pause, CLOSING_PAUSE)
                due = time.monotonic() + pause
                continue
            except Exception as error:
                self._is_refused = True
                self._error = TrackingError(str(error))
                break
            num_failures = 0
            due = time.monotonic() + self._batch_seconds if is_due or waiting else due
            while waiting:
                waiting.pop().answer.put(None)

    def _send_all(self, *, is_partial: bool) -> None:
        while self._delivery is not None and not self._is_over and self._delivery.send(is_partial=is_partial):
            self._num_sent += 1
            self.is_away = False
        if self._delivery is not None and self._delivery.spool.damages:
            raise TrackingError(f"{self._delivery.spool.damages[0]} is damaged, and was not sent")


def stored_steps(run_id: str, *, client: MlflowClient | None = None) -> dict[str, int]:
    """The highest step in the store for every metric of a run.

    MLflow keeps the latest value of each metric, by step, in a table of its own: one query, however long the run.
    """
    with told_as(f"reading the metrics of run {run_id}"):
        latest = (client or open_client()).get_run(run_id).data._metric_objs
    return {metric.key: int(metric.step) for metric in latest}
