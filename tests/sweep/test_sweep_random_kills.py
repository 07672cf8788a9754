"""A real sweep on the twin whose driver and workers are killed at random moments ends as one that never was."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from faults.outcomes import Outcome, assert_same, copy_store, runs, student_outcome
from studies import ROOT, check_whole, load, start
from studies import no_process_left as no_process_left

from rapid_lab import names
from rapid_lab.cli import main

SCRIPT = ROOT / "sweeps" / "budget_sweep.py"
WORDS = [
    "--data", "twin", "--epochs", "1", "--teacher-epochs", "1", "--relation-budget", "16,64", "--method", "uniform",
    "--seeds", "1,2", "--workers", "2", "--report",
]  # fmt: skip
SEED, NUM_KILLS, SECONDS = 20261118, 6, 600


def sweep(folder: Path, monkeypatch: pytest.MonkeyPatch) -> subprocess.Popen[str]:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
    monkeypatch.setenv("RAPID_CACHE_DIR", str(folder / "cache"))
    return start(SCRIPT, *WORDS)


def outcomes(folder: Path) -> dict[str, Outcome]:
    found = {run.data.tags[names.CONFIG_ID]: student_outcome(run, folder) for run in runs(names.STUDENT)}
    assert len(found) == len(runs(names.STUDENT)) == 4
    check_whole(load("budget-agnews-twin"), num_trials=2, num_seeds=2)
    return found


def kill_somebody(driver: subprocess.Popen[str], chance: random.Random, seconds: float) -> str | None:
    """The driver, or one of the processes below it, after a while; None where the sweep was done before."""
    try:
        driver.wait(chance.uniform(0.2, 0.8) * seconds)
    except subprocess.TimeoutExpired:
        below = sorted(process.pid for process in psutil.Process(driver.pid).children(recursive=True))
        victim = chance.choice([driver.pid, *below])
        os.kill(victim, signal.SIGKILL)
        return "the driver" if victim == driver.pid else "a process below it"
    return None


@pytest.mark.soak
def test_a_sweep_whose_processes_are_killed_at_random_ends_as_one_that_never_was(
    made_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / name for name in ("undisturbed", "killed")]
    for folder in folders:
        folder.mkdir()
        copy_store(made_store, folder)
    started = time.monotonic()
    driver = sweep(folders[0], monkeypatch)
    errors = driver.communicate(timeout=SECONDS)[1]
    assert driver.returncode == 0, errors
    seconds = time.monotonic() - started
    reference = outcomes(folders[0])

    chance = random.Random(SEED)
    print(f"seed {SEED}")
    for turn in range(NUM_KILLS):
        driver = sweep(folders[1], monkeypatch)
        print(turn, kill_somebody(driver, chance, seconds))
        driver.communicate(timeout=SECONDS)  # to the end of those below it, who have the same standard error
    driver = sweep(folders[1], monkeypatch)
    errors = driver.communicate(timeout=SECONDS)[1]
    assert driver.returncode == 0, errors
    assert main(["reap"]) == 0
    found = outcomes(folders[1])
    assert found.keys() == reference.keys()
    for config_id, one in found.items():
        assert_same(one, reference[config_id])
