"""The teacher's own run in the tracking store: logged once, whoever asked for the teacher first."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from rapid_lab import names
from rapid_lab.batches import encode
from rapid_lab.config import Value
from rapid_lab.data.sources import TextData
from rapid_lab.experiment.duration import teacher_notice
from rapid_lab.experiment.preparation import prepare_data, teacher_task, twin_words
from rapid_lab.experiment.record import read_result, report_lines
from rapid_lab.experiment.store import check_places, current_experiment
from rapid_lab.folders import locked
from rapid_lab.method.calibration import reliability_diagram
from rapid_lab.models import load_tokenizer
from rapid_lab.teacher import TEACHER_SETTINGS, Teacher, TeacherTask, ensure_teacher
from rapid_lab.tracking.artifacts import log_dataset
from rapid_lab.tracking.provenance import SOURCE_HASH, provenance
from rapid_lab.tracking.runs import TrackedRun, adopt_run, ended_in_order, existing_run, start_run
from rapid_lab.tracking.signals import orderly_end
from rapid_lab.tracking.store import find_runs, prepare_store
from rapid_lab.training.evaluation import predict, score
from rapid_lab.training.loop import Observer
from rapid_lab.training.resources import device_name

# What a teacher's run shows of its settings: those that made it, and where its data and its model came from.
LOGGED_SETTINGS = (*TEACHER_SETTINGS, "teacher_model", "dataset", "data", "split_seed", "precision", "device")
# From an experiment, a name and tags to a run.
Start = Callable[[str, str, Mapping[str, str]], TrackedRun]


def teacher_experiment(given: Mapping[str, Value], watcher: Observer, start: Start = start_run) -> dict[str, Any]:
    """Make the teacher if there is none, its run if the store has none, and its report if that has none."""
    check_places()
    settings, data = prepare_data(given)
    for line in (*data.warnings, teacher_notice(settings, data)):
        if line:
            watcher.say(line)
    task = teacher_task(settings, data)
    _ = task.identity  # loads its model, which may be refused: before anything is made
    prepare_store()
    experiment = current_experiment()
    teacher = ensure_teacher(task, watcher)
    run_id, report = record_teacher(
        experiment, teacher, task, data, wants_report=settings.report == "once", start=start
    )
    facts = {name: teacher.facts[name] for name in ("temperature", "nll_before", "nll_after", "is_at_bound")}
    return {
        "teacher_id": teacher.teacher_id, "run_id": run_id, "dataset": data.name, **facts, "report": report,
        "warnings": list(data.warnings),
    }  # fmt: skip


def record_teacher(
    experiment: str,
    teacher: Teacher,
    task: TeacherTask,
    data: TextData,
    *,
    wants_report: bool = False,
    start: Start = start_run,
) -> tuple[str, dict[str, Any] | None]:
    """The teacher's run, found by its id, else logged; and its report, which is read once, when it is wanted first."""
    wanted = {names.KIND: names.TEACHER, names.TEACHER_ID: teacher.teacher_id}
    # Several students may finish waiting for one teacher together.
    with locked(teacher.folder.with_suffix(".record.lock")), orderly_end():
        found = find_runs(experiment, wanted)
        whole = [run for run in found if run.status == "FINISHED" and run.tags.get(names.COMPLETE) == "true"]
        if whole and not wants_report:
            return whole[0].run_id, None
        document = read_result(existing_run(whole[0].run_id)) if whole else teacher_document(teacher, task, data)
        if whole and document["report"]:
            return whole[0].run_id, document["report"]
        # One that is not whole was left by a process killed here, since the lock is free: it is finished, not repeated.
        left = (whole or found)[:1]
        run = (
            adopt_run(left[0].run_id) if left else start(experiment, f"teacher {data.name}", _tags(teacher, task, data))
        )
        with ended_in_order(run):
            if wants_report:
                document["report"] = report_of(teacher, task, data)
            _fill(run, teacher, task, data, document)
            run.flush()
            run.set_tags({names.COMPLETE: "true"})
            run.finish("FINISHED")
    return run.run_id, document["report"]


