"""The loss of one student step: cross-entropy, distillation and the relational term, weighted.

A method is a value: what it lacks has weight zero or its neutral setting. No method has a branch of its own here.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from rapid_lab.batches import to_device
from rapid_lab.config import Settings
from rapid_lab.method.budget import effective_budget
from rapid_lab.method.distillation import distillation_loss
from rapid_lab.method.endpoints import residual_mix_at
from rapid_lab.method.update import TeacherSignals, UpdateInfo, exact_update, no_update, relational_update
from rapid_lab.models import Outputs
from rapid_lab.objectives import METHODS
from rapid_lab.seeds import stream


class TeacherRows(NamedTuple):
    """The teacher's part of a batch: logits, pooled representations, and the signals made from both."""

    logits: Float[Tensor, "batch classes"]
    pooled: Float[Tensor, "batch dim"]
    signals: TeacherSignals


class Objective:
    """The weighted terms of one method under its settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.components = METHODS[settings.method]
        self.gate_strength = settings.gate_strength if self.components.has_gate else 0.0

    @property
    def needs_teacher(self) -> bool:
        """Whether a step reads teacher signals."""
        return self.components.has_distillation or self.components.has_relations

    def residual_mix(self, epoch: int) -> float:
        """tau_t of this method in this epoch."""
        if not self.components.is_adaptive:
            return 0.0
        settings = self.settings
        return residual_mix_at(
            epoch,
            epochs=settings.epochs,
            warmup_epochs=settings.warmup_epochs,
            max_residual_mix=settings.max_residual_mix,
        )

    def loss(
        self, outputs: Outputs, labels: Int64[Tensor, " batch"], teacher: TeacherRows | None, *, epoch: int, step: int
    ) -> tuple[Float[Tensor, ""], Float64[Tensor, " metrics"]]:
        """The total to differentiate, and the record of the step, which stays on the device."""
        cross_entropy = torch.nn.functional.cross_entropy(outputs.logits.float(), labels)
        total, zero = cross_entropy, torch.zeros_like(cross_entropy)
        distillation, (relational, info) = zero, no_update(outputs.pooled)
        if teacher is not None and self.components.has_distillation:
            distillation = distillation_loss(
                outputs.logits, teacher.logits, kd_temperature=self.settings.kd_temperature
            )
            total = total + self.settings.kd_weight * distillation
        if teacher is not None and self.components.has_relations:
            relational, info = self.relations(outputs.pooled, teacher, epoch=epoch, step=step)
            total = total + self.settings.relation_weight * relational
        # Filled on the device: a tensor made from a number on the host would be copied, and waited for.
        spent = [torch.zeros_like(zero, dtype=torch.float64).add(count) for count in info.spent]
        terms = [total, cross_entropy, distillation, relational, info.ess_fraction, info.max_correction]
        return total, torch.stack([*spent, *(value.detach().double() for value in terms)])

    def relations(
        self, pooled: Float[Tensor, "batch dim"], teacher: TeacherRows, *, epoch: int, step: int
    ) -> tuple[Float[Tensor, ""], UpdateInfo]:
        """The relational term: Algorithm 1, or its target itself for the exact arm."""
        settings = self.settings
        if self.components.is_exact:
            return exact_update(pooled, teacher.pooled, teacher.signals, gate_strength=self.gate_strength)
        return relational_update(
            pooled,
            teacher.pooled,
            teacher.signals,
            uniforms=self.uniforms(len(pooled), pooled.device, epoch=epoch, step=step),
            gate_strength=self.gate_strength,
            residual_mix=self.residual_mix(epoch),
            relation_budget=settings.relation_budget,
            relation_cap=settings.relation_cap,
            pilot_fraction=settings.pilot_fraction,
            pair_defense=settings.pair_defense,
            endpoint_defense=settings.endpoint_defense,
            residual_floor=settings.residual_floor,
            correction_clip=settings.correction_clip,
        )

    def uniforms(self, batch_size: int, device: torch.device, *, epoch: int, step: int) -> Float64[Tensor, "pairs 3"]:
        """The chance of this step's pairs: common to all methods with this seed, whatever the device."""
        budget = effective_budget(
            batch_size, relation_budget=self.settings.relation_budget, relation_cap=self.settings.relation_cap
        )
        generator = stream(self.settings.seed, "pairs", epoch, step)
        return to_device(torch.rand(budget, 3, generator=generator, dtype=torch.float64), device)

    @property
    def powers(self) -> tuple[float, float]:
        """Entropy and reliability powers of the static proposal; zeros make it uniform."""
        if not self.components.has_static_proposal:
            return 0.0, 0.0
        return self.settings.entropy_power, self.settings.reliability_power
