"""One student on two and on three ranks: what one process would have made of the same global batches."""

import itertools
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._C._distributed_c10d import Store, TCPStore
from torchrun import start_ranks
from training import rank_program
from training.lab import BATCH_SIZE, EPOCHS, NUM_BATCHES, make_job
from training.rank_program import ENDED_STEP, SIZES

from rapid_lab.models import Outputs, forward
from rapid_lab.names import PEAK_MB, STEP_METRICS, STEP_MS
from rapid_lab.objectives import METHODS
from rapid_lab.seeds import derived_seed
from rapid_lab.training import evaluation, loop
from rapid_lab.training.distributed import ALONE, Ranks, own_part
from rapid_lab.training.ledger import COLUMNS
from rapid_lab.training.loop import train

COUNTS = slice(0, 5)  # of the table: relations
# Sums in another order. AdamW divides a gradient by its size: where that is zero but for rounding, as at the biases of
# attention keys, weights differ most.
GRADIENT_TOLERANCE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}
WEIGHT_TOLERANCE: dict[str, Any] = {"rtol": 0.0, "atol": 1e-4}
RECORD_TOLERANCE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-6}

Found = dict[int, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "FLUSH_STEPS", 1)
        patch.setattr(loop, "CHECKPOINT_STEPS", 4)
        patch.setattr(evaluation, "EVALUATION_BATCH", 4)
        return rank_program.findings(ALONE, folder)


def run_ranks(size: int, task: str, folder: Path) -> list[tuple[Any, str]]:
    """What every rank has found, and how it was refused at first."""
    process = start_ranks(size, rank_program.__file__, task, str(folder), folder=folder)
    output = process.communicate(timeout=300)
    assert process.returncode == 0, output
    return [torch.load(folder / f"rank {rank}.pt") for rank in range(size)]


@pytest.fixture(scope="module")
def launched(folder: Path, alone: dict[str, Any]) -> list[tuple[Any, str]]:
    """Three processes, which take seconds to start; two of them are two ranks first."""
    return run_ranks(3, "by_two_and_by_three", folder)


@pytest.fixture(scope="module")
def together(launched: list[tuple[Any, str]]) -> Found:
    """What each of two ranks has found, and each of three."""
    return {size: [found[size] for found, _ in launched[:size]] for size in (2, 3)}


def ranks_of(together: Found) -> list[tuple[int, dict[str, Any]]]:
    return [(size, found) for size, ranks in together.items() for found in ranks]


def assert_weights(weights: dict[str, Tensor], expected: dict[str, Tensor], tolerance: dict[str, Any]) -> None:
    assert weights.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close({name: weights[name]}, {name: expected[name]}, **tolerance)  # told by its name


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("method", METHODS)
def test_the_gradient_is_that_of_one_process(method: str, size: int, together: Found, alone: dict[str, Any]) -> None:
    for _, found in ranks_of(together):
        assert_weights(found["gradients"][method, size], alone["gradients"][method, size], GRADIENT_TOLERANCE)


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_every_rank_has_the_same_gradient_to_the_bit(num_ranks: int, together: Found) -> None:
    first, *others = (found["gradients"] for found in together[num_ranks])
    for other in others:
        for case, gradient in first.items():
            assert all(torch.equal(other[case][name], tensor) for name, tensor in gradient.items()), case


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_a_gradient_without_that_of_the_representations_or_an_average_would_be_noticed(
    num_ranks: int, together: Found, alone: dict[str, Any]
) -> None:
    right = alone["gradients"]["rapid", BATCH_SIZE]
    averaged = {name: tensor / num_ranks for name, tensor in together[num_ranks][0]["gradients"]["rapid", 8].items()}
    for wrong in (together[num_ranks][0]["detached"], averaged):
        with pytest.raises(AssertionError):
            assert_weights(wrong, right, GRADIENT_TOLERANCE)


