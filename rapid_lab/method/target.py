"""Section 3.2: the gated target itself, over all pairs, with its gradient in the student rows.

It is what every estimator is compared with, and the training arm `exact`. Two forms give the same number:

- pairs: tiles of the pair matrix, each used and dropped; O(B^2 d) time. Float32, but for small batches.
- features: the pair weights are a constant plus a rank-one term, so all pairs together are
  |T'T|^2 - 2 |T'S|^2 + |S'S|^2 for unit rows T and S, once as they are and once scaled by sqrt(r); O(B d^2) time,
  linear in B. The three terms nearly cancel when the student is close to the teacher, so they are float64.

Neither holds a B x B tensor. The cheaper one is chosen; on a GPU, where float64 is slow, that is the first.
"""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from rapid_lab.method.gate import mean_gate
from rapid_lab.method.relations import full_precision, num_pairs, row_scales, slices, through_unit_, unit
from rapid_lab.method.validation import check_rows
from rapid_lab.ranges import check

Form = Literal["pairs", "features"]

TILE = 256
SMALL_BATCH = 64
# A float64 product costs this many float32 ones on a CPU (benchmarks/pair_term.py).
FLOAT64_COST = 2.6


def gated_target(
    student: Float[Tensor, "batch student_dim"],
    teacher: Float[Tensor, "batch teacher_dim"],
    reliability: Float[Tensor, " batch"],
    *,
    gate_strength: float,
    form: Form | None = None,
) -> Float[Tensor, ""]:
    """L_lambda = 1/M sum_{i<j} w_ij (c_T - c_S)^2, differentiable in the student; zero for B < 2."""
    check(gate_strength=gate_strength)
    check_rows(student=student, teacher=teacher, reliability=reliability)
    if student.shape[0] < 2:
        return student[:0].float().sum()
    if form is None:
        form = cheaper_form(student, teacher, gate_strength=gate_strength)
    loss: Tensor = _GatedTarget.apply(student, teacher.detach(), reliability.detach(), gate_strength, form)
    return loss


def cheaper_form(
    student: Float[Tensor, "batch student_dim"],
    teacher: Float[Tensor, "batch teacher_dim"],
    *,
    gate_strength: float,
) -> Form:
    """The form with fewer multiplications, gradient included."""
    if student.device.type != "cpu":
        return "pairs"
    batch_size, student_dim = student.shape
    teacher_dim = teacher.shape[1]
    num_grams = 1 if gate_strength in (0, 1) else 2
    products = teacher_dim**2 + 2 * teacher_dim * student_dim + 2 * student_dim**2
    features = FLOAT64_COST * num_grams * batch_size * products
    pairs = batch_size**2 * (teacher_dim + 3 * student_dim) / 2
    return "features" if features < pairs else "pairs"


class _GatedTarget(torch.autograd.Function):
    """Loss and gradient come from the same products, so both are made in one pass."""

    @staticmethod
    def forward(
        ctx: Any, student: Tensor, teacher: Tensor, reliability: Tensor, gate_strength: float, form: Form
    ) -> Tensor:
        compute = _by_pairs if form == "pairs" else _by_features
        # Few pairs average out little rounding, and cost little in float64.
        dtype = torch.float64 if form == "pairs" and len(student) <= SMALL_BATCH else torch.float32
        gradient = torch.zeros_like(student, dtype=dtype) if ctx.needs_input_grad[0] else None
        with full_precision(student.device):
            total = compute(student, teacher, reliability.double(), gate_strength, gradient, dtype)
        count = num_pairs(student.shape[0])
        if gradient is not None:
            gradient = gradient.div_(count).float()
            radial = torch.empty_like(gradient[:, 0])
            for rows in slices(len(student), TILE):
                radial[rows] = (gradient[rows] * unit(student[rows])).sum(1)
            ctx.save_for_backward(through_unit_(gradient, student, row_scales(student), radial))
            ctx.dtype = student.dtype
        return (total / count).float()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        (student_gradient,) = ctx.saved_tensors
        # In place saves a copy; a second backward over the same graph is refused by autograd's version check.
        return student_gradient.mul_(gradient).to(ctx.dtype), None, None, None, None


