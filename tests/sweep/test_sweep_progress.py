"""What a person sees of a study: a bar over its trials on a terminal, plain lines elsewhere."""

import os
import pty
import sys

import pytest

from rapid_lab.sweep.progress import Progress
from rapid_lab.sweep.study import Outlook


def outlook(finished: int, failed: int = 0) -> Outlook:
    return Outlook(finished=finished, failed=failed, running=1, waiting=0, target=3, is_grid=True)


def shown_on(leader: int) -> str:
    """All that was written to a terminal whose other end is closed."""
    shown = b""
    while True:
        try:
            part = os.read(leader, 4096)
        except OSError:
            break
        if not part:
            break
        shown += part
    os.close(leader)
    return shown.decode()


def test_the_bar_counts_the_trials_that_are_done_below_the_lines_and_gives_the_terminal_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leader, follower = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("rapid_lab.sweep.progress.REFRESH_SECONDS", 0.01)
    so_far = [outlook(0)]
    with os.fdopen(follower, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        progress = Progress()
        with progress.over(lambda: so_far[-1]):
            progress.say("trial 0 done: [bold]gate_strength 0.5")
            so_far.append(outlook(2, failed=1))
        progress.say("the study is over")
    text = shown_on(leader)
    assert "0/3" in text
    assert "3/3" in text
    assert "trial 0 done: [bold]gate_strength 0.5" in text  # a name is no markup
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l")  # the cursor is shown again
    assert text.endswith("the study is over\r\n")


def test_elsewhere_there_are_lines_and_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    with progress.over(lambda: outlook(0)):
        progress.say("trial 0 done")
    assert capsys.readouterr().err == "trial 0 done\n"
