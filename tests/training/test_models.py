"""Models: where they may come from, what is kept of them, and a pooling that padding does not touch."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from guards import NoHostSync

from rapid_lab.batches import encode
from rapid_lab.errors import DataError, SettingError
from rapid_lab.models import TWIN_MODELS, find_model, fingerprint, forward, load_classifier, load_tokenizer


@pytest.fixture
def bert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small pretrained BERT of four layers, whose tokenizer file fixes truncation and padding."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("RAPID_MODEL_DIR", raising=False)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=60, hidden_size=16, num_hidden_layers=4, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=32,
    )  # fmt: skip
    folder = tmp_path / "bert"
    transformers.BertModel(config).save_pretrained(folder)
    tokenizer = load_tokenizer("twin-bert", twin_words=["a", "b"])
    tokenizer.backend_tokenizer.enable_truncation(4)
    tokenizer.backend_tokenizer.enable_padding(length=10)
    tokenizer.save_pretrained(folder)
    return folder


def load(folder: Path, *, layers: int | None = None, seed: int = 42, num_labels: int = 3) -> torch.nn.Module:
    return load_classifier(str(folder), layers=layers, num_labels=num_labels, seed=seed)


def test_the_first_layers_are_kept_as_they_are(bert: Path) -> None:
    full, cut = load(bert).state_dict(), load(bert, layers=2).state_dict()
    kept = {name for name in full if "encoder.layer." not in name or "layer.0." in name or "layer.1." in name}
    assert set(cut) == kept
    for name in kept:
        torch.testing.assert_close(cut[name], full[name], rtol=0, atol=0)


def test_the_pretrained_weights_are_really_loaded(bert: Path) -> None:
    saved = transformers.BertModel.from_pretrained(bert).state_dict()
    loaded = load(bert).state_dict()
    assert all(torch.equal(saved[name], loaded[f"bert.{name}"]) for name in saved)


@pytest.mark.parametrize("name", [*TWIN_MODELS, "folder"])
def test_the_seed_decides_what_is_not_pretrained(name: str, bert: Path) -> None:
    place = Path(name) if name in TWIN_MODELS else bert
    assert fingerprint(load(place)) == fingerprint(load(place)) != fingerprint(load(place, seed=43))


def test_weights_of_a_shorter_dtype_are_trained_in_float32(bert: Path) -> None:
    transformers.BertModel.from_pretrained(bert).half().save_pretrained(bert)
    assert {tensor.dtype for tensor in load(bert).state_dict().values()} == {torch.float32}


def test_the_fingerprint_sees_the_configuration_too(bert: Path) -> None:
    before = fingerprint(load(bert))
    config = (bert / "config.json").read_text().replace('"hidden_dropout_prob": 0.1', '"hidden_dropout_prob": 0.3')
    (bert / "config.json").write_text(config)
    assert fingerprint(load(bert)) != before
    assert fingerprint(load(bert)) == fingerprint(load(bert.rename(bert.parent / "elsewhere")))


@pytest.mark.parametrize("name", TWIN_MODELS)
def test_padding_changes_nothing(name: str) -> None:
    model = load_classifier(name, layers=None, num_labels=4, seed=42).eval()
    ids, mask = torch.randint(4, 100, (1, 6)), torch.ones((1, 6), dtype=torch.int64)
    alone = forward(model, ids, mask)
    padded = forward(model, torch.cat((ids, torch.zeros_like(ids)), 1), torch.cat((mask, torch.zeros_like(mask)), 1))
    torch.testing.assert_close(padded.logits, alone.logits)
    torch.testing.assert_close(padded.pooled, alone.pooled)


@pytest.mark.parametrize("name", TWIN_MODELS)
def test_the_forward_equals_that_of_transformers_with_a_plain_mask_without_waiting(name: str) -> None:
    model = load_classifier(name, layers=None, num_labels=4, seed=42).eval()
    ids, mask = torch.randint(4, 100, (3, 6)), torch.ones((3, 6), dtype=torch.int64)
    mask[1, 2:] = 0
    with NoHostSync():
        ours = forward(model, ids, mask)
    theirs = model(input_ids=ids, attention_mask=mask, output_hidden_states=True)
    torch.testing.assert_close(ours.logits, theirs.logits)
    torch.testing.assert_close(ours.pooled[1], theirs.hidden_states[-1][1, :2].mean(0))


def test_a_plain_name_is_looked_up_in_the_model_folder_first(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAPID_MODEL_DIR", str(bert.parent))
    (bert.parent / "here" / "bert").mkdir(parents=True)
    monkeypatch.chdir(bert.parent / "here")
    assert find_model("bert", setting="teacher_model", is_twin=False) == str(bert)
    assert find_model("hub-name", setting="teacher_model", is_twin=False) == "hub-name"


@pytest.mark.parametrize(
    ("name", "is_twin", "reason"),
    [
        ("twin-bert", False, "teacher_model must be a real model, got 'twin-bert'"),
        ("bert-base-uncased", True, "teacher_model must be one of the twin's models, got 'bert-base-uncased'"),
        ("./nowhere", False, "there is no such folder"),
        ("/no/where", False, "there is no such folder"),
    ],
)
def test_what_is_no_model_is_refused_by_name(name: str, is_twin: bool, reason: str) -> None:
    with pytest.raises(SettingError, match=reason):
        find_model(name, setting="teacher_model", is_twin=is_twin)


def test_a_folder_without_configuration_is_refused(bert: Path) -> None:
    (bert / "config.json").unlink()
    with pytest.raises(SettingError, match=r"the folder has no config\.json"):
        find_model(str(bert), setting="student_model", is_twin=False)


def test_pickled_weights_are_refused(bert: Path) -> None:
    model = transformers.BertModel.from_pretrained(bert)
    torch.save(model.state_dict(), bert / "pytorch_model.bin")
    (bert / "model.safetensors").unlink()
    with pytest.raises(SettingError, match="no safetensors file, and no other format is read"):
        find_model(str(bert), setting="student_model", is_twin=False)
    with pytest.raises(DataError, match="cannot be loaded"):
        load(bert)


def test_damaged_weights_are_refused(bert: Path) -> None:
    weights = bert / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(DataError, match="cannot be loaded"):
        load(bert)


def test_more_layers_than_there_are_are_refused(bert: Path) -> None:
    with pytest.raises(SettingError, match=r"student_layers must be in \[1, 4\], got 5"):
        load(bert, layers=5)


def test_truncation_and_padding_of_a_tokenizer_file_are_overridden(bert: Path) -> None:
    tokenizer: Any = load_tokenizer(str(bert))
    encoded = encode(tokenizer, ["a b a b a b", "b"], [0, 1], max_length=7)
    assert [encoded.length(row) for row in range(2)] == [7, 3]


def test_real_weights_lose_nothing_but_their_last_layers() -> None:
    shelf = os.environ.get("RAPID_MODEL_DIR")
    if not shelf:
        pytest.skip("RAPID_MODEL_DIR is not set: there are no real weights to read")
    folders = sorted(path.parent for path in Path(shelf).glob("*/config.json"))
    if not folders:
        pytest.skip("RAPID_MODEL_DIR has no model")
    name = find_model(folders[0].name, setting="student_model", is_twin=False)
    model = load_classifier(name, layers=1, num_labels=2, seed=42).eval()
    encoded = encode(load_tokenizer(name), ["a fine film", "bad " * 300], [1, 0], max_length=200)
    assert encoded.length(1) == 200
    batch = encoded.batch([0, 1], torch.device("cpu"))
    alone = encoded.batch([0], torch.device("cpu"))
    with torch.no_grad():
        together, single = forward(model, batch.ids, batch.mask), forward(model, alone.ids, alone.mask)
    torch.testing.assert_close(together.pooled[:1], single.pooled, rtol=1e-4, atol=1e-4)
