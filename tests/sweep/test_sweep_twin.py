"""A real sweep on the twin: trained, killed, resumed, reported, and the same as the one run in every number."""

import json
from pathlib import Path

import pytest
from studies import ROOT, check_whole, load, runs_of, start
from studies import no_process_left as no_process_left
from test_sweep_kills import wait_for

from rapid_lab import names
from rapid_lab.cli import main
from rapid_lab.method.budget import relation_account
from rapid_lab.tracking.door import client

SCRIPT = ROOT / "sweeps" / "budget_sweep.py"
QUICK = [
    "--data", "twin", "--epochs", "1", "--teacher-epochs", "1", "--relation-budget", "16,1000", "--method", "uniform",
    "--seeds", "1",
]  # fmt: skip


@pytest.mark.usefixtures("store")
def test_a_sweep_on_the_twin_is_killed_goes_on_and_reads_the_report_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAPID_CACHE_DIR", str(tmp_path / "cache"))
    driver = start(SCRIPT, *QUICK)
    wait_for(lambda: any(run.info.status == "RUNNING" for run in runs_of(names.STUDENT)), driver)
    driver.kill()
    driver.communicate()

    again = start(SCRIPT, *QUICK, "--report", "--json")
    output, errors = again.communicate()
    assert again.returncode == 0, errors
    assert "relation_budget 1000 is above the 496 pairs of a batch of 32: all are enumerated" in errors
    document = json.loads(output)
    check_whole(load("budget-agnews-twin"), num_trials=2, num_seeds=1)
    assert len(runs_of(names.TEACHER)) == 1
    for trial, budget in zip(document["trials"], (16, 496), strict=True):
        spent = relation_account(
            train_examples=1800,
            batch_size=32,
            relation_budget=budget,
            relation_cap=4096,
            pilot_fraction=0.1,
            epochs=1,
            warmup_epochs=2,
            max_residual_mix=0,
            has_uniform_proposal=True,
        )
        assert trial["relations"] == pytest.approx(float(spent.main))
        assert trial["report"]["total"] == 1000
    for run in runs_of(names.STUDENT):
        assert run.data.metrics[names.REPORT_TOTAL] == 1000
        assert run.data.tags[names.REPORT] == "once"

    best = client().download_artifacts(document["run_id"], "best.toml")
    assert main(["run", "--config", best, "--log-model", "false", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["is_reused"]
    (winner,) = [trial for trial in document["trials"] if trial["trial"] == document["best"]]
    assert [found["run_id"]] == winner["run_ids"]
