"""Every command in this process, up to the point where it would make its first file or run.

That point is `prepare_store`: whatever is refused is refused before it, and what gets there is accepted. Commands that
only read are stopped where they would write, and those that do neither are not stopped at all.
"""

import argparse
import contextlib
import importlib
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest
from studies import ROOT, sweep_of

from rapid_lab import cli
from rapid_lab.cli.parsing import Parser
from rapid_lab.data import twin
from rapid_lab.sweep import driver
from rapid_lab.sweep.options import sweep_parser

SWEEPS = tuple(sorted(path.stem for path in (ROOT / "sweeps").glob("*_sweep.py")))
MAKERS = (
    "rapid_lab.experiment.run.prepare_store",
    "rapid_lab.experiment.teacher.prepare_store",
    "rapid_lab.experiment.suite.prepare_store",
    "rapid_lab.sweep.driver.prepare_store",
    "rapid_lab.comparison.output.write_report",
)
QUICK = ["--data", "twin", "--log-model", "false"]
# What keeps a command short and on this machine; what is tried comes after it, and counts instead.
BASE = {"run": QUICK, "teacher": QUICK, "suite": QUICK, "variance": ["0" * 32]} | {
    sweep: ["--dry-run", *QUICK[:2]] for sweep in SWEEPS
}
COMMANDS = (*cli.COMMANDS, *SWEEPS)


class Accepted(BaseException):
    """The command has no more objections; no handler of the command's own catches it."""


def parser_of(command: str) -> Parser:
    """The command's own parser: an option that is added later is tried without being added here."""
    if command in SWEEPS:
        return sweep_parser(sweep_of(command.removesuffix("_sweep")))
    found: Parser = importlib.import_module(f"rapid_lab.cli.{command}").parser()
    return found


def options_of(command: str) -> list[argparse.Action]:
    return [action for action in parser_of(command)._actions if action.dest != "help"]


@dataclass(frozen=True)
class Ending:
    """How a command ended; the code is None where it accepted everything."""

    code: int | None
    out: str
    err: str


def _accept(*_: object, **__: object) -> NoReturn:
    raise Accepted


def tried(command: str, words: Sequence[str]) -> Ending:
    """Run a command with these words after its base."""
    out, err = io.StringIO(), io.StringIO()
    arguments = [*BASE.get(command, []), *words]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            if command in SWEEPS:
                code: int | None = driver.main(sweep_of(command.removesuffix("_sweep")), arguments)
            else:
                code = cli.main([command, *arguments])
        except Accepted:
            code = None
        except SystemExit as end:  # of --help, whose code is 0
            code = int(end.code or 0)
    return Ending(None if code == 0 else code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def quiet_machine(folder: Path) -> Iterator[Path]:
    """A machine without hub, data or models, whose current folder is empty, and a twin of few texts."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("RAPID_", "MLFLOW_", "HF_", "PG"))]:
            patch.delenv(name)
        (folder / "here").mkdir()
        patch.chdir(folder / "here")
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("HF_HOME", str(folder / "hub"))
        patch.setenv("RAPID_CACHE_DIR", str(folder / "cache"))
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/store/mlflow.db")
        small = {"train_count": 40, "report_count": 20}
        for name, parameters in twin.TWINS.items():
            patch.setitem(twin.TWINS, name, twin.TwinParameters(classes=parameters.classes, **small))
        for maker in MAKERS:
            patch.setattr(maker, _accept)
        yield folder


def left_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def check_refusal(ending: Ending, *named: str) -> None:
    """Exit code 2, nothing on standard output, and one line that names one of these; or everything was accepted."""
    if ending.code is None:
        return
    assert ending.code == 2, ending
    assert ending.out == "", ending
    assert ending.err.endswith("\n"), ending
    lines = [line for line in ending.err.splitlines() if "could not be ended in the tracking store" not in line]
    assert len(lines) == 1, ending
    assert any(name in ending.err for name in named), (ending.err, named)
