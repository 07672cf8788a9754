"""Batches: every row once an epoch, in an order of the seed's own, padded and masked."""

import pytest
import torch
from training.lab import CPU, make_encoded

from rapid_lab.batches import Encoded, encode, epoch_batches, in_order
from rapid_lab.models import load_tokenizer


def batches_of(encoded: Encoded, *, seed: int = 42, epoch: int = 1, group_by_length: bool = False) -> list[list[int]]:
    return epoch_batches(encoded, batch_size=8, seed=seed, epoch=epoch, group_by_length=group_by_length)


@pytest.mark.parametrize("group_by_length", [False, True])
@pytest.mark.parametrize("count", [8, 44, 48, 1000])
def test_every_row_comes_once_an_epoch_and_the_partial_batch_last(count: int, group_by_length: bool) -> None:
    batches = batches_of(make_encoded(count), group_by_length=group_by_length)
    sizes = [len(rows) for rows in batches]
    assert sorted(row for rows in batches for row in rows) == list(range(count))
    assert sizes == [8] * (count // 8) + [count % 8] * (count % 8 > 0)


@pytest.mark.parametrize("group_by_length", [False, True])
def test_order_belongs_to_seed_and_epoch_alone(group_by_length: bool) -> None:
    encoded = make_encoded(60)
    first = batches_of(encoded, group_by_length=group_by_length)
    assert batches_of(encoded, group_by_length=group_by_length) == first
    assert batches_of(encoded, seed=43, group_by_length=group_by_length) != first
    assert batches_of(encoded, epoch=2, group_by_length=group_by_length) != first


def padding_of(encoded: Encoded, batches: list[list[int]]) -> int:
    return sum(int((encoded.batch(rows, CPU).mask == 0).sum()) for rows in batches)


def test_batches_by_length_pad_less_and_stay_random() -> None:
    encoded = make_encoded(1003)
    by_length = batches_of(encoded, group_by_length=True)
    assert padding_of(encoded, by_length) < padding_of(encoded, batches_of(encoded)) / 4
    lengths = [encoded.length(rows[0]) for rows in by_length]
    assert lengths != sorted(lengths)


def test_the_partial_batch_does_not_always_hold_the_longest_texts() -> None:
    encoded = make_encoded(43)
    longest = {max(range(43), key=encoded.length)}
    partial = [set(batches_of(encoded, epoch=epoch, group_by_length=True)[-1]) for epoch in range(1, 11)]
    assert len({frozenset(rows) for rows in partial}) == 10
    assert not all(longest <= rows for rows in partial)


def test_a_batch_is_padded_to_its_longest_text_and_masked() -> None:
    flat = torch.tensor([5, 6, 7, 8, 9, 10], dtype=torch.int32)
    encoded = Encoded(flat, [0, 3, 4, 6], torch.tensor([2, 0, 1]), padding=1)
    batch = encoded.batch([2, 1], CPU)
    assert batch.rows == [2, 1]
    assert batch.ids.tolist() == [[9, 10], [8, 1]]
    assert batch.mask.tolist() == [[1, 1], [1, 0]]
    assert batch.labels.tolist() == [1, 0]


def test_a_subset_has_the_rows_asked_for_in_their_order() -> None:
    encoded = make_encoded(20)
    part = encoded.subset([7, 3])
    for here, there in enumerate([7, 3]):
        ours, theirs = part.batch([here], CPU), encoded.batch([there], CPU)
        assert (ours.ids.tolist(), ours.labels.tolist()) == (theirs.ids.tolist(), theirs.labels.tolist())
    assert len(encoded.subset([])) == 0


def test_evaluation_sees_every_row_once_by_length() -> None:
    encoded = make_encoded(44)
    rows = [row for batch in in_order(encoded, batch_size=8) for row in batch]
    lengths = [encoded.length(row) for row in rows]
    assert sorted(rows) == list(range(44))
    assert lengths == sorted(lengths)


def test_a_text_is_cut_to_max_length_between_its_special_tokens() -> None:
    tokenizer = load_tokenizer("twin-bert", twin_words=["a", "b", "c"])
    encoded = encode(tokenizer, ["a b c a b c", "b", "unheard"], [0, 1, 0], max_length=5)
    start, end, unknown = tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.unk_token_id
    a, b, c = tokenizer.convert_tokens_to_ids(["a", "b", "c"])
    assert encoded.flat.tolist() == [start, a, b, c, end, start, b, end, start, unknown, end]
    assert encoded.starts == [0, 5, 8, 11]
    assert encoded.labels.tolist() == [0, 1, 0]
    assert encoded.padding == tokenizer.pad_token_id
