"""One run: found if it is finished, resumed if it is not, else trained, selected, reported and recorded.

A finished run keeps its selected weights, once: as an MLflow model where one was asked for, else in the cache. From
them a report or a model that was not asked for at first is added later, without training again.
"""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rapid_lab import names
from rapid_lab.batches import encode
from rapid_lab.config import Value, written_config
from rapid_lab.data.sources import TextData
from rapid_lab.errors import DataError
from rapid_lab.experiment import record
from rapid_lab.experiment.crew import NOBODY, Crew
from rapid_lab.experiment.duration import duration_notice
from rapid_lab.experiment.preparation import Prepared, prepare, prepare_data
from rapid_lab.experiment.store import check_places, current_experiment
from rapid_lab.experiment.teacher import record_teacher
from rapid_lab.files import DamagedError, open_tensors, save_tensors
from rapid_lab.folders import cache_folder, locked
from rapid_lab.harmless import file_name
from rapid_lab.teacher import Teacher, TeacherTask, ensure_teacher, serve
from rapid_lab.terms import Objective, TeacherRows
from rapid_lab.tracking.artifacts import log_student, logged_model, model_weights
from rapid_lab.tracking.door import client
from rapid_lab.tracking.errors import TrackingError
from rapid_lab.tracking.launched import launched_id
from rapid_lab.tracking.runs import TrackedRun, adopt_run, ended_in_order, is_finished, make_pointer, start_run
from rapid_lab.tracking.signals import orderly_end
from rapid_lab.tracking.spool_flush import send_left_behind
from rapid_lab.tracking.store import RunSummary, find_runs, prepare_store
from rapid_lab.tracking.system import SystemSampler
from rapid_lab.training.distributed import ALONE, Ranks
from rapid_lab.training.evaluation import predict, score
from rapid_lab.training.ledger import COLUMNS
from rapid_lab.training.loop import Job, Observer, Trained, train

CHECKPOINT = "checkpoint.safetensors"
AGAIN = "`rapid-lab run --force` with its settings trains it again"


@dataclass(frozen=True)
class Outcome:
    """What became of a run."""

    run_id: str
    config_id: str
    is_reused: bool
    result: dict[str, Any]
    warnings: tuple[str, ...]


class Tracker:
    """Tells the tracking store and whoever watches."""

    def __init__(self, run: TrackedRun, watcher: Observer) -> None:
        self.run, self.watcher = run, watcher

    def begin(self, role: str, num_steps: int, table: Tensor, epochs: Sequence[dict[str, Any]]) -> None:
        """What the store has of it already is not logged twice."""
        self._log_steps(1, table)
        for epoch in epochs:
            self._log_epoch(epoch)
        self.watcher.begin(role, num_steps, table, epochs)

    def steps(self, first: int, table: Tensor) -> None:
        """Every column of every step, through the writer's thread."""
        self._log_steps(first, table)
        self.watcher.steps(first, table)

    def epoch(self, record: dict[str, Any]) -> None:
        """Selection and schedule at the end of an epoch."""
        self._log_epoch(record)
        self.watcher.epoch(record)

    def _log_steps(self, first: int, table: Tensor) -> None:
        for step, row in enumerate(table.tolist(), start=first):
            self.run.log_metrics(step, dict(zip(COLUMNS, row, strict=True)))

    def _log_epoch(self, record: dict[str, Any]) -> None:
        values = {
            names.SELECTION_ACCURACY: record["accuracy"],
            names.SELECTION_NLL: record["nll"],
            names.RESIDUAL_MIX: record["residual_mix"],
        }
        self.run.log_metrics(record["step"], values)

    def say(self, line: str) -> None:
        """For people alone."""
        self.watcher.say(line)


def run_experiment(
    given: Mapping[str, Value],
    watcher: Observer,
    *,
    is_forced: bool = False,
    parent_run_id: str | None = None,
    crew: Crew = NOBODY,
) -> Outcome:
    """The run of these settings, however much of it exists already."""
    check_places()
    settings, data = prepare_data(given)
    for warning in data.warnings:
        watcher.say(warning)
    prepared = prepare(settings, data)
    prepare_store()  # the first thing that is made: whatever is refused leaves nothing behind
    experiment = current_experiment()
    folder = run_folder(prepared.config_id)
    # A second process with the same settings waits here, and then finds the run finished.
    with locked(folder.with_suffix(".lock")), orderly_end():
        tracked, is_whole = claim(prepared, experiment, parent_run_id, crew.ranks, is_forced=is_forced)
        if is_whole or is_forced:  # one left by a process killed at its end, or by a run that is not gone on with
            (folder / CHECKPOINT).unlink(missing_ok=True)
        if is_whole:
            result = complete(prepared, tracked, folder)
        else:
            result = carry_out(prepared, tracked, folder, watcher, crew)
    return Outcome(tracked.run_id, prepared.config_id, is_whole, result, data.warnings)


