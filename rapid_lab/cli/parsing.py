"""Command lines read alike by every command: underscores for dashes, near names for wrong ones, and no passwords."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from rapid_lab.config import nearest
from rapid_lab.errors import SettingError
from rapid_lab.harmless import shown
from rapid_lab.tracking.redaction import has_password


def truth(text: str) -> bool:
    """What follows a switch, where something does: `mlflow run -P json=true` arrives as `--json true`."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"must be alone, or followed by true or false, got {shown(text)}")
    return text.lower() == "true"


# For `add_argument`: on where it is named, and where it is followed by `true`.
SWITCH: dict[str, Any] = {"nargs": "?", "const": True, "default": False, "type": truth, "metavar": "true"}


class Parser(argparse.ArgumentParser):
    """Argparse with one message, and no abbreviations: a prefix may become ambiguous in the next release."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            **{"allow_abbrev": False, "formatter_class": argparse.RawDescriptionHelpFormatter, **options},
        )

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and exiting."""
        raise SettingError(message)


def parsed(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The options; a name that is none is refused with the names near to it."""
    words = _joined(arguments)
    _check_words(words)
    options, rest = parser.parse_known_args(words)
    for word in rest:
        if word.startswith("--"):
            name = word[2:].partition("=")[0].replace("-", "_")
            raise SettingError(f"{name} is no setting: {nearest(name, option_names(parser))}")
    if rest:
        raise SettingError(f"unrecognized arguments: {' '.join(rest)}")
    return options


def option_names(parser: argparse.ArgumentParser) -> list[str]:
    """What a parser can be given, by the names that settings have."""
    return [
        option.removeprefix("--").replace("-", "_")
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--")
    ]


def _check_words(words: Sequence[str]) -> None:
    """No passwords: others who use the machine can read a command line, and shells and job systems keep it."""
    before = "the command"
    for word in words:
        name, _, value = word.partition("=")
        option = name.removeprefix("--").replace("-", "_") if word.startswith("--") else before
        if has_password(word):
            raise SettingError(
                f"{option} must have no password on the command line, got one: others can read it there; put the "
                "address into RAPID_STORAGE or MLFLOW_TRACKING_URI, or the password into PGPASSWORD, "
                "MLFLOW_TRACKING_PASSWORD or the file that PGPASSFILE names"
            )
        if value == "--":  # which argparse takes for the end of the options, and leaves a list in its place
            raise SettingError(f"{option} must be a value, got '--': it ends the options")
        before = option if word.startswith("--") else "the command"


def _joined(arguments: Sequence[str]) -> list[str]:
    """Names with underscores, as `mlflow run -P` brings them, are the same options; -1e-5 is a value.

    >>> _joined(["--teacher_epochs", "1", "--data=my_folder", "--kd-weight", "-1e-5"])
    ['--teacher-epochs', '1', '--data=my_folder', '--kd-weight=-1e-5']
    """
    words: list[str] = []
    for word in arguments:
        name, equals, value = word.partition("=")
        if word.startswith("--"):
            words.append(name.replace("_", "-") + equals + value)
        elif word[:1] == "-" and word != "-h" and words and words[-1].startswith("--") and "=" not in words[-1]:
            words[-1] += f"={word}"
        else:
            words.append(word)
    return words
