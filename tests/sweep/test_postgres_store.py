"""A fresh PostgreSQL as tracking store, first used by several processes at once."""

import json
import uuid
from pathlib import Path

import postgres
import pytest
import sqlalchemy
from postgres import server as server
from tracking.programs import MLFLOW_WARNINGS, outcome, start

from rapid_lab.cli import main
from rapid_lab.errors import SettingError
from rapid_lab.tracking.store import experiment_id, find_runs, prepare_store

pytestmark = pytest.mark.filterwarnings(MLFLOW_WARNINGS)

# Each child has a folder for temporary files of its own, as on machines of their own: MLflow locks with a file there.
FIRST_USE = """
import os, sys, tempfile
from rapid_lab.tracking.store import experiment_id, prepare_store
from rapid_lab.tracking.runs import start_run
import mlflow.store.tracking.sqlalchemy_store

os.environ["MLFLOW_TRACKING_URI"], os.environ["PGPASSWORD"] = {address!r}, {password!r}

def first_use(number):
    tempfile.tempdir = tempfile.mkdtemp(dir=".")
    os.read(reading, 1)
    prepare_store()
    run = start_run(experiment_id("shared"), "first", {{}})
    run.log_metrics(0, {{"loss/total": 1.0}})
    run.finish("FINISHED")

reading, writing = os.pipe()
children = []
for number in range(4):
    child = os.fork()
    if child == 0:
        first_use(number)
        os._exit(0)
    children.append(child)
os.write(writing, b"go!!")
print([os.waitpid(child, 0)[1] for child in children])
"""


@pytest.fixture
def fresh(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database without tables."""
    name = f"fresh_{uuid.uuid4().hex}"
    monkeypatch.setenv("PGPASSWORD", postgres.PASSWORD)
    engine = sqlalchemy.create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return server.replace("/postgres", f"/{name}")


def test_the_first_use_of_a_fresh_database_is_safe_for_several_processes(
    fresh: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = FIRST_USE.format(address=fresh, password=postgres.PASSWORD)
    assert outcome(start(program, tmp_path)) == "[0, 0, 0, 0]\n"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", fresh)
    assert [run.status for run in find_runs(experiment_id("shared"), {})] == ["FINISHED"] * 4


def test_a_database_that_is_not_there_is_told_in_one_message(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", postgres.PASSWORD)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.replace("/postgres", "/nowhere"))
    with pytest.raises(SettingError, match=r"must name a store that can be used, got .* does not exist"):
        prepare_store()


def test_doctor_finds_a_fresh_database_and_makes_no_table_in_it(
    fresh: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", fresh)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    main(["doctor", "--json"])
    store = json.loads(capsys.readouterr().out)["store"]
    assert (store["is_reachable"], store["problem"]) == (True, None)
    engine = sqlalchemy.create_engine(fresh)
    assert sqlalchemy.inspect(engine).get_table_names() == []
    engine.dispose()
