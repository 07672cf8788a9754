"""Passwords, tokens and secrets taken out of text that is kept or shown."""

import os
import re
import shlex
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from urllib.parse import unquote

from rapid_lab.harmless import one_line

MASK = "***"
MESSAGE_LENGTH = 4000
SHORTEST = 4  # a secret of fewer letters is part of too many words
# Where the environment holds a secret itself, and where it holds an address with one in it.
SECRETS = ("PGPASSWORD", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "HF_TOKEN", "RAY_AUTH_TOKEN")
ADDRESSES = ("RAPID_STORAGE", "MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI", "HF_ENDPOINT", "RAY_ADDRESS")
# A name with such a word in it, taken whole (++): stepping back into it would make long texts slow.
_SECRET = r"(?=[\w.-]*?(?:passw|pwd|secret|token(?!iz)|api[_-]?key|credential))[\w.-]++"  # noqa: S105
# Greedy to the last @, because a password may hold one: rather too much hidden than a tail shown.
_URI = re.compile(r"(?P<head>(?<![\w+.-])[a-zA-Z][\w+.-]*://[^\s/:@'\"]*):[^\s'\"]*@")
# An address alone, whose password may hold anything: SQLAlchemy takes more for one than RFC 3986 allows.
_ADDRESS = re.compile(r"(?P<head>\A[a-zA-Z][\w+.-]*://[^\s/:@]*):(?P<password>.*)@", re.DOTALL)
_PAIR = re.compile(rf"(?P<head>(?<![\w.-]){_SECRET}['\"]?\s*[=:]\s*)(?:'[^']*'|\"[^\"]*\"|[^\s&,;'\"]+)", re.IGNORECASE)
_FLAG = re.compile(rf"(?P<head>(?<!\S)--?{_SECRET}\s+)(?!-)\S+", re.IGNORECASE)
_BEARER = re.compile(r"(?P<head>\b(?:bearer|basic)\s+)[\w.~+/=-]{8,}", re.IGNORECASE)
_PASSWORD = re.compile(r"\b\w*password\s*=", re.IGNORECASE)
_SECRET_FLAG = re.compile(rf"--?{_SECRET}", re.IGNORECASE)
_SECRET_PAIR = re.compile(rf"(?P<name>(?:--?)?{_SECRET})=.*", re.IGNORECASE | re.DOTALL)


def has_password(argument: str) -> bool:
    """Whether an argument of a command line holds an address with a password in it, or a password by name.

    >>> [has_password(text) for text in ("--storage=postgresql://me:open@host/db", "http://host:5000", "password=x")]
    [True, False, True]
    """
    value = argument.partition("=")[2] if argument.startswith("--") else argument
    is_hidden = any("://" in text and redact(text) != text for text in (argument, value))
    return is_hidden or bool(_ADDRESS.match(value)) or bool(_PASSWORD.search(argument))


def redact(text: str) -> str:
    """The text with every secret it can be seen to hold replaced.

    >>> redact("sqlite:///a.db postgresql://me:open@host/db --hub-token abc HF_TOKEN=abc tokenizer=bert")
    'sqlite:///a.db postgresql://me:***@host/db --hub-token *** HF_TOKEN=*** tokenizer=bert'
    """
    if not re.search(r"\s", text):
        text = _ADDRESS.sub(rf"\g<head>:{MASK}@", text)
    text = _URI.sub(rf"\g<head>:{MASK}@", text)
    text = _BEARER.sub(rf"\g<head>{MASK}", text)
    text = _PAIR.sub(rf"\g<head>{MASK}", text)
    return _FLAG.sub(rf"\g<head>{MASK}", text)


def redact_arguments(arguments: Sequence[str]) -> str:
    """A command line that can be pasted; argument by argument, since a secret may hold spaces and quotes.

    >>> redact_arguments(["rapid-lab", "run", "--token", "a b", "-P", "db_password=c d", "--seed", "1"])
    'rapid-lab run --token *** -P db_password=*** --seed 1'
    """
    shown, is_secret = [], False
    for argument in arguments:
        pair = _SECRET_PAIR.fullmatch(argument)
        hidden = f"{pair['name']}={MASK}" if pair else redact(argument)
        shown.append(MASK if is_secret else hidden)
        is_secret = not is_secret and bool(_SECRET_FLAG.fullmatch(argument))
    return " ".join(part if MASK in part and " " not in part else shlex.quote(part) for part in shown)


def without_user(address: str) -> str:
    """An address without user and password: a token is often the user's name.

    >>> without_user("https://abc123@host/owner/name.git")
    'https://host/owner/name.git'
    """
    return re.sub(r"(?<=://)[^/\s]*@", "", address)


def without_secrets(text: str) -> str:
    """The text redacted, and every secret that the environment of this process holds taken out wherever it stands."""
    for secret in sorted(set(_known_secrets()), key=len, reverse=True):
        text = text.replace(secret, MASK)
    return redact(text)


def _known_secrets() -> Iterator[str]:
    found = [os.environ.get(name, "") for name in SECRETS]
    addresses = [_ADDRESS.match(os.environ.get(name, "")) for name in ADDRESSES]
    found += [address["password"] for address in addresses if address]
    for secret in found:
        yield from (form for form in (secret, unquote(secret)) if len(form) >= SHORTEST)


def message_of(error: BaseException) -> str:
    """An error for people: one line of bearable length, without secrets."""
    text = one_line(without_secrets(str(error))) or type(error).__name__
    return text if len(text) <= MESSAGE_LENGTH else f"{text[:MESSAGE_LENGTH]}..."


def hide_secrets_in_tracebacks() -> None:
    """See to it that the traceback of a fault nobody foresaw has no secrets in it, from whatever thread it comes."""

    def show(error: BaseException | None) -> None:
        if error is not None:
            print(without_secrets("".join(traceback.format_exception(error))), end="", file=sys.stderr)

    sys.excepthook = lambda _kind, error, _trace: show(error)
    threading.excepthook = lambda arguments: show(arguments.exc_value)
