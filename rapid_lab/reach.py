"""Whether the hub is in reach, asked once with a limit of its own, before libraries with many retries go near it."""

import os
import threading

from rapid_lab.errors import DataError, SettingError

# The twin must be reached within 10 s of being asked for data; the rest is for the other places looked at.
REACH_SECONDS = 6.0
DEFAULT_ENDPOINT = "https://huggingface.co"
OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")
YES = {"1", "ON", "YES", "TRUE"}


class HubOutOfReachError(DataError):
    """Nobody answered: no network, no name, no route, or no answer in time."""


def require_reach() -> None:
    """Raise HubOutOfReachError unless the hub answers within REACH_SECONDS; an answer of failure is a DataError."""
    if any(os.environ.get(name, "").upper() in YES for name in OFFLINE_VARIABLES):
        raise HubOutOfReachError("the hub is out of reach (offline mode is on)")
    answers: list[int | Exception] = []
    # A thread, because no timeout of a socket bounds the resolution of a name.
    asking = threading.Thread(target=_ask, args=(endpoint(), answers), daemon=True)
    asking.start()
    asking.join(REACH_SECONDS)
    answer = answers[0] if answers else TimeoutError(f"no answer within {REACH_SECONDS:g} s")
    if isinstance(answer, Exception):
        raise HubOutOfReachError(f"the hub is out of reach ({endpoint()}: {said(answer)})")
    if answer >= 500:
        raise DataError(f"the hub {endpoint()} is in reach but answers {answer}: ask again later, or use data twin")


def _ask(address: str, answers: list[int | Exception]) -> None:
    from huggingface_hub import get_session

    try:
        with get_session().stream("GET", f"{address}/api/datasets?limit=1", timeout=REACH_SECONDS) as response:
            answers.append(response.status_code)
    except Exception as error:
        answers.append(error)


def endpoint() -> str:
    """The address of the hub, as HF_ENDPOINT has it."""
    address = os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT
    if not address.startswith(("https://", "http://")):
        raise SettingError(f"HF_ENDPOINT must be an address of http or https, got {address!r}: it is where the hub is")
    return address.rstrip("/")


def said(error: Exception) -> str:
    """The kind and first line of a library's error."""
    first_line = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__
