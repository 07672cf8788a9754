"""What every benchmark shares: interleaved timing, peak tensor memory, and a dated report.

A speed is a ratio of medians within one run, its arms interleaved round by round, so that a slow minute of the
machine slows them all.
"""

import datetime
import gc
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from rapid_lab.allocation import keep_freed_memory

REPORTS = Path(__file__).parent / "reports"

Arm = Callable[[], object]


def interleaved_medians(arms: Mapping[str, Arm], *, seconds: float, min_rounds: int = 5) -> dict[str, float]:
    """Median seconds a call of each arm, the arms taking turns for about this long.

    A turn repeats a quick arm for some milliseconds, so that it is not timed on the caches of the arm before.
    """
    repeats = {name: _calls_for(arm, 0.005) for name, arm in arms.items()}
    times: dict[str, list[float]] = {name: [] for name in arms}
    started, rounds = time.perf_counter(), 0
    while rounds < min_rounds or time.perf_counter() - started < seconds:
        for name, arm in arms.items():
            arm()
            begin = time.perf_counter()
            for _ in range(repeats[name]):
                arm()
            times[name].append((time.perf_counter() - begin) / repeats[name])
        rounds += 1
    return {name: statistics.median(values) for name, values in times.items()}


def _calls_for(arm: Arm, seconds: float) -> int:
    arm()
    begin = time.perf_counter()
    arm()
    return max(1, int(seconds / max(time.perf_counter() - begin, 1e-9)))


def peak_tensor_bytes(arm: Arm) -> int:
    """Highest sum of live tensor bytes that one call allocates, from the allocator's own events."""
    arm()
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        arm()
    results = profiler.profiler.kineto_results
    events = [event for event in results.events() if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def prepare() -> None:
    """The allocator setting every measurement runs under."""
    keep_freed_memory()
    gc.disable()


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def write_report(name: str, title: str, sections: Sequence[str]) -> Path:
    """A dated report with the machine it was measured on."""
    today = datetime.date.today().isoformat()
    machine = (
        f"Measured on {today}: torch {torch.__version__}, {torch.get_num_threads()} threads, "
        f"{torch.backends.cpu.get_cpu_capability()}, {platform.machine()}, {platform.system()}."
    )
    path = REPORTS / f"{today}-{name}.md"
    path.write_text("\n\n".join([f"# {title}", machine, *sections]) + "\n", encoding="utf-8")
    return path
