"""Several workers on one study: what each draws, whose the study's run is, and how long they have."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow.entities import Run
from studies import SCRIPT, check_whole, load, runs_of, start
from studies import no_process_left as no_process_left
from test_sweep_kills import GRID, running, wait_for
from trivial_sweep import LABORATORY, SEARCH

from rapid_lab import names
from rapid_lab.cli import main
from rapid_lab.sweep.driver import Driver
from rapid_lab.sweep.worker import Work
from rapid_lab.tracking.processes import read_process


def study_run() -> Run:
    (run,) = runs_of(names.STUDY)
    return run


def owner_pid(run: Run) -> int:
    process = read_process(run.data.tags[names.PROCESS])
    assert process is not None
    return process.pid


def test_two_workers_that_begin_a_search_together_never_draw_the_same_point(store: Path) -> None:
    """The first five points are given, and the next ones drawn at random: from one seed they would be equal."""
    words = ["--seeds", "1"]
    drivers = [Driver(SEARCH, words, LABORATORY) for _ in range(2)]
    first, second = (worker(driver) for driver in drivers)
    for work, num_trials in ((first, 1), (second, 2), (first, 6), (second, 7), (first, 8), (second, 9)):
        replace(work, num_trials=num_trials).until_done()
    for driver in drivers:
        driver.place.leave()
    points = [tuple(trial.params.values()) for trial in load("search-agnews-trivial").trials]
    assert len(set(points)) == len(points) == 9


def worker(driver: Driver) -> Work:
    study, run = driver.open()
    return Work(
        plan=driver.plan,
        place=driver.place,
        study=study,
        parent_run_id=run.run_id,
        num_trials=None,
        deadline=math.inf,
        evaluate=LABORATORY.evaluate,
        say=print,
    )


@pytest.mark.soak
def test_a_studys_run_stays_with_its_driver_and_then_with_whoever_goes_on(store: Path) -> None:
    command = ["--seeds", "1", "--relation-budget", "16,32"]
    driver = start(SCRIPT, *command, "--workers", "2", TRIVIAL_SECONDS="120")
    wait_for(lambda: len(running(GRID)) == 2, driver)
    other = start(SCRIPT, *command, "--worker", TRIVIAL_SECONDS="2")
    wait_for(lambda: len(running(GRID)) == 3, other)
    assert owner_pid(study_run()) == driver.pid

    driver.kill()
    driver.wait()
    wait_for(lambda: [trial.user_attrs["owner"]["pid"] for trial in running(GRID)] == [other.pid], other)
    assert main(["reap", "--json"]) == 0
    assert study_run().info.status == "RUNNING"

    _, errors = other.communicate()
    assert other.returncode == 0, errors
    assert (study_run().info.status, owner_pid(study_run())) == ("FINISHED", other.pid)
    check_whole(load(GRID), num_trials=4, num_seeds=1)


@pytest.mark.soak
def test_the_time_of_workers_began_with_their_driver(store: Path) -> None:
    """Who spends it all before they begin."""
    command = ["--seeds", "1", "--workers", "2", "--timeout", "1", "--json"]
    driver = start(SCRIPT, *command, TRIVIAL_PREPARATION="1.5")
    output, errors = driver.communicate()
    assert driver.returncode == 0, errors
    assert json.loads(output)["finished"] == 0
