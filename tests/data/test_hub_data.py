"""The hub: in reach or not, and what follows from either. The hub is a real server, on this machine."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from data.conftest import VARIABLES
from data.fake_hub import fake_hub

import rapid_lab
from rapid_lab import reach
from rapid_lab.data.sources import find_data
from rapid_lab.errors import DataError, SettingError

pytestmark = pytest.mark.usefixtures("bare_machine")


def unused_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


REASONS = {
    "no name": "ConnectError",
    "no listener": "ConnectError",
    "no answer": "no answer within 0.5 s|ReadTimeout",
    "offline": "offline mode is on",
}


@pytest.fixture(params=REASONS)
def hub_out_of_reach(
    request: pytest.FixtureRequest, bare_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The ways a hub can be out of reach, all of them real; gives what is said of it."""
    monkeypatch.setattr(reach, "REACH_SECONDS", 0.5 if request.param == "no answer" else 6.0)
    with fake_hub(hangs=True) as server:
        address = {"no name": "https://no-such-host.invalid", "no listener": f"http://127.0.0.1:{unused_port()}"}
        monkeypatch.setenv("HF_ENDPOINT", address.get(request.param, server.address))
        monkeypatch.setenv("HF_HUB_OFFLINE", str(int(request.param == "offline")))
        yield REASONS[request.param]


def test_auto_ends_at_the_twin_where_the_hub_is_out_of_reach_and_says_so(hub_out_of_reach: str) -> None:
    data = find_data("agnews", "auto")
    assert (data.name, data.source) == ("agnews-twin", "twin")
    (warning,) = data.warnings
    assert warning.startswith(
        "agnews: the hub is out of reach, so this run uses the embedded twin under the name agnews-twin; "
        "results are not those of the real data"
    )
    assert re.search(hub_out_of_reach, warning), warning


@pytest.mark.usefixtures("hub_out_of_reach")
@pytest.mark.parametrize(("dataset", "data"), [("agnews", "hub"), ("hub:owner/name", "auto")])
def test_nothing_but_auto_for_a_dataset_with_a_twin_ends_there(dataset: str, data: str) -> None:
    with pytest.raises(DataError, match=f"{dataset}: the hub is out of reach"):
        find_data(dataset, data)


def test_a_name_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """No timeout of a socket bounds this: the call that resolves a name takes none."""
    with fake_hub(hangs=True) as server:

        def resolve(*_: object, **__: object) -> Any:
            server.let_go.wait()
            raise socket.gaierror("too late")

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        monkeypatch.setattr(reach, "REACH_SECONDS", 0.2)
        monkeypatch.setenv("HF_ENDPOINT", "https://no-such-host.invalid")
        with pytest.raises(reach.HubOutOfReachError, match=r"no answer within 0\.2 s"):
            reach.require_reach()


def test_the_question_leaves_time_for_the_other_places_within_ten_seconds() -> None:
    assert reach.REACH_SECONDS <= 8


