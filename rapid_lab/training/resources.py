"""Device, precision, peak memory and training time of one run."""

import contextlib
import os
import platform
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import torch

from rapid_lab.allocation import keep_freed_memory, release_freed_memory
from rapid_lab.errors import SettingError
from rapid_lab.launch import launch

_MIB = 2**20


def choose_device(device: str) -> torch.device:
    """The device asked for; auto is CUDA where there is one. Sets the allocator and TF32 that go with it."""
    has_cuda = torch.cuda.is_available()
    if device == "cuda" and not has_cuda:
        raise SettingError("device must be cpu or auto, got 'cuda': this machine has no CUDA device")
    if device == "cpu" or not has_cuda:
        keep_freed_memory()
        return torch.device("cpu")
    place = launch()
    if place.local_size > torch.cuda.device_count():
        raise SettingError(
            f"--nproc-per-node must be in [1, {torch.cuda.device_count()}], got {place.local_size}: each rank has a "
            "CUDA device of its own"
        )
    if place.size > 1:
        torch.cuda.set_device(place.local_rank)
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    # A resumed run ends with the same bits where CUDA has deterministic kernels; where not, torch says so.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    return torch.device("cuda")


def choose_dtype(precision: str, device: torch.device) -> torch.dtype:
    """The autocast dtype: bf16 on CUDA where auto may choose it, float32 on the CPU."""
    if precision == "auto":
        is_fast = device.type == "cuda" and torch.cuda.is_bf16_supported()
        return torch.bfloat16 if is_fast else torch.float32
    return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]


def device_name(device: torch.device) -> str:
    """The model of the GPU, or of the processor: times and memory compare only within one."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@contextlib.contextmanager
def autocast(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """Lower precision where it is asked for; nothing at all in float32."""
    if dtype == torch.float32:
        yield
        return
    with torch.autocast(device.type, dtype=dtype):
        yield


class PeakMemory:
    """Running peak in MiB since it was made: allocated on CUDA, resident set on the CPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        else:
            # What came before in this process, such as the teacher's training, is neither start nor peak.
            release_freed_memory()
            with contextlib.suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        self.start = psutil.Process().memory_info().rss

    def __call__(self) -> float:
        """The peak so far."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) / _MIB
        return max(0.0, (_peak_resident_bytes() - self.start) / _MIB)


def _peak_resident_bytes() -> int:
    if sys.platform == "linux":
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])
    # The peak of the whole process, in bytes on macOS and KiB elsewhere.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


class Stopwatch:
    """Seconds of training alone: it stands still while evaluation, checkpoints and logging run."""

    def __init__(self, device: torch.device, seconds: float = 0.0) -> None:
        self.device, self.seconds = device, seconds
        self._started: float | None = None

    def start(self) -> None:
        """Go on."""
        self._started = time.perf_counter()

    def stop(self) -> None:
        """Stand still, once the device has done what it was asked."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        if self._started is not None:
            self.seconds += time.perf_counter() - self._started
        self._started = None
