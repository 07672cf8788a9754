"""Pruning by epochs: the first seed of a trial is held against the medians of the others, epoch by epoch."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from optuna.trial import TrialState
from studies import load, runs_of
from trivial_sweep import LABORATORY, SEARCH

from rapid_lab import names
from rapid_lab.config import Value
from rapid_lab.experiment.store import current_experiment
from rapid_lab.sweep.driver import main
from rapid_lab.sweep.trial import SeedResult
from rapid_lab.sweep.watching import Pruned, SeedWatcher
from rapid_lab.tracking.runs import start_run

EPOCHS = 5


def evaluate(settings: Mapping[str, Value], parent_run_id: str, watcher: SeedWatcher) -> SeedResult | str:
    """As the run of a seed; the seventh trial is bad. Who is pruned ends without a word."""
    is_bad = len(runs_of(names.TRIAL)) == 7
    config_id = f"{settings['gate_strength']} {settings['seed']}"
    tags = {names.KIND: names.STUDENT, names.CONFIG_ID: config_id}
    run = start_run(current_experiment(), "epochs", tags, parent_run_id=parent_run_id)
    quality = 0.1 if is_bad else 0.9
    records = [{"epoch": epoch, "accuracy": quality + epoch / 100, "nll": 1.0} for epoch in range(1, EPOCHS + 1)]
    try:
        # Two epochs of an earlier part, then the others.
        watcher.begin("student", EPOCHS, torch.empty(0, 13), records[:2])
        for record in records[2:]:
            watcher.epoch(record)
    except Pruned:
        run.finish("KILLED")
        return "its process ended without a word"
    run.finish("FINISHED")
    return SeedResult(run.run_id, config_id, quality, 1.0, 64.0, 0.0, 1.0)


@pytest.mark.usefixtures("store")
def test_after_five_trials_the_worst_is_given_up_in_the_first_seed(capsys: pytest.CaptureFixture[str]) -> None:
    laboratory = replace(LABORATORY, evaluate=evaluate)
    words = ["--seeds", "1,2", "--prune", "epochs", "--trials", "7", "--max-residual-mix", "0.5", "--json"]
    assert main(SEARCH, words, laboratory) == 0
    document = json.loads(capsys.readouterr().out)
    assert [trial["state"] for trial in document["trials"]] == ["COMPLETE"] * 6 + ["PRUNED"]
    (pruned,) = load("search-agnews-trivial").get_trials(states=(TrialState.PRUNED,))
    assert pruned.intermediate_values == pytest.approx({1: 0.11, 2: 0.12})  # of five: the first tells little
    assert document["trials"][6]["accuracy"] == pytest.approx(0.12)
    (run,) = [run for run in runs_of(names.STUDENT) if run.info.status == "KILLED"]
    assert run.data.tags[names.PRUNED] == "true"
    assert run.data.tags[names.TRIAL_NUMBER] == "6"
