"""Section 3.1: relations are cosines between pooled representations, always in float32.

Two backends give the same numbers. The gathered one touches only the rows of the pairs asked for, in O(K d)
time and, beyond the gradient, O(B + K) memory. The matrix one forms all B x B products first, which is faster
for small batches. `prefers_matrix` chooses by size, never by method.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd.function import once_differentiable

NORM_FLOOR = 1e-12

# A matrix of this many entries a pair or fewer beats gathering the pairs' rows (benchmarks/pair_term.py).
MATRIX_ENTRIES_PER_PAIR = 192
# Rows gathered at a time: small enough for the cache of a CPU core, large enough to fill a GPU.
CHUNK_ELEMENTS = {"cpu": 2**18, "cuda": 2**25}


class Pairs(NamedTuple):
    """Unordered pairs of batch positions, `first` < `second`, and the place of each in the B x B matrix."""

    first: Int64[Tensor, " pairs"]
    second: Int64[Tensor, " pairs"]
    codes: Int64[Tensor, " pairs"]


def unordered(first: Int64[Tensor, " pairs"], second: Int64[Tensor, " pairs"], *, batch_size: int) -> Pairs:
    """The unordered pairs of these endpoints, which come in either order."""
    low, high = torch.minimum(first, second), torch.maximum(first, second)
    return Pairs(low, high, torch.add(high, low, alpha=batch_size))


ResidualLookup = Callable[[Pairs], Float[Tensor, " pairs"]]


def num_pairs(batch_size: int) -> int:
    """M = B (B - 1) / 2, the number of unordered relations of a batch."""
    return batch_size * (batch_size - 1) // 2


def all_pairs(batch_size: int, device: torch.device | str = "cpu") -> Pairs:
    """Every unordered pair once, row by row: (0, 1), (0, 2), ..., (B-2, B-1)."""
    first, second = torch.triu_indices(batch_size, batch_size, offset=1, device=device)
    return unordered(first, second, batch_size=batch_size)


def no_pairs(device: torch.device | str = "cpu") -> Pairs:
    """The empty set of pairs."""
    return Pairs(*(torch.empty(0, dtype=torch.int64, device=device) for _ in Pairs._fields))


def row_scales(rows: Float[Tensor, "batch dim"]) -> Float[Tensor, " batch"]:
    """1 / max(|v|, 1e-12) of each row, in float32."""
    return torch.linalg.vector_norm(rows.float(), dim=1).clamp_min_(NORM_FLOOR).reciprocal_()


def unit(rows: Float[Tensor, "batch dim"], dtype: torch.dtype = torch.float32) -> Float[Tensor, "batch dim"]:
    """nu(v) = v / max(|v|, 1e-12); not `F.cosine_similarity`, whose epsilon is another one."""
    return torch.nn.functional.normalize(rows.to(dtype), dim=1, eps=NORM_FLOOR)


def prefers_matrix(batch_size: int, pair_count: int) -> bool:
    """Whether the B x B backend is the faster one for this many pairs."""
    return batch_size * batch_size <= MATRIX_ENTRIES_PER_PAIR * pair_count


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Keep relation products in float32 where autocast, TF32 or bf16 matmuls would shorten them."""
    backends: Any = torch.backends.cuda if device.type == "cuda" else torch.backends.mkldnn
    backend = backends.matmul
    precision = backend.fp32_precision
    is_shortened = precision in ("tf32", "bf16")
    if not is_shortened and not torch.is_autocast_enabled(device.type):
        yield
        return
    if is_shortened:
        backend.fp32_precision = "ieee"
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        if is_shortened:
            backend.fp32_precision = precision


def slices(count: int, step: int) -> Iterator[slice]:
    """0..count in parts of `step`, the last one shorter."""
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


