"""Files are whole or not there, and a checkpoint puts everything back as it was."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from training.lab import CPU, make_encoded, make_student, mapped_file

from rapid_lab.errors import DataError
from rapid_lab.files import DamagedError, open_tensors, replacing, save_tensors
from rapid_lab.models import forward
from rapid_lab.training.checkpoint import Progress, adamw, copied, restore_checkpoint, save_checkpoint
from rapid_lab.training.ledger import COLUMNS

DESCRIPTION = {"epoch": 2, "step": 31}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "folder" / "state.safetensors"
    save_tensors(path, {"weights": torch.arange(6.0).view(2, 3), "count": torch.tensor(3)}, DESCRIPTION)
    return path


def test_tensors_and_description_come_back(saved: Path) -> None:
    tensors, description = open_tensors(saved)
    assert torch.equal(tensors["weights"], torch.arange(6.0).view(2, 3))
    assert (int(tensors["count"]), description) == (3, DESCRIPTION)


def test_a_failure_while_writing_leaves_the_earlier_file(saved: Path) -> None:
    before = saved.read_bytes()

    def write_half() -> None:
        with replacing(saved) as temporary:
            temporary.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def test_what_a_killed_writer_left_is_removed_and_what_a_living_one_writes_is_not(saved: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    abandoned = saved.with_name(f".{saved.name}.{dead.pid}.tmp")
    alive = saved.with_name(f".{saved.name}.{os.getppid()}.tmp")
    abandoned.write_bytes(b"half")
    alive.write_bytes(b"half")
    save_tensors(saved, {"weights": torch.zeros(1)}, {})
    assert not abandoned.exists()
    assert alive.exists()


NAMED = r"state.safetensors in folder is damaged: "


@given(st.data())
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_flip_of_any_byte_is_refused_by_name(saved: Path, data: st.DataObject) -> None:
    """Of the header, of the description, of a value, of the checksum itself."""
    content = bytearray(saved.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    damaged = saved.parent / "state.safetensors.damaged" / "folder" / "state.safetensors"
    damaged.parent.mkdir(parents=True, exist_ok=True)
    damaged.write_bytes(content)
    with pytest.raises(DamagedError, match=NAMED):
        open_tensors(damaged)


def test_a_file_cut_off_anywhere_is_refused_by_name(saved: Path) -> None:
    content = saved.read_bytes()
    for kept in range(len(content)):
        saved.write_bytes(content[:kept])
        with pytest.raises(DamagedError, match=NAMED):
            open_tensors(saved)


def test_a_file_that_may_not_be_read_is_not_called_damaged(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"missing.safetensors in .* cannot be read: No such file") as refusal:
        open_tensors(tmp_path / "missing.safetensors")
    assert not isinstance(refusal.value, DamagedError)


def test_a_pickle_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    torch.save({"weights": torch.zeros(1)}, path)
    with pytest.raises(DataError, match="is damaged"):
        open_tensors(path)


def test_an_opened_file_is_mapped_and_survives_its_replacement(saved: Path) -> None:
    tensors, _ = open_tensors(saved)
    assert mapped_file(tensors["weights"]) == saved
    assert mapped_file(tensors["weights"].clone()) is None
    save_tensors(saved, {"weights": torch.zeros(2, 3)}, {})
    assert torch.equal(tensors["weights"], torch.arange(6.0).view(2, 3))


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    torch.manual_seed(0)
    batch = make_encoded(8).batch(range(8), CPU)
    forward(model, batch.ids, batch.mask).logits.square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_weights_optimizer_ledger_and_selection_are_put_back_exactly(tmp_path: Path) -> None:
    path, model = tmp_path / "checkpoint.safetensors", make_student()
    optimizer = adamw(model, learning_rate=1e-2, weight_decay=0.01)
    selected, table = copied(model), torch.rand(3, len(COLUMNS), dtype=torch.float64)
    for _ in range(3):
        step(model, optimizer)
    progress = Progress(epoch=2, step=3, seconds=1.5, selected_epoch=1, epochs=[{"epoch": 1, "nll": 0.1 + 0.2}])
    save_checkpoint(path, progress, model, optimizer, table, selected)

    fresh = make_student(seed=43)
    fresh_optimizer = adamw(fresh, learning_rate=1e-2, weight_decay=0.01)
    loaded, loaded_table, loaded_selected = restore_checkpoint(path, open_tensors(path), fresh, fresh_optimizer)
    assert loaded == Progress(2, 3, 1.5, 2, 1, {}, [{"epoch": 1, "nll": 0.1 + 0.2}])
    assert torch.equal(loaded_table, table)
    assert all(torch.equal(loaded_selected[name], tensor) for name, tensor in selected.items())
    before, after = optimizer.state_dict()["state"], fresh_optimizer.state_dict()["state"]
    assert before.keys() == after.keys() != set()
    for index, state in before.items():
        assert all(torch.equal(after[index][name], tensor) for name, tensor in state.items())
    step(model, optimizer)
    step(fresh, fresh_optimizer)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(fresh.parameters(), model.parameters(), strict=True))


def test_a_checkpoint_of_another_training_is_refused_by_name(tmp_path: Path) -> None:
    path, model, other = tmp_path / "checkpoint.safetensors", make_student(), nn.Linear(2, 2)
    table = torch.zeros(0, len(COLUMNS), dtype=torch.float64)
    optimizer = adamw(other, learning_rate=1e-2, weight_decay=0.01)
    save_checkpoint(path, Progress(), other, optimizer, table, {})
    with pytest.raises(DataError, match=r"checkpoint.safetensors in .* is of another training"):
        restore_checkpoint(path, open_tensors(path), model, adamw(model, learning_rate=1e-2, weight_decay=0.01))


def test_biases_and_normalisation_do_not_decay() -> None:
    model = make_student()
    decayed, plain = adamw(model, learning_rate=1e-2, weight_decay=0.01).param_groups
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.01, 0.0)
    assert {weight.ndim for weight in plain["params"]} == {1}
    assert len(decayed["params"]) + len(plain["params"]) == len(list(model.parameters()))
