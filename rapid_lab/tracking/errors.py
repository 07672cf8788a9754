"""The fault of a store that was asked for and did not do it."""


class TrackingError(RuntimeError):
    """The tracking store did not take or give what it was asked for: the message says what, and why."""
