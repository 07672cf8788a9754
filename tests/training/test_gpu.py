"""What only a GPU can show; `rapid-lab doctor --device cuda` runs this group for a user."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torchrun import start_ranks
from training import rank_program
from training.lab import COUNTED, EPOCHS, NUM_BATCHES, make_job, make_settings

from rapid_lab import names
from rapid_lab.errors import SettingError
from rapid_lab.objectives import METHODS
from rapid_lab.training.distributed import ALONE
from rapid_lab.training.ledger import COLUMNS, Ledger
from rapid_lab.training.loop import train
from rapid_lab.training.resources import choose_device

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device"),
]


@pytest.fixture
def cuda() -> Iterator[torch.device]:
    yield choose_device("cuda")
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first to the last line of every step, PyTorch's own sync debug mode fails what waits."""
    begin, end = Ledger.begin_step, Ledger.end_step

    def guarded_begin(self: Ledger) -> None:
        begin(self)
        torch.cuda.set_sync_debug_mode("error")

    def guarded_end(self: Ledger, *arguments: Any) -> None:
        end(self, *arguments)
        torch.cuda.set_sync_debug_mode("default")

    monkeypatch.setattr(Ledger, "begin_step", guarded_begin)
    monkeypatch.setattr(Ledger, "end_step", guarded_end)


@pytest.mark.usefixtures("guarded")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("method", METHODS)
def test_no_step_waits_for_the_device(method: str, dtype: torch.dtype, cuda: torch.device, tmp_path: Path) -> None:
    train(make_job(tmp_path, make_settings(method), device=cuda, dtype=dtype))


def test_a_gpu_spends_the_relations_a_cpu_spends_and_times_its_steps(cuda: torch.device, tmp_path: Path) -> None:
    on_cpu = train(make_job(tmp_path / "cpu")).table
    on_gpu = train(make_job(tmp_path / "gpu", device=cuda)).table
    for name in (names.RELATIONS_MAIN, names.RELATIONS_PILOT, names.RELATIONS_UNIQUE_PILOT):
        assert torch.equal(on_cpu[:, COLUMNS.index(name)], on_gpu[:, COLUMNS.index(name)])
    assert (on_gpu[:, COLUMNS.index(names.STEP_MS)] > 0).all()
    assert (on_gpu[:, COLUMNS.index(names.PEAK_MB)] > 0).all()


def test_a_training_ended_on_a_gpu_ends_the_same(cuda: torch.device, tmp_path: Path) -> None:
    reference = train(make_job(tmp_path / "whole", device=cuda))
    job = make_job(tmp_path / "parts", device=cuda)
    end = Ledger.end_step

    def ending(self: Ledger, *arguments: Any) -> None:
        end(self, *arguments)
        if self.num_rows + len(self._pending) == 2 * NUM_BATCHES - 1:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "end_step", ending)
        with pytest.raises(KeyboardInterrupt):
            train(job)
    resumed = train(make_job(tmp_path / "parts", device=cuda))
    assert len(resumed.table) == EPOCHS * NUM_BATCHES
    assert torch.equal(resumed.table[:, COUNTED], reference.table[:, COUNTED])
    for name, tensor in reference.weights.items():
        assert torch.equal(resumed.weights[name], tensor), name


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="this machine has fewer than two CUDA devices")
def test_two_gpus_train_what_one_trains(cuda: torch.device, tmp_path: Path) -> None:
    """Through NCCL; TF32 and other kernels for other shapes allow for more rounding than a CPU has."""
    process = start_ranks(2, rank_program.__file__, "on_gpus", str(tmp_path), folder=tmp_path)
    output = process.communicate(timeout=300)
    assert process.returncode == 0, output
    alone = rank_program.training(ALONE, "rapid", tmp_path / "alone", dropout=0.0, device=cuda)
    for rank in range(2):
        found, _ = torch.load(tmp_path / f"rank {rank}.pt")
        assert found["pilots"] == alone["pilots"]
        torch.testing.assert_close(found["table"][:, :2], alone["table"][:, :2], rtol=0, atol=0)
        torch.testing.assert_close(found["table"][:, 5:9], alone["table"][:, 5:9], rtol=1e-2, atol=1e-3)


def test_more_ranks_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    too_many = str(torch.cuda.device_count() + 1)
    ranks = {"TORCHELASTIC_RUN_ID": "x", "RANK": "0", "WORLD_SIZE": too_many, "LOCAL_RANK": "0"}
    for name, value in (ranks | {"LOCAL_WORLD_SIZE": too_many}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingError, match=f"--nproc-per-node must be in .*, got {too_many}: each rank has a CUDA"):
        choose_device("cuda")
