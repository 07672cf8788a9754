"""The loss of a step: what each method is made of, what it spends, and what paired seeds share."""

from typing import Any

import pytest
import torch
from torch import Tensor
from training.lab import BATCH_SIZE, CPU, make_encoded, make_settings, make_student, make_teacher

from rapid_lab.method.update import UpdateInfo
from rapid_lab.models import forward
from rapid_lab.names import STEP_METRICS
from rapid_lab.objectives import METHODS
from rapid_lab.teacher import serve
from rapid_lab.terms import Objective

RECORDED = STEP_METRICS[:-2]


def one_step(method: str, *, epoch: int = 3, **changes: Any) -> tuple[Tensor, dict[str, float], UpdateInfo]:
    """The total, the record and the relations of one batch."""
    objective, encoded = Objective(make_settings(method, **changes)), make_encoded(BATCH_SIZE)
    batch = encoded.batch(range(BATCH_SIZE), CPU)
    outputs = forward(make_student().eval(), batch.ids, batch.mask)
    teacher = serve(make_teacher(encoded), objective, encoded.labels, range(BATCH_SIZE))(batch.rows, CPU)
    total, record = objective.loss(outputs, batch.labels, teacher, epoch=epoch, step=0)
    _, info = objective.relations(outputs.pooled, teacher, epoch=epoch, step=0)
    return total, dict(zip(RECORDED, record.tolist(), strict=True)), info


@pytest.mark.parametrize("method", METHODS)
def test_the_record_has_every_metric_of_a_step_in_order(method: str) -> None:
    total, record, info = one_step(method)
    if METHODS[method].has_relations:
        assert [record[name] for name in RECORDED[:5]] == [float(count) for count in info.spent]
    assert record["loss/total"] == pytest.approx(float(total.detach()))
    assert 0 < record["proposal/ess_fraction"] <= 1 + 1e-6
    assert record["proposal/max_correction"] > 0


@pytest.mark.parametrize("method", METHODS)
def test_the_total_is_the_weighted_sum_of_the_terms(method: str) -> None:
    _, record, _ = one_step(method, kd_weight=0.7, relation_weight=3.0)
    weighted = record["loss/ce"] + 0.7 * record["loss/kd"] + 3.0 * record["loss/relational"]
    assert record["loss/total"] == pytest.approx(weighted, rel=1e-6)
    assert (record["loss/kd"] > 0) == METHODS[method].has_distillation
    assert (record["loss/relational"] > 0) == METHODS[method].has_relations


@pytest.mark.parametrize("method", ["student_ce", "kd"])
def test_methods_without_relations_log_zero_relations(method: str) -> None:
    _, record, _ = one_step(method)
    assert [record[name] for name in RECORDED if name.startswith("relations/")] == [0.0] * 5


def test_methods_with_one_proposal_draw_the_same_pairs() -> None:
    uniform, gated, static = (one_step(method)[2].main_pairs.codes for method in ("uniform", "gated", "static"))
    assert torch.equal(uniform, gated)
    assert not torch.equal(gated, static)


def test_another_seed_draws_other_pairs() -> None:
    assert not torch.equal(one_step("uniform")[2].main_pairs.codes, one_step("uniform", seed=43)[2].main_pairs.codes)


def test_rapid_is_static_until_the_warm_up_is_over() -> None:
    assert one_step("rapid", epoch=1)[1] == one_step("static", epoch=1)[1]
    assert one_step("rapid", epoch=2)[1]["relations/pilot"] == 1
    assert one_step("static", epoch=2)[1]["relations/pilot"] == 0


def test_without_residual_mixing_rapid_is_static_and_pays_no_pilots() -> None:
    assert one_step("rapid", max_residual_mix=0.0)[1] == one_step("static")[1]


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_of_one_has_a_relational_term_of_zero_and_a_gradient(method: str) -> None:
    objective, encoded = Objective(make_settings(method)), make_encoded(1)
    batch, student = encoded.batch([0], CPU), make_student()
    outputs = forward(student, batch.ids, batch.mask)
    teacher = serve(make_teacher(encoded), objective, encoded.labels, [0])(batch.rows, CPU)
    total, record = objective.loss(outputs, batch.labels, teacher, epoch=3, step=0)
    total.backward()
    assert record[RECORDED.index("loss/relational")] == 0
    assert record[:5].tolist() == [0.0] * 5
    assert all(torch.isfinite(weight.grad).all() for weight in student.parameters() if weight.grad is not None)
