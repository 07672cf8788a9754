"""The faults a user can mend: a setting out of its range, data that cannot be used, a training that went astray."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

# What the system says of a disk that is full, and of a place that may not be written to.
UNWRITABLE = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR}
)


class SettingError(ValueError):
    """A setting or argument is not what it may be: the message has name, range, value and reason."""


class DataError(ValueError):
    """Data or teacher signals cannot be used: the message says what was found where."""


class TrainingError(RuntimeError):
    """A term of the loss is no longer finite: says which, at which step, on which examples."""


def unwritable(error: OSError, path: object = None) -> DataError:
    """A full disk or a folder that may not be written to, as one message; any other fault is raised as it is."""
    if error.errno not in UNWRITABLE:
        raise error
    return DataError(f"{path or error.filename or 'a file'} cannot be written: {error.strerror}")


@contextmanager
def told_where_unwritable() -> Iterator[None]:
    """Raise what a full disk or a read-only folder raises in this block as a DataError."""
    try:
        yield
    except OSError as error:
        raise unwritable(error) from error
