"""Sweeps as commands in this process or in their own, and what must hold of a study when it is done."""

import importlib.util
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import psutil
import pytest
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from rapid_lab import names
from rapid_lab.sweep.space import Sweep
from rapid_lab.sweep.storage import make_place
from rapid_lab.tracking.door import client

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("trivial_sweep.py")


def sweep_of(name: str) -> Sweep:
    """The sweep of a file in `sweeps/`."""
    path = ROOT / "sweeps" / f"{name}_sweep.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Sweep = module.SWEEP
    return found


STARTED: list[subprocess.Popen[str]] = []


def start(script: Path, *words: str, **environment: str) -> subprocess.Popen[str]:
    """A sweep in a process of its own, in the current folder; the fixture `no_process_left` ends it."""
    process = subprocess.Popen(
        [sys.executable, str(script), *words],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    STARTED.append(process)
    return process


@pytest.fixture(autouse=True)
def no_process_left() -> Iterator[None]:
    """Kill what a failed test has left behind, with all its children; for modules that import this."""
    yield
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
        process.communicate()


def load(study: str, storage: str = "rapid-sweeps") -> Study:
    """A copy of it as it is now, in memory."""
    place = make_place(storage, study)
    copy = optuna.storages.InMemoryStorage()
    optuna.copy_study(from_study_name=study, from_storage=place.open(), to_storage=copy)
    place.leave()
    return optuna.load_study(study_name=study, storage=copy)


def finished(study: Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


def runs_of(kind: str) -> list[Any]:
    runs = client().search_runs(["0"], f"tags.`{names.KIND}` = '{kind}'", max_results=1000)
    return list(runs)


def check_whole(study: Study, *, num_trials: int, num_seeds: int) -> None:
    """Every planned trial was finished exactly once, and the tracking store has it, no more and nothing under way."""
    trials = study.get_trials(deepcopy=False)
    assert {trial.state for trial in trials} <= {TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL}
    done = finished(study)
    assert Counter(trial.user_attrs.get("point", trial.number) for trial in done) == {
        trial.user_attrs.get("point", trial.number): 1 for trial in done
    }
    assert len(done) == num_trials
    everything = client().search_runs(["0"], max_results=1000)
    assert {run.info.status for run in everything} <= {"FINISHED", "KILLED", "FAILED"}
    (parent,) = [run for run in runs_of(names.STUDY) if run.data.tags[names.STUDY_NAME] == study.study_name]
    own = [run for run in runs_of(names.TRIAL) if run.data.tags[names.STUDY_NAME] == study.study_name]
    numbers = sorted(int(run.data.tags[names.TRIAL_NUMBER]) for run in own)
    assert numbers == sorted(trial.number for trial in done)
    assert {run.data.tags[names.PARENT] for run in own} == {parent.info.run_id}
    students = [run for run in runs_of(names.STUDENT) if run.data.tags.get(names.STUDY_NAME) == study.study_name]
    assert len(students) == num_trials * num_seeds
    assert {run.data.tags[names.PARENT] for run in students} == {run.info.run_id for run in own}
    assert len({run.data.tags[names.CONFIG_ID] for run in students}) == len(students)
