"""What a store did not take is kept on disk, whole, and arrives once."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tracking.programs import MLFLOW_WARNINGS, outcome, start
from tracking.spools import ENDLESS, num_entries, steps, unwritable, wait_until

from rapid_lab import names
from rapid_lab.checksums import decoded, encoded
from rapid_lab.cli import main
from rapid_lab.tracking.door import client
from rapid_lab.tracking.runs import TrackedRun, adopt_run, start_run
from rapid_lab.tracking.spool import ASIDE, Spool, left_behind, spool_folder
from rapid_lab.tracking.spool_flush import send_left_behind
from rapid_lab.tracking.store import experiment_id

pytestmark = pytest.mark.filterwarnings(MLFLOW_WARNINGS)

LIMITED = """
import resource, sys
from rapid_lab.tracking.errors import TrackingError
from rapid_lab.tracking.writer import MetricWriter
import time
class Away:
    tracking_uri = sys.argv[1]
    def log_batch(self, *a, **b):
        raise OSError("away")
writer = MetricWriter(sys.argv[2], client=Away())
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    for step in range(10**9):
        writer.put(step, {"loss/total": step + 0.5})
        time.sleep(0.0001)
except TrackingError as error:
    print(error)
try:
    writer.close()
except TrackingError as error:
    print(error)
"""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that does not answer is given up at once."""
    monkeypatch.setattr("rapid_lab.tracking.writer.STILL_SECONDS", 0.2)
    monkeypatch.setattr("rapid_lab.tracking.writer.PAUSES", (0.1,))


@pytest.fixture
def run(store: Path) -> TrackedRun:
    return start_run(experiment_id("spool"), "a run", {names.METHOD: "rapid"})


def left(run: TrackedRun, num_steps: int = 20) -> Path:
    """The spool of a run that ended while the store did not answer: metrics, a tag, two artifacts, the status."""
    # As the writer leaves it, without waiting for sqlite to give up.
    spool = Spool.create(run.run_id, client().tracking_uri, run.process)
    entries = [
        {"do": "metrics", "step": s, "values": {"loss/total": s + 0.5}, "time": 1000 + s} for s in range(num_steps)
    ]
    spool.append(entries)
    files = {"do": "files", "folder": None, **spool.keep({names.RESULT: '{"a": 1}', "tables/x.csv": "1,2"})}
    tags = {"do": "tags", "tags": {names.COMPLETE: "true"}}
    spool.append([files, tags, {"do": "status", "status": "FINISHED", "time": 5000}])
    spool.close()
    return spool.path


def test_a_line_is_known_by_its_checksum() -> None:
    line = encoded({"n": 1, "values": {"a": float("inf")}})
    assert line == b'6acdd037 {"n":1,"values":{"a":Infinity}}\n'
    assert decoded(line) == {"n": 1, "values": {"a": float("inf")}}
    for place in range(len(line)):
        for bit in range(8):
            flipped = line[:place] + bytes([line[place] ^ 1 << bit]) + line[place + 1 :]
            assert decoded(flipped) is None, (place, bit)
    assert all(decoded(line[:length]) is None for length in range(len(line)))


