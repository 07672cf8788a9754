"""The plan of each driver: what it tries, in which order, and what it costs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from studies import sweep_of
from trivial_sweep import LABORATORY

from rapid_lab.method.budget import relation_account
from rapid_lab.sweep.driver import main

Plan = Callable[..., dict[str, Any]]


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Plan:
    """What `--dry-run --json` prints, on a training split of 1800 texts; nothing may be made by it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    def printed(name: str, *words: str) -> dict[str, Any]:
        assert main(sweep_of(name), [*words, "--dry-run", "--json"], LABORATORY) == 0
        assert list(tmp_path.iterdir()) == []
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    return printed


def test_the_budget_sweep_is_the_grid_of_budgets_and_relational_methods(plan: Plan) -> None:
    document = plan("budget")
    methods = ["uniform", "gated", "static", "rapid"]
    points = [(point["relation_budget"], point["method"]) for point in document["points"]]
    assert points[:4] == [(256, method) for method in methods]  # the paper's budget first
    assert set(points) == {(budget, method) for budget in (16, 32, 64, 128, 256, "all") for method in methods}
    assert (document["trials"], document["runs"]) == (24, 72)
    assert document["notes"] == []


def test_the_papers_budget_for_sst2_comes_first_on_sst2(plan: Plan) -> None:
    assert plan("budget", "--dataset", "sst2")["points"][0]["relation_budget"] == 64


def test_the_relation_cost_of_a_grid_is_exact(plan: Plan) -> None:
    """By the closed form of the paper's relation table: 57 batches an epoch, the last of 8 texts."""
    document = plan("budget", "--epochs", "4", "--seeds", "1,2")
    means = [
        relation_account(
            train_examples=1800,
            batch_size=32,
            relation_budget=budget,
            relation_cap=4096,
            pilot_fraction=0.1,
            epochs=4,
            warmup_epochs=2,
            max_residual_mix=mix,
            has_uniform_proposal=False,
        )
        for budget in (16, 32, 64, 128, 256, 496)
        for mix in (0, 0, 0, 0.5)
    ]
    spent = sum((mean.main + mean.pilot) * 57 * 4 * 2 for mean in means)
    assert document["relations"] == {"lowest": spent, "highest": spent, "is_exact": True}
    assert document["seconds"] is None


def test_batch_sizes_are_crossed_with_budgets_and_budgets_above_all_pairs_are_said(plan: Plan) -> None:
    document = plan("budget", "--batch-size", "16,32", "--relation-budget", "64,128,all", "--method", "rapid")
    sizes = [(point["batch_size"], point["relation_budget"]) for point in document["points"]]
    assert set(sizes) == {(size, budget) for size in (16, 32) for budget in (64, 128, "all")}
    assert "relation_budget 128 is above the 120 pairs of a batch of 16: all are enumerated" in document["notes"]


def test_every_budget_of_a_list_that_is_above_all_pairs_is_said_in_a_search_too(plan: Plan) -> None:
    notes = plan("joint", "--relation-budget", "64,512,all,1024")["notes"]
    assert [note for note in notes if "enumerated" in note] == [
        "relation_budget 512 is above the 496 pairs of a batch of 32: all are enumerated",
        "relation_budget 1024 is above the 496 pairs of a batch of 32: all are enumerated",
    ]


def test_all_pairs_of_a_large_batch_are_all_pairs(plan: Plan) -> None:
    """The cap would keep 4096 of 8128; 14 full batches and one of 8, twice."""
    words = ["--batch-size", "128", "--relation-budget", "all", "--method", "gated", "--epochs", "2", "--seeds", "1"]
    document = plan("budget", *words)
    assert document["relations"]["highest"] == 2 * (14 * 8128 + 28)


def test_the_gate_sweep_begins_with_the_paper_and_the_exact_ends(plan: Plan) -> None:
    document = plan("gate")
    assert document["points"] == [{"gate_strength": 0.5}, {"gate_strength": 0.0}, {"gate_strength": 1.0}]
    assert document["plan"]["settings"]["method"] == "rapid"
    assert plan("gate", "--gate-strength", "0.2:0.4")["points"] == [{"gate_strength": 0.2}, {"gate_strength": 0.4}]


def test_the_proposal_sweep_begins_with_the_paper_and_spends_the_same_whatever_it_tries(plan: Plan) -> None:
    document = plan("proposal")
    assert document["points"] == [
        {
            "max_residual_mix": 0.5,
            "pair_defense": 0.1,
            "endpoint_defense": 0.05,
            "pilot_fraction": 0.1,
            "entropy_power": 1.0,
            "reliability_power": 1.0,
        }
    ]
    assert document["relations"]["is_exact"]


def test_the_joint_sweep_has_two_objectives_and_a_cost_between_its_cheapest_and_its_dearest(plan: Plan) -> None:
    document = plan("joint", "--trials", "3", "--seeds", "1", "--epochs", "1")
    assert document["plan"]["objectives"] == ["accuracy", "relations"]
    assert document["points"] == [
        {"gate_strength": 0.5, "max_residual_mix": 0.5, "pair_defense": 0.1, "relation_budget": 256}
    ]
    last = {16: 16, 256: 28}
    cheap, dear = (56 * budget + last[budget] for budget in (16, 256))
    assert document["relations"] == {"lowest": dear + 2 * cheap, "highest": 3 * dear, "is_exact": False}


def test_a_setting_given_one_value_is_no_longer_searched(plan: Plan) -> None:
    document = plan("joint", "--relation-budget", "64")
    assert "relation_budget" not in document["plan"]["space"]
    assert document["plan"]["settings"]["relation_budget"] == 64


def test_every_sweep_explains_itself_and_shares_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    options = []
    for name in ("budget", "gate", "proposal", "joint"):
        with pytest.raises(SystemExit):
            main(sweep_of(name), ["--help"], LABORATORY)
        text = capsys.readouterr().out
        assert "?" in text  # the question
        options.append({word.strip(",[]") for word in text.split() if word.startswith("--")} - {"--method", "--report"})
    assert len(set.intersection(*options)) > 50
