"""The time of day as the record has it: read once, and counted on from there by a clock that nobody sets."""

import time

# With the time the machine sleeps, where the system counts that.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_STARTED_NS, _STARTED_AT_NS = time.time_ns(), time.clock_gettime_ns(_CLOCK)


def now_ms() -> int:
    """Milliseconds since 1970; within a process never less than before, whatever becomes of the machine's clock."""
    return (_STARTED_NS + time.clock_gettime_ns(_CLOCK) - _STARTED_AT_NS) // 1_000_000