def test_what_a_run_logs_while_the_store_is_kept_by_somebody_arrives_with_a_flush(
    run: TrackedRun, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run.log_metrics(0, {"loss/total": 0.5})
    run.flush()
    with unwritable(store):
        for step in range(1, 100):
            run.log_metrics(step, {"loss/total": step + 0.5})
        (tmp_path / "steps.parquet").write_bytes(b"PAR1")
        run.log_artifact_file(tmp_path / "steps.parquet", "tables")
        run.log_artifact_text(names.RESULT, "{}")
        run.set_tags({names.COMPLETE: "true"})
        assert run.is_away
        run.finish("FINISHED")
    said = capsys.readouterr().err
    assert f"What run {run.run_id} has logged is kept: `rapid-lab flush` sends it" in said
    assert said.count("\n") == 1
    found = client().get_run(run.run_id)
    assert (found.info.status, names.COMPLETE in found.data.tags, steps(run.run_id)) == ("RUNNING", False, [0])
    (tmp_path / "steps.parquet").unlink()

    assert main(["flush", "--json"]) == 0
    (sent,) = json.loads(capsys.readouterr().out)["spools"]
    assert (sent["run_id"], sent["outcome"], sent["notes"]) == (run.run_id, "sent", [])
    found = client().get_run(run.run_id)
    assert (found.info.status, found.data.tags[names.COMPLETE]) == ("FINISHED", "true")
    assert steps(run.run_id) == list(range(100))
    paths = {item.path for item in client().list_artifacts(run.run_id)}
    assert paths == {names.RESULT, "tables"}
    assert [path.name for path in spool_folder().iterdir()] == ["flush.lock"]
    assert main(["flush"]) == 0
    assert capsys.readouterr().out == "Nothing is waiting to be sent.\n"


def test_inputs_and_tags_that_depend_on_the_parent_wait_for_the_store_too(run: TrackedRun) -> None:
    """The data of a run, and the names that a sweep gives to the run of a seed."""
    child = start_run(run.experiment_id, "a seed", {}, parent_run_id=run.run_id)
    data = {"name": "agnews", "digest": "1234", "source": "{}", "profile": '{"train": 1800}'}
    tags = {"parent": run.run_id, "child": {"is": "child"}, "other": {"is": "other"}}
    for one in (run, child):
        # As the writer leaves it, without waiting for sqlite to give up.
        spool = Spool.create(one.run_id, client().tracking_uri, one.process)
        spool.append([{"do": "input", **data}, {"do": "tags by parent", **tags}])
        spool.close()
    assert [sent.outcome for sent in send_left_behind()] == ["sent"] * 2
    for one, kind in ((run, "other"), (child, "child")):
        one.log_input(**data)
        one.set_tags_by_parent(run.run_id, {"is": "child"}, {"is": "other"})
        found = client().get_run(one.run_id)
        assert (found.data.tags["is"], found.info.status) == (kind, "RUNNING")
        assert found.inputs is not None
        (logged,) = found.inputs.dataset_inputs
        assert (logged.dataset.name, logged.dataset.profile) == ("agnews", '{"train": 1800}')


def test_an_ended_run_has_the_time_and_status_it_ended_with(run: TrackedRun) -> None:
    left(run)
    (sent,) = send_left_behind()
    assert (sent.outcome, sent.num_metrics, sent.num_operations) == ("sent", 20, 3)
    found = client().get_run(run.run_id)
    assert (found.info.status, found.info.end_time) == ("FINISHED", 5000)
    assert [(m.step, m.timestamp, m.value) for m in client().get_metric_history(run.run_id, "loss/total")] == [
        (step, 1000 + step, step + 0.5) for step in range(20)
    ]


def test_what_was_sent_before_a_kill_is_stored_once(run: TrackedRun) -> None:
    path = left(run)
    before = path.read_bytes(), {p: p.read_bytes() for p in path.with_suffix(".files").rglob("*") if p.is_file()}
    send_left_behind()
    # Killed after the store had it all, and before that was known here.
    orphan = path.with_name("gone.sent")
    orphan.write_bytes(b"")
    path.write_bytes(before[0])
    for name, content in before[1].items():
        name.parent.mkdir(parents=True, exist_ok=True)
        name.write_bytes(content)
    (sent,) = send_left_behind()
    assert (sent.outcome, sent.num_metrics) == ("sent", 20)
    assert steps(run.run_id) == list(range(20))
    assert not orphan.exists()


def test_a_clock_that_jumps_back_loses_nothing_and_changes_no_order(run: TrackedRun) -> None:
    for step in range(50):
        run.log_metrics(step, {"loss/total": step + 0.5}, timestamp_ms=10**12 - 10**9 * (step // 10))
    run.finish("FINISHED")
    assert steps(run.run_id) == list(range(50))
    assert client().get_run(run.run_id).data.metrics["loss/total"] == 49.5


def test_a_flipped_byte_is_named_left_out_and_noted_on_the_run(
    run: TrackedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    path = left(run)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[7] = lines[7].replace(b"6.5", b"6.4")
    path.write_bytes(b"".join(lines))
    assert main(["flush"]) == 2
    printed = capsys.readouterr()
    assert printed.err == f"rapid-lab: line 8 of {path.name} is damaged and was left out\n"
    assert "damaged, 19 metrics and 3 other entries stored" in printed.out
    assert steps(run.run_id) == [step for step in range(20) if step != 6]
    assert "line 8" in client().get_run(run.run_id).data.tags[names.DAMAGED]
    assert (spool_folder() / ASIDE / path.name).exists()
    assert main(["flush"]) == 0


def test_a_line_that_is_gone_and_a_changed_file_are_named(run: TrackedRun) -> None:
    path = left(run)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:5] + lines[6:]))
    next(path.with_suffix(".files").rglob("x.csv")).write_text("1,3", encoding="utf-8")
    (sent,) = send_left_behind()
    assert sent.notes == [
        f"what was before line 6 of {path.name} is damaged and was left out",
        f"tables/x.csv beside {path.name} is damaged and was left out",
    ]
    assert client().list_artifacts(run.run_id) == []


def test_a_header_that_is_damaged_sends_nothing(run: TrackedRun) -> None:
    path = left(run)
    content = path.read_bytes()
    path.write_bytes((b"1" if content.startswith(b"0") else b"0") + content[1:])
    (sent,) = send_left_behind()
    assert (sent.outcome, sent.run_id, sent.notes) == ("damaged", run.run_id, [f"line 1 of {path.name}"])
    assert steps(run.run_id) == []


def test_a_last_line_that_is_cut_off_is_named_and_not_used(run: TrackedRun) -> None:
    path = left(run)
    path.write_bytes(path.read_bytes()[:-9])
    (sent,) = send_left_behind()
    assert (sent.outcome, sent.notes) == ("sent", [f"line 24 of {path.name} is cut off and was left out"])
    assert client().get_run(run.run_id).info.status == "RUNNING"


def test_whoever_goes_on_with_a_run_has_no_hole_after_a_damaged_line(run: TrackedRun) -> None:
    path = left(run)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines).replace(lines[7], lines[7].replace(b"6.5", b"6.4")))
    resumed = adopt_run(run.run_id)
    assert resumed.next_step("loss/total") == 6
    for step in range(20):
        resumed.log_metrics(step, {"loss/total": step + 0.5})
    resumed.finish("FINISHED")
    assert steps(run.run_id) == list(range(20))


