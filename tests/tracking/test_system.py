"""The machine's load is sampled beside the run."""

import time

from rapid_lab.names import CPU_PERCENT, MEMORY_MB
from rapid_lab.tracking.system import SystemSampler


def test_samples_come_at_intervals_with_steps_that_go_on_where_they_ended() -> None:
    samples: list[tuple[int, dict[str, float]]] = []
    sampler = SystemSampler(lambda step, values: samples.append((step, values)), interval_seconds=0.02, first_step=5)
    sampler.start()
    deadline = time.monotonic() + 5
    while len(samples) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    sampler.stop()
    count = len(samples)
    time.sleep(0.1)
    assert count == len(samples) >= 3
    assert [step for step, _ in samples] == list(range(5, 5 + count))
    assert all(0 <= values[CPU_PERCENT] <= 100 and values[MEMORY_MB] > 0 for _, values in samples)
