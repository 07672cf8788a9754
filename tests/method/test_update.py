"""Algorithm 1 as a whole, against the oracle and at its corners."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from cases import Case, cases, make_case, pair_list
from guards import NoHostSync, largest_tensor
from hypothesis import given
from hypothesis import strategies as st

from rapid_lab.errors import SettingError
from rapid_lab.method.update import TeacherSignals, exact_update, relational_update, teacher_signals

BACKENDS = pytest.mark.parametrize("use_matrix", [True, False], ids=["matrix", "gathered"])


@BACKENDS
@given(case=cases(max_batch=7))
def test_algorithm_1_agrees_with_a_line_by_line_oracle_at_fixed_draws(case: Case, use_matrix: bool) -> None:
    loss, gradient, info = case.run_with_gradient(use_matrix=use_matrix)
    trace = case.trace(info)
    assert float(loss) == pytest.approx(trace.loss, rel=2e-5, abs=1e-6)
    torch.testing.assert_close(gradient, torch.tensor(trace.gradient), rtol=2e-4, atol=2e-6)
    spent = (trace.num_main, trace.num_pilot, trace.unique_main, trace.unique_pilot, trace.unique_union)
    assert tuple(int(count) for count in info.spent) == spent
    count = case.batch_size * (case.batch_size - 1) / 2
    expected = [1 / (count * trace.pair_probs[pair]) for pair in pair_list(info.main_pairs)]
    assert info.correction.tolist() == pytest.approx(expected, rel=1e-5)
    assert float(info.max_correction) == pytest.approx(max(expected), rel=1e-5)
    ess = sum(expected) ** 2 / (len(expected) * sum(value**2 for value in expected))
    assert float(info.ess_fraction) == pytest.approx(ess, rel=1e-5)


@given(cases(max_batch=7))
def test_both_backends_draw_the_same_pairs_and_spend_the_same(case: Case) -> None:
    by_matrix, matrix_gradient, matrix_info = case.run_with_gradient(use_matrix=True)
    by_rows, rows_gradient, rows_info = case.run_with_gradient(use_matrix=False)
    assert pair_list(matrix_info.main_pairs) == pair_list(rows_info.main_pairs)
    assert [int(n) for n in matrix_info.spent] == [int(n) for n in rows_info.spent]
    torch.testing.assert_close(by_matrix, by_rows, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(matrix_gradient, rows_gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("size", [0, 1])
def test_fewer_than_two_examples_give_an_exact_zero_that_keeps_its_graph_and_spend_nothing(size: int) -> None:
    loss, gradient, info = make_case(size).run_with_gradient()
    assert float(loss) == 0
    assert gradient.tolist() == [[0.0] * 5] * size
    assert [int(count) for count in info.spent] == [0, 0, 0, 0, 0]


def test_two_examples_have_one_relation_which_is_enumerated() -> None:
    case = make_case(2, relation_budget=1)
    loss, info = case.run()
    assert [int(count) for count in info.spent] == [1, 0, 1, 0, 1]
    assert float(loss) == pytest.approx(case.trace().exact_loss, rel=1e-6)


@pytest.mark.parametrize(("budget", "cap"), [(3, 4096), (4, 4096), (1000, 3), (1000, 5)])
def test_a_budget_of_all_pairs_recovers_the_exact_objective_without_pilots(budget: int, cap: int) -> None:
    case = make_case(3, relation_budget=budget, relation_cap=cap)
    loss, gradient, info = case.run_with_gradient()
    assert [int(count) for count in info.spent] == [3, 0, 3, 0, 3]
    assert pair_list(info.main_pairs) == [(0, 1), (0, 2), (1, 2)]
    assert info.correction.tolist() == [1, 1, 1]
    trace = case.trace()
    assert float(loss) == pytest.approx(trace.exact_loss, rel=1e-6)
    torch.testing.assert_close(gradient, torch.tensor(trace.exact_gradient), rtol=1e-4, atol=1e-7)


def test_enumeration_needs_no_draws() -> None:
    case = replace(make_case(3), uniforms=torch.empty(0, 3, dtype=torch.float64))
    assert float(case.run()[0]) == pytest.approx(case.trace().exact_loss, rel=1e-6)


def test_a_budget_of_one_spends_one_main_relation_from_the_static_proposal() -> None:
    adaptive, info = make_case(6, relation_budget=1, residual_mix=0.9).run()
    static, _ = make_case(6, relation_budget=1, residual_mix=0.0).run()
    assert [int(count) for count in info.spent] == [1, 0, 1, 0, 1]
    assert float(adaptive) == float(static)


def test_a_cap_below_the_budget_is_the_budget() -> None:
    _, info = make_case(6, relation_budget=10, relation_cap=4).run()
    assert (info.spent.main, info.spent.pilot) == (3, 1)


@pytest.mark.parametrize("label", [0, 3])
def test_a_batch_of_one_class_is_like_any_other(label: int) -> None:
    case = make_case(6)
    case = replace(case, labels=torch.full_like(case.labels, label))
    loss, info = case.run()
    assert float(loss) == pytest.approx(case.trace(info).loss, rel=1e-5)


@BACKENDS
def test_zero_vectors_stay_finite_and_agree_with_the_oracle(use_matrix: bool) -> None:
    case = make_case(5)
    case.student[1], case.teacher[3] = 0, 0
    loss, gradient, info = case.run_with_gradient(use_matrix=use_matrix)
    trace = case.trace(info)
    assert float(loss) == pytest.approx(trace.loss, rel=1e-5)
    torch.testing.assert_close(gradient, torch.tensor(trace.gradient), rtol=1e-4, atol=1e-6)


@BACKENDS
def test_all_examples_alike_have_no_residual_and_no_gradient(use_matrix: bool) -> None:
    case = make_case(5)
    alike = replace(
        case,
        student=case.student[:1].expand(5, -1).clone(),
        teacher=case.teacher[:1].expand(5, -1).clone(),
        logits=case.logits[:1].expand(5, -1).clone(),
        labels=case.labels[:1].expand(5).clone(),
    )
    loss, gradient, _ = alike.run_with_gradient(use_matrix=use_matrix)
    assert float(loss) == pytest.approx(0, abs=1e-12)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-6)


@BACKENDS
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_representations_are_compared_in_float32(use_matrix: bool, dtype: torch.dtype) -> None:
    case = make_case(6)
    half = replace(case, student=case.student.to(dtype), teacher=case.teacher.to(dtype))
    loss, gradient, info = half.run_with_gradient(use_matrix=use_matrix)
    trace = half.trace(info)
    assert loss.dtype == torch.float32
    assert gradient.dtype == dtype
    assert float(loss) == pytest.approx(trace.loss, rel=1e-5)
    torch.testing.assert_close(gradient, torch.tensor(trace.gradient).to(dtype))


def test_methods_with_the_same_proposal_draw_the_same_pairs() -> None:
    """Uniform and gated differ in the target alone; static and RAPID agree until the proposal adapts."""
    uniform = replace(
        make_case(9, residual_mix=0.0),
        scores={**make_case().scores, "entropy_power": 0, "reliability_power": 0},
    )
    _, ungated = uniform.run(gate_strength=0.0)
    _, gated = uniform.run(gate_strength=0.5)
    assert pair_list(ungated.main_pairs) == pair_list(gated.main_pairs)
    assert ungated.correction.tolist() == pytest.approx([1.0] * 8)


def test_static_and_rapid_draw_the_same_pairs_until_the_proposal_adapts() -> None:
    case = make_case(9)
    _, static = case.run(residual_mix=0.0, pilot_fraction=0.1)
    _, warming = case.run(residual_mix=0.0, pilot_fraction=0.9)
    _, adapted = case.run(residual_mix=0.9)
    assert static.correction.std() > 0.01
    assert pair_list(static.main_pairs) == pair_list(warming.main_pairs)
    assert pair_list(adapted.main_pairs) != pair_list(static.main_pairs)[: adapted.spent.main]


def test_gradients_flow_only_through_main_pairs() -> None:
    """An example that only pilots touch gets none, though its residual moved the proposal."""
    for seed in range(30):
        case = make_case(9, seed=seed, relation_budget=5, pilot_fraction=0.5)
        _, gradient, info = case.run_with_gradient()
        main = set(info.main_pairs.first.tolist()) | set(info.main_pairs.second.tolist())
        pilot = set(info.pilot_pairs.first.tolist()) | set(info.pilot_pairs.second.tolist())
        if pilot - main:
            break
    else:
        pytest.fail("no seed has an example that only pilots touch")
    for example in range(9):
        assert bool(gradient[example].any()) == (example in main)


def test_teacher_and_signals_get_no_gradient() -> None:
    case = make_case(6)
    teacher = case.teacher.clone().requires_grad_()
    trust = case.signals.reliability.clone().requires_grad_()
    rows = case.student.clone().requires_grad_()
    loss, _ = relational_update(
        rows,
        teacher,
        TeacherSignals(trust, case.signals.static_log_scores),
        uniforms=case.uniforms,
        **case.update,
    )
    loss.backward()
    assert rows.grad is not None
    assert teacher.grad is None
    assert trust.grad is None


@BACKENDS
def test_the_update_does_not_synchronise_with_the_host(use_matrix: bool) -> None:
    case = make_case(9)
    rows = case.student.clone().requires_grad_()
    signals = case.signals
    with NoHostSync():
        loss, _ = relational_update(
            rows, case.teacher, signals, uniforms=case.uniforms, use_matrix=use_matrix, **case.update
        )
        loss.backward()
        exact, _ = exact_update(rows, case.teacher, signals, gate_strength=0.5)
        exact.backward()


def test_the_guard_against_synchronisation_catches_it() -> None:
    with NoHostSync(), pytest.raises(AssertionError, match="would synchronise"):
        bool(torch.ones(3).sum() > 2)
    with NoHostSync(), pytest.raises(AssertionError, match="would synchronise"):
        torch.ones(3)[torch.tensor([True, False, True])]


def test_a_batch_of_8192_makes_no_pair_matrix() -> None:
    case = make_case(8192, student_dim=4, teacher_dim=4, relation_budget=60)
    assert largest_tensor(lambda: case.run_with_gradient()) <= 8192 * 4


@given(st.integers(2, 6), st.integers(0, 1000))
def test_the_exact_arm_spends_all_pairs_and_no_pilots(size: int, seed: int) -> None:
    case = make_case(size, seed=seed)
    loss, info = exact_update(case.student, case.teacher, case.signals, gate_strength=0.5)
    count = size * (size - 1) // 2
    assert [int(n) for n in info.spent] == [count, 0, count, 0, count]
    assert float(loss) == pytest.approx(case.trace().exact_loss, rel=1e-5, abs=1e-8)


def test_the_exact_arm_of_one_example_spends_nothing() -> None:
    case = make_case(1)
    loss, info = exact_update(case.student, case.teacher, case.signals, gate_strength=0.5)
    assert float(loss) == 0
    assert [int(n) for n in info.spent] == [0, 0, 0, 0, 0]


@pytest.mark.usefixtures("unchecked_shapes")
def test_mismatched_shapes_are_refused_with_every_count() -> None:
    case = make_case(6)
    with pytest.raises(SettingError, match="one row for each example, got student 6, teacher 4, reliability 6"):
        relational_update(case.student, case.teacher[:4], case.signals, uniforms=case.uniforms, **case.update)


def test_too_few_draws_are_refused() -> None:
    case = replace(make_case(6), uniforms=torch.rand(5, 3, dtype=torch.float64))
    with pytest.raises(
        SettingError,
        match=r"uniforms must be float64 of at least 8 rows and 3 columns, got torch.float64 of \(5, 3\)",
    ):
        case.run()


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("uniforms", [torch.rand(8, 2).double(), torch.rand(8, 3)], ids=["narrow", "coarse"])
def test_uniforms_too_narrow_or_too_coarse_are_refused(uniforms: torch.Tensor) -> None:
    with pytest.raises(SettingError, match="uniforms must be float64"):
        replace(make_case(6), uniforms=uniforms).run()


@pytest.mark.usefixtures("unchecked_shapes")
def test_signals_need_one_label_for_each_row_and_two_classes() -> None:
    case = make_case(6)
    with pytest.raises(SettingError, match="logits, labels must have one row for each example, got logits 6, labels 1"):
        teacher_signals(case.logits, case.labels[:1], temperature=1.0, **case.scores)
    with pytest.raises(SettingError, match="at least 2 classes, got 1"):
        teacher_signals(case.logits[:, :1], 0 * case.labels, temperature=1.0, **case.scores)


@BACKENDS
def test_a_row_that_is_not_finite_makes_the_loss_so_and_breaks_nothing_else(use_matrix: bool) -> None:
    """The step's finite flag catches it; an index out of range would end a CUDA process."""
    case = make_case(6, relation_budget=12)
    for value in (float("nan"), float("inf")):
        case.student[2, 1] = value
        loss, _, info = case.run_with_gradient(use_matrix=use_matrix)
        assert loss.isnan()
        assert (info.main_pairs.second < 6).all()


