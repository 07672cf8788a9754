"""Section 3.7: the output-level term."""

import pytest
import torch

from rapid_lab.errors import SettingError
from rapid_lab.method.distillation import distillation_loss


def test_the_divergence_is_averaged_over_the_batch_and_multiplied_by_the_squared_temperature() -> None:
    student = torch.tensor([[1.0, 0.0, -1.0], [0.5, 0.2, 0.0]], dtype=torch.float64)
    teacher = torch.tensor([[2.0, 0.0, 1.0], [0.0, 3.0, 0.0]], dtype=torch.float64)
    p, q = torch.softmax(teacher / 2, 1), torch.softmax(student / 2, 1)
    expected = 4 * (p * (p / q).log()).sum() / 2
    torch.testing.assert_close(distillation_loss(student, teacher, kd_temperature=2), expected.float())


def test_a_student_with_its_teachers_logits_has_nothing_to_learn() -> None:
    logits = torch.randn(4, 3, requires_grad=True)
    loss = distillation_loss(logits, logits.detach(), kd_temperature=2)
    assert float(loss.detach()) == pytest.approx(0, abs=1e-7)
    torch.testing.assert_close(torch.autograd.grad(loss, logits)[0], torch.zeros(4, 3), rtol=0, atol=1e-7)


def test_the_teacher_gets_no_gradient() -> None:
    student, teacher = torch.randn(4, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True)
    distillation_loss(student, teacher, kd_temperature=2).backward()
    assert student.grad is not None
    assert teacher.grad is None


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("shape", [(1, 3), (4, 1)])
def test_logits_of_another_shape_are_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(SettingError, match=r"teacher_logits must have the student's shape \(4, 3\), got"):
        distillation_loss(torch.ones(4, 3), torch.ones(shape), kd_temperature=2)


def test_a_temperature_of_zero_is_refused() -> None:
    with pytest.raises(SettingError, match=r"kd_temperature must be in \[0.001, 1000\], got 0: logits"):
        distillation_loss(torch.ones(1, 2), torch.ones(1, 2), kd_temperature=0)
