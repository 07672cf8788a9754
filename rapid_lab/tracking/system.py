"""Load and memory of the machine while a run goes on."""

import importlib
import threading
from collections.abc import Callable
from typing import Any

import psutil

from rapid_lab.names import CPU_PERCENT, MEMORY_MB
from rapid_lab.tracking.errors import TrackingError

MIB = 2**20
INTERVAL_SECONDS = 10.0


class SystemSampler:
    """A thread that gives one sample of the machine every few seconds to `log(step, values)`.

    The step is the sample's number; `first_step` continues the count of a resumed run. A sample that cannot be taken
    is left out: the machine's load is worth no run.
    """

    def __init__(
        self,
        log: Callable[[int, dict[str, float]], None],
        *,
        interval_seconds: float = INTERVAL_SECONDS,
        first_step: int = 0,
    ) -> None:
        self._log = log
        self._interval_seconds = interval_seconds
        self._step = first_step
        self._stopped = threading.Event()
        self._gpus = _Gpus()
        self._thread = threading.Thread(target=self._work, name="system-sampler", daemon=True)

    def start(self) -> None:
        """Begin; the first sample comes after one interval, over which the load is measured."""
        psutil.cpu_percent()
        self._thread.start()

    def stop(self) -> None:
        """End within a moment."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def __enter__(self) -> "SystemSampler":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _work(self) -> None:
        while not self._stopped.wait(self._interval_seconds):
            try:
                values = self.sample()
            except (psutil.Error, OSError):
                continue
            try:
                self._log(self._step, values)
            except TrackingError:
                return  # whoever trains is told of it as well
            self._step += 1

    def sample(self) -> dict[str, float]:
        """What the machine does now: processor since the last call, memory in use (MiB), GPUs where there are any."""
        memory_mb = psutil.virtual_memory().used / MIB
        return {CPU_PERCENT: psutil.cpu_percent(), MEMORY_MB: memory_mb} | self._gpus.sample()


class _Gpus:
    """NVIDIA GPUs as pynvml sees them; none where it is not installed or finds no driver."""

    def __init__(self) -> None:
        self._handles: list[Any] = []
        try:
            self._nvml = importlib.import_module("pynvml")
            self._nvml.nvmlInit()
            self._handles = [
                self._nvml.nvmlDeviceGetHandleByIndex(index) for index in range(self._nvml.nvmlDeviceGetCount())
            ]
        except Exception:
            self._handles = []

    def sample(self) -> dict[str, float]:
        values = {}
        for index, handle in enumerate(self._handles):
            values[f"system/gpu_{index}_percent"] = float(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
            values[f"system/gpu_{index}_memory_mb"] = self._nvml.nvmlDeviceGetMemoryInfo(handle).used / MIB
        return values
