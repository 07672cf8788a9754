"""Section 3.1, and the two backends."""

from typing import Any

import pytest
import torch
from cases import make_case, pair_list
from torch import Tensor

from rapid_lab.method import relations
from rapid_lab.method.relations import (
    all_pairs,
    count_unique,
    no_pairs,
    num_pairs,
    prefers_matrix,
    residual_lookup,
    similarity_matrix,
    unit,
    unordered,
)

BACKENDS = pytest.mark.parametrize("use_matrix", [True, False], ids=["matrix", "gathered"])


def plain_residuals(student: Tensor, teacher: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """The definition, in float64 and plain autograd."""

    def cosines(rows: Tensor) -> Tensor:
        rows = rows.double()
        rows = rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)
        return (rows[first] * rows[second]).sum(1)

    return cosines(teacher) - cosines(student)


def test_unit_divides_by_the_norm_or_by_the_floor_whichever_is_larger() -> None:
    rows = torch.tensor([[3.0, 4.0], [0.0, 0.0], [3e-13, 4e-13]])
    torch.testing.assert_close(unit(rows), torch.tensor([[0.6, 0.8], [0.0, 0.0], [0.3, 0.4]]))


def test_the_relation_set_holds_every_unordered_pair_once() -> None:
    assert pair_list(all_pairs(4)) == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    assert [num_pairs(size) for size in range(5)] == [0, 0, 1, 3, 6]


def test_a_pair_is_the_same_in_either_order() -> None:
    pairs = unordered(torch.tensor([3, 1]), torch.tensor([1, 3]), batch_size=5)
    assert pair_list(pairs) == [(1, 3), (1, 3)]
    assert pairs.codes.tolist() == [8, 8]


@BACKENDS
@pytest.mark.parametrize("chunk", [1, 3, 10**6])
def test_both_backends_give_the_residuals_and_gradients_of_the_definition(
    use_matrix: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = make_case(7)
    monkeypatch.setitem(relations.CHUNK_ELEMENTS, "cpu", chunk * 5)
    first, second = torch.tensor([0, 2, 2, 5, 0, 6]), torch.tensor([3, 1, 1, 6, 3, 0])
    weights = torch.tensor([1.0, -2.0, 0.5, 3.0, 0.25, 7.0])
    rows = case.student.clone().requires_grad_()
    residuals = residual_lookup(rows, case.teacher, use_matrix=use_matrix)(unordered(first, second, batch_size=7))
    (gradient,) = torch.autograd.grad((weights * residuals).sum(), rows)

    reference_rows = case.student.clone().requires_grad_()
    reference = plain_residuals(reference_rows, case.teacher, first, second)
    (expected,) = torch.autograd.grad((weights * reference).sum(), reference_rows)
    torch.testing.assert_close(residuals, reference.float())
    torch.testing.assert_close(gradient, expected)


@BACKENDS
def test_a_zero_vector_has_zero_similarity_and_the_gradient_of_the_linear_part(use_matrix: bool) -> None:
    case = make_case(3, student_dim=2)
    rows = torch.tensor([[0.0, 0.0], [3.0, 4.0], [1e-13, 0.0]], requires_grad=True)
    pairs = all_pairs(3)
    lookup = residual_lookup(rows, case.teacher, use_matrix=use_matrix)
    expected = similarity_matrix(case.teacher)[pairs.first, pairs.second] - torch.tensor([0.0, 0.0, 0.06])
    torch.testing.assert_close(lookup(pairs), expected)
    (gradient,) = torch.autograd.grad(lookup(pairs)[0], rows)  # c_01 = <h_0, u_1> / 1e-12
    torch.testing.assert_close(gradient[0], torch.tensor([-0.6e12, -0.8e12]))
    assert gradient.isfinite().all()


@BACKENDS
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_relation_math_is_float32_whatever_the_dtype_of_the_rows(use_matrix: bool, dtype: torch.dtype) -> None:
    case = make_case(6)
    half = case.student.to(dtype)
    rows = half.clone().requires_grad_()
    pairs = all_pairs(6)
    residuals = residual_lookup(rows, case.teacher.to(dtype), use_matrix=use_matrix)(pairs)
    wide = residual_lookup(half.float(), case.teacher.to(dtype).float(), use_matrix=use_matrix)(pairs)
    assert residuals.dtype == torch.float32
    torch.testing.assert_close(residuals, wide, rtol=0, atol=1e-6)
    (gradient,) = torch.autograd.grad(residuals.sum(), rows)
    assert gradient.dtype == dtype


@BACKENDS
def test_autocast_does_not_shorten_relations(use_matrix: bool) -> None:
    case = make_case(6)
    rows = case.student.clone().requires_grad_()
    pairs = all_pairs(6)
    plain = residual_lookup(rows, case.teacher, use_matrix=use_matrix)(pairs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = residual_lookup(rows, case.teacher, use_matrix=use_matrix)(pairs)
        (gradient,) = torch.autograd.grad(cast.square().sum(), rows)
    torch.testing.assert_close(cast, plain, rtol=0, atol=0)
    torch.testing.assert_close(gradient, torch.autograd.grad(plain.square().sum(), rows)[0], rtol=0, atol=0)


@BACKENDS
def test_short_matrix_products_do_not_shorten_relations(use_matrix: bool) -> None:
    """The user may allow bf16 products elsewhere; the setting is left as it was."""
    case = make_case(40, student_dim=64, teacher_dim=64)
    pairs = all_pairs(40)
    plain = residual_lookup(case.student, case.teacher, use_matrix=use_matrix)(pairs)
    backend: Any = torch.backends.mkldnn
    backend.matmul.fp32_precision = "bf16"
    try:
        short = residual_lookup(case.student, case.teacher, use_matrix=use_matrix)(pairs)
        assert backend.matmul.fp32_precision == "bf16"
    finally:
        backend.matmul.fp32_precision = "none"
    torch.testing.assert_close(short, plain, rtol=0, atol=0)


@BACKENDS
def test_unique_counts_are_those_of_sets(use_matrix: bool, generator: torch.Generator) -> None:
    first = torch.randint(0, 5, (40,), generator=generator)
    second = (first + torch.randint(1, 6, (40,), generator=generator)) % 6
    main = unordered(first[:30], second[:30], batch_size=6)
    pilot = unordered(first[30:], second[30:], batch_size=6)
    counts = count_unique(main, pilot, batch_size=6, use_matrix=use_matrix)
    sets = set(pair_list(main)), set(pair_list(pilot)), set(pair_list(main)) | set(pair_list(pilot))
    assert [int(count) for count in counts] == [len(members) for members in sets]
    counts = count_unique(main, no_pairs(), batch_size=6, use_matrix=use_matrix)
    assert [int(count) for count in counts] == [len(sets[0]), 0, len(sets[0])]


def test_the_backend_is_chosen_by_size_alone() -> None:
    assert prefers_matrix(32, 32)
    assert prefers_matrix(32, 256)
    assert not prefers_matrix(4096, 4096)
