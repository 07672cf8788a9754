"""Names a user chooses from."""

import difflib
from collections.abc import Collection

from rapid_lab.errors import SettingError


def chosen(setting: str, value: str, names: Collection[str]) -> str:
    """The value if it is one of the names; else an error with the nearest ones."""
    if value in names:
        return value
    near = difflib.get_close_matches(value, names)
    hint = f"did you mean {' or '.join(near)}?" if near else "no name is near to it"
    raise SettingError(f"{setting} must be one of {', '.join(names)}, got {value!r}: {hint}")
