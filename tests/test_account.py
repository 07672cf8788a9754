"""`rapid-lab account`: the relation table as a table and as JSON."""

import json
import subprocess
import sys

import pytest

from rapid_lab.cli import main
from rapid_lab.comparison.published import published
from rapid_lab.objectives import METHODS, PAPER_METHODS, RAPID

ASKED = ["--train-examples", "108000", "--batch-size", "32", "--relation-budget", "256", "--epochs", "10"]


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert main(["account", *arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


def test_the_question_of_the_specification_is_answered(capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(capsys, "--method", "rapid", *ASKED)
    assert (document["main"], document["pilot"], document["unique_main"]) == (235.2, 20.8, None)
    assert document["unique_pilot"] == pytest.approx(20.285, abs=0.003)


def test_uniform_draws_have_their_expected_unique_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(capsys, "--method", "gated", *ASKED)
    assert document["unique_main"] == document["unique_union"] == pytest.approx(200.128, abs=5e-4)


def test_powers_of_zero_make_the_static_proposal_uniform(capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(capsys, "--method", "static", "--entropy-power", "0", "--reliability-power", "0", *ASKED)
    assert document["unique_main"] == pytest.approx(200.128, abs=5e-4)


@pytest.mark.parametrize("method", ["student_ce", "kd"])
def test_methods_without_relations_spend_none(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(capsys, "--method", method, *ASKED)
    assert [document[name] for name in ("main", "pilot", "unique_main", "unique_pilot", "unique_union")] == [0] * 5


def test_the_exact_arm_spends_every_pair_whatever_the_budget_and_the_cap(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = answer(capsys, "--method", "exact", "--relation-cap", "10", *ASKED)
    assert [document[name] for name in ("main", "pilot", "unique_main")] == [496, 0, 496]


def test_without_options_it_is_the_table_of_the_paper(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["account"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("  ")[0] == "data"
    assert lines[7].split() == ["agnews", "RAPID", "235.200", "20.800", "-", "20.284", "-"]
    assert lines[13].split() == ["sst2", "RAPID", "59.177", "4.797", "-", "4.773", "-"]
    rows = answer(capsys)["rows"]
    assert isinstance(rows, list)
    assert len(rows) == 12


def test_the_papers_methods_are_those_it_has_published_whatever_else_there_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(METHODS, "someone_elses", RAPID)
    rows = answer(capsys)["rows"]
    assert isinstance(rows, list)
    assert tuple(published()["accuracy_by_seed"]["agnews"]) == PAPER_METHODS
    assert [row["method"] for row in rows] == [*PAPER_METHODS, *PAPER_METHODS]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["account", "--epochs", "0"], "epochs must be an integer in [1, 1e+09], got 0: training takes"),
        (["account", "--epochs", "ten"], "epochs must be an integer in [1, 1e+09], got 'ten'"),
        (["account", "--pilot-fraction", "nan"], "pilot_fraction must be in [0, 1], got nan"),
        (["account", "--method", "rapdi"], "got 'rapdi': did you mean rapid?"),
        (["account", "--dataset", "imdb"], "dataset must be one of agnews, sst2, got 'imdb'"),
        (["account", "--train-examples", "1000"], "relation_budget must be given, got nothing"),
        (["account", "--train-examples", "1" * 400], "train_examples must be an integer in [1, 1e+09]"),
        (["account", "--epoch", "3"], "epoch is no setting: did you mean epochs"),
        (["acount"], "invalid choice: 'acount'"),
        ([], "the following arguments are required: command"),
    ],
)
def test_bad_input_exits_with_2_and_one_message(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("rapid-lab: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_the_module_is_the_command() -> None:
    """As a user calls it, in a process of its own."""
    command = [sys.executable, "-m", "rapid_lab", "account", "--method", "rapid", *ASKED, "--json"]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(finished.stdout)["main"] == 235.2
    assert finished.stderr == ""