def chunks(count: int, dim: int, device: torch.device) -> Iterator[slice]:
    """Parts of 0..count whose rows of `dim` numbers fit the working set of the device."""
    elements = CHUNK_ELEMENTS.get(device.type, CHUNK_ELEMENTS["cpu"])
    return slices(count, max(1, elements // max(dim, 1)))


def through_unit_(
    unit_gradient: Float[Tensor, "batch dim"],
    rows: Float[Tensor, "batch dim"],
    scales: Float[Tensor, " batch"],
    radial: Float[Tensor, " batch"],
) -> Float[Tensor, "batch dim"]:
    """Chain a gradient at unit rows back to the rows, in place; `radial` is its inner product with them.

    Below the norm floor `unit` is linear, so nothing is projected out there.
    """
    is_above_floor = scales < 1 / NORM_FLOOR
    unit_gradient.addcmul_(rows.float(), -(is_above_floor * radial * scales)[:, None])
    return unit_gradient.mul_(scales[:, None])


class _MatrixResiduals(torch.autograd.Function):
    """Entries of the residual matrix. Their gradient is one product A h: A holds projection and scales."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, scales: Tensor, similarities: Tensor, residuals: Tensor, codes: Tensor
    ) -> Tensor:
        ctx.save_for_backward(rows, scales, similarities, codes)
        return residuals.index_select(0, codes)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        rows, scales, similarities, codes = ctx.saved_tensors
        slopes = torch.zeros_like(similarities)
        slopes.view(-1).index_add_(0, codes, gradient, alpha=-1)
        slopes = slopes + slopes.T
        radial = (slopes * similarities).sum(1).mul_(scales < 1 / NORM_FLOOR).mul_(scales)
        slopes.mul_(scales).diagonal().sub_(radial)
        slopes.mul_(scales.unsqueeze(1))
        with full_precision(rows.device):
            return (slopes @ rows.float()).to(rows.dtype), None, None, None, None


class _GatheredResiduals(torch.autograd.Function):
    """Residuals of the pairs asked for; forward and backward gather a chunk of rows at a time."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, scales: Tensor, teacher: Tensor, teacher_scales: Tensor, *pair: Tensor
    ) -> Tensor:
        similarities = _gathered_similarities(rows, scales, *pair)
        ctx.save_for_backward(rows, scales, similarities, *pair)
        return _gathered_similarities(teacher, teacher_scales, *pair) - similarities

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, scales, similarities, first, second = ctx.saved_tensors
        unit_gradient = torch.zeros(rows.shape, dtype=torch.float32, device=rows.device)
        for part in chunks(first.numel(), rows.shape[1], rows.device):
            for here, there in ((first[part], second[part]), (second[part], first[part])):
                weights = gradient[part] * scales[there]
                unit_gradient.index_add_(0, here, rows[there].float().mul_(weights[:, None]), alpha=-1)
        radial_parts = gradient * similarities
        radial = torch.zeros_like(scales).index_add_(0, first, radial_parts, alpha=-1)
        radial.index_add_(0, second, radial_parts, alpha=-1)
        return through_unit_(unit_gradient, rows, scales, radial).to(rows.dtype), None, None, None, None, None


def _gathered_similarities(rows: Tensor, scales: Tensor, first: Tensor, second: Tensor) -> Tensor:
    similarities = torch.empty(first.shape, dtype=torch.float32, device=rows.device)
    for part in chunks(first.numel(), rows.shape[1], rows.device):
        left, right = first[part], second[part]
        unit_left = rows[left].float() * scales[left, None]
        unit_right = rows[right].float() * scales[right, None]
        torch.sum(unit_left.mul_(unit_right), dim=1, out=similarities[part])
    return similarities


@torch.no_grad()
def similarity_matrix(rows: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch batch"]:
    """All cosines of a batch, as constants."""
    unit_rows = unit(rows)
    with full_precision(rows.device):
        return unit_rows @ unit_rows.T


def residual_lookup(
    student: Float[Tensor, "batch student_dim"],
    teacher: Float[Tensor, "batch teacher_dim"],
    *,
    use_matrix: bool,
) -> ResidualLookup:
    """A function from pairs to c_T - c_S, differentiable in the student, by the backend asked for."""
    with torch.no_grad():
        scales = row_scales(student)
        if not use_matrix:
            teacher_scales = row_scales(teacher)
            return lambda pairs: _applied(
                _GatheredResiduals,
                student,
                scales,
                teacher.detach(),
                teacher_scales,
                pairs.first,
                pairs.second,
            )
        wide = student.float()
        with full_precision(student.device):
            similarities = (wide @ wide.T).mul_(scales).mul_(scales.unsqueeze(1))
        residuals = (similarity_matrix(teacher) - similarities).view(-1)
    return lambda pairs: _applied(_MatrixResiduals, student, scales, similarities, residuals, pairs.codes)


def _applied(function: type[torch.autograd.Function], *arguments: Tensor) -> Tensor:
    result: Tensor = function.apply(*arguments)
    return result


def count_unique(
    main: Pairs, pilot: Pairs, *, batch_size: int, use_matrix: bool
) -> tuple[Int64[Tensor, ""], Int64[Tensor, ""], Int64[Tensor, ""]]:
    """Distinct pairs of each set and of their union, on the device: `torch.unique` would synchronise."""
    if use_matrix:
        seen = torch.zeros(batch_size * batch_size, dtype=torch.int64, device=main.codes.device)
        unique_main = seen.index_fill_(0, main.codes, 1).sum()
        if pilot.codes.numel() == 0:
            return unique_main, torch.zeros_like(unique_main), unique_main
        unique_union = seen.index_fill_(0, pilot.codes, 1).sum()
        return unique_main, seen.zero_().index_fill_(0, pilot.codes, 1).sum(), unique_union
    return (
        _count_distinct(main.codes),
        _count_distinct(pilot.codes),
        _count_distinct(torch.cat((main.codes, pilot.codes))),
    )


def _count_distinct(codes: Int64[Tensor, " pairs"]) -> Int64[Tensor, ""]:
    ordered = codes.sort().values
    return (ordered[1:] != ordered[:-1]).sum() + min(codes.numel(), 1)
