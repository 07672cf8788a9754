"""The real command in a real process, armed with a fault that strikes at a chosen moment.

Processes come from a fork server that has imported already, so that a kill at a random moment hits the work.
"""

import contextlib
import fnmatch
import multiprocessing
import os
import pathlib
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NoReturn

PRELOADED = [
    "faults.children", "rapid_lab.experiment.run", "rapid_lab.cli.run", "transformers",
    "mlflow.store.tracking.sqlalchemy_store", "mlflow.transformers",
]  # fmt: skip
# Nine steps an epoch; the flushes and checkpoints of a long run, on a short one.
TINY = [
    "--data", "twin", "--method", "rapid", "--epochs", "3", "--warmup-epochs", "1", "--teacher-epochs", "1",
    "--batch-size", "200", "--teacher-batch-size", "200", "--log-model", "false",
]  # fmt: skip
WITH_MODEL = [*TINY, "--log-model", "true"]
NUM_STEPS, NUM_EPOCHS = 27, 3
SECONDS = 300


@dataclass(frozen=True)
class Strike:
    """The process kills itself with SIGKILL at the n-th time that something happens: before, within or after it."""

    at: str
    number: int = 1
    when: str = "before"

    def __str__(self) -> str:
        return f"{self.when} {self.at} {self.number}"

    def __call__(self) -> None:
        """Lay the trap, in this process."""
        _arm(self)


def _strike() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()
    raise AssertionError


def _armed(strike: Strike, act: Callable[..., Any], within: Callable[..., Any]) -> Callable[..., Any]:
    count = 0

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        if count == strike.number and strike.when != "after":
            if strike.when == "within":
                within(*arguments, **options)
            _strike()
        done = act(*arguments, **options)
        if count == strike.number:
            _strike()
        return done

    return counted


def _arm_file(strike: Strike) -> None:
    """The write of a file of this name: within is half of the temporary, before and after are its taking place."""
    import safetensors.torch

    replace, save = pathlib.Path.replace, safetensors.torch.save_file

    def half(tensors: Any, path: Path, **options: Any) -> None:
        save(tensors, path, **options)
        os.truncate(path, path.stat().st_size // 2)

    def armed_replace(path: Path, target: Path) -> Path:
        act: Callable[..., Path] = counted if Path(target).match(strike.at) else replace
        return act(path, target)

    def armed_save(tensors: Any, path: Path, **options: Any) -> None:
        (counted_save if fnmatch.fnmatch(path.name, f"*{strike.at}*") else save)(tensors, path, **options)

    counted = _armed(strike, replace, replace)
    counted_save = _armed(strike, save, half)
    if strike.when == "within":
        safetensors.torch.save_file = armed_save  # type: ignore[assignment]
    else:
        pathlib.Path.replace = armed_replace  # type: ignore[assignment,method-assign]


def _arm_metrics(strike: Strike) -> None:
    """A batch of metrics on its way to the store."""
    from mlflow import MlflowClient

    plain = MlflowClient.log_batch
    counted = _armed(strike, plain, plain)

    def log_batch(client: Any, run_id: str, metrics: Sequence[Any] = (), **options: Any) -> Any:
        return (counted if metrics else plain)(client, run_id, metrics, **options)

    MlflowClient.log_batch = log_batch  # type: ignore[method-assign,assignment]


def _arm_artifact(strike: Strike) -> None:
    """A file, or with `model` a folder of files, on its way to the artifacts; within is half of it."""
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository as Repository

    def half_file(repository: Any, path: str, folder: str | None = None) -> None:
        place = Path(repository.artifact_dir) / (folder or "")
        place.mkdir(parents=True, exist_ok=True)
        content = Path(path).read_bytes()
        (place / Path(path).name).write_bytes(content[: len(content) // 2])

    def half_folder(repository: Any, path: str, folder: str | None = None) -> None:
        place = Path(repository.artifact_dir) / (folder or "")
        place.mkdir(parents=True, exist_ok=True)
        files = sorted(file for file in Path(path).rglob("*") if file.is_file())
        for file in files[: len(files) // 2]:
            shutil.copyfile(file, place / file.name)

    if strike.at == "model":
        Repository.log_artifacts = _armed(strike, Repository.log_artifacts, half_folder)  # type: ignore[method-assign]
    else:
        Repository.log_artifact = _armed(strike, Repository.log_artifact, half_file)  # type: ignore[method-assign]


def _arm(strike: Strike) -> None:
    if strike.at.endswith(".safetensors"):
        _arm_file(strike)
    elif strike.at == "metrics":
        _arm_metrics(strike)
    else:
        _arm_artifact(strike)


def _quicken() -> None:
    """Flushes after every second step and checkpoints after every fourth, metrics sent as they come."""
    from rapid_lab.tracking.writer import MetricWriter
    from rapid_lab.training import loop

    loop.FLUSH_STEPS, loop.CHECKPOINT_STEPS = 2, 4
    MetricWriter.__init__.__kwdefaults__.update(batch_seconds=0.05)  # type: ignore[union-attr]


def _act(folder: Path, words: list[str], prepare: Callable[[], None] | None) -> None:
    os.chdir(folder)
    for name in [name for name in os.environ if name.startswith(("MLFLOW_TRACKING", "MLFLOW_RUN", "MLFLOW_EXP"))]:
        del os.environ[name]
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/mlflow.db"
    os.environ["RAPID_CACHE_DIR"] = str(folder / "cache")
    os.environ["HF_HUB_OFFLINE"] = os.environ["OMP_NUM_THREADS"] = "1"
    _redirect(folder)
    import torch

    from rapid_lab.cli import main

    torch.set_num_threads(1)
    _quicken()
    if prepare is not None:
        prepare()
    code = main(words)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _redirect(folder: Path) -> None:
    for name, descriptor in (("out", 1), ("err", 2)):
        file = os.open(folder / f"{os.getpid()}.{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(file, descriptor)


@dataclass(frozen=True)
class Ended:
    """How a process has ended, and what it said."""

    code: int | None
    out: str
    err: str


def begin(folder: Path, words: Sequence[str], prepare: Callable[[], None] | None = None) -> BaseProcess:
    """Start `rapid-lab` with these words in that folder; `prepare` is called in the process before."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=_act, args=(folder, list(words), prepare))
    process.start()
    return process


def ended(process: BaseProcess, folder: Path) -> Ended:
    """Wait for it."""
    process.join(SECONDS)
    if process.exitcode is None:
        process.kill()
    texts = [_text(folder / f"{process.pid}.{name}") for name in ("out", "err")]
    return Ended(process.exitcode, *texts)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def ask(folder: Path, words: Sequence[str], prepare: Callable[[], None] | None = None) -> Ended:
    """Start it, and wait for its end."""
    return ended(begin(folder, words, prepare), folder)


@contextlib.contextmanager
def store_in(folder: Path) -> Iterator[None]:
    """Look into the store and the cache of that folder."""
    before = {name: os.environ.get(name) for name in ("MLFLOW_TRACKING_URI", "RAPID_CACHE_DIR")}
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/mlflow.db"
    os.environ["RAPID_CACHE_DIR"] = str(folder / "cache")
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