@BACKENDS
def test_float64_inputs_are_compared_in_float32_too(use_matrix: bool) -> None:
    case = make_case(6)
    wide = replace(case, student=case.student.double(), teacher=case.teacher.double(), logits=case.logits.double())
    loss, gradient, _ = wide.run_with_gradient(use_matrix=use_matrix)
    expected, expected_gradient, _ = case.run_with_gradient(use_matrix=use_matrix)
    assert gradient.dtype == torch.float64
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(gradient.float(), expected_gradient, rtol=1e-4, atol=1e-6)


def test_a_bad_clip_is_refused_also_where_nothing_is_corrected() -> None:
    with pytest.raises(SettingError, match="correction_clip"):
        make_case(3, relation_budget=3).run(correction_clip=0.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gate_strength", 1.2),
        ("residual_mix", -0.1),
        ("residual_mix", 1.1),
        ("pair_defense", 0.0),
        ("endpoint_defense", 2.0),
        ("residual_floor", 0.0),
        ("relation_budget", 0),
        ("relation_cap", 0),
        ("pilot_fraction", -1.0),
        ("correction_clip", 0.0),
    ],
)
def test_a_setting_out_of_range_is_refused_by_name_range_value_and_reason(name: str, value: Any) -> None:
    with pytest.raises(SettingError, match=rf"^{name} must be .+, got {value!r}: \w+"):
        make_case(6).run(**{name: value})
