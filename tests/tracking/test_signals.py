"""A signal ends a run in order, and handlers are put back."""

import signal
import threading
from pathlib import Path

import pytest
from tracking.programs import start

from rapid_lab.tracking.signals import ENDING, Interrupted, ignore_termination, orderly_end

ENDED = """
import signal, sys, time
from rapid_lab.tracking.signals import Interrupted, orderly_end
with orderly_end():
    try:
        print("ready", flush=True)
        time.sleep(600)
    except Exception:
        print("swallowed")
    except Interrupted as end:
        signal.raise_signal(signal.SIGTERM)
        print("flushed, " + str(end), flush=True)
        raise
"""


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_lets_the_process_clean_up_and_gives_the_exit_code_of_shells(
    number: signal.Signals, tmp_path: Path
) -> None:
    process = start(ENDED, tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.communicate(timeout=30) == (f"flushed, ended by {number.name}\n", "")
    assert process.returncode == 128 + number


@pytest.mark.parametrize("number", ENDING)
def test_handlers_are_put_back(number: signal.Signals) -> None:
    before = [signal.getsignal(each) for each in ENDING]
    with pytest.raises(Interrupted, match=number.name), orderly_end():
        signal.raise_signal(number)
    assert [signal.getsignal(each) for each in ENDING] == before


def test_a_second_interrupt_from_the_keyboard_means_it() -> None:
    with orderly_end():
        for _ in range(2):
            with pytest.raises(Interrupted, match="SIGINT"):
                signal.raise_signal(signal.SIGINT)


def test_what_is_ending_already_is_not_ended_by_sigterm() -> None:
    before = [signal.getsignal(each) for each in ENDING]
    with orderly_end():
        ignore_termination()
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Interrupted, match="SIGINT"):
            signal.raise_signal(signal.SIGINT)
    assert [signal.getsignal(each) for each in ENDING] == before


def test_a_block_within_another_leaves_sigterm_ignored_while_the_outer_one_cleans_up() -> None:
    with orderly_end():
        with pytest.raises(Interrupted), orderly_end():
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # of a launcher that repeats it: nothing happens


def test_in_another_thread_nothing_changes() -> None:
    before = [signal.getsignal(each) for each in ENDING]
    seen: list[object] = []

    def work() -> None:
        with orderly_end():
            seen.extend(signal.getsignal(each) for each in ENDING)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == before
