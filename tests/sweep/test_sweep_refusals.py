"""Bad input: one clear message, exit code 2, and nothing made."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from studies import sweep_of
from trivial_sweep import GRID, LABORATORY

from rapid_lab.errors import SettingError, TrainingError
from rapid_lab.sweep.driver import main
from rapid_lab.sweep.options import read_options
from rapid_lab.sweep.plan import Plan
from rapid_lab.sweep.ray_engine import check_cluster


@pytest.mark.parametrize(
    ("sweep", "arguments", "message"),
    [
        ("gate", ["--gate-strength", "0.8:0.2"], "gate_strength must be a range low:high with low below high"),
        ("gate", ["--gate-strength", "0.5:0.5"], "it is empty"),
        ("gate", ["--gate-strength", ":"], "got an empty end"),
        ("gate", ["--gate-strength", "0:2"], "gate_strength must be in [0, 1], got 2.0"),
        ("gate", ["--gate-strength", "0:nan"], "gate_strength must be in [0, 1]"),
        ("gate", ["--gate-strength", "0.5"], "a sweep must have a setting that varies"),
        ("budget", ["--relation-budget", ","], "relation_budget must be a list of values, got ','"),
        ("budget", ["--relation-budget", "16:64"], "a grid has points, not a range"),
        ("budget", ["--relation-budget", "16,16"], "a point counts once"),
        ("budget", ["--relation-budget", "0"], "relation_budget must be an integer in [1, 1e+09], got 0"),
        ("budget", ["--batch-size", "44722"], "batch_size must have at most 1000000000 pairs"),
        ("budget", ["--method", "kd,rapid"], "relation_budget does nothing in it"),
        ("gate", ["--method", "uniform"], "gate_strength does nothing in it"),
        ("proposal", ["--method", "static"], "does nothing in it"),
        ("gate", ["--objective", "acuracy"], "objective must be one of accuracy, nll, relations, minutes"),
        ("gate", ["--objective", "report/accuracy"], "the report split is no objective"),
        ("gate", ["--trials", "0"], "trials must be an integer in [1, 1e+09], got 0"),
        ("gate", ["--trials", "-3"], "trials must be an integer in [1, 1e+09], got '-3'"),
        ("gate", ["--workers", "0"], "workers must be an integer in [1, 1024], got 0"),
        ("gate", ["--timeout", "0"], "timeout must be a number above 0"),
        ("gate", ["--seeds", "1,1"], "seeds must be different numbers"),
        ("gate", ["--seeds", ""], "seeds must be different numbers"),
        ("gate", ["--seed", "1"], "seed must be given as --seeds"),
        ("gate", ["--prune", "seeds"], "fewer than 4 seeds, got 'seeds' with 3"),
        ("gate", ["--prune", "sometimes"], "prune must be one of off, seeds, epochs"),
        ("budget", ["--prune", "epochs"], "prune must be off in a grid"),
        ("joint", ["--prune", "epochs"], "prune must be off with two objectives"),
        ("gate", ["--engine", "slurm"], "engine must be one of local, ray"),
        ("gate", ["--storage", "mysql://host/db"], "storage must be a folder or postgresql"),
        ("gate", ["--storage", "postgresql+psycopg://me:hidden@host/db"], "no password on the command line"),
        ("gate", ["--storage", "postgresql://me@host/db?password=hidden"], "no password on the command line"),
        ("gate", ["--storage", "postgresql+psycopg://me@127.0.0.1:1/db"], "storage must be a database that answers"),
        ("gate", ["--storage", "/dev/null"], "storage must be a folder that can be written to"),
        ("gate", ["--storage", "/proc/nowhere"], "storage must be a folder that can be written to"),
        ("gate", ["--study", "../elsewhere"], "study must be letters, digits"),
        ("gate", ["--epochs", "0"], "epochs must be an integer"),
        ("gate", ["--gate-strenght", "0:1"], "did you mean gate_strength"),
        ("gate", ["--report", "once"], "argument --report: must be alone, or followed by true or false"),
    ],
)
def test_bad_input_is_refused(
    sweep: str,
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(sweep_of(sweep), arguments, LABORATORY) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert len(shown.err.splitlines()) == 1
    assert "hidden" not in shown.err
    assert shown.out == ""
    assert list(tmp_path.iterdir()) == []


def test_an_engine_that_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a machine without ray."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    assert main(sweep_of("gate"), ["--engine", "ray"], LABORATORY) == 2
    assert "pip install 'rapid-lab[ray]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--storage", "here"], "storage must be postgresql+psycopg://... on 2 machines, got 'here'"),
        (
            ["--storage", "postgresql+psycopg://me@host/db", "--gpus-per-worker", "1.5"],
            "gpus_per_worker must be at most 1, got 1.5: the cluster has no more",
        ),
    ],
)
def test_a_cluster_whose_workers_could_not_do_what_is_asked_is_refused(words: list[str], message: str) -> None:
    options = read_options(GRID, ["--engine", "ray", *words])
    with pytest.raises(SettingError, match=re.escape(message)):
        check_cluster(options, num_machines=2, num_gpus=1)


def test_a_cluster_of_one_machine_takes_a_folder_and_what_gpus_it_has() -> None:
    options = read_options(GRID, ["--engine", "ray", "--storage", "here", "--gpus-per-worker", "0.5"])
    check_cluster(options, num_machines=1, num_gpus=1)


@pytest.mark.usefixtures("store")
def test_a_teacher_that_goes_astray_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def astray(plan: Plan, say: Callable[[str], None]) -> None:
        raise TrainingError("loss/ce is nan at step 3")

    assert main(GRID, ["--seeds", "1"], replace(LABORATORY, prepare=astray)) == 2
    assert capsys.readouterr().err.endswith("\ntrivial_sweep.py: loss/ce is nan at step 3\n")


@pytest.mark.usefixtures("store")
def test_a_study_whose_journal_is_damaged_is_refused_and_left_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Here in the plan that it is recognised by."""
    command = ["--study", "mine", "--relation-budget", "16", "--method", "rapid", "--seeds", "1"]
    assert main(GRID, [*command, "--json"], LABORATORY) == 0
    journal = Path("rapid-sweeps/mine.journal")
    before = journal.read_bytes()
    damaged = before.replace(b"hash of agnews", b"hash of agnewt", 1)
    journal.write_bytes(damaged)
    capsys.readouterr()
    assert main(GRID, command, LABORATORY) == 2
    shown = capsys.readouterr()
    number = before[: before.index(b"hash of agnews")].count(b"\n") + 1
    assert f"line {number} of mine.journal in rapid-sweeps is damaged: nothing of the study is used" in shown.err
    assert (len(shown.err.splitlines()), shown.out, journal.read_bytes()) == (1, "", damaged)
