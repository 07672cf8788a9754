"""The exact gated target: both of its forms, their error, their gradient, their memory."""

import pytest
import torch
from cases import Case, cases, make_case
from guards import largest_tensor
from hypothesis import given
from torch import Tensor

from rapid_lab.errors import SettingError
from rapid_lab.method import target
from rapid_lab.method.gate import mean_gate
from rapid_lab.method.target import Form, cheaper_form, gated_target

FORMS = pytest.mark.parametrize("form", ["pairs", "features"])


def exact(case: Case, form: Form, student: Tensor | None = None) -> tuple[float, Tensor]:
    rows = (case.student if student is None else student).clone().requires_grad_()
    strength = case.update["gate_strength"]
    loss = gated_target(rows, case.teacher, case.signals.reliability, gate_strength=strength, form=form)
    return float(loss.detach()), torch.autograd.grad(loss, rows)[0]


@FORMS
@given(case=cases(max_batch=8))
def test_the_exact_target_is_the_mean_over_all_pairs_with_its_gradient(case: Case, form: Form) -> None:
    loss, gradient = exact(case, form)
    trace = case.trace()
    assert loss == pytest.approx(trace.exact_loss, rel=1e-5, abs=1e-7)
    torch.testing.assert_close(gradient, torch.tensor(trace.exact_gradient), rtol=1e-4, atol=1e-6)


@FORMS
def test_tiles_and_panels_do_not_show(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    case = make_case(9)
    whole = exact(case, form)
    monkeypatch.setattr(target, "TILE", 2)
    loss, gradient = exact(case, form)
    assert loss == pytest.approx(whole[0], rel=1e-6)
    torch.testing.assert_close(gradient, whole[1])


@FORMS
def test_zero_rows_have_no_diagonal_to_cancel(form: Form) -> None:
    case = make_case(4)
    rows = case.student.clone()
    rows[2] = 0
    loss, gradient = exact(case, form, rows)
    expected, expected_gradient = exact(case, "pairs", rows)
    with_zero = Case(rows, case.teacher, case.logits, case.labels, case.uniforms)
    assert loss == pytest.approx(with_zero.trace().exact_loss, rel=1e-6)
    assert loss == pytest.approx(expected, rel=1e-6)
    torch.testing.assert_close(gradient, expected_gradient)
    torch.testing.assert_close(gradient, torch.tensor(with_zero.trace().exact_gradient), rtol=1e-4, atol=1e-6)


def near_teacher(size: int, dim: int) -> tuple[Tensor, Tensor, Tensor, float]:
    """A student whose residuals are about 1e-3, and the loss in float64 by the definition."""
    generator = torch.Generator().manual_seed(5)
    teacher = torch.randn(size, dim, generator=generator)
    student = teacher + 6e-3 * torch.randn(size, dim, generator=generator)
    trust = torch.rand(size, generator=generator) + 0.05

    return student, teacher, trust, definition(student, teacher, trust)


def definition(student: Tensor, teacher: Tensor, trust: Tensor) -> float:
    """The loss at lambda = 0.5 in float64, pair by pair; its residuals are about 1e-3."""

    def cosines(rows: Tensor) -> Tensor:
        rows = rows.double() / rows.double().norm(dim=1, keepdim=True)
        return rows @ rows.T

    residuals = cosines(teacher) - cosines(student)
    gates = torch.outer(trust.double(), trust.double())
    upper = torch.ones(len(trust), len(trust)).triu(1).bool()
    weights = 0.5 + 0.5 * gates / gates[upper].mean()
    assert 1e-4 < residuals[upper].abs().mean() < 2e-3
    return float((weights * residuals.square())[upper].mean())


@FORMS
@pytest.mark.parametrize(("size", "dim"), [(64, 64), (300, 48), (1024, 32)])
def test_the_relative_error_stays_below_1e_4_at_residuals_of_1e_3(form: Form, size: int, dim: int) -> None:
    student, teacher, trust, expected = near_teacher(size, dim)
    loss = gated_target(student, teacher, trust, gate_strength=0.5, form=form)
    assert float(loss) == pytest.approx(expected, rel=1e-4)


def test_float32_gram_matrices_would_miss_that_error() -> None:
    """Why the features form is the one exception to float32 relation math."""
    student, teacher, trust, expected = near_teacher(1024, 32)
    unit = torch.nn.functional.normalize
    total = torch.zeros(())
    for share, weights in ((0.5, torch.ones_like(trust)), (0.5 / mean_gate(trust), trust)):
        s, t = (unit(rows) * weights.sqrt()[:, None] for rows in (student, teacher))
        grams = (t.T @ t).square().sum() - 2 * (t.T @ s).square().sum() + (s.T @ s).square().sum()
        total = total + share / 2 * grams
    assert abs(float(total) / (1024 * 1023 / 2) - expected) > 1e-3 * expected


@pytest.mark.parametrize("size", [2, 8, 16, 64, 65])
def test_small_batches_with_a_common_direction_keep_that_error_too(size: int) -> None:
    """Cosines near one leave little room in float32, and few pairs average out little rounding."""
    generator = torch.Generator().manual_seed(size)
    shared = 3 * torch.randn(1, 768, generator=generator)
    teacher = shared + torch.randn(size, 768, generator=generator)
    student = teacher + 0.03 * torch.randn(size, 768, generator=generator)
    trust = torch.rand(size, generator=generator) + 0.05
    expected = definition(student, teacher, trust)
    rows = student.clone().requires_grad_()
    loss = gated_target(rows, teacher, trust, gate_strength=0.5, form="pairs")
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-4)


