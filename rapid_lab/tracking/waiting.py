"""A store that does not answer, waited for by whoever is about to begin something that needs it at once."""

import math
import time
from collections.abc import Callable

from rapid_lab.errors import SettingError
from rapid_lab.tracking.redaction import message_of
from rapid_lab.tracking.store import check_store

PATIENCE_SECONDS = 12 * 3600.0  # a night
POLL_SECONDS = 5.0


def store_fault() -> SettingError | None:
    """Why the store cannot be used just now; None where it answers."""
    try:
        check_store()
    except SettingError as fault:
        return fault
    return None


def wait_for_store(say: Callable[[str], None], deadline: float = math.inf) -> bool:
    """Return when the store answers, or False when the deadline, of the monotonic clock, passes before that.

    What is waited for is said once. After PATIENCE_SECONDS the store's fault is raised.
    """
    fault = store_fault()
    if fault is None:
        return True
    say(f"waiting for the tracking store: {message_of(fault)}")
    last = time.monotonic() + PATIENCE_SECONDS
    while fault is not None:
        now = time.monotonic()
        if now >= deadline:
            return False
        if now >= last:
            raise fault
        time.sleep(min(POLL_SECONDS, deadline - now))
        fault = store_fault()
    say("the tracking store answers again")
    return True
