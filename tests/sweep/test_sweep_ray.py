"""Workers on a Ray cluster of this machine: `pytest -m ray`."""

import os
import secrets
import signal
from pathlib import Path

import psutil
import pytest
from studies import SCRIPT, check_whole, load, start, sweep_of
from studies import no_process_left as no_process_left
from test_sweep_kills import GRID, running, wait_for
from trivial_sweep import LABORATORY

from rapid_lab.sweep.driver import main

pytestmark = pytest.mark.ray


@pytest.fixture
def cluster(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray may start one on this machine."""
    pytest.importorskip("ray", reason="ray is not installed: pip install 'rapid-lab[ray]'")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.usefixtures("cluster")
@pytest.mark.soak
def test_two_workers_on_a_cluster_finish_every_trial_once_though_one_is_killed() -> None:
    words = ["--engine", "ray", "--workers", "2", "--seeds", "1", "--relation-budget", "16,32,64"]
    driver = start(SCRIPT, *words, TRIVIAL_SECONDS="1", RAY_OVERRIDE_RESOURCES='{"CPU": 2}')
    wait_for(lambda: len(running(GRID)) == 2, driver)
    victim = psutil.Process(running(GRID)[0].user_attrs["owner"]["pid"])
    task = victim.parent()
    assert task is not None
    # The process that Ray gave the task: as a node that is lost takes its workers with it.
    os.kill(task.pid, signal.SIGKILL)
    output, errors = driver.communicate()
    assert driver.returncode == 0, errors
    assert "rapid" in output
    check_whole(load(GRID), num_trials=6, num_seeds=1)


@pytest.mark.soak
@pytest.mark.usefixtures("cluster")
def test_a_node_that_is_lost_takes_its_seat_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        second = nodes.add_node(num_cpus=1)
        words = ["--engine", "ray", "--workers", "2", "--seeds", "1", "--relation-budget", "16,32,64"]
        driver = start(SCRIPT, *words, TRIVIAL_SECONDS="1", RAY_ADDRESS=nodes.address)
        wait_for(lambda: len(running(GRID)) == 2, driver)
        nodes.remove_node(second, allow_graceful=False)
        _, errors = driver.communicate()
        assert driver.returncode == 0, errors
        check_whole(load(GRID), num_trials=6, num_seeds=1)
    finally:
        nodes.shutdown()


@pytest.mark.usefixtures("cluster")
def test_a_cluster_that_does_not_answer_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    assert main(sweep_of("gate"), ["--engine", "ray"], LABORATORY) == 2
    assert "engine must be a cluster that answers, got ray at '127.0.0.1:1'" in capsys.readouterr().err