def run_folder(config_id: str) -> Path:
    """Where runs of these settings keep a checkpoint and their selected weights."""
    return cache_folder() / "runs" / config_id


def selected_file(folder: Path, run_id: str) -> Path:
    """The selected weights of one run: runs of the same settings in other stores have files of their own."""
    return folder / f"selected-{file_name(run_id)}.safetensors"


def claim(
    prepared: Prepared, experiment: str, parent_run_id: str | None, ranks: Ranks, *, is_forced: bool
) -> tuple[TrackedRun, bool]:
    """The MLflow run to write to, and whether it is whole; the one `mlflow run` made may become a pointer."""
    launched = launched_id()
    existing, finished = found_runs(prepared.config_id, experiment)
    if existing and not finished and send_left_behind(existing[0].run_id):
        existing, finished = found_runs(prepared.config_id, experiment)  # it had ended while the store was away
    usable = (finished or existing)[:1]
    if is_forced or not usable:
        tags = record.tags(prepared, ranks)
        if launched is None:
            return start_run(experiment, record.run_name(prepared), tags, parent_run_id=parent_run_id), False
        tracked = adopt_run(launched)
        tracked.set_tags({**tags, "mlflow.runName": record.run_name(prepared)})
        return tracked, False
    if launched is not None:
        make_pointer(launched, usable[0].run_id)
    if finished:
        return TrackedRun(usable[0].run_id, experiment, client()), True
    tracked = adopt_run(usable[0].run_id)
    tracked.set_tags({names.RESUMED: "true", **record.machine_tags(prepared, ranks)})
    return tracked, False


def found_runs(config_id: str, experiment: str) -> tuple[list[RunSummary], list[RunSummary]]:
    """The runs of these settings but the launched one, and those among them that are whole."""
    found = find_runs(experiment, {names.CONFIG_ID: config_id, names.KIND: names.STUDENT})
    existing = [run for run in found if run.run_id != launched_id()]
    # The tag alone decides: while a report is added later, a finished run is RUNNING once more.
    return existing, [run for run in existing if run.tags.get(names.COMPLETE) == "true"]


def carry_out(prepared: Prepared, tracked: TrackedRun, folder: Path, watcher: Observer, crew: Crew) -> dict[str, Any]:
    """Train, report, record; whatever ends the run early ends it in order."""
    with ended_in_order(tracked):
        with crew.watched():
            result = train_and_record(prepared, tracked, folder, watcher, crew)
        tracked.finish("FINISHED")
        (folder / CHECKPOINT).unlink(missing_ok=True)
        return result


def train_and_record(
    prepared: Prepared, tracked: TrackedRun, folder: Path, watcher: Observer, crew: Crew
) -> dict[str, Any]:
    """Everything between the start of a run and its end."""
    # A run that goes on has the same numbers, but may be asked for by another path, device or word for its data.
    tracked.log_params(record.params(prepared), keeps_first=True)
    tracked.log_artifact_text(names.CONFIG, written_config(prepared.settings))
    record.log_data(prepared, tracked)
    notice = duration_notice(prepared.settings, prepared.data)
    if notice:
        watcher.say(notice)
    teacher = None
    if prepared.teacher is not None:
        teacher = ready_teacher(prepared.teacher, prepared.data, tracked.experiment_id, watcher)
    crew.call(prepared.settings)
    with SystemSampler(tracked.log_metrics, first_step=tracked.next_step(names.CPU_PERCENT)):
        trained = train_student(prepared, teacher, Tracker(tracked, watcher), crew.ranks)
    prepared.model.load_state_dict(trained.weights)
    save_tensors(selected_file(folder, tracked.run_id), trained.weights, {"config_id": prepared.config_id})
    keep_table(tracked, names.STEPS, record.step_table(trained.table))
    return conclude(prepared, tracked, folder, record.result(prepared, teacher, trained, crew.ranks))


def conclude(prepared: Prepared, tracked: TrackedRun, folder: Path, result: dict[str, Any]) -> dict[str, Any]:
    """What comes after selection: the report and the model where they are asked for, and the end of the run."""
    if prepared.settings.report == "once" and result["report"] is None:
        result = result | {"report": report(prepared, tracked)}
    tracked.log_metrics(result["steps"], record.final_metrics(result))
    tracked.log_artifact_text(names.RESULT, json.dumps(result, indent=1))
    if prepared.settings.log_model:
        log_model(prepared, tracked, folder)
    tracked.flush()
    tracked.set_tags({names.COMPLETE: "true", names.REPORT: "once" if result["report"] else "never"})
    tracked.set_description(record.description(prepared, result))
    return result


