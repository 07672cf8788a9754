"""The bare `mlflow run . -P method=rapid -P dataset=agnews`, as a user types it: once, twice, and after a kill."""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from rapid_lab import environment, names
from rapid_lab.errors import SettingError
from rapid_lab.tracking.provenance import ROOT

MLFLOW = Path(sys.executable).parent / "mlflow"
# Nine steps an epoch, so that a run is short and still has a middle.
TINY = {"epochs": "6", "teacher_epochs": "1", "batch_size": "200", "teacher_batch_size": "200"}
NUM_STEPS = 6 * 9
SECONDS = 600


@dataclass(frozen=True)
class Place:
    """A store, a cache and registered environments of a test's own."""

    folder: Path

    @property
    def uri(self) -> str:
        return f"sqlite:///{self.folder}/mlflow.db"

    @property
    def client(self) -> MlflowClient:
        return MlflowClient(self.uri)

    @property
    def environment(self) -> dict[str, str]:
        ours = ("MLFLOW_", "RAPID_", "HF_")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return clean | {
            "PATH": f"{MLFLOW.parent}{os.pathsep}{clean.get('PATH', '')}",  # as activation does
            "MLFLOW_TRACKING_URI": self.uri,
            "MLFLOW_ENV_ROOT": str(self.folder / "envs"),
            "RAPID_CACHE_DIR": str(self.folder / "cache"),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        }

    def start(self, **params: str) -> subprocess.Popen[str]:
        """The command of the README with these parameters, and no further flag."""
        asked = {"method": "rapid", "dataset": "agnews", **params}
        options = [word for name, value in asked.items() for word in ("-P", f"{name}={value}")]
        return subprocess.Popen(
            ["mlflow", "run", ".", *options],
            executable=MLFLOW,
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, **params: str) -> tuple[int, str]:
        """The command's exit code and all it printed."""
        process = self.start(**params)
        output, _ = process.communicate(timeout=SECONDS)
        return process.returncode, output

    def runs(self) -> list[Run]:
        """Every run but the teacher's own, oldest first."""
        found = self.client.search_runs(["0"], order_by=["attributes.start_time ASC"])
        return [run for run in found if run.data.tags.get(names.KIND) != names.TEACHER]

    def steps(self, run: Run, metric: str) -> list[int]:
        return [point.step for point in self.client.get_metric_history(run.info.run_id, metric)]

    def values(self, run: Run, metric: str) -> list[float]:
        history = self.client.get_metric_history(run.info.run_id, metric)
        return [point.value for point in sorted(history, key=lambda point: point.step)]