def test_a_run_that_another_process_has_taken_over_is_not_written_to(run: TrackedRun) -> None:
    path = left(run)
    client().set_tag(run.run_id, names.PROCESS, "elsewhere:1:2.00:3.00:4")
    (sent,) = send_left_behind()
    assert (sent.outcome, sent.notes) == ("superseded", ["it is now of process elsewhere:1:2.00:3.00:4"])
    assert (steps(run.run_id), (spool_folder() / ASIDE / path.name).exists()) == ([], True)


def test_a_run_that_is_deleted_is_refused_and_set_aside(run: TrackedRun) -> None:
    path = left(run)
    client().delete_run(run.run_id)
    (sent,) = send_left_behind()
    assert (sent.outcome, "deleted" in sent.notes[0]) == ("refused", True)
    assert (left_behind(), (spool_folder() / ASIDE / path.name).exists()) == ([], True)


def test_a_spool_of_another_store_waits_for_it(run: TrackedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    path = left(run)
    monkeypatch.setattr("rapid_lab.tracking.spool_flush.redact", lambda _: "sqlite:///other.db")
    (sent,) = send_left_behind()
    assert (sent.outcome, sent.notes) == ("elsewhere", [f"MLFLOW_TRACKING_URI was {client().tracking_uri}"])
    assert path.exists()


def test_a_spool_that_is_being_written_is_left_to_its_process(run: TrackedRun) -> None:
    run.log_metrics(0, {"loss/total": 0.5})
    run.flush()
    (sent,) = send_left_behind()
    assert (sent.outcome, sent.run_id) == ("live", run.run_id)
    run.finish("FINISHED")
    assert steps(run.run_id) == [0]


def test_two_flushes_at_once_store_everything_once(run: TrackedRun) -> None:
    left(run, num_steps=3000)
    with ThreadPoolExecutor(2) as pool:
        sent = [one for flush in [pool.submit(send_left_behind) for _ in range(2)] for one in flush.result()]
    assert [(one.outcome, one.num_metrics) for one in sent] == [("sent", 3000)]
    assert steps(run.run_id) == list(range(3000))


@pytest.mark.soak
def test_two_processes_that_flush_at_once_store_everything_once(run: TrackedRun) -> None:
    left(run, num_steps=3000)
    command = [sys.executable, "-m", "rapid_lab", "flush", "--json"]
    flushes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outcomes = [flush.communicate(timeout=120)[0] for flush in flushes]
    assert [flush.returncode for flush in flushes] == [0, 0]
    spools = [one for text in outcomes for one in json.loads(text)["spools"]]
    assert [(one["outcome"], one["num_metrics"]) for one in spools] == [("sent", 3000)]
    assert steps(run.run_id) == list(range(3000))


def test_a_disk_that_is_full_is_one_message_and_what_was_written_before_is_sent(run: TrackedRun) -> None:
    command = [sys.executable, "-c", LIMITED, client().tracking_uri, run.run_id]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    message = f"{spool_folder()} cannot be written to: File too large\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, message * 2, "")
    (path,) = left_behind()
    assert 19_000 < path.stat().st_size <= 20_000
    (sent,) = send_left_behind()
    assert (sent.outcome, sent.notes, sent.num_metrics > 150) == ("sent", [], True)
    assert steps(run.run_id) == list(range(sent.num_metrics))


def test_a_folder_that_cannot_be_written_to_is_named(run: TrackedRun, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file", encoding="utf-8")
    run.log_metrics(0, {"loss/total": 0.5})
    with pytest.raises(Exception, match=r"cache.spool cannot be written to: Not a directory"):
        run.flush()
    run.finish("FAILED")
    assert client().get_run(run.run_id).info.status == "FAILED"


@pytest.mark.parametrize("is_away", [True, False])
def test_a_run_killed_while_it_spools_or_sends_loses_and_repeats_nothing(store: Path, is_away: bool) -> None:
    killed_run(store, is_away=is_away, num_entries_before=3000)


@pytest.mark.soak
@pytest.mark.parametrize("is_away", [True, False])
@pytest.mark.parametrize("num_entries_before", [1, 10, 100, 500, 899, 900, 901, 2000, 5000, 20_000])
def test_a_run_killed_at_many_moments_loses_and_repeats_nothing(
    store: Path, is_away: bool, num_entries_before: int
) -> None:
    killed_run(store, is_away=is_away, num_entries_before=num_entries_before)


def killed_run(store: Path, *, is_away: bool, num_entries_before: int) -> None:
    process = start(ENDLESS, store.parent, stdin=True)
    assert process.stdout is not None
    assert process.stdin is not None
    run_id = process.stdout.readline().strip()

    def kill() -> int:
        process.stdin.write("go\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
        wait_until(lambda: num_entries() >= num_entries_before, f"{num_entries_before} entries")
        process.kill()
        process.wait()
        return num_entries()

    if is_away:
        with unwritable(store):
            written = kill()
        assert steps(run_id) == []
    else:
        written = kill()
    process.communicate()
    assert client().get_run(run_id).info.status == "RUNNING"

    send_left_behind()
    assert steps(run_id) == steps(run_id, "relations/main") == list(range(written))
    resumed = adopt_run(run_id)
    for step in range(written + 10):
        resumed.log_metrics(step, {"loss/total": step + 0.5, "relations/main": 7.0})
    resumed.finish("FINISHED")
    assert steps(run_id) == steps(run_id, "relations/main") == list(range(written + 10))


@pytest.mark.soak
def test_a_living_run_survives_being_read_by_a_flush(store: Path) -> None:
    program = ENDLESS.replace("10**9", "2000") + "run.finish('FINISHED')\n"
    process = start(program, store.parent, stdin=True)
    assert process.stdout is not None
    run_id = process.stdout.readline().strip()
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    wait_until(lambda: num_entries() > 100, "entries")
    assert main(["flush"]) == 0
    outcome(process)
    assert steps(run_id) == list(range(2000))