def test_half_precision_gradients_survive_a_loss_scale() -> None:
    """A gradient below float16's smallest number must not be rounded to zero before the scale lifts it."""
    case = make_case(32, student_dim=64, teacher_dim=64)
    half = (case.student + 1.0).half()
    rows, wide = half.clone().requires_grad_(), half.float().requires_grad_()
    trust = case.signals.reliability
    scaled = 65536 * gated_target(rows, case.teacher, trust, gate_strength=0.5)
    (gradient,) = torch.autograd.grad(scaled, rows)
    (expected,) = torch.autograd.grad(65536 * gated_target(wide, case.teacher, trust, gate_strength=0.5), wide)
    torch.testing.assert_close(gradient.float(), expected, rtol=2e-3, atol=1e-3)


@pytest.mark.usefixtures("unchecked_shapes")
def test_rows_that_do_not_match_are_refused() -> None:
    case = make_case(6)
    with pytest.raises(SettingError, match="one row for each example, got student 6, teacher 8, reliability 6"):
        gated_target(case.student, make_case(8).teacher, case.signals.reliability, gate_strength=0.5)


@FORMS
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_rows_are_widened_first(form: Form, dtype: torch.dtype) -> None:
    case = make_case(6)
    half = Case(case.student.to(dtype), case.teacher.to(dtype), case.logits, case.labels, case.uniforms)
    wide = Case(half.student.float(), half.teacher.float(), case.logits, case.labels, case.uniforms)
    loss, gradient = exact(half, form)
    expected, expected_gradient = exact(wide, form)
    assert loss == pytest.approx(expected, rel=1e-6)
    assert gradient.dtype == dtype
    torch.testing.assert_close(gradient, expected_gradient.to(dtype))


@FORMS
@pytest.mark.parametrize("size", [0, 1])
def test_fewer_than_two_examples_give_an_exact_zero_that_keeps_its_graph(form: Form, size: int) -> None:
    rows = torch.full((size, 3), float("nan"), requires_grad=True)
    loss = gated_target(rows, torch.ones(size, 4), torch.ones(size), gate_strength=0.5, form=form)
    assert float(loss.detach()) == 0
    assert torch.autograd.grad(loss, rows)[0].tolist() == [[0.0] * 3] * size


@FORMS
def test_no_tensor_of_all_pairs_is_made(form: Form) -> None:
    size, dim = 2048, 8
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(size, dim, generator=generator, requires_grad=True)
    teacher, trust = torch.randn(size, dim, generator=generator), torch.rand(size, generator=generator) + 0.1

    def run() -> None:
        loss = gated_target(rows, teacher, trust, gate_strength=0.5, form=form)
        loss.backward()

    assert largest_tensor(run) <= max(target.TILE**2, size * dim)


def test_the_cheaper_form_follows_the_sizes() -> None:
    wide, narrow = torch.ones(32, 768), torch.ones(8192, 16)
    assert cheaper_form(wide, wide, gate_strength=0.5) == "pairs"
    assert cheaper_form(narrow, narrow, gate_strength=0.5) == "features"


def test_a_second_backward_over_the_same_graph_is_refused_rather_than_wrong() -> None:
    case = make_case(4)
    rows = case.student.clone().requires_grad_()
    loss = gated_target(rows, case.teacher, case.signals.reliability, gate_strength=0.5)
    torch.autograd.grad(2 * loss, rows, retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, rows)
