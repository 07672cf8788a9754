"""The teacher's own run in the tracking store: logged once, whoever asked for the teacher first."""

from collections.abc import Mapping
from typing import Any

from rapid_lab import names
from rapid_lab.batches import encode
from rapid_lab.config import Settings, Value
from rapid_lab.data.sources import TextData
from rapid_lab.experiment.preparation import prepare_data, prepare_teacher, twin_words
from rapid_lab.experiment.store import current_experiment
from rapid_lab.models import find_model, load_classifier, load_tokenizer
from rapid_lab.teacher import Teacher
from rapid_lab.tracking.provenance import SOURCE_HASH
from rapid_lab.tracking.runs import start_run
from rapid_lab.tracking.store import find_runs, prepare_store
from rapid_lab.training.evaluation import predict, score
from rapid_lab.training.loop import Observer
from rapid_lab.training.resources import choose_device, choose_dtype


def teacher_experiment(given: Mapping[str, Value], watcher: Observer) -> dict[str, Any]:
    """Make the teacher if there is none, and its run if the store has none."""
    settings, data = prepare_data(given)
    for warning in data.warnings:
        watcher.say(warning)
    prepare_store()
    experiment = current_experiment()
    teacher = prepare_teacher(settings, data, watcher)
    report = report_of(teacher, settings, data) if settings.report == "once" else None
    run_id = record_teacher(experiment, teacher, settings, data, report)
    facts = {name: teacher.facts[name] for name in ("temperature", "nll_before", "nll_after", "is_at_bound")}
    return {"teacher_id": teacher.teacher_id, "run_id": run_id, "dataset": data.name, **facts, "report": report}


def record_teacher(
    experiment: str, teacher: Teacher, settings: Settings, data: TextData, report: dict[str, Any] | None
) -> str:
    """The teacher's run: found by its id, else logged."""
    wanted = {names.KIND: names.TEACHER, names.TEACHER_ID: teacher.teacher_id, names.COMPLETE: "true"}
    existing = [run for run in find_runs(experiment, wanted) if run.status == "FINISHED"]
    if existing:
        return existing[0].run_id
    tags = wanted | {
        names.DATASET: data.name,
        names.DATA_SOURCE: data.source,
        names.DEVICE: settings.device,
        names.SOURCE_HASH: SOURCE_HASH,
        names.SCHEMA: str(names.SCHEMA_VERSION),
    }
    run = start_run(experiment, f"teacher {data.name}", tags)
    identity = teacher.facts["identity"]
    run.log_params({f"{names.PARAM_PREFIX}{name}": value for name, value in identity.items()})
    metrics = {
        names.TEACHER_TEMPERATURE: teacher.facts["temperature"],
        names.TEACHER_NLL_BEFORE: teacher.facts["nll_before"],
        names.TEACHER_NLL_AFTER: teacher.facts["nll_after"],
    }
    if report:
        metrics[names.TEACHER_REPORT_ACCURACY] = report["accuracy"]
    run.log_metrics(0, metrics)
    run.finish("FINISHED")
    return run.run_id


def report_of(teacher: Teacher, settings: Settings, data: TextData) -> dict[str, Any]:
    """The teacher on the report split, after its own selection."""
    device = choose_device(settings.device)
    name = find_model(settings.teacher_model, setting="teacher_model", is_twin=data.is_twin)
    model = load_classifier(
        name, layers=settings.teacher_layers, num_labels=data.num_labels, seed=settings.teacher_seed
    )
    model.load_state_dict(teacher.weights())
    examples = data.read_report()
    tokenizer = load_tokenizer(name, twin_words=twin_words(data))
    encoded = encode(tokenizer, examples.texts, examples.labels, max_length=settings.max_length)
    logits = predict(model.to(device), encoded, device, choose_dtype(settings.precision, device)).logits
    result = score(logits, encoded.labels)
    return {"split": data.report_name, **result._asdict(), "accuracy": result.accuracy}