def log_model(prepared: Prepared, tracked: TrackedRun, folder: Path) -> None:
    """The student as a model, unless the store is away: its weights then stay here, and the next asking logs them."""
    if tracked.is_away:
        return
    try:
        if logged_model(tracked) is None:
            log_student(tracked, prepared.model.cpu().eval(), prepared.tokenizer)
    except TrackingError:
        tracked.flush()  # which finds out whether the store is away
        if not tracked.is_away:
            raise
    else:
        selected_file(folder, tracked.run_id).unlink(missing_ok=True)


def complete(prepared: Prepared, tracked: TrackedRun, folder: Path) -> dict[str, Any]:
    """The result of a finished run, with the report and the model added that were not asked for at first."""
    result = record.read_result(tracked)
    lacks_report = prepared.settings.report == "once" and result["report"] is None
    has_model = logged_model(tracked) is not None
    if has_model:  # what a process killed in between left: the weights are kept once
        selected_file(folder, tracked.run_id).unlink(missing_ok=True)
    lacks_model = prepared.settings.log_model and not has_model
    if not (lacks_report or lacks_model) and is_finished(tracked):
        return result
    tracked = adopt_run(tracked.run_id)
    try:
        if lacks_report or lacks_model:
            prepared.model.load_state_dict(selected_weights(tracked, folder))
            prepared.model.to(prepared.device)
            result = conclude(prepared, tracked, folder, result)
        return result
    finally:
        tracked.finish("FINISHED")  # as it was: what it has is whole, whatever became of the addition


def selected_weights(tracked: TrackedRun, folder: Path) -> dict[str, Tensor]:
    """The weights a finished run has kept."""
    model_id = logged_model(tracked)
    if model_id is not None:
        return model_weights(model_id)
    selected = selected_file(folder, tracked.run_id)
    if selected.exists():
        try:
            return open_tensors(selected)[0]
        except DamagedError as damage:
            raise DamagedError(f"{damage}: nothing can be added to run {tracked.run_id}; {AGAIN}") from damage
    raise DataError(
        f"the selected weights of run {tracked.run_id} are neither in the cache of this machine ({folder.name}) nor "
        f"logged as a model: nothing can be added to it; {AGAIN}"
    )


def ready_teacher(task: TeacherTask, data: TextData, experiment: str, watcher: Observer) -> Teacher:
    """The teacher, trained and in the store; where that does not answer, the next asking records it."""
    teacher = ensure_teacher(task, watcher)
    try:
        record_teacher(experiment, teacher, task, data)
    except TrackingError as fault:
        watcher.say(f"teacher {teacher.teacher_id} is ready, and recorded when it is asked for again: {fault}")
    return teacher


def train_student(prepared: Prepared, teacher: Teacher | None, observer: Observer, ranks: Ranks) -> Trained:
    """Every rank's part of the training, which begins when all are ready."""
    digest = teacher.digest() if teacher and ranks.size > 1 else None
    ranks.begin(prepared.device, f"{prepared.config_id} {digest}")
    return train(student_job(prepared, teacher, run_folder(prepared.config_id), observer, ranks))


def student_job(
    prepared: Prepared, teacher: Teacher | None, folder: Path, observer: Observer, ranks: Ranks = ALONE
) -> Job:
    """The student's training, with the teacher served from its cache."""
    return Job(
        model=prepared.model,
        train=prepared.encoded.subset(prepared.split.train),
        selection=prepared.encoded.subset(prepared.split.selection),
        objective=Objective(prepared.settings),
        device=prepared.device,
        dtype=prepared.dtype,
        checkpoint=folder / CHECKPOINT,
        observer=observer,
        teacher=served_teacher(prepared, teacher) if teacher else None,
        row_numbers=prepared.split.train,
        ranks=ranks,
    )


def served_teacher(prepared: Prepared, teacher: Teacher) -> Callable[[Sequence[int], torch.device], TeacherRows]:
    """The teacher's rows by position in the training part of the split."""
    return serve(teacher, Objective(prepared.settings), prepared.encoded.labels, prepared.split.train)


def keep_table(tracked: TrackedRun, name: str, table: Any) -> None:
    """A parquet table as an artifact."""
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / name
        record.write_table(path, table)
        tracked.log_artifact_file(path)


def report(prepared: Prepared, tracked: TrackedRun) -> dict[str, Any]:
    """The selected student on the report split, read here and nowhere else."""
    examples = prepared.data.read_report()
    encoded = encode(prepared.tokenizer, examples.texts, examples.labels, max_length=prepared.settings.max_length)
    logits = predict(prepared.model, encoded, prepared.device, prepared.dtype).logits
    keep_table(tracked, names.PREDICTIONS, record.predictions(encoded.labels, logits))
    result = score(logits, encoded.labels)
    return {"split": prepared.data.report_name, **result._asdict(), "accuracy": result.accuracy}