def _by_pairs(
    student: Tensor,
    teacher: Tensor,
    reliability: Tensor,
    gate_strength: float,
    gradient: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    """Sum of w d^2 over i < j by tiles; adds its gradient at the unit rows to `gradient`."""
    total = torch.zeros((), dtype=torch.float64, device=student.device)
    gates = (reliability * (gate_strength / mean_gate(reliability))).to(dtype)
    reliability = reliability.to(dtype)
    tiles = list(slices(len(student), TILE))
    for index, rows in enumerate(tiles):
        student_rows, teacher_rows = unit(student[rows], dtype), unit(teacher[rows], dtype)
        for columns in tiles[index:]:
            is_diagonal = columns is rows
            student_columns = student_rows if is_diagonal else unit(student[columns], dtype)
            teacher_columns = teacher_rows if is_diagonal else unit(teacher[columns], dtype)
            residual = teacher_rows @ teacher_columns.T
            residual.addmm_(student_rows, student_columns.T, alpha=-1)
            weighted = torch.outer(gates[rows], reliability[columns]).add_(1 - gate_strength).mul_(residual)
            if is_diagonal:
                weighted.triu_(1)
            total += torch.linalg.vecdot(weighted.flatten(), residual.flatten())
            if gradient is not None:
                gradient[rows].addmm_(weighted, student_columns, alpha=-2)
                gradient[columns].addmm_(weighted.T, student_rows, alpha=-2)
    return total


def _by_features(
    student: Tensor,
    teacher: Tensor,
    reliability: Tensor,
    gate_strength: float,
    gradient: Tensor | None,
    _: torch.dtype,
) -> Tensor:
    """The same sum by float64 Gram matrices, a panel of their columns at a time.

    All ordered pairs count each relation twice, and the diagonal once for zero rows, where it is not zero.
    """
    total = torch.zeros((), dtype=torch.float64, device=student.device)
    gated_share = gate_strength / mean_gate(reliability)
    parts: list[tuple[Any, Tensor]] = [(1 - gate_strength, torch.ones_like(reliability)), (gated_share, reliability)]
    for share, weights in parts[gate_strength == 1 : 2 - (gate_strength == 0)]:
        for panel in slices(teacher.shape[1], TILE):
            total += share / 2 * _gram_panel(teacher, teacher, weights, panel).square().sum()
        for panel in slices(student.shape[1], TILE):
            student_gram = _gram_panel(student, student, weights, panel)
            cross_gram = _gram_panel(teacher, student, weights, panel)
            total += share / 2 * (student_gram.square().sum() - 2 * cross_gram.square().sum())
            if gradient is None:
                continue
            for rows in slices(len(student), TILE):
                slope = (
                    unit(student[rows], torch.float64) @ student_gram - unit(teacher[rows], torch.float64) @ cross_gram
                )
                gradient[rows, panel] += 2 * share * weights[rows, None] * slope
    for rows in slices(len(student), TILE):
        student_rows, teacher_rows = unit(student[rows], torch.float64), unit(teacher[rows], torch.float64)
        residual = teacher_rows.square().sum(1) - student_rows.square().sum(1)
        weight = 1 - gate_strength + gated_share * reliability[rows].square()
        total -= (weight * residual.square()).sum() / 2
        if gradient is not None:
            gradient[rows] += 2 * (weight * residual)[:, None] * student_rows
    return total


def _gram_panel(left: Tensor, right: Tensor, weights: Tensor, panel: slice) -> Tensor:
    """sum_i weight_i left_i right_i[panel]' over unit rows, in float64."""
    gram = left.new_zeros((left.shape[1], panel.stop - panel.start), dtype=torch.float64)
    for rows in slices(len(left), TILE):
        left_rows = unit(left[rows], torch.float64)
        right_rows = left_rows if right is left else unit(right[rows], torch.float64)
        gram.addmm_(left_rows.T, right_rows[:, panel] * weights[rows, None])
    return gram
