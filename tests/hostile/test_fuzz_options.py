"""Every option of every command with every kind of value: accepted, or refused in one line that names it."""

import argparse
import contextlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from comparison.stores import log_student
from hostile.commands import COMMANDS, check_refusal, left_in, options_of, parser_of, quiet_machine, tried
from hostile.values import PASSWORD, SECRETS, TEXTS
from hypothesis import given, settings
from hypothesis import strategies as st
from tracking.programs import MLFLOW_WARNINGS

from rapid_lab import cli
from rapid_lab.cli.parsing import option_names
from rapid_lab.harmless import shown

pytestmark = pytest.mark.filterwarnings(MLFLOW_WARNINGS)
# Real looks at the machine, which take long and take no value but a device.
SLOW = ("doctor",)
OPTIONS = {name: options_of(name) for name in COMMANDS}
WRITTEN = tuple(name for name in COMMANDS if name not in SLOW)


@pytest.fixture(scope="module", autouse=True)
def machine(tmp_path_factory: pytest.TempPathFactory, made_store: Path) -> Iterator[Path]:
    """A store with two students, so that `compare` gets as far as writing."""
    folder = tmp_path_factory.mktemp("machine")
    with quiet_machine(folder), contextlib.chdir(folder):
        (folder / "store").mkdir()
        with closing(sqlite3.connect(made_store)) as old, closing(sqlite3.connect("store/mlflow.db")) as new:
            old.backup(new)
        for method in ("student_ce", "rapid"):
            log_student(method)
        with contextlib.chdir(folder / "here"):
            yield folder


def words_of(action: argparse.Action, value: str, *, is_joined: bool) -> list[str]:
    if not action.option_strings:
        return [value]
    option = action.option_strings[-1]
    return [f"{option}={value}"] if is_joined else [option, value]


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, str, list[str], str]:
    command = draw(st.sampled_from(WRITTEN))
    action = draw(st.sampled_from(OPTIONS[command]))
    value = draw(TEXTS)
    return command, action.dest, words_of(action, value, is_joined=draw(st.booleans())), value


def check_option(machine: Path, case: tuple[str, str, list[str], str]) -> None:
    command, name, words, value = case
    before = left_in(machine)
    ending = tried(command, words)
    # A list's fault is that of its member; a flag with a word after it cannot know what the word was for.
    stem = name.removesuffix("s")
    named = (stem, stem.replace("_", "-"), shown(value)[1:40], "unrecognized arguments", "is no setting", "no password")
    # What `variance` accepts gets as far as its base, which names a run that no store has.
    base = ("run id must name a run of the tracking store",) if command == "variance" else ()
    check_refusal(ending, *named, *base)
    assert PASSWORD not in ending.err + ending.out
    assert left_in(machine) == before


@given(case=cases())
@settings(max_examples=100)
def test_an_option_is_accepted_or_refused_by_name(machine: Path, case: tuple[str, str, list[str], str]) -> None:
    check_option(machine, case)


@pytest.mark.soak
@given(case=cases())
@settings(max_examples=8000)
def test_thousands_of_options_are_accepted_or_refused_by_name(
    machine: Path, case: tuple[str, str, list[str], str]
) -> None:
    check_option(machine, case)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_underscores_and_offers_near_names(command: str) -> None:
    names = [name for name in option_names(parser_of(command)) if name != "help"]
    longest = max(names, key=len)
    wrong = longest[:-1] + "qx"
    ending = tried(command, [f"--{wrong}=1"])
    check_refusal(ending, f"{wrong} is no setting: did you mean")
    assert ending.code == 2
    assert longest in ending.err
    if "_" in longest:
        assert "is no setting" not in tried(command, [f"--{longest}=\0"]).err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_password_on_the_command_line_is_refused_by_every_option_and_never_repeated(
    machine: Path, command: str
) -> None:
    before = left_in(machine)
    for place, action in enumerate(OPTIONS[command]):
        words = words_of(action, SECRETS[place % len(SECRETS)], is_joined=place // len(SECRETS) % 2 == 0)
        ending = tried(command, words)
        assert ending.code == 2, action
        assert "no password on the command line" in ending.err, action
        assert PASSWORD not in ending.err + ending.out
    assert left_in(machine) == before


def test_a_wrong_command_is_refused() -> None:
    assert cli.main([f"postgresql://me:{PASSWORD}@h/db"]) == 2
    assert cli.main([]) == 2
