"""Training and selection: 90 to 10 by floor, by seed 1729, recorded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapid_lab.data.splits import split_indices
from rapid_lab.errors import DataError


@pytest.mark.parametrize(("count", "train", "selection"), [(120_000, 108_000, 12_000), (67_349, 60_614, 6_735)])
def test_the_sizes_are_those_of_the_paper(count: int, train: int, selection: int) -> None:
    split = split_indices(count, split_seed=1729)
    assert (len(split.train), len(split.selection)) == (train, selection)


@given(count=st.integers(2, 500), seed=st.integers(0, 2**63 - 1))
def test_every_example_is_on_one_side(count: int, seed: int) -> None:
    split = split_indices(count, split_seed=seed)
    assert sorted(split.train + split.selection) == list(range(count))
    assert split.train
    assert split.selection


def test_the_split_depends_on_its_seed_and_size_alone_and_the_hash_tells() -> None:
    first, again = split_indices(100, split_seed=1729), split_indices(100, split_seed=1729)
    assert first == again
    hashes = {first.indices_hash, split_indices(100, split_seed=1).indices_hash}
    assert len(hashes | {split_indices(101, split_seed=1729).indices_hash}) == 3


def test_the_split_of_the_record_does_not_move() -> None:
    """Numbers of earlier runs rest on it: a change here is a Numbers entry of the CHANGELOG."""
    split = split_indices(10, split_seed=1729)
    assert split.selection == [7]
    assert split.indices_hash.startswith("53ed97f5e729c51a")


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_examples_cannot_be_split(count: int) -> None:
    with pytest.raises(DataError, match=f"{count} examples"):
        split_indices(count, split_seed=1729)
