"""Section 3.7: the output-level term that KD and every relational method share."""

import torch
from jaxtyping import Float
from torch import Tensor

from rapid_lab.errors import SettingError
from rapid_lab.ranges import check


def distillation_loss(
    student_logits: Float[Tensor, "batch classes"],
    teacher_logits: Float[Tensor, "batch classes"],
    *,
    kd_temperature: float,
) -> Float[Tensor, ""]:
    """T^2 KL(p_T || p_S) at the KD temperature, averaged over the batch; the logits are not calibrated."""
    check(kd_temperature=kd_temperature)
    if student_logits.shape != teacher_logits.shape:
        raise SettingError(
            f"teacher_logits must have the student's shape {tuple(student_logits.shape)}, "
            f"got {tuple(teacher_logits.shape)}: distributions are compared class by class"
        )
    student = torch.log_softmax(student_logits.float() / kd_temperature, dim=1)
    teacher = torch.log_softmax(teacher_logits.detach().float() / kd_temperature, dim=1)
    divergence = torch.nn.functional.kl_div(student, teacher, reduction="batchmean", log_target=True)
    return kd_temperature**2 * divergence
