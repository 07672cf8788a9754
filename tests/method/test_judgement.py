"""Every proposal judged on one batch, at equal budget."""

import json
import math
from dataclasses import replace

import pytest
import torch
from cases import Case, make_case

from rapid_lab.cli.variance import document, rendered
from rapid_lab.errors import SettingError
from rapid_lab.method.judgement import Judgement, judge_batch, summarise


def judged(case: Case, realisations: int = 4, **changes: object) -> dict[str, Judgement]:
    generator = torch.Generator().manual_seed(9)
    uniforms = torch.rand(realisations, 32, 3, generator=generator, dtype=torch.float64)
    options = {**case.update, **changes}
    return judge_batch(case.student, case.teacher, case.signals, pilot_uniforms=uniforms, **options)


@pytest.mark.parametrize(("name", "power"), [("static", 1.0), ("uniform", 0.0)])
def test_the_variance_of_uniform_and_of_static_draws_is_the_oracles(name: str, power: float) -> None:
    case = make_case(6, residual_mix=0.0)
    case = replace(case, scores={**case.scores, "entropy_power": power, "reliability_power": power})
    _, info = case.run()
    trace = case.trace(info)
    judgement = judged(case)[name]
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
        {"uniform": Judgement(8, 2.0, 4.0, 0, 1.0), "static": Judgement(8, ratio * 2.0, 2.0, ratio, 0.5)}
        for ratio in (0.5, 1.0, 2.0)
    ]
    uniform, static = summarise(batches)
    assert (uniform.loss_ratio.median, uniform.gradient_ratio.pooled) == (1, 1)
    assert static.num_batches == 3
    assert static.loss_ratio == pytest.approx((0.75, 1.0, 1.5, 7 / 6))
    assert static.gradient_ratio == pytest.approx((0.5, 0.5, 0.5, 0.5))
    assert static.ess_fraction == 0.5
    assert static.chi_square == pytest.approx(3.5 / 3)


def test_a_variance_without_bound_passes_through_the_summary_and_is_null_in_json() -> None:
    batches = [
        {"uniform": Judgement(8, 2.0, 4.0, 0, 1.0), "oracle": Judgement(8, value, 2.0, 0, 0.5)}
        for value in (1.0, math.inf, math.inf)
    ]
    summaries = summarise(batches)
    assert summaries[1].loss_ratio == (math.inf, math.inf, math.inf, math.inf)
    plain = json.loads(json.dumps(document(summaries), allow_nan=False))
    assert plain["num_batches"] == 3
    assert plain["proposals"][1]["loss_ratio"]["median"] is None
    assert plain["proposals"][1]["gradient_ratio"]["median"] == 0.5


def test_the_table_has_a_line_for_each_proposal_and_says_over_how_many_batches() -> None:
    lines = rendered(summarise([judged(make_case(6, seed=seed)) for seed in range(5)])).splitlines()
    assert lines[2].split() == ["uniform", "8.0", *["1.000", "1.000", "..", "1.000", "1.000"] * 2, "1.000"]
    assert [line.split("  ")[0] for line in lines[2:8]] == list(judged(make_case(6)))
    assert "Medians over 5 batches, relative to uniform at equal budget" in lines[-1]


def test_a_batch_that_is_enumerated_has_no_variance_to_judge() -> None:
    with pytest.raises(SettingError, match="relation_budget must be below the 15 pairs of the batch, got 15"):
        judged(make_case(6, relation_budget=15))
    with pytest.raises(SettingError, match="at least one judged batch"):
        summarise([])


def test_pilots_that_were_not_drawn_are_not_charged() -> None:
    case = make_case(6)
    for shape in ((0, 32, 3), (2, 1, 3)):
        with pytest.raises(SettingError, match="uniforms must"):
            judge_batch(
                case.student,
                case.teacher,
                case.signals,
                pilot_uniforms=torch.rand(shape, dtype=torch.float64),
                **case.update,
            )