@pytest.mark.parametrize("method", METHODS)
def test_a_training_without_dropout_ends_as_that_of_one_process(
    method: str, together: Found, alone: dict[str, Any]
) -> None:
    """Fifteen full batches and three of four, which three ranks share as one, one and two."""
    expected = alone["without dropout"][method]
    for _, found in ranks_of(together):
        trained = found["without dropout"][method]
        assert_weights(trained["weights"], expected["weights"], WEIGHT_TOLERANCE)
        assert torch.equal(trained["table"][:, COUNTS], expected["table"][:, COUNTS])
        torch.testing.assert_close(trained["table"], expected["table"], **RECORD_TOLERANCE)
        assert trained["pairs"] == expected["pairs"]
        assert trained["pilots"] == expected["pilots"]
        assert trained["selected_epoch"] == expected["selected_epoch"]
        for ours, theirs in zip(trained["epochs"], expected["epochs"], strict=True):
            assert (ours["correct"], ours["total"]) == (theirs["correct"], theirs["total"])
            assert ours["nll"] == pytest.approx(theirs["nll"], rel=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_with_dropout_the_relations_are_still_those_of_one_process(
    method: str, together: Found, alone: dict[str, Any]
) -> None:
    """Masks differ, and with them what the pilots see: only the main pairs of a method that adapts may differ."""
    expected = alone["with dropout"][method]
    num_fixed = len(expected["pairs"]) if not METHODS[method].is_adaptive else NUM_BATCHES
    for _, found in ranks_of(together):
        trained = found["with dropout"][method]
        assert trained["pilots"] == expected["pilots"]
        assert trained["pairs"][:num_fixed] == expected["pairs"][:num_fixed]
        for name in ("relations/main", "relations/pilot", "relations/unique_pilot"):
            column = STEP_METRICS.index(name)
            assert torch.equal(trained["table"][:, column], expected["table"][:, column])
        assert torch.equal(trained["table"][:num_fixed, COUNTS], expected["table"][:num_fixed, COUNTS])
        assert not torch.equal(trained["table"], expected["table"])  # for dropout is on


@pytest.mark.parametrize("dropout", ["with dropout", "without dropout"])
@pytest.mark.parametrize("num_ranks", [2, 3])
def test_all_ranks_draw_the_same_pairs_and_end_with_the_same_bits(
    num_ranks: int, dropout: str, together: Found
) -> None:
    first, *others = (found[dropout] for found in together[num_ranks])
    same = [column for column, name in enumerate(COLUMNS) if name != STEP_MS]
    for method, trained in first.items():
        for other in others:
            assert other[method]["pairs"] == trained["pairs"]
            assert other[method]["epochs"] == trained["epochs"]
            assert all(
                torch.equal(other[method]["weights"][name], tensor) for name, tensor in trained["weights"].items()
            )
            assert torch.equal(other[method]["whole_table"][:, same], trained["whole_table"][:, same])
    assert PEAK_MB in [COLUMNS[column] for column in same]  # the largest of all ranks


def test_an_evaluation_that_ranks_share_is_that_of_one_process_to_the_bit(
    together: Found, alone: dict[str, Any]
) -> None:
    for _, found in ranks_of(together):
        assert found["evaluated"] == alone["evaluated"]


def test_a_step_that_is_not_finite_stops_every_rank_with_the_same_words(together: Found, alone: dict[str, Any]) -> None:
    assert "loss/ce is nan at step 3, on examples" in alone["spoiled"]
    assert {found["spoiled"] for _, found in ranks_of(together)} == {alone["spoiled"]}


def test_a_signal_to_one_rank_ends_all_after_the_same_step(together: Found) -> None:
    assert {found["ended"] for _, found in ranks_of(together)} == {ENDED_STEP + 1}


def test_a_training_goes_on_with_another_number_of_ranks(together: Found, alone: dict[str, Any]) -> None:
    """Two ranks with what one process has begun, three with what two have."""
    expected = alone["without dropout"]["rapid"]
    for _, found in ranks_of(together):
        assert found["gone on"]["parts"] == 2
        assert_weights(found["gone on"]["weights"], expected["weights"], WEIGHT_TOLERANCE)
        assert torch.equal(found["gone on"]["table"][:, COUNTS], expected["table"][:, COUNTS])
        assert len(found["gone on"]["table"]) == EPOCHS * NUM_BATCHES


def test_a_training_that_ranks_have_begun_goes_on_alone(
    folder: Path, together: Found, alone: dict[str, Any], tmp_path: Path
) -> None:
    shutil.copytree(folder / "ended by 3", tmp_path / "ended")
    trained = rank_program.resumed(ALONE, tmp_path / "ended")
    assert trained["parts"] == 2
    assert_weights(trained["weights"], alone["without dropout"]["rapid"]["weights"], WEIGHT_TOLERANCE)


@pytest.mark.soak
def test_a_training_whose_first_rank_was_killed_goes_on_with_another_number_of_ranks(
    alone: dict[str, Any], tmp_path: Path
) -> None:
    process = start_ranks(2, rank_program.__file__, "killed", str(tmp_path), folder=tmp_path)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "Signal 9 (SIGKILL) received" in errors
    for found, _ in run_ranks(3, "gone_on", tmp_path):
        assert found["parts"] == 2
        assert_weights(found["weights"], alone["without dropout"]["rapid"]["weights"], WEIGHT_TOLERANCE)
        assert torch.equal(found["table"][:, COUNTS], alone["without dropout"]["rapid"]["table"][:, COUNTS])


def test_ranks_that_would_train_another_thing_are_refused_on_every_rank(launched: list[tuple[Any, str]]) -> None:
    refusals = {refusal for _, refusal in launched}
    assert len(refusals) == 1
    assert refusals.pop().startswith("rank 1 would not train what rank 0 does: data, models, code")


def test_hosts_tell_each_other_what_the_first_has_and_what_the_most_is(together: Found) -> None:
    for size, found in ranks_of(together):
        assert found["of first"] == f"made by 0 of {size}"
        assert found["largest"] == 10.5 + size - 1


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize("count", [1, 2, 7, 8, 32, 33])
def test_shares_are_the_batch_in_order_and_differ_by_one_row_at_most(count: int, size: int) -> None:
    rows = [3 * row for row in range(count)]
    shares = [Ranks(rank, size).share(rows) for rank in range(size)]
    stops = [(rank + 1) * count // size for rank in range(size)]
    sizes = [stop - start for start, stop in zip([0, *stops], stops, strict=False)]
    own = [share.rows if num else [] for share, num in zip(shares, sizes, strict=True)]
    assert [row for part in own for row in part] == rows
    assert max(sizes) - min(sizes) <= 1
    assert all(share.rows == rows[:1] for share, num in zip(shares, sizes, strict=True) if not num)  # a guest


def test_dropout_is_named_after_the_first_example_of_a_share_and_not_after_a_rank() -> None:
    rows = list(range(8))
    assert [Ranks(rank, 3).share(rows).position for rank in range(3)] == [(), (2,), (5,)]
    assert Ranks(1, 2).share(rows).position == Ranks(2, 4).share(rows).position == (4,)


def test_ranks_that_are_started_again_do_not_read_what_those_before_have_left() -> None:
    """torchrun keeps its store: an address of the rank that is gone would be taken for the new one's."""
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def started() -> list[Store]:
        stores = [TCPStore("127.0.0.1", server.port, is_master=False) for _ in range(3)]
        with ThreadPoolExecutor(3) as pool:
            return list(pool.map(own_part, stores, range(3), [3] * 3))

    before = started()
    before[0].set("address", "of the first start")
    assert before[2].get("address") == b"of the first start"
    again = started()
    assert not again[1].check(["address"])
    again[0].set("address", "of the second start")
    assert {store.get("address") for store in again} == {b"of the second start"}


def test_alone_nothing_is_changed() -> None:
    outputs = Outputs(torch.ones(3, 2), torch.ones(3, 4))
    assert ALONE.gathered(outputs, 3) is outputs
    assert ALONE.share([5, 3, 9]) == ([5, 3, 9], ())
    assert (ALONE.largest(3.5), ALONE.of_first(lambda: "made"), ALONE.everyones(7)) == (3.5, "made", [7])


# loss/total of the first and of the last step, written down before there were ranks.
RECORDED = {
    "student_ce": (1.098004, 1.025758),
    "kd": (2.187053, 1.504143),
    "uniform": (2.486691, 1.600506),
    "gated": (2.513838, 1.566885),
    "static": (2.421252, 1.579584),
    "rapid": (2.421252, 1.571918),
    "exact": (2.455797, 1.500038),
}


@pytest.mark.parametrize("method", RECORDED)
def test_alone_the_numbers_are_those_of_before_there_were_ranks(method: str, alone: dict[str, Any]) -> None:
    losses = alone["with dropout"][method]["table"][:, STEP_METRICS.index("loss/total")]
    assert float(losses[0]) == pytest.approx(RECORDED[method][0], rel=1e-5)
    assert float(losses[-1]) == pytest.approx(RECORDED[method][1], rel=1e-3)


def test_alone_dropout_is_seeded_as_before_there_were_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def watch(*arguments: Any) -> Outputs:
        seen.append(torch.initial_seed())
        return forward(*arguments)

    monkeypatch.setattr(loop, "forward", watch)
    train(make_job(tmp_path))
    positions = itertools.product(range(1, EPOCHS + 1), range(NUM_BATCHES))
    assert seen == [derived_seed(42, "dropout", epoch, step) for epoch, step in positions]
