"""What a person sees: a bar on a terminal, lines elsewhere, and on resuming what is left, not what was."""

import os
import pickle
import pty
import subprocess
import sys
from typing import Any

import pytest
import torch

from rapid_lab.cli.progress import Bar, Lines, watcher
from rapid_lab.names import LOSS_TOTAL, RELATIONS_MAIN, RELATIONS_PILOT, STEP_METRICS


def rows(count: int) -> torch.Tensor:
    table = torch.zeros((count, len(STEP_METRICS)), dtype=torch.float64)
    table[:, STEP_METRICS.index(RELATIONS_MAIN)] = 9
    table[:, STEP_METRICS.index(RELATIONS_PILOT)] = 1
    table[:, STEP_METRICS.index(LOSS_TOTAL)] = 0.25
    return table


def ended(epoch: int, step: int) -> dict[str, Any]:
    return {"epoch": epoch, "step": step, "accuracy": 0.5}


def test_an_epoch_is_a_line_with_loss_accuracy_relations_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines("kd seed 1")
    lines.begin("student", 20, rows(0), [])
    lines.steps(1, rows(10))
    lines.epoch(ended(1, 10))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("kd seed 1 epoch 1/2  loss 0.250  selection 50.00 %  relations 100  ")
    assert shown.err.endswith(" s left\n")


def test_a_resumed_run_shows_where_it_goes_on_and_not_its_past_again(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines("kd")
    lines.begin("student", 30, rows(12), [ended(1, 10)])
    lines.steps(13, rows(8))
    lines.epoch(ended(2, 20))
    first, second = capsys.readouterr().err.splitlines()
    assert first == "kd goes on after step 12 of 30"
    assert second.startswith("kd epoch 2/3  loss 0.250  selection 50.00 %  relations 200  ")


def test_lines_are_for_files_and_bars_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(watcher("kd")) is Lines
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert type(watcher("kd")) is Bar
    assert pickle.loads(pickle.dumps(watcher("kd"))).label == "kd"  # noqa: S301


PROGRAM = """
import sys
sys.path[:0] = sys.argv[1:]
from test_progress import ended, rows
from rapid_lab.cli.progress import watcher
with watcher("kd [bold]seed 1") as bar:
    bar.begin("student", 20, rows(0), [])
    for first in (1, 6):
        bar.steps(first, rows(5))
    bar.progress.refresh()
    bar.epoch(ended(1, 10))
    raise KeyboardInterrupt
"""


def test_the_bar_on_a_terminal_moves_with_the_steps_and_gives_the_terminal_back() -> None:
    leader, follower = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "160"}
    command = [sys.executable, "-c", PROGRAM, *sys.path]
    process = subprocess.Popen(command, stderr=follower, stdout=subprocess.PIPE, env=environment)
    os.close(follower)
    shown = b""
    while True:
        try:
            part = os.read(leader, 4096)
        except OSError:  # the other end is closed
            break
        shown += part
        if not part:
            break
    os.close(leader)
    assert process.communicate(timeout=60)[0] == b""
    text = shown.decode()
    assert "loss 0.250  relations 100" in text  # while it moves
    assert "epoch 1/2  loss 0.250  selection 50.00 %  relations 100" in text  # the line it leaves
    assert "kd [bold]seed 1" in text  # a name is no markup
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l")  # the cursor is shown again
