"""The two faults a user can mend: a setting out of its range, and data that cannot be used."""


class SettingError(ValueError):
    """A setting or argument is not what it may be: the message has name, range, value and reason."""


class DataError(ValueError):
    """Data or teacher signals cannot be used: the message says what was found where."""
