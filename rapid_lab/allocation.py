"""Keep glibc from handing every large tensor back to the kernel: page faults cost ten times the arithmetic."""

import ctypes
import gc
import sys
from typing import Any

_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4


def keep_freed_memory() -> bool:
    """Ask malloc to reuse large blocks instead of mapping new ones; True where that is possible (glibc)."""
    mallopt = _of_glibc("mallopt")
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_MAX, 0)) and bool(mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))


def release_freed_memory() -> None:
    """Hand back what is free now, once: a peak that is measured from here on is of what comes, not of what was."""
    gc.collect()
    trim = _of_glibc("malloc_trim")
    if trim is not None:
        trim(0)


def _of_glibc(name: str) -> Any:
    """A function of glibc; None with another libc, such as musl."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform.startswith("linux") else None