@pytest.mark.parametrize("status", [500, 502, 503])
def test_a_hub_that_answers_with_a_failure_is_no_reason_for_the_twin(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    with fake_hub(status=status) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        with pytest.raises(DataError, match=f"in reach but answers {status}"):
            find_data("agnews", "auto")
        assert len(server.requests) == 1, "asked once"


@pytest.mark.parametrize("status", [200, 401, 403, 404, 429])
def test_any_other_answer_means_in_reach(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    with fake_hub(status=status) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        reach.require_reach()


def test_an_address_of_no_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "hub.example")
    with pytest.raises(SettingError, match=r"HF_ENDPOINT must be .*'hub\.example'"):
        find_data("agnews", "auto")


def table(columns: str, *rows: tuple[str, int]) -> bytes:
    return "".join([columns + "\n", *(f"{text},{label}\n" for text, label in rows)]).encode()


CARD = b"""---
configs:
- config_name: cola
  data_files: [{split: train, path: cola/train.csv}]
- config_name: sst2
  data_files:
  - {split: train, path: sst2/train.csv}
  - {split: validation, path: sst2/validation.csv}
  - {split: test, path: sst2/test.csv}
---
"""
FILES = {
    "fancyzhx/ag_news": {
        "train.csv": table("text,label", ("a", 0), ("b", 1), ("c", 2), ("d", 3)),
        "test.csv": table("text,label", ("e", 3)),
    },
    "nyu-mll/glue": {
        "README.md": CARD,
        "cola/train.csv": table("sentence,label", ("x", 0), ("y", 1)),
        "sst2/train.csv": table("sentence,label", ("f", 0), ("g", 1)),
        "sst2/validation.csv": table("sentence,label", ("h", 1)),
        "sst2/test.csv": table("sentence,label", ("i", -1)),
    },
    "owner/words": {"train.csv": b"text,label\na,good\nb,bad\n", "test.csv": b"text,label\na,good\n"},
    "owner/broken": {"train.parquet": b"PAR1 and nothing else", "test.parquet": b"PAR1"},
}


# The libraries read their settings when they are imported: what a user's machine does takes a fresh process.
SCRIPT = """
import json, os, sys
from rapid_lab.data.sources import find_data
for dataset, data in json.loads(sys.argv[1]):
    os.environ["HF_HUB_OFFLINE"] = str(int(data == "offline"))
    try:
        found = find_data(dataset, "auto" if data == "offline" else data)
        answer = {"name": found.name, "source": found.source, "data_hash": found.data_hash}
        answer |= {"train": found.train.texts, "report_name": found.report_name, "report": found.read_report().texts}
    except Exception as error:
        answer = {"error": type(error).__name__, "message": str(error)}
    print(json.dumps(answer | {"imported": "datasets" in sys.modules}))
"""
LOADED = (("agnews", "auto"), ("sst2", "hub"), ("hub:nyu-mll/glue:sst2", "auto"))
FAILURES = {
    "hub:owner/missing": "doesn't exist on the Hub or cannot be accessed",
    "hub:owner/private": "doesn't exist on the Hub or cannot be accessed",
    "hub:owner/gated": "gated",
    "hub:nyu-mll/glue:none": "none",
    "hub:nyu-mll/glue:cola": "no split test or validation: the splits found are train",
    "hub:owner/words": "labels that are not 0..C-1",
    "hub:owner/broken": "cannot be loaded",
}


@dataclass(frozen=True)
class Session:
    """What a fresh process said when the hub was there, and the cache it left behind."""

    twin: dict[str, Any]
    denied: dict[str, Any]
    loaded: list[dict[str, Any]]
    failures: list[dict[str, Any]]
    home: Path


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    home = tmp_path_factory.mktemp("hub") / "home"
    questions = [("agnews", "offline"), ("agnews", "auto"), *LOADED, *((name, "auto") for name in FAILURES)]
    with fake_hub(FILES) as server:
        server.denied_once.add("ag_news")
        settings = {"HF_ENDPOINT": server.address, "HF_HOME": str(home), "NO_PROXY": "127.0.0.1"}
        inherited = {name: value for name, value in os.environ.items() if name not in VARIABLES}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, json.dumps(questions)],
            cwd=Path(rapid_lab.__file__).parents[1],
            env=inherited | settings,
            capture_output=True,
            text=True,
            check=True,
        )
    twin, denied, *others = [json.loads(line) for line in done.stdout.splitlines()]
    return Session(twin, denied, others[: len(LOADED)], others[len(LOADED) :], home)


@pytest.fixture
def cache(session: Session, bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that cache, on a machine the hub has gone from."""
    home = bare_machine / "left-behind"
    shutil.copytree(session.home, home)
    monkeypatch.setenv("HF_HOME", str(home))
    monkeypatch.setenv("HF_ENDPOINT", "https://no-such-host.invalid")
    return home / "datasets"


def test_the_way_to_the_twin_does_not_import_datasets(session: Session) -> None:
    assert session.twin["name"] == "agnews-twin"
    assert not session.twin["imported"]


def test_a_hub_that_says_it_has_no_agnews_is_an_error_and_not_the_twin(session: Session) -> None:
    assert session.denied["error"] == "DataError"
    assert "cannot be loaded" in session.denied["message"]


def test_a_dataset_is_loaded_from_the_hub(session: Session) -> None:
    agnews, sst2, glue = session.loaded
    assert [data.get("name") for data in session.loaded] == ["agnews[4]", "sst2[2]", "hub-nyu-mll-glue-sst2"]
    assert agnews["source"] == sst2["source"] == glue["source"] == "hub"
    assert (agnews["train"], agnews["report"], agnews["report_name"]) == (["a", "b", "c", "d"], ["e"], "test")
    # The test split of GLUE has no labels, whatever the dataset is called.
    assert (sst2["report_name"], glue["report_name"], sst2["report"]) == ("validation", "validation", ["h"])


@pytest.mark.parametrize(("name", "part"), FAILURES.items())
def test_not_found_refused_or_damaged_is_an_error(session: Session, name: str, part: str) -> None:
    answer = session.failures[list(FAILURES).index(name)]
    assert answer.get("error") == "DataError", answer
    assert name in answer["message"]
    assert part in answer["message"]


@pytest.mark.usefixtures("cache")
def test_what_was_loaded_once_comes_from_the_cache_the_same(session: Session) -> None:
    for (dataset, data), before in zip(LOADED, session.loaded, strict=True):
        found = find_data(dataset, data)
        assert (found.source, found.name, found.data_hash) == ("hub", before["name"], before["data_hash"])
        assert found.read_report().texts == before["report"]


@pytest.mark.usefixtures("cache")
def test_another_configuration_of_a_cached_dataset_is_not_in_the_cache() -> None:
    with pytest.raises(DataError, match="out of reach"):
        find_data("hub:nyu-mll/glue:mrpc", "auto")


def test_a_damaged_cache_is_an_error_and_not_the_twin(cache: Path) -> None:
    (arrow,) = cache.glob("fancyzhx___ag_news/*/*/*/*-train.arrow")
    arrow.write_bytes(arrow.read_bytes()[:40])
    for info in cache.glob("nyu-mll___glue/sst2/*/*/dataset_info.json"):
        info.write_text("{")
    for dataset in ("agnews", "sst2"):
        with pytest.raises(DataError, match="damaged in the cache"):
            find_data(dataset, "auto")
