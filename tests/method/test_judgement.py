"""Every proposal judged on one batch, at equal budget."""

import pytest
import torch
from cases import Case, make_case

from rapid_lab.errors import SettingError
from rapid_lab.method.judgement import Judgement, judge_batch, summarise


def judged(case: Case, realisations: int = 4, **changes: object) -> dict[str, Judgement]:
    generator = torch.Generator().manual_seed(9)
    uniforms = torch.rand(realisations, 32, 3, generator=generator, dtype=torch.float64)
    options = {**case.update, **changes}
    return judge_batch(case.student, case.teacher, case.signals, pilot_uniforms=uniforms, **options)


def test_the_variance_of_uniform_and_of_static_draws_is_the_oracles() -> None:
    case = make_case(6, residual_mix=0.0)
    _, info = case.run()
    trace = case.trace(info)
    judgement = judged(case)["static"]
    assert judgement.main == 8
    assert judgement.loss_variance == pytest.approx(trace.loss_variance, rel=1e-5)
    assert judgement.gradient_variance == pytest.approx(trace.gradient_variance, rel=1e-4)


def test_rapid_is_judged_on_what_its_pilots_leave_of_the_budget() -> None:
    judgements = judged(make_case(6))
    assert judgements["rapid"].main == 6
    assert {judgements[name].main for name in judgements if name != "rapid"} == {8}


def test_rapid_is_the_mean_over_pilot_realisations() -> None:
    case = make_case(6)
    both = judged(case, realisations=2)["rapid"]
    generator = torch.Generator().manual_seed(9)
    uniforms = torch.rand(2, 32, 3, generator=generator, dtype=torch.float64)
    singles = [
        judge_batch(case.student, case.teacher, case.signals, pilot_uniforms=part[None], **case.update)["rapid"]
        for part in uniforms
    ]
    assert singles[0].loss_variance != singles[1].loss_variance
    assert both.loss_variance == pytest.approx(sum(single.loss_variance for single in singles) / 2)


def test_without_adaptation_rapid_is_static() -> None:
    judgements = judged(make_case(6, residual_mix=0.0))
    assert judgements["rapid"] == pytest.approx(judgements["static"])


def test_each_oracle_is_best_in_its_own_variance() -> None:
    judgements = judged(make_case(6))
    assert judgements["loss oracle"].loss_variance == pytest.approx(0, abs=1e-15)
    with_replacement = [name for name in judgements if "without" not in name]
    best = min(with_replacement, key=lambda name: judgements[name].gradient_variance)
    assert best == "gradient oracle"


def test_the_summary_is_relative_to_uniform_with_its_spread_over_batches() -> None:
    batches = [
        {"uniform": Judgement(8, 2.0, 4.0, 0, 1.0), "static": Judgement(8, ratio * 2.0, 2.0, 0, 0.5)}
        for ratio in (0.5, 1.0, 2.0)
    ]
    uniform, static = summarise(batches)
    assert (uniform.loss_ratio.median, uniform.gradient_ratio.pooled) == (1, 1)
    assert static.num_batches == 3
    assert static.loss_ratio == pytest.approx((0.75, 1.0, 1.5, 7 / 6))
    assert static.gradient_ratio == pytest.approx((0.5, 0.5, 0.5, 0.5))
    assert static.ess_fraction == 0.5


def test_a_batch_that_is_enumerated_has_no_variance_to_judge() -> None:
    with pytest.raises(SettingError, match="relation_budget must be below the 15 pairs of the batch, got 15"):
        judged(make_case(6, relation_budget=15))
    with pytest.raises(SettingError, match="at least one judged batch"):
        summarise([])