def teacher_document(teacher: Teacher, task: TeacherTask, data: TextData) -> dict[str, Any]:
    """Everything a teacher was made from and with, and how good it is on the selection split."""
    return {
        "schema_version": names.SCHEMA_VERSION,
        "teacher_id": teacher.teacher_id,
        **teacher.facts,
        "dataset": data.name,
        "data": {"source": data.source, "hash": data.data_hash, "rows": len(data.train)},
        "device": task.device.type,
        "report": None,
        "provenance": provenance(),
    }


def _tags(teacher: Teacher, task: TeacherTask, data: TextData) -> dict[str, str]:
    return {
        names.KIND: names.TEACHER,
        names.TEACHER_ID: teacher.teacher_id,
        names.COMPLETE: "false",
        names.DATASET: data.name,
        names.DATA_SOURCE: data.source,
        names.DATA_HASH: data.data_hash,
        names.DEVICE: task.device.type,
        names.HARDWARE: device_name(task.device),
        names.SOURCE_HASH: SOURCE_HASH,
        names.SCHEMA: str(names.SCHEMA_VERSION),
        names.NUMBERS: str(names.NUMBERS_VERSION),
    }


def _fill(run: TrackedRun, teacher: Teacher, task: TeacherTask, data: TextData, document: dict[str, Any]) -> None:
    """What is known of the teacher; what an earlier process has logged already is not logged twice."""
    settings = dataclasses.asdict(task.settings)
    run.log_params({f"{names.PARAM_PREFIX}{name}": settings[name] for name in LOGGED_SETTINGS}, keeps_first=True)
    rows = {"train": len(task.train_rows), "selection": len(task.selection_rows)}
    log_dataset(run, name=data.name, digest=data.data_hash, source=data.source, rows=rows)
    metrics = {
        names.TEACHER_TEMPERATURE: teacher.facts["temperature"],
        names.TEACHER_NLL_BEFORE: teacher.facts["nll_before"],
        names.TEACHER_NLL_AFTER: teacher.facts["nll_after"],
    }
    report = document["report"]
    if report:
        metrics[names.TEACHER_REPORT_ACCURACY] = report["accuracy"]
    run.log_metrics(0, metrics)
    run.log_artifact_text(names.CALIBRATION, json.dumps(calibration_document(teacher, task), indent=1))
    run.log_artifact_text(names.RESULT, json.dumps(document, indent=1))
    run.set_description(description(data, document))


def description(data: TextData, document: dict[str, Any]) -> str:
    """Markdown above the run in the MLflow UI."""
    before, after = document["nll_before"], document["nll_after"]
    lines = [
        f"**Teacher** of **{data.name}**, `{document['teacher_id']}`.",
        f"Temperature {document['temperature']:.4f}: selection NLL {before:.4f} before, {after:.4f} after.",
    ]
    return "\n\n".join([*lines, *report_lines(data, document["report"])])


def calibration_document(teacher: Teacher, task: TeacherTask) -> dict[str, Any]:
    """Confidence against accuracy on the selection split, before the temperature and after."""
    logits, labels = teacher.logits[task.selection_rows], task.encoded.labels[task.selection_rows]
    document: dict[str, Any] = {"temperature": teacher.temperature, "split": "selection"}
    for name, temperature in (("before", 1.0), ("after", teacher.temperature)):
        diagram = reliability_diagram(logits, labels, temperature=temperature)
        document["bins"] = len(diagram.counts)
        document[name] = {
            "count": diagram.counts,
            "confidence": diagram.confidences,
            "accuracy": diagram.accuracies,
            "ece": diagram.expected_calibration_error,
            "nll": teacher.facts[f"nll_{name}"],
        }
    return document


def report_of(teacher: Teacher, task: TeacherTask, data: TextData) -> dict[str, Any]:
    """The teacher on the report split, after its own selection."""
    model = task.untrained()
    model.load_state_dict(teacher.weights())
    examples = data.read_report()
    tokenizer = load_tokenizer(task.model, twin_words=twin_words(data))
    encoded = encode(tokenizer, examples.texts, examples.labels, max_length=task.settings.max_length)
    result = score(predict(model.to(task.device), encoded, task.device, task.dtype).logits, encoded.labels)
    return {"split": data.report_name, **result._asdict(), "accuracy": result.accuracy}