def make_place(folder: Path) -> Place:
    """The store is made from inside the folder, so that artifacts lie beside it; the environment is this one."""
    from rapid_lab.tracking.store import prepare_store

    place = Place(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", place.uri)
        patch.setenv("MLFLOW_ENV_ROOT", place.environment["MLFLOW_ENV_ROOT"])
        prepare_store()
        assert environment.register().state == "registered"
    return place


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Where the command has been run once."""
    place = make_place(tmp_path_factory.mktemp("once"))
    code, output = place.run(**TINY)
    assert code == 0, output
    return place


def test_the_bare_command_leaves_one_finished_run_with_all_the_specification_names(place: Place) -> None:
    run = place.runs()[0]
    assert run.info.status == "FINISHED"
    tags = run.data.tags
    assert (tags[names.KIND], tags[names.METHOD], tags[names.DATASET]) == ("student", "rapid", "agnews-twin")
    assert (tags[names.COMPLETE], tags[names.RESUMED], tags[names.BIASED]) == ("true", "false", "false")
    assert {names.DATA_SOURCE, names.DEVICE, names.CONFIG_ID, names.TEACHER_ID, names.SOURCE_HASH} <= tags.keys()
    assert "agnews-twin" in tags[names.DESCRIPTION]
    assert run.data.params["method"] == "rapid"
    assert run.data.params[f"{names.PARAM_PREFIX}batch_size"] == "200"
    for metric in names.STEP_METRICS:
        assert sorted(place.steps(run, metric)) == list(range(1, NUM_STEPS + 1)), metric
    for metric in names.EPOCH_METRICS:
        assert len(place.steps(run, metric)) == 6, metric
    assert set(names.FINAL_METRICS) <= run.data.metrics.keys()
    artifacts = {artifact.path for artifact in place.client.list_artifacts(run.info.run_id)}
    assert {names.RESULT, names.CONFIG, names.PREDICTIONS} <= artifacts


def test_the_same_command_again_makes_a_pointer_and_trains_nothing(place: Place) -> None:
    first = place.runs()[0]
    code, output = place.run(**TINY)
    assert code == 0, output
    assert "found, not run again" in output
    assert "epoch 1/" not in output
    again, pointer = place.runs()[:2]
    assert (again.data.metrics, again.info.end_time) == (first.data.metrics, first.info.end_time)
    assert (pointer.info.status, pointer.data.metrics) == ("FINISHED", {})
    assert pointer.data.tags[names.KIND] == names.POINTER
    assert pointer.data.tags[names.POINTS_TO] == first.info.run_id
    assert first.info.run_id in pointer.data.tags[names.DESCRIPTION]


def test_a_run_that_was_killed_twice_goes_on_in_the_same_mlflow_run_to_the_same_numbers(
    place: Place, tmp_path: Path
) -> None:
    never_killed = place.runs()[0]
    killed = make_place(tmp_path)
    shutil.copytree(place.folder / "cache" / "teachers", killed.folder / "cache" / "teachers")

    kill_in_the_middle(killed, signal.SIGKILL, after=0)
    (first,) = killed.runs()
    assert first.info.status == "FAILED"
    kill_in_the_middle(killed, signal.SIGTERM, after=1)
    first, second = killed.runs()
    # MLflow ends the run it launched as FAILED where the command fails, whatever the command has said of it.
    assert [run.info.status for run in (first, second)] == ["KILLED", "FAILED"]
    # Everything up to the checkpoint is stored, whoever was killed before it was sent.
    assert sorted(killed.steps(first, names.LOSS_TOTAL))[:18] == list(range(1, 19))
    code, output = killed.run(**TINY)
    assert code == 0, output

    first, *pointers = killed.runs()
    assert (first.info.status, first.data.tags[names.RESUMED]) == ("FINISHED", "true")
    assert first.data.tags[names.KIND] == names.STUDENT
    for pointer in pointers:
        assert pointer.data.tags[names.POINTS_TO] == first.info.run_id
        assert (pointer.data.tags[names.KIND], pointer.data.metrics) == (names.POINTER, {})
    assert [pointer.info.status for pointer in pointers] == ["FAILED", "FINISHED"]
    for metric in names.STEP_METRICS:
        assert sorted(killed.steps(first, metric)) == list(range(1, NUM_STEPS + 1)), metric
    measured = (names.STEP_MS, names.PEAK_MB, names.TRAIN_MINUTES)
    for metric in {*names.STEP_METRICS, *names.EPOCH_METRICS, *names.FINAL_METRICS}.difference(measured):
        assert killed.values(first, metric) == place.values(never_killed, metric), metric


def kill_in_the_middle(place: Place, number: signal.Signals, *, after: int) -> None:
    """Start the command, and send the signal to its training once it has a checkpoint newer than the last one."""
    before = checkpoint_time(place)
    launcher = place.start(**TINY)
    deadline = time.monotonic() + SECONDS
    while checkpoint_time(place) == before:
        assert launcher.poll() is None, launcher.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.01)
    training_process(launcher).send_signal(number)
    output, _ = launcher.communicate(timeout=SECONDS)
    assert launcher.returncode == 1, output
    assert len(place.runs()) == after + 1


def checkpoint_time(place: Place) -> list[int]:
    return [path.stat().st_mtime_ns for path in (place.folder / "cache").glob("runs/*/checkpoint.safetensors")]


def training_process(launcher: subprocess.Popen[str]) -> psutil.Process:
    """The Python under the shell that MLflow starts."""
    children = psutil.Process(launcher.pid).children(recursive=True)
    return next(child for child in children if child.cmdline()[1:3] == ["-m", "rapid_lab"])


def test_a_hostile_value_stays_a_value_and_the_run_fails_with_the_message(place: Place, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    code, output = place.run(epochs=f"0; touch {trap}; $(touch {trap}) '`touch {trap}`")
    run = place.runs()[-1]
    assert (code, run.info.status, trap.exists()) == (1, "FAILED", False), output
    assert run.data.tags[names.DESCRIPTION].startswith("epochs must be")
    assert run.data.tags[names.DESCRIPTION] in output
    assert names.KIND not in run.data.tags


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLFLOW_ENV_ROOT", str(tmp_path / "envs"))
    return tmp_path / "envs"


def test_registering_again_changes_nothing_and_leaves_other_environments_alone(root: Path) -> None:
    other = root / "mlflow-0000"
    other.mkdir(parents=True)
    assert environment.registration().state == "missing"
    path, state = environment.register()
    changed = path.lstat().st_mtime_ns
    assert (environment.register(), path.lstat().st_mtime_ns) == ((path, "registered"), changed)
    assert (state, path.resolve()) == ("registered", Path(sys.prefix).resolve())
    assert sorted(root.iterdir()) == sorted([other, path])


@pytest.mark.parametrize("state", ["broken", "elsewhere"])
def test_an_old_link_is_replaced(state: str, root: Path, tmp_path: Path) -> None:
    old = tmp_path / "old"
    if state == "elsewhere":
        (old / "bin").mkdir(parents=True)
        (old / "bin" / "activate").touch()
    root.mkdir()
    environment.registered_path().symlink_to(old)
    assert environment.registration().state == state
    assert environment.register().state == "registered"
    assert environment.registration().state == "registered"


def test_an_environment_that_mlflow_built_stays_and_half_of_one_is_refused(root: Path) -> None:
    activate = environment.registered_path() / "bin" / "activate"
    activate.parent.mkdir(parents=True)
    with pytest.raises(SettingError, match="remove the folder"):
        environment.register()
    activate.touch()
    assert environment.register().state == "built"
    assert activate.is_file()


def test_it_is_said_when_no_environment_can_be_registered(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SettingError, match="must be that of a virtual environment"):
        environment.register(tmp_path)
    with pytest.raises(SettingError, match=r"must be a folder with a python_env\.yaml"):
        environment.register(project=tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_ENV_ROOT", str(tmp_path / "two words"))
        with pytest.raises(SettingError, match="without spaces"):
            environment.register()
    monkeypatch.delattr("mlflow.utils.virtualenv._get_virtualenv_name")
    assert environment.main() == 2
    assert "names its environments in another way" in capsys.readouterr().err
    assert not root.exists()
