"""Passwords, tokens and secrets taken out of text that is kept or shown."""

import re
import shlex
from collections.abc import Sequence

MASK = "***"
# A name with such a word in it, taken whole (++): stepping back into it would make long texts slow.
_SECRET = r"(?=[\w.-]*?(?:passw|pwd|secret|token(?!iz)|api[_-]?key|credential))[\w.-]++"  # noqa: S105
# Greedy to the last @, because a password may hold one: rather too much hidden than a tail shown.
_URI = re.compile(r"(?P<head>(?<![\w+.-])[a-zA-Z][\w+.-]*://[^\s/:@'\"]*):[^\s'\"]*@")
_PAIR = re.compile(rf"(?P<head>(?<![\w.-]){_SECRET}['\"]?\s*[=:]\s*)(?:'[^']*'|\"[^\"]*\"|[^\s&,;'\"]+)", re.IGNORECASE)
_FLAG = re.compile(rf"(?P<head>(?<!\S)--?{_SECRET}\s+)(?!-)\S+", re.IGNORECASE)
_BEARER = re.compile(r"(?P<head>\b(?:bearer|basic)\s+)[\w.~+/=-]{8,}", re.IGNORECASE)
_SECRET_FLAG = re.compile(rf"--?{_SECRET}", re.IGNORECASE)
_SECRET_PAIR = re.compile(rf"(?P<name>(?:--?)?{_SECRET})=.*", re.IGNORECASE | re.DOTALL)


def redact(text: str) -> str:
    """The text with every secret it can be seen to hold replaced.

    >>> redact("sqlite:///a.db postgresql://me:open@host/db --hub-token abc HF_TOKEN=abc tokenizer=bert")
    'sqlite:///a.db postgresql://me:***@host/db --hub-token *** HF_TOKEN=*** tokenizer=bert'
    """
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
