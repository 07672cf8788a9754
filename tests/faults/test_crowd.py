"""Processes that come together to a store that is not there yet and a teacher that nobody has trained."""

from pathlib import Path

import pytest
from faults.children import TINY, begin, ended, store_in
from faults.outcomes import assert_whole, runs
from tracking.programs import MLFLOW_WARNINGS

from rapid_lab import names

pytestmark = pytest.mark.filterwarnings(MLFLOW_WARNINGS)


COUNT = 8


@pytest.mark.soak
def test_of_eight_processes_that_start_on_nothing_one_trains_the_teacher_and_all_finish(tmp_path: Path) -> None:
    processes = [begin(tmp_path, ["run", *TINY, "--seed", str(seed)]) for seed in range(COUNT)]
    ends = [ended(process, tmp_path) for process in processes]
    assert [end.code for end in ends] == [0] * COUNT, [end.err for end in ends]
    assert "Traceback" not in "".join(end.err for end in ends)
    # The teacher has one epoch here, the students have three.
    assert sum(end.err.count(" epoch 1/1 ") for end in ends) == 1
    assert_whole(tmp_path)
    with store_in(tmp_path):
        assert len(runs(names.STUDENT)) == COUNT
    assert len(list((tmp_path / "cache" / "teachers").glob("*/signals.safetensors"))) == 1
