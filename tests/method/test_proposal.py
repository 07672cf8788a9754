"""Section 3.4: the defended factorised pair proposal, and its exact sampler."""

import itertools

import pytest
import torch
from cases import pair_list, proposals
from guards import NoHostSync, largest_tensor
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rapid_lab.errors import SettingError
from rapid_lab.method.proposal import PairProposal, build_proposal, sample_pairs, sample_uniform_pairs
from rapid_lab.method.relations import all_pairs, num_pairs

SKEWED = torch.tensor([0.4, 0.25, 0.05, 0.18, 0.12], dtype=torch.float64)


def uniforms(count: int, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(count, 3, generator=generator, dtype=torch.float64)


@given(proposals())
def test_proposition_2_the_pair_probabilities_are_normalised(proposal: PairProposal) -> None:
    probs = proposal.probs_at(all_pairs(proposal.endpoint_probs.numel()))
    torch.testing.assert_close(probs.sum(), torch.ones((), dtype=torch.float64), rtol=1e-7, atol=0)


def test_the_pair_probability_is_that_of_two_unequal_endpoints() -> None:
    """Draw both endpoints, reject equal ones: conditional probability by enumeration of ordered draws."""
    proposal = build_proposal(SKEWED, endpoint_defense=0.0, pair_defense=1e-300)
    unequal = {(i, j): float(SKEWED[i] * SKEWED[j]) for i, j in itertools.permutations(range(5), 2)}
    total = sum(unequal.values())
    expected = [(unequal[i, j] + unequal[j, i]) / total for i, j in pair_list(all_pairs(5))]
    assert proposal.probs_at(all_pairs(5)).tolist() == pytest.approx(expected, rel=1e-12)


def test_the_endpoint_defence_comes_before_the_pair_defence() -> None:
    proposal = build_proposal(SKEWED, endpoint_defense=0.2, pair_defense=0.3)
    defended = 0.8 * SKEWED + 0.2 / 5
    acceptance = 1 - defended.square().sum()
    pairs = all_pairs(5)
    factorised = 2 * defended[pairs.first] * defended[pairs.second] / acceptance
    torch.testing.assert_close(proposal.probs_at(pairs), 0.7 * factorised + 0.3 / 10)


@given(proposals())
def test_proposition_3_the_correction_is_bounded_by_one_over_the_pair_defence(proposal: PairProposal) -> None:
    size = proposal.endpoint_probs.numel()
    correction = 1 / (num_pairs(size) * proposal.probs_at(all_pairs(size)))
    assert correction.max() <= 1 / proposal.uniform_share * (1 + 1e-12)


@pytest.mark.parametrize("endpoint_defense", [0.0, 0.05])
@pytest.mark.parametrize("pair_defense", [0.1, 1e-9, 1e-60])
def test_the_uniform_share_is_the_pair_defence_to_the_last_digit(endpoint_defense: float, pair_defense: float) -> None:
    proposal = build_proposal(SKEWED, endpoint_defense=endpoint_defense, pair_defense=pair_defense)
    assert float(proposal.uniform_share) == pair_defense


@given(proposals(min_batch=4, max_batch=4))
def test_proposition_5_factorised_products_over_four_endpoints_agree(proposal: PairProposal) -> None:
    factorised = proposal._replace(uniform_share=0.0).probs_at(all_pairs(4))
    p01, p02, p03, p12, p13, p23 = factorised
    torch.testing.assert_close(p01 * p23, p02 * p13, rtol=1e-9, atol=0)
    torch.testing.assert_close(p01 * p23, p03 * p12, rtol=1e-9, atol=0)


def test_equal_scores_give_the_uniform_proposal() -> None:
    proposal = build_proposal(torch.full((7,), 1 / 7, dtype=torch.float64), endpoint_defense=0.05, pair_defense=0.1)
    torch.testing.assert_close(
        proposal.probs_at(all_pairs(7)), torch.full((21,), 1 / 21, dtype=torch.float64), rtol=1e-14, atol=0
    )


def test_an_endpoint_with_all_the_mass_and_no_defence_leaves_the_uniform_proposal() -> None:
    one_hot = torch.tensor([0.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    proposal = build_proposal(one_hot, endpoint_defense=0.0, pair_defense=0.1)
    assert proposal.probs_at(all_pairs(4)).tolist() == pytest.approx([1 / 6] * 6)
    draws = sample_pairs(proposal, uniforms(500, torch.Generator().manual_seed(1)))
    assert set(pair_list(draws)) == set(pair_list(all_pairs(4)))


def test_the_sampler_maps_the_unit_cube_onto_pairs_in_proportion_to_their_probability() -> None:
    """No chance here: a grid of midpoints fills the cube, and each pair's share of it is its probability."""
    proposal = build_proposal(SKEWED, endpoint_defense=0.1, pair_defense=0.25)
    fine, coarse = (torch.arange(800) + 0.5) / 800, (torch.arange(4) + 0.5) / 4
    draws = sample_pairs(proposal, torch.cartesian_prod(fine.double(), fine.double(), coarse.double()))
    shares = torch.bincount(draws.codes, minlength=25)[all_pairs(5).codes] / draws.codes.numel()
    torch.testing.assert_close(shares.double(), proposal.probs_at(all_pairs(5)), rtol=0, atol=5e-4)


def test_the_sampler_draws_pairs_with_the_probabilities_it_reports(generator: torch.Generator) -> None:
    """An honest sampler fails once in a million seeds; any one pair off by 5 % is caught 99.7 % of the time."""
    count = 4_000_000
    proposal = build_proposal(SKEWED, endpoint_defense=0.05, pair_defense=0.1)
    probs = proposal.probs_at(all_pairs(5)).numpy()
    draws = sample_pairs(proposal, uniforms(count, generator))
    observed = torch.bincount(draws.codes, minlength=25)[all_pairs(5).codes].numpy()
    critical = stats.chi2.isf(1e-6, df=9)
    # A pair off by 5 % takes from the others in proportion: noncentrality n 0.05^2 p / (1 - p).
    weakest = count * 0.05**2 * (probs / (1 - probs)).min()
    assert stats.ncx2.sf(critical, df=9, nc=weakest) > 0.997
    assert stats.chisquare(observed, count * probs).statistic < critical


def test_uniform_pairs_are_uniform(generator: torch.Generator) -> None:
    """An honest sampler fails once in a million seeds."""
    draws = sample_uniform_pairs(uniforms(300_000, generator), batch_size=6)
    observed = torch.bincount(draws.codes, minlength=36)[all_pairs(6).codes].numpy()
    assert observed.sum() == 300_000
    assert stats.chisquare(observed).pvalue > 1e-6


@given(proposals(max_batch=9), st.integers(0, 2**32))
def test_no_draw_pairs_an_example_with_itself(proposal: PairProposal, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    edges = torch.tensor(list(itertools.product([0.0, 0.5, 1 - 2**-53], repeat=3)), dtype=torch.float64)
    draws = sample_pairs(proposal, torch.cat((uniforms(200, generator), edges)))
    assert (draws.first >= 0).all()
    assert (draws.first < draws.second).all()
    assert (draws.second < proposal.endpoint_probs.numel()).all()


def test_the_sampler_works_at_a_batch_of_8192_with_no_pair_matrix_and_no_host_synchronisation(
    generator: torch.Generator,
) -> None:
    endpoints = torch.softmax(3 * torch.randn(8192, generator=generator, dtype=torch.float64), 0)
    rows = uniforms(256, generator)

    def draw() -> None:
        proposal = build_proposal(endpoints, endpoint_defense=0.05, pair_defense=0.1)
        pairs = sample_pairs(proposal, rows)
        assert proposal.probs_at(pairs).numel() == 256

    with NoHostSync():
        assert largest_tensor(draw) == 8192


def test_at_a_large_batch_endpoints_are_drawn_as_often_as_they_should(generator: torch.Generator) -> None:
    """The first endpoint of a factorised pair has probability a (1 - a) / Z: fails once in a million seeds."""
    size, count = 8192, 2_000_000
    endpoints = torch.softmax(torch.randn(size, generator=generator, dtype=torch.float64), 0)
    proposal = build_proposal(endpoints, endpoint_defense=0.05, pair_defense=0.1)
    pairs = sample_pairs(proposal, uniforms(count, generator))
    observed = torch.bincount(torch.cat((pairs.first, pairs.second)), minlength=size).double()
    factorised = 2 * proposal.first_mass / proposal.acceptance
    expected = count * (0.9 * factorised + 0.1 * 2 / size)
    # Sixty-four groups of endpoints; a pair has two of them, which only lowers the statistic's variance.
    groups = torch.arange(size) % 64
    observed_groups = torch.zeros(64, dtype=torch.float64).index_add_(0, groups, observed)
    expected_groups = torch.zeros(64, dtype=torch.float64).index_add_(0, groups, expected)
    statistic = ((observed_groups - expected_groups).square() / expected_groups).sum()
    assert statistic < stats.chi2.isf(1e-6, df=63)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("pair_defense", 0, r"in \(0, 1\], got 0: at 0 nothing bounds the correction"),
        ("pair_defense", 1.5, r"in \(0, 1\], got 1.5"),
        ("pair_defense", float("nan"), r"in \(0, 1\], got nan"),
        ("endpoint_defense", -0.1, r"in \[0, 1\], got -0.1: it mixes the endpoint distribution"),
    ],
)
def test_a_defence_outside_its_range_is_refused_by_name(name: str, value: float, allowed: str) -> None:
    options = {"endpoint_defense": 0.05, "pair_defense": 0.1, name: value}
    with pytest.raises(SettingError, match=rf"^{name} must be {allowed}"):
        build_proposal(SKEWED, **options)
