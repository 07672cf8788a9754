"""Where a study is kept: a journal no kill can damage, and owners whose death is certain."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from faults.disks import limited
from hypothesis import given, settings
from hypothesis import strategies as st

from rapid_lab.errors import DataError
from rapid_lab.sweep.journal import Embedded, Journal
from rapid_lab.sweep.launching import THREADS, threads_each
from rapid_lab.sweep.storage import held

OWNER = """
import json, sys
from pathlib import Path
from rapid_lab.sweep.journal import Embedded
place = Embedded(Path(sys.argv[1]), "study")
print(json.dumps(place.owner()), flush=True)
sys.stdin.read()
"""


def test_a_journal_gives_back_what_was_appended_from_any_number_on(tmp_path: Path) -> None:
    one, other = Journal(tmp_path / "a" / "journal"), Journal(tmp_path / "a" / "journal")
    one.append_logs([{"n": 0}, {"n": 1}])
    assert list(other.read_logs(0)) == [{"n": 0}, {"n": 1}]
    other.append_logs([{"n": 2}])
    assert list(one.read_logs(1)) == [{"n": 1}, {"n": 2}]
    assert list(one.read_logs(3)) == []


def test_a_line_that_was_never_finished_is_not_read_and_is_cut_off_by_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    journal.append_logs([{"n": 0}])
    with path.open("ab") as file:
        file.write(b'{"n": 1, "tor')
    assert list(journal.read_logs(0)) == [{"n": 0}]
    journal.append_logs([{"n": 2}])
    assert list(Journal(path).read_logs(0)) == list(journal.read_logs(0)) == [{"n": 0}, {"n": 2}]


def test_a_journal_of_one_unfinished_line_is_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b'{"tor')
    Journal(path).append_logs([{"n": 0}])
    assert path.read_bytes() == b'cd500a3f {"n":0}\n'


@given(st.data())
@settings(max_examples=100)
def test_a_changed_byte_in_a_journal_is_named_and_nothing_behind_it_is_used(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A plan, a value of a trial, a checksum; without its end the last line is one that was never finished."""
    path, entries = tmp_path_factory.mktemp("sweeps") / "study.journal", [{"n": number} for number in range(20)]
    Journal(path).append_logs(entries)
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    number = bytes(content[:place]).count(b"\n") + 1
    read: list[dict[str, int]] = []
    if place == len(content) - 1:
        read.extend(Journal(path).read_logs(0))
    else:
        with pytest.raises(DataError, match=f"line {number} of study.journal in .* is damaged.* --study"):
            read.extend(Journal(path).read_logs(0))
    assert read == entries[: number - 1]


def test_a_disk_that_is_full_leaves_what_was_written_before_and_the_next_line_follows_it(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    journal.append_logs([{"n": 0}])
    with limited(path.stat().st_size + 5), pytest.raises(OSError, match="File too large"):
        journal.append_logs([{"n": 1}])
    assert list(Journal(path).read_logs(0)) == [{"n": 0}]
    journal.append_logs([{"n": 2}])
    assert list(Journal(path).read_logs(0)) == [{"n": 0}, {"n": 2}]


def test_an_owner_is_alive_until_it_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        owner = json.loads(process.stdout.readline())
        assert owner["pid"] == process.pid
        assert {"host", "started", "worker"} <= owner.keys()
        place = Embedded(tmp_path, "study")
        assert not place.is_dead(owner)
        process.kill()
        process.wait()
        assert place.is_dead(owner)
        assert place.is_dead(owner)


def test_who_has_not_signed_is_dead_and_who_asks_is_alive(tmp_path: Path) -> None:
    place = Embedded(tmp_path, "study")
    assert place.is_dead({})
    assert not place.is_dead(place.owner())
    place.leave()


def test_a_lock_is_let_go_at_the_end_of_a_block_and_may_be_let_go_before(tmp_path: Path) -> None:
    one, other = Embedded(tmp_path, "study").lock, Embedded(tmp_path, "study").lock
    with held(one):
        one.release()
        with held(other):
            pass


@pytest.mark.parametrize(("asked", "workers", "each"), [("", 1, 8), ("", 3, 2), ("", 20, 1), ("1", 2, 1), ("6", 2, 4)])
def test_threads_are_divided_between_workers(
    asked: str, workers: int, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setenv(THREADS, asked)
    assert threads_each(workers) == each
