"""Which process a run belongs to, and whether that process is still alive."""

import socket
from dataclasses import dataclass
from pathlib import Path

import psutil

NAMESPACE = Path("/proc/self/ns/pid")  # of Linux: pids mean something else in a container of the same host name
SAME_SECONDS = 2.0


@dataclass(frozen=True)
class Process:
    """A process that no other can be taken for: a pid is given to somebody else later.

    Its start is kept twice, since 1970 and since the machine came up: a clock that is set moves the first, and only
    that.
    """

    host: str
    namespace: str
    pid: int
    started: float
    uptime: float

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}:{self.started:.2f}:{self.uptime:.2f}:{self.namespace}"

    @property
    def is_here(self) -> bool:
        """Whether this machine, and this part of it, can tell whether the process is alive."""
        return (self.host, self.namespace) == (socket.gethostname(), _namespace())

    @property
    def is_alive(self) -> bool:
        """Whether it runs still; asked of a process of this machine. In doubt it is alive."""
        try:
            found = psutil.Process(self.pid)
            since_1970, uptime = started(found)
            is_gone = found.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False
        except psutil.Error:
            return True
        difference = min(abs(since_1970 - self.started), abs(uptime - self.uptime))
        return difference < SAME_SECONDS and not is_gone

    @property
    def is_dead(self) -> bool:
        """Whether it is known to be gone: nobody here knows it of a process of another machine."""
        return self.is_here and not self.is_alive


def started(process: psutil.Process) -> tuple[float, float]:
    """Seconds since 1970 and since the machine came up."""
    since_1970 = process.create_time()
    return since_1970, since_1970 - psutil.boot_time()


def this_process() -> Process:
    """The process this is called in."""
    process = psutil.Process()
    return Process(socket.gethostname(), _namespace(), process.pid, *started(process))


def read_process(text: str) -> Process | None:
    """A process as its tag says it; None where the text is none.

    >>> str(read_process("lab-7:4711:1794967200.25:120.50:4026531836"))
    'lab-7:4711:1794967200.25:120.50:4026531836'
    >>> read_process("lab-7:4711") is None
    True
    """
    try:
        host, pid, since_1970, uptime, namespace = text.rsplit(":", 4)
        return Process(host, namespace, int(pid), float(since_1970), float(uptime))
    except ValueError:
        return None


def _namespace() -> str:
    try:
        return NAMESPACE.readlink().name.strip("pid:[]")
    except OSError:
        return ""
