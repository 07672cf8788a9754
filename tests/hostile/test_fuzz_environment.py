"""Every environment variable the software reads: known by name, and accepted or refused by name."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile.commands import Ending, check_refusal, left_in, quiet_machine, tried
from hostile.values import PASSWORD, VARIABLE_TEXTS
from hypothesis import example, given, settings
from hypothesis import strategies as st
from studies import ROOT

import rapid_lab
from rapid_lab.variables import VARIABLES

PACKAGE = Path(rapid_lab.__file__).parent
PREFIXES = "RAPID|MLFLOW|HF|PG|RAY|XDG|OMP|CUBLAS|TRANSFORMERS|TORCH|CUDA|AWS|NCCL"
NAME = re.compile(rf"(?:{PREFIXES})_?[A-Z][A-Z_]+")
OTHERS = {"RAY_AUTH"}  # the beginning of a name
COMMANDS = ("run", "teacher", "suite", "gate_sweep", "compare", "variance", "flush", "reap", "account")


def read_names() -> set[str]:
    """What the source asks the environment for, by literal, and every literal that has the form of a variable."""
    found: set[object] = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value):
                found.add(node.value)
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith(("os.environ.", "os.getenv")):
                found |= {a.value for a in node.args[:1] if isinstance(a, ast.Constant) and isinstance(a.value, str)}
            if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "os.environ":
                found |= {node.slice.value} if isinstance(node.slice, ast.Constant) else set()
    return {str(name) for name in found if name not in OTHERS}


def test_the_list_of_variables_is_complete() -> None:
    assert read_names() - VARIABLES.keys() == set()


def test_every_name_in_the_list_is_one_that_is_read_here_or_by_a_library_for_us() -> None:
    by_libraries = {name for name, variable in VARIABLES.items() if "; read by " in variable.help}
    set_elsewhere = {"MLFLOW_ENV_ROOT"}  # read by MLflow's private functions, and named in a message here
    assert VARIABLES.keys() - read_names() - by_libraries - set_elsewhere == set()


@pytest.fixture(scope="module", autouse=True)
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with quiet_machine(tmp_path_factory.mktemp("machine")) as folder:
        yield folder


def with_variable(command: str, name: str, value: str) -> Ending:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(name, value)
        return tried(command, [])


def check_variable(machine: Path, command: str, name: str, value: str) -> None:
    before = left_in(machine)
    ending = with_variable(command, name, value)
    # Without a store these three have nothing to read, and say so.
    check_refusal(ending, name, "storage" if name == "RAPID_STORAGE" else name, "MLFLOW_TRACKING_URI")
    assert PASSWORD not in ending.err + ending.out
    assert left_in(machine) == before


@given(command=st.sampled_from(COMMANDS), name=st.sampled_from(list(VARIABLES)), value=VARIABLE_TEXTS)
@example(command="run", name="MLFLOW_TRACKING_URI", value=f"postgresql://me:{PASSWORD}@127.0.0.1:1/db")
@example(command="run", name="MLFLOW_TRACKING_URI", value=f"postgresql+psycopg://me:{PASSWORD}@127.0.0.1:1/db")
@example(command="gate_sweep", name="RAPID_STORAGE", value=f"postgresql://me:{PASSWORD}'\"/@127.0.0.1:1/db")
@example(command="run", name="RAPID_CACHE_DIR", value="/dev/null/x")
@example(command="run", name="MLFLOW_RUN_ID", value=f"postgresql://me:{PASSWORD}@127.0.0.1/db")
@example(command="run", name="MLFLOW_EXPERIMENT_NAME", value="\udcff")
@settings(max_examples=80)
def test_a_variable_is_accepted_or_refused_by_name(machine: Path, command: str, name: str, value: str) -> None:
    check_variable(machine, command, name, value)


@pytest.mark.soak
@given(command=st.sampled_from(COMMANDS), name=st.sampled_from(list(VARIABLES)), value=VARIABLE_TEXTS)
@settings(max_examples=2500)
def test_thousands_of_variables_are_accepted_or_refused_by_name(
    machine: Path, command: str, name: str, value: str
) -> None:
    check_variable(machine, command, name, value)


Processes = list[tuple[list[str], dict[str, str], str]]
PROCESSES: Processes = [
    (["-m", "rapid_lab", "run", "--epochs", "nan"], {}, "epochs must be an integer"),
    (["-m", "rapid_lab", "teacher", "--data=twin"], {"MLFLOW_LOGGING_LEVEL": "loud"}, "MLFLOW_LOGGING_LEVEL must be"),
    (["-m", "rapid_lab", "suite", "--dataset", "/nowhere/x"], {}, "dataset must be a folder"),
]
MORE_PROCESSES: Processes = [
    (["-m", "rapid_lab", "run", "--student-layers=13", "--data=twin"], {}, "student_layers must be in [1, 12]"),
    (["-m", "rapid_lab", "run", "--data=twin"], {"RAPID_CACHE_DIR": "/dev/null"}, "RAPID_CACHE_DIR must be a folder"),
    (["-m", "rapid_lab", "run", "--data=twin"], {"MLFLOW_TRACKING_URI": "foo://x"}, "MLFLOW_TRACKING_URI must name"),
    (["-m", "rapid_lab", "variance", "0" * 32], {}, "MLFLOW_TRACKING_URI must name a store"),
    (["-m", "rapid_lab", "teacher", "--teacher-layers=13", "--data=twin"], {}, "teacher_layers must be in [1, 12]"),
    (["sweeps/gate_sweep.py"], {"RAPID_STORAGE": "postgresql://me:hunter22@h:port/db"}, "storage must be a database"),
]


def check_process(folder: Path, words: list[str], environment: dict[str, str], message: str) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RAPID_", "MLFLOW_", "HF_"))}
    done = subprocess.run(
        [sys.executable, *(str(ROOT / word) if word.startswith("sweeps/") else word for word in words)],
        env={**clean, "HF_HUB_OFFLINE": "1", "HOME": str(folder), "OMP_NUM_THREADS": "1", **environment},
        cwd=folder,
        text=True,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert message in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert PASSWORD not in done.stderr
    assert left_in(folder) == []


@pytest.mark.parametrize(("words", "environment", "message"), PROCESSES)
def test_a_real_process_refuses_in_one_line_and_leaves_nothing_behind(
    tmp_path: Path, words: list[str], environment: dict[str, str], message: str
) -> None:
    check_process(tmp_path, words, environment, message)


@pytest.mark.soak
@pytest.mark.parametrize(("words", "environment", "message"), MORE_PROCESSES)
def test_more_real_processes_refuse_in_one_line_and_leave_nothing_behind(
    tmp_path: Path, words: list[str], environment: dict[str, str], message: str
) -> None:
    check_process(tmp_path, words, environment, message)
