"""Sweeps over a real PostgreSQL: workers that know nothing of each other but the database."""

import os
import signal
from pathlib import Path

import postgres
import pytest
from optuna.trial import TrialState
from postgres import server as server
from studies import SCRIPT, check_whole, load, start
from studies import no_process_left as no_process_left
from test_sweep_kills import GRID, wait_for
from trivial_sweep import GRID as SWEEP
from trivial_sweep import LABORATORY

from rapid_lab.sweep.database import Postgres
from rapid_lab.sweep.driver import main

QUICK = ["--relation-budget", "16,32,64", "--seeds", "1,2"]


@pytest.fixture
def address(server: str, store: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """With its password where it belongs."""
    monkeypatch.setenv("PGPASSWORD", postgres.PASSWORD)
    return server


def running(address: str, study: str) -> list[dict[str, int]]:
    place = Postgres(address, study)
    storage = place.existing()
    is_there = storage is not None and study in [found.study_name for found in storage.get_all_studies()]
    place.leave()
    if not is_there:
        return []
    trials = load(study, address).get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    return [trial.user_attrs["owner"] for trial in trials if "owner" in trial.user_attrs]


def test_of_two_equal_workers_one_is_killed_and_the_other_finishes_for_both(address: str) -> None:
    """The tables are made by whoever comes first; the dead one is known by its heartbeat."""
    command = ["--storage", address, *QUICK, "--worker"]
    workers = [start(SCRIPT, *command, TRIVIAL_SECONDS="1") for _ in range(2)]
    wait_for(lambda: len(running(address, GRID)) == 2, workers[0])
    victim, survivor = workers
    os.kill(victim.pid, signal.SIGKILL)
    output, errors = survivor.communicate()
    assert survivor.returncode == 0, errors
    assert "rapid" in output
    assert postgres.PASSWORD not in output + errors
    victim.communicate()
    study = load(GRID, address)
    check_whole(study, num_trials=6, num_seeds=2)
    (dead,) = study.get_trials(deepcopy=False, states=(TrialState.FAIL,))
    assert dead.user_attrs["owner"]["pid"] == victim.pid


def test_a_study_in_the_database_is_refused_under_another_plan_and_left_as_it_was(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--storage", address, "--study", "refused", "--relation-budget", "16", "--seeds", "1"]
    assert main(SWEEP, [*command, "--json"], LABORATORY) == 0
    before = load("refused", address).trials
    assert main(SWEEP, [*command, "--dataset", "sst2"], LABORATORY) == 2
    assert "dataset is agnews-trivial, not sst2-trivial" in capsys.readouterr().err
    assert load("refused", address).trials == before


def test_a_plan_printed_makes_no_tables(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    place = Postgres(address.replace("/postgres", "/template1"), "planned")
    command = ["--storage", address.replace("/postgres", "/template1"), "--dry-run", "--json"]
    assert main(SWEEP, command, LABORATORY) == 0
    assert '"trials": 8' in capsys.readouterr().out
    assert place.existing() is None


@pytest.mark.usefixtures("store")
def test_a_wrong_password_is_told_without_it(
    server: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = server.replace("sweeper@", "sweeper:guess-again@")
    monkeypatch.setenv("RAPID_STORAGE", wrong)
    assert main(SWEEP, ["--seeds", "1"], LABORATORY) == 2
    errors = capsys.readouterr().err
    assert "storage must be a database that answers" in errors
    assert "guess-again" not in errors
    assert main(SWEEP, ["--seeds", "1", "--storage", wrong], LABORATORY) == 2
    errors = capsys.readouterr().err
    assert "no password on the command line" in errors
    assert "guess-again" not in errors
