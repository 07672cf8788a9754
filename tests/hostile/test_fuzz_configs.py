"""Config files: every setting with every kind of TOML, names twice, names unknown, and files that are no TOML."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile.commands import check_refusal, left_in, quiet_machine, tried
from hostile.values import NAMES, UNICODE, WORDS
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rapid_lab.config import CONFIG_BYTES, SETTINGS, read_config

COMMANDS = ("run", "teacher", "suite", "gate_sweep")


@pytest.fixture(scope="module", autouse=True)
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with quiet_machine(tmp_path_factory.mktemp("machine")) as folder:
        yield folder


def quoted(text: str) -> str:
    """A TOML string of whatever text; lone surrogates stay, and make the file no UTF-8."""
    return json.dumps(text, ensure_ascii=True).replace("\\ud", "\\\\ud")


LITERALS = st.one_of(
    st.integers().map(str),
    st.floats().map(repr),
    st.sampled_from(["nan", "inf", "-inf", "+nan", "1e400", "9" * 5000, "0x" + "f" * 5000, "0b1", "1_0", "-0"]),
    st.sampled_from(["true", "false", "[]", "{}", "[[]]", "[1, 'a']", "{a = 1}", "1979-05-27", "07:32:00", "'''x'''"]),
    st.sampled_from(["", "None", "nul", "[" * 5000, "{a=" * 500, "1..2", "'", '"', "@"]),
    st.sampled_from([*NAMES, *WORDS[:20], *UNICODE]).map(quoted),
    st.text(max_size=10).map(quoted),
)
KEYS = st.one_of(
    st.sampled_from(list(SETTINGS)),
    st.sampled_from(list(SETTINGS)).map(lambda name: name.replace("_", "-")),
    st.sampled_from(list(SETTINGS)).map(lambda name: f"{name}.x"),
    st.sampled_from(list(SETTINGS)).map(lambda name: name[:-1] or "x"),
    st.text(max_size=8).map(quoted),
)
LINES = st.lists(st.tuples(KEYS, LITERALS), min_size=1, max_size=3)
DOCUMENTS = st.one_of(
    LINES.map(lambda pairs: "\n".join(f"{key} = {value}" for key, value in pairs).encode("utf-8", "surrogatepass")),
    st.binary(max_size=40),
)


def check_document(machine: Path, command: str, content: bytes) -> None:
    path = machine / "hostile.toml"
    path.write_bytes(content)
    before = left_in(machine)
    ending = tried(command, [f"--config={path}"])
    named = [name for name in SETTINGS if name.encode() in content.replace(b"-", b"_")]
    check_refusal(ending, "config", "is no setting", *named)
    assert left_in(machine) == before


@given(command=st.sampled_from(COMMANDS), content=DOCUMENTS)
@example(command="run", content=b"gate-strength = 1\ngate_strength = 0")
@example(command="run", content=b"epochs = 0x" + b"f" * 5000)
@example(command="run", content=b"kd_weight = 1" + b"0" * 400)
@example(command="run", content=b'dataset = "a\\u0000/b"')
@settings(max_examples=100)
def test_a_config_file_is_accepted_or_refused_by_name(machine: Path, command: str, content: bytes) -> None:
    check_document(machine, command, content)


@pytest.mark.soak
@given(command=st.sampled_from(COMMANDS), content=DOCUMENTS)
@settings(max_examples=3000)
def test_thousands_of_config_files_are_accepted_or_refused_by_name(machine: Path, command: str, content: bytes) -> None:
    check_document(machine, command, content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"gate-strength = 1\ngate_strength = 0", "gate_strength must be given once"),
        (b"epochs = 1\nepochs = 2", "config must be a readable TOML file"),
        (b"epochs = " + b"9" * 5000, "config must be a readable TOML file"),
        (
            b"epochs = 0x" + b"f" * 5000,
            "epochs must be an integer in [1, 1e+09], got a number of more than",
        ),
        (b"kd_weight = 1" + b"0" * 400, "kd_weight must be of at least 0"),
        (b"epochs = " + b"[" * 5000, "config must be a readable TOML file"),
        (b'text_column = "a\\u0000"', "text_column must be Unicode without NUL"),
        (b"epochs = nan", "epochs must be an integer"),
        (b"dataset = 3", "dataset must be a text, got 3"),
        (b"\xff\xfe", "config must be a readable TOML file"),
        (b"#" * (CONFIG_BYTES + 1), "it has more than 1048576 bytes"),
        (b"rapid = 1", "rapid is no setting"),
    ],
)
def test_a_fault_of_a_config_file_is_named(machine: Path, content: bytes, message: str) -> None:
    path = machine / "hostile.toml"
    path.write_bytes(content)
    ending = tried("run", [f"--config={path}"])
    assert (ending.code, ending.out) == (2, "")
    assert message in ending.err


@pytest.mark.parametrize("path", ["", "/", "/dev/zero", "/dev/null/x", "a" * 300, "a\0b", "\ud800"])
def test_a_path_that_is_no_config_file_is_refused(path: str) -> None:
    ending = tried("run", ["--config", path])
    assert ending.code == 2
    assert ending.err.startswith("rapid-lab: config must be a readable TOML file")


def test_an_integer_where_a_float_belongs_is_one(machine: Path) -> None:
    path = machine / "whole.toml"
    path.write_text("kd_weight = 2", encoding="utf-8")
    assert repr(read_config(path)) == "{'kd_weight': 2.0}"
