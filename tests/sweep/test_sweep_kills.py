"""A sweep that is killed, at any moment, goes on: nothing is lost, nothing is done twice."""

import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from killing import killed_or_done
from optuna.trial import FrozenTrial, TrialState
from studies import SCRIPT, check_whole, load, runs_of, start
from studies import no_process_left as no_process_left

from rapid_lab import names

GRID = "trivial-agnews-trivial"
SMALL = ["--relation-budget", "16,all", "--method", "rapid"]


def test_after_a_kill_at_any_write_the_same_command_finishes_every_trial_once(store: Path) -> None:
    """Every fifth write of the journal is the last one in turn; whoever goes on is killed too, and then one is not."""
    hows = itertools.cycle(("before", "after", "within"))
    for moment in itertools.count(1, 5):
        study, how = f"killed-{moment}", next(hows)
        command = [*SMALL, "--study", study, "--seeds", str(moment)]
        if killed_or_done(store.parent, command, moment, how) == 0:
            break
        assert killed_or_done(store.parent, command, 4, how) in (0, -signal.SIGKILL)
        assert killed_or_done(store.parent, command) == 0
        check_whole(load(study), num_trials=2, num_seeds=1)
    assert moment > 15


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Until something has happened, or the process that should make it happen has ended."""
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)


def children(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children()


def running(study: str) -> list[FrozenTrial]:
    """Trials that have an owner and are under way."""
    try:
        trials = load(study).get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    except KeyError:  # which has not begun
        return []
    return [trial for trial in trials if "owner" in trial.user_attrs]


@pytest.mark.soak
def test_of_two_workers_one_is_killed_and_the_other_finishes_for_both(store: Path) -> None:
    command = ["--seeds", "1,2", "--workers", "2"]
    driver = start(SCRIPT, *command, TRIVIAL_SECONDS="0.5")
    wait_for(lambda: len(running(GRID)) == 2, driver)
    victim = running(GRID)[0].user_attrs["owner"]
    assert victim["pid"] in [child.pid for child in children(driver)]
    os.kill(victim["pid"], signal.SIGKILL)
    output, errors = driver.communicate()
    assert driver.returncode == 0, errors
    assert "a worker ended with code -9" in errors
    assert "rapid" in output
    study = load(GRID)
    check_whole(study, num_trials=8, num_seeds=2)
    (dead,) = study.get_trials(deepcopy=False, states=(TrialState.FAIL,))
    (heir,) = [trial for trial in study.get_trials(deepcopy=False) if trial.user_attrs.get("earlier") == [dead.number]]
    assert heir.params == dead.params
    assert heir.state == TrialState.COMPLETE


def test_workers_end_in_order_when_their_driver_is_killed_and_the_same_command_goes_on(store: Path) -> None:
    command = ["--seeds", "1", "--workers", "2"]
    driver = start(SCRIPT, *command, TRIVIAL_SECONDS="2")
    wait_for(lambda: len(running(GRID)) == 2, driver)
    workers = children(driver)
    driver.kill()
    assert psutil.wait_procs(workers, timeout=60)[1] == []
    assert driver.wait() == -signal.SIGKILL
    assert running(GRID) == []
    again = start(SCRIPT, *command)
    assert again.wait() == 0, again.communicate()
    check_whole(load(GRID), num_trials=8, num_seeds=1)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.soak)])
def test_a_signal_ends_a_sweep_in_order_and_the_same_command_goes_on(store: Path, number: int) -> None:
    driver = start(SCRIPT, "--seeds", "1", TRIVIAL_SECONDS="1")
    wait_for(lambda: bool(running(GRID)), driver)
    driver.send_signal(number)
    assert driver.wait() == 128 + number
    assert "the same command goes on" in driver.communicate()[1]
    assert {run.info.status for kind in (names.STUDY, names.TRIAL) for run in runs_of(kind)} <= {"KILLED", "FINISHED"}
    assert load(GRID).get_trials(deepcopy=False, states=(TrialState.RUNNING,)) == []
    again = start(SCRIPT, "--seeds", "1")
    assert again.wait() == 0, again.communicate()
    check_whole(load(GRID), num_trials=8, num_seeds=1)
