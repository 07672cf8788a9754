"""Is the sampled relational term cheaper than all pairs? Forward plus backward, time and peak memory.

    python benchmarks/pair_term.py [--sizes 32 256 ...] [--seconds 20] [--report]

At d = 768 and K = B. `rapid` is all of Algorithm 1 in an adaptive epoch: pilots, proposal, sampling, counts, loss,
backward. `all pairs` is the same gated loss through the B x B similarity matrix and autograd.
"""

import argparse
import functools
from collections.abc import Callable

import harness
import torch
from torch import Tensor

from rapid_lab.method.endpoints import normalise
from rapid_lab.method.gate import mean_gate
from rapid_lab.method.proposal import build_proposal, sample_pairs
from rapid_lab.method.target import Form, cheaper_form, gated_target
from rapid_lab.method.update import TeacherSignals, relational_update, teacher_signals

DIM = 768
SETTINGS = {
    "relation_cap": 10**9,
    "pilot_fraction": 0.1,
    "pair_defense": 0.1,
    "endpoint_defense": 0.05,
    "residual_floor": 1e-6,
}


class Batch:
    """One batch at a size, with a student near its teacher."""

    def __init__(self, size: int) -> None:
        generator = torch.Generator().manual_seed(size)
        self.size = size
        self.teacher = torch.randn(size, DIM, generator=generator)
        noise = torch.randn(size, DIM, generator=generator)
        self.student = (self.teacher + 0.5 * noise).requires_grad_()
        self.logits = 3 * torch.randn(size, 4, generator=generator)
        self.labels = torch.randint(0, 4, (size,), generator=generator)
        self.uniforms = torch.rand(size, 3, generator=generator, dtype=torch.float64)

    def signals(self, power: float) -> TeacherSignals:
        return teacher_signals(
            self.logits,
            self.labels,
            temperature=1.5,
            entropy_power=power,
            reliability_power=power,
            entropy_floor=0.01,
            reliability_floor=0.05,
        )


def all_pairs_loss(student: Tensor, teacher: Tensor, reliability: Tensor, gate_strength: float = 0.5) -> Tensor:
    """The gated loss as one would write it: two B x B similarity matrices and autograd."""
    size = len(student)
    student = student / student.norm(dim=1, keepdim=True).clamp_min(1e-12)
    teacher = teacher / teacher.norm(dim=1, keepdim=True).clamp_min(1e-12)
    gates = torch.outer(reliability, reliability) / mean_gate(reliability)
    weights = (1 - gate_strength) + gate_strength * gates
    losses = weights * (teacher @ teacher.T - student @ student.T).square()
    return losses.triu(1).sum() / (size * (size - 1) / 2)


def backward(batch: Batch, loss: Callable[[], Tensor]) -> None:
    loss().backward()
    batch.student.grad = None


def arms_of(batch: Batch) -> dict[str, harness.Arm]:
    """Every arm as a call that goes forward and backward once."""
    informed, flat = batch.signals(1.0), batch.signals(0.0)

    def sampled(signals: TeacherSignals, residual_mix: float, gate_strength: float) -> Tensor:
        loss, _ = relational_update(
            batch.student,
            batch.teacher,
            signals,
            uniforms=batch.uniforms,
            gate_strength=gate_strength,
            residual_mix=residual_mix,
            relation_budget=batch.size,
            **SETTINGS,  # type: ignore[arg-type]
        )
        return loss

    def exact(form: Form) -> Tensor:
        return gated_target(batch.student, batch.teacher, informed.reliability, gate_strength=0.5, form=form)

    losses: dict[str, Callable[[], Tensor]] = {
        "all pairs": lambda: all_pairs_loss(batch.student, batch.teacher, informed.reliability),
        "uniform": lambda: sampled(flat, 0.0, 0.0),
        "rapid": lambda: sampled(informed, 0.25, 0.5),
        "exact, pairs": lambda: exact("pairs"),
        "exact, features": lambda: exact("features"),
    }
    return {name: functools.partial(backward, batch, loss) for name, loss in losses.items()}


def proposal_times(sizes: list[int], draws: int, seconds: float) -> list[list[str]]:
    """Proposal plus sampling at a fixed K, over B."""
    arms: dict[str, harness.Arm] = {}
    for size in sizes:
        batch = Batch(size)
        scores = batch.signals(1.0).static_log_scores
        uniforms = torch.rand(draws, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

        def draw(scores: Tensor = scores, uniforms: Tensor = uniforms) -> None:
            proposal = build_proposal(normalise(scores), endpoint_defense=0.05, pair_defense=0.1)
            proposal.probs_at(sample_pairs(proposal, uniforms))

        arms[str(size)] = draw
    medians = harness.interleaved_medians(arms, seconds=seconds)
    return [[size, f"{1e6 * medians[size]:.0f}", f"{1e9 * medians[size] / int(size):.0f}"] for size in medians]


def measure(sizes: list[int], seconds: float) -> tuple[list[list[str]], list[list[str]]]:
    """Rows of times and of peak memory, each with its ratio to all pairs."""
    times, memories = [], []
    for size in sizes:
        batch = Batch(size)
        arms = arms_of(batch)
        chosen = cheaper_form(batch.student, batch.teacher, gate_strength=0.5)
        medians = harness.interleaved_medians(arms, seconds=seconds)
        peaks = {name: harness.peak_tensor_bytes(arm) for name, arm in arms.items()}
        times.append([f"{size}", *_cells(medians, 1e3, "ms"), chosen])
        memories.append([f"{size}", *_cells(peaks, 2**-20, "MiB"), chosen])
        print(times[-1], memories[-1], sep="\n", flush=True)
    return times, memories


def _cells(values: dict[str, float] | dict[str, int], scale: float, unit: str) -> list[str]:
    reference = values["all pairs"]
    return [
        f"{scale * value:.3g} {unit}" + ("" if name == "all pairs" else f" ({reference / value:.2f}x)")
        for name, value in values.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 64, 128, 256, 512, 1024, 2048, 4096, 8192])
    parser.add_argument("--seconds", type=float, default=20.0, help="time for each size")
    parser.add_argument("--report", action="store_true", help="write benchmarks/reports/<date>-pair_term.md")
    options = parser.parse_args()
    harness.prepare()
    times, memories = measure(options.sizes, options.seconds)
    growth = proposal_times(options.sizes, draws=256, seconds=options.seconds)
    header = ["B", "all pairs", "uniform", "rapid", "exact, pairs", "exact, features", "form chosen"]
    sections = [
        "Forward plus backward at d = 768, K = B; in brackets how many times better than all pairs.",
        "## Time (median)\n\n" + harness.table(header, times),
        "## Peak tensor memory above the inputs\n\n" + harness.table(header, memories),
        "## Proposal plus sampling at K = 256\n\n" + harness.table(["B", "microseconds", "ns an example"], growth),
    ]
    print("\n\n".join(sections))
    if options.report:
        print(harness.write_report("pair_term", "The sampled term against all pairs", sections))


if __name__ == "__main__":
    main()
