"""The faults a user can mend: a setting out of its range, data that cannot be used, a training that went astray."""


class SettingError(ValueError):
    """A setting or argument is not what it may be: the message has name, range, value and reason."""


class DataError(ValueError):
    """Data or teacher signals cannot be used: the message says what was found where."""


class TrainingError(RuntimeError):
    """A term of the loss is no longer finite: says which, at which step, on which examples."""
