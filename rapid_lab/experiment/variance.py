"""Every proposal judged on real batches of a state: the selected weights of a run, or a checkpoint of one.

The state may come from any method. Dropout is off: the variance is that of the pairs, given the representations.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from rapid_lab import names
from rapid_lab.batches import epoch_batches
from rapid_lab.config import Settings, Value, read_config
from rapid_lab.errors import SettingError
from rapid_lab.experiment.preparation import Prepared, prepare, prepare_data, teacher_task
from rapid_lab.experiment.run import ready_teacher, run_folder, selected_weights, served_teacher
from rapid_lab.experiment.store import current_experiment
from rapid_lab.files import open_tensors
from rapid_lab.folders import is_file
from rapid_lab.harmless import shown
from rapid_lab.method.budget import effective_budget
from rapid_lab.method.judgement import Judgement, ProposalSummary, judge_batch, summarise
from rapid_lab.models import forward
from rapid_lab.seeds import stream
from rapid_lab.teacher import Teacher
from rapid_lab.tracking.artifacts import read_text
from rapid_lab.tracking.runs import TrackedRun, existing_run
from rapid_lab.tracking.store import existing_store, find_runs
from rapid_lab.training.loop import Observer
from rapid_lab.training.resources import autocast

# The settings that a judgement reads, by the names it knows them by.
JUDGED = (
    "gate_strength", "relation_budget", "relation_cap", "pilot_fraction", "pair_defense", "endpoint_defense",
    "residual_floor",
)  # fmt: skip


class State(NamedTuple):
    """A run of the store, and the checkpoint whose weights are meant instead of its selected ones."""

    run: TrackedRun
    checkpoint: Path | None


def judge_state(name: str, *, num_batches: int, realisations: int, watcher: Observer) -> list[ProposalSummary]:
    """The variances of every proposal over the first full batches of the run's data, at the run's budget."""
    existing_store()
    state = find_state(name)
    # Adaptive and gated whatever trained: the proposals are judged for the target that RAPID estimates.
    settings, data = prepare_data({**config_of(state.run), "method": "rapid"})
    prepared = prepare(settings, data)
    prepared.model.load_state_dict(weights_of(state))
    teacher = ready_teacher(teacher_task(settings, data), data, state.run.experiment_id, watcher)
    return summarise(list(judged_batches(prepared, teacher, num_batches, realisations)))


def find_state(name: str) -> State:
    """A run id, or the path of a checkpoint, whose folder is named after its run's config id."""
    path = Path(name)
    if not is_file(path):
        return State(existing_run(name), None)
    wanted = {names.CONFIG_ID: path.parent.name, names.KIND: names.STUDENT}
    found = find_runs(current_experiment(), wanted)
    if not found:
        raise SettingError(
            f"state must be a checkpoint of a run in the tracking store, got {shown(name)}: no run has the config id "
            f"{path.parent.name!r} that its folder is named after"
        )
    return State(existing_run(found[0].run_id), path)


def config_of(run: TrackedRun) -> dict[str, Value]:
    """The settings a run has recorded."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / names.CONFIG
        path.write_text(read_text(run, names.CONFIG), encoding="utf-8")
        return read_config(path, is_recorded=True)


def weights_of(state: State) -> dict[str, Tensor]:
    """The weights of the state."""
    if state.checkpoint is None:
        return selected_weights(state.run, run_folder(config_id_of(state.run)))
    tensors, _ = open_tensors(state.checkpoint)
    prefix = "model/"
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def config_id_of(run: TrackedRun) -> str:
    """The config id in the run's tags; a run that has none is no student."""
    tags = run.client.get_run(run.run_id).data.tags
    if tags.get(names.KIND) != names.STUDENT:
        kind = tags.get(names.KIND, "run of something else")
        raise SettingError(f"state must be the run of a student, got {run.run_id!r}: it is a {kind}")
    return str(tags[names.CONFIG_ID])


@torch.no_grad()
def judged_batches(
    prepared: Prepared, teacher: Teacher, num_batches: int, realisations: int
) -> Iterator[dict[str, Judgement]]:
    """Full batches of the run's first epoch, one judgement each."""
    settings = prepared.settings
    rows_of = served_teacher(prepared, teacher)
    train = prepared.encoded.subset(prepared.split.train)
    model = prepared.model.to(prepared.device).eval()
    batches = epoch_batches(
        train,
        batch_size=settings.batch_size,
        seed=settings.seed,
        epoch=1,
        group_by_length=settings.group_by_length,
    )
    for index, rows in enumerate(batches[:num_batches]):
        if len(rows) < settings.batch_size:
            break
        batch = train.batch(rows, prepared.device)
        with autocast(prepared.device, prepared.dtype):
            pooled = forward(model, batch.ids, batch.mask).pooled
        targets = rows_of(rows, prepared.device)
        yield judge_batch(
            pooled,
            targets.pooled,
            targets.signals,
            pilot_uniforms=pilot_uniforms(settings, realisations, index).to(prepared.device),
            residual_mix=settings.max_residual_mix,
            **{name: getattr(settings, name) for name in JUDGED},
        )


def pilot_uniforms(settings: Settings, realisations: int, batch: int) -> Tensor:
    """Chance for every realisation's pilots: no more than the whole budget could be."""
    budget = effective_budget(
        settings.batch_size, relation_budget=settings.relation_budget, relation_cap=settings.relation_cap
    )
    generator = stream(settings.seed, "variance", batch)
    return torch.rand(realisations, budget, 3, generator=generator, dtype=torch.float64)
