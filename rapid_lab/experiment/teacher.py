"""The teacher's own run in the tracking store: logged once, whoever asked for the teacher first."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from rapid_lab import names
from rapid_lab.batches import encode
from rapid_lab.config import Value
from rapid_lab.data.sources import TextData
from rapid_lab.experiment.duration import teacher_notice
from rapid_lab.experiment.preparation import prepare_data, teacher_task, twin_words
from rapid_lab.experiment.store import check_places, current_experiment
from rapid_lab.folders import locked
from rapid_lab.method.calibration import reliability_diagram
from rapid_lab.models import load_tokenizer
from rapid_lab.teacher import Teacher, TeacherTask, ensure_teacher
from rapid_lab.tracking.provenance import SOURCE_HASH
from rapid_lab.tracking.runs import TrackedRun, adopt_run, start_run
from rapid_lab.tracking.store import find_runs, prepare_store
from rapid_lab.training.evaluation import predict, score
from rapid_lab.training.loop import Observer
from rapid_lab.training.resources import device_name

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
    report = report_of(teacher, task, data) if settings.report == "once" else None
    run_id = record_teacher(experiment, teacher, task, data, report, start)
    facts = {name: teacher.facts[name] for name in ("temperature", "nll_before", "nll_after", "is_at_bound")}
    return {"teacher_id": teacher.teacher_id, "run_id": run_id, "dataset": data.name, **facts, "report": report}


def record_teacher(
    experiment: str,
    teacher: Teacher,
    task: TeacherTask,
    data: TextData,
    report: dict[str, Any] | None = None,
    start: Start = start_run,
) -> str:
    """The teacher's run: found by its id, else logged; a report it lacks is added."""
    wanted = {names.KIND: names.TEACHER, names.TEACHER_ID: teacher.teacher_id}
    # Several students may finish waiting for one teacher together.
    with locked(teacher.folder.with_suffix(".record.lock")):
        found = find_runs(experiment, wanted)
        whole = [run for run in found if run.status == "FINISHED" and run.tags.get(names.COMPLETE) == "true"]
        if whole and not report:
            return whole[0].run_id
        # One that is not whole was left by a process killed here, since the lock is free: it is finished, not repeated.
        left = (whole or found)[:1]
        run = (
            adopt_run(left[0].run_id) if left else start(experiment, f"teacher {data.name}", _tags(teacher, task, data))
        )
        if not whole:
            _fill(run, teacher, task)
        if report and run.next_step(names.TEACHER_REPORT_ACCURACY) == 0:
            run.log_metrics(0, {names.TEACHER_REPORT_ACCURACY: report["accuracy"]})
        run.flush()
        run.set_tags({names.COMPLETE: "true"})
        run.finish("FINISHED")
    return run.run_id


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
    }


def _fill(run: TrackedRun, teacher: Teacher, task: TeacherTask) -> None:
    """What is known of the teacher; what an earlier process has logged already is not logged twice."""
    run.log_params({f"{names.PARAM_PREFIX}{name}": value for name, value in task.identity.items()})
    metrics = {
        names.TEACHER_TEMPERATURE: teacher.facts["temperature"],
        names.TEACHER_NLL_BEFORE: teacher.facts["nll_before"],
        names.TEACHER_NLL_AFTER: teacher.facts["nll_after"],
    }
    run.log_metrics(0, metrics)
    run.log_artifact_text(names.CALIBRATION, json.dumps(calibration_document(teacher, task), indent=1))


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
