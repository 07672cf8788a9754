"""A byte of a spool that is not what was written: no wrong value arrives, and what is missing is named."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tracking.programs import MLFLOW_WARNINGS

from rapid_lab import names
from rapid_lab.tracking.door import client
from rapid_lab.tracking.runs import start_run
from rapid_lab.tracking.spool import Spool
from rapid_lab.tracking.spool_flush import send_left_behind
from rapid_lab.tracking.store import experiment_id

pytestmark = pytest.mark.filterwarnings(MLFLOW_WARNINGS)

NUM_STEPS = 4
WRITTEN = {(step, step + 0.5) for step in range(NUM_STEPS)}


def left_by_a_run() -> tuple[str, Path]:
    """The run, and its spool: a few steps, an artifact, a tag, the end."""
    run = start_run(experiment_id("damage"), "a run", {})
    spool = Spool.create(run.run_id, client().tracking_uri, run.process)
    steps = [{"do": "metrics", "step": s, "values": {"loss/total": s + 0.5}, "time": 1000} for s in range(NUM_STEPS)]
    files = {"do": "files", "folder": None, **spool.keep({names.RESULT: '{"a": 1}'})}
    tags = {"do": "tags", "tags": {names.COMPLETE: "true"}}
    spool.append([*steps, files, tags, {"do": "status", "status": "FINISHED", "time": 5000}])
    spool.close()
    return run.run_id, spool.path


@pytest.mark.usefixtures("store")
@given(st.data())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_changed_byte_anywhere_in_a_spool_or_beside_it_is_named_and_never_sent(data: st.DataObject) -> None:
    run_id, path = left_by_a_run()
    kept = next(file for file in path.with_suffix(".files").rglob("*") if file.is_file())
    target = data.draw(st.sampled_from([path, path, path, kept]))
    content = bytearray(target.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    target.write_bytes(content)

    (sent,) = send_left_behind()
    assert sent.notes
    assert all(path.name in note for note in sent.notes)
    stored = {(metric.step, metric.value) for metric in client().get_metric_history(run_id, "loss/total")}
    assert stored <= WRITTEN
    run = client().get_run(run_id)
    assert run.data.tags.get(names.COMPLETE, "true") == "true"
    assert run.info.status in ("RUNNING", "FINISHED")
    is_sent = bool(client().list_artifacts(run_id))
    assert not is_sent or target != kept
