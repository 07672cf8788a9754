"""The queues have the answers of the textbooks, and docs/scaling.md the numbers of its formulas."""

import math
import random

import pytest
from queue_simulator import Station, rate, simulate
from scaling import (
    LARGE,
    PARAMETERS,
    TABLES,
    WIRE_BYTES,
    example_bytes,
    gathered,
    large_seconds,
    largest_share,
    peak_megabytes,
    rendered,
    rows,
    steps,
)

from rapid_lab.objectives import PAPER_METHODS
from rapid_lab.tracking.provenance import ROOT

PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("workers", "trials", "rounds"), [(1, 7, 7), (3, 7, 3), (8, 8, 1), (8, 9, 2), (10, 3, 1)])
def test_without_queues_a_study_takes_as_many_rounds_as_trials_fill(workers: int, trials: int, rounds: int) -> None:
    course = simulate(workers=workers, trials=trials, lock=0.0, own=lambda _: 5.0)
    assert course.makespan == 5.0 * rounds
    assert len(course.ends) == trials


def test_a_lock_that_is_wanted_more_often_than_it_can_be_had_gives_one_trial_for_each_time_it_is_held() -> None:
    """Four workers, who want it for 1 s every 1 + 2 s: all of them together never leave it free."""
    course = simulate(workers=4, trials=20, lock=1.0, own=lambda _: 2.0)
    assert course.makespan == 20 * 1.0 + 2.0
    assert rate(course.ends) == pytest.approx(1.0)
    assert course.lock_share == pytest.approx(20 / 22)
    # The first four come together and wait 0, 1, 2 and 3 s; later each comes 1 s before it is free.
    assert course.lock_wait == pytest.approx((0 + 1 + 2 + 3 + 16 * 1) / 20)


def test_workers_that_just_fill_the_lock_wait_for_it_once_and_never_again() -> None:
    course = simulate(workers=4, trials=40, lock=1.0, own=lambda _: 3.0)
    assert course.lock_wait * 40 == pytest.approx(0 + 1 + 2 + 3)
    assert rate(course.ends) == pytest.approx(4 / (1.0 + 3.0))


def test_a_store_with_two_servers_serves_twice_as_many() -> None:
    one = simulate(workers=8, trials=80, lock=0.0, own=lambda _: 1.0, store=1.0)
    two = simulate(workers=8, trials=80, lock=0.0, own=lambda _: 1.0, store=1.0, servers=2)
    assert rate(one.ends) == pytest.approx(1.0)
    assert two.makespan == 1.0 + 80 / 2
    assert one.store_share == pytest.approx(80 / 81)


def mean_wait(load: float, *, servers: int, is_constant: bool) -> float:
    """Of 300,000 who come at random to a station; the seed is fixed, and errs by less than 3 %."""
    chance, station, now, count = random.Random(20261118), Station(servers), 0.0, 300_000
    for _ in range(count):
        now += chance.expovariate(load * servers)
        station.serve(now, 1.0 if is_constant else chance.expovariate(1.0))
    return station.waited / count


@pytest.mark.parametrize("load", [0.3, 0.5, 0.8])
def test_the_wait_is_that_of_pollaczek_and_khinchine(load: float) -> None:
    """M/D/1: rho / (2 (1 - rho)) services; M/M/1: twice that."""
    assert mean_wait(load, servers=1, is_constant=True) == pytest.approx(load / (2 * (1 - load)), rel=0.03)
    assert mean_wait(load, servers=1, is_constant=False) == pytest.approx(load / (1 - load), rel=0.03)


def test_the_wait_at_two_servers_is_that_of_erlang() -> None:
    """M/M/2: rho^2 / (1 - rho^2) services."""
    assert mean_wait(0.7, servers=2, is_constant=False) == pytest.approx(0.49 / 0.51, rel=0.03)


@pytest.mark.parametrize("name", TABLES)
def test_the_page_has_the_tables_its_formulas_give(name: str) -> None:
    assert rendered(name) in PAGE


def test_the_sizes_on_the_page_follow_from_the_models() -> None:
    assert (steps("agnews"), steps("sst2")) == (33_750, 18_950)
    assert PARAMETERS == 52_780_804
    # Each of two ranks lacks half of the outputs, and nothing goes back; the gradient is half scattered, half gathered.
    assert gathered(32, 2) == (16 * 772 * 4, 52_780_804 * 4)
    assert largest_share() == 214
    assert math.isclose(example_bytes() / 2**20, 41.3, abs_tol=0.05)
    for number in ("52.8 million", "41 MiB", "214 examples", "307 GPUs"):
        assert number in PAGE
    assert math.ceil(65_536 / largest_share()) == 307


def test_the_rows_and_the_memory_on_the_page_are_those_of_the_formulas() -> None:
    assert rows(steps("agnews", LARGE), seconds=0) == 20 * 13 + 10 * 3 + 9 == 299
    assert large_seconds(8) == pytest.approx(10 * 3375 / 8 * 60 * 62.4 / 33_750 + 8 * 10.3e9 / 10e9, rel=1e-3)
    peaks = {
        data: sorted(peak_megabytes(data, method) for method in PAPER_METHODS if method != "student_ce")
        for data in ("agnews", "sst2")
    }
    assert [(low, high) for low, *_, high in peaks.values()] == [(2127, 2783), (1461, 1462)]
    assert 500 * WIRE_BYTES == 47_000
    for words in ("299, and 2 every 10 s", "2,127 to 2,783 MB", "1,461 to 1,462 MB", "47 kB"):
        assert words in PAGE
