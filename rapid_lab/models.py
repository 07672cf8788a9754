"""Encoders with a classification head: the only module that imports transformers.

Weights come as safetensors or not at all, code from a hub never runs. The twin's models are small ones of the same
architectures, built from their configurations.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from rapid_lab.errors import DataError, SettingError
from rapid_lab.folders import is_folder, path_of
from rapid_lab.harmless import shown
from rapid_lab.reach import HubOutOfReachError, require_reach, said
from rapid_lab.seeds import derived_seed

TWIN_MODELS = ("twin-bert", "twin-distilbert")
TWIN_POSITIONS = 64
TWIN_LAYERS = 12
TWIN_VOCABULARY_SIZE = 2048
# Architectures that take a mask of (batch, 1, length, length) as it is; others look into theirs, and wait for it.
FULL_MASK_MODELS = ("bert", "distilbert")
# What a configuration says of where a model came from, not of what it computes.
PROVENANCE_KEYS = ("_name_or_path", "architectures", "transformers_version")


class Outputs(NamedTuple):
    """What a forward gives: logits of transformers' own head, and the mask-aware mean of the last hidden state."""

    logits: Float[Tensor, "batch classes"]
    pooled: Float[Tensor, "batch dim"]


def find_model(name: str, *, setting: str, is_twin: bool) -> str:
    """Where a model is: the twin's own name, a folder, or a hub name; refused before anything is loaded."""
    if (name in TWIN_MODELS) != is_twin:
        wanted = "one of the twin's models" if is_twin else "a real model"
        raise SettingError(
            f"{setting} must be {wanted}, got {name!r}: twin texts and real models do not go together, "
            "nor real texts and twin models"
        )
    if is_twin:
        return name
    shelf = path_of(os.environ.get("RAPID_MODEL_DIR") or os.devnull)
    # A plain name is looked up on the shelf first, a path is a path first.
    for folder in (path_of(name), shelf / name) if "/" in name else (shelf / name, path_of(name)):
        if is_folder(folder):
            return str(_checked_folder(folder, setting))
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        raise SettingError(f"{setting} must be a model, got {shown(name)}: there is no such folder")
    return name


def _checked_folder(folder: Path, setting: str) -> Path:
    if not (folder / "config.json").is_file():
        raise SettingError(f"{setting} must be a model, got {str(folder)!r}: the folder has no config.json")
    if not any(folder.glob("*.safetensors")):
        raise SettingError(
            f"{setting} must be a model with weights, got {str(folder)!r}: the folder has no safetensors file, "
            "and no other format is read"
        )
    return folder


def load_classifier(
    name: str, *, layers: int | None, num_labels: int, seed: int, setting: str = "student_layers"
) -> nn.Module:
    """A sequence classifier cut to its first layers; the seed decides what is not pretrained."""
    torch.manual_seed(derived_seed(seed, "weights"))
    if name in TWIN_MODELS:
        if layers is not None and layers > TWIN_LAYERS:
            raise SettingError(f"{setting} must be in [1, {TWIN_LAYERS}], got {layers}: the twin's models are small")
        return _twin_classifier(name, layers, num_labels)
    config = _pretrained("AutoConfig", name, num_labels=num_labels)
    if layers is not None:
        if layers > config.num_hidden_layers:
            raise SettingError(
                f"{setting} must be in [1, {config.num_hidden_layers}], got {layers}: {name} has no more layers"
            )
        config.num_hidden_layers = layers
    # In float32 whatever the file has: autocast shortens what may be shortened, the weights are not.
    model: nn.Module = _pretrained(
        "AutoModelForSequenceClassification", name, config=config, use_safetensors=True, dtype=torch.float32
    )
    return model


def _pretrained(door: str, name: str, **options: Any) -> Any:
    """One of transformers' doors: from the cache if it has the model, else from the hub; never remote code."""
    import transformers
    from safetensors import SafetensorError

    # RuntimeError: weights that do not fit the configuration.
    faults = (OSError, ValueError, RuntimeError, SafetensorError)
    _quieten()
    load = getattr(transformers, door).from_pretrained
    options |= {"trust_remote_code": False}
    try:
        return load(name, local_files_only=True, **options)
    except faults as fault:
        mend = "name a model that is here with --teacher-model and --student-model"
        if is_folder(Path(name)):
            raise DataError(f"the model {name!r} cannot be loaded: {said(fault)}; {mend}") from fault
        try:
            require_reach()
        except HubOutOfReachError as error:
            raise DataError(f"the model {name!r} is not on this machine, and {error}: {mend}") from fault
    try:
        return load(name, **options)
    except faults as fault:
        raise DataError(f"the model {name!r} cannot be loaded from the hub: {said(fault)}") from fault


def _quieten() -> None:
    """What it says while it loads and saves is of no use to a person who runs experiments."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def _twin_classifier(name: str, layers: int | None, num_labels: int) -> nn.Module:
    import transformers

    _quieten()
    common: dict[str, Any] = {
        "vocab_size": TWIN_VOCABULARY_SIZE,
        "num_labels": num_labels,
        "max_position_embeddings": TWIN_POSITIONS,
    }
    if name == "twin-bert":
        bert = transformers.BertConfig(
            hidden_size=96, num_hidden_layers=layers or 3, num_attention_heads=4, intermediate_size=192, **common
        )
        return transformers.BertForSequenceClassification(bert)
    # From the usual 0.02 so narrow a model finds its way out of the start late, and some seeds hardly at all.
    distilbert = transformers.DistilBertConfig(
        dim=16, n_layers=layers or 2, n_heads=2, hidden_dim=32, initializer_range=0.1, **common
    )
    return transformers.DistilBertForSequenceClassification(distilbert)


def load_tokenizer(name: str, *, twin_words: Sequence[str] = ()) -> Any:
    """The tokenizer of a model, without the padding and truncation its file may fix."""
    if name not in TWIN_MODELS:
        tokenizer = _pretrained("AutoTokenizer", name)
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is not None:
            backend.no_padding()
            backend.no_truncation()
        return tokenizer
    return _twin_tokenizer(twin_words)


def _twin_tokenizer(words: Sequence[str]) -> Any:
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocabulary = {word: index for index, word in enumerate([*special, *words])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ends = [("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    backend.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


def check_length(name: str, tokenizer: Any, *, max_length: int) -> None:
    """Refuse texts longer than a model has positions for, before one of them meets it in the middle of a training."""
    if name in TWIN_MODELS:  # whose texts are generated shorter than its positions
        return
    config = _pretrained("AutoConfig", name)
    # RoBERTa's kind keeps some positions for itself; its tokenizer knows how many are left.
    limit = min(getattr(config, "max_position_embeddings", None) or max_length, tokenizer.model_max_length)
    if max_length > limit:
        raise SettingError(f"max_length must be in [1, {limit}], got {max_length}: {name} has no more positions")


def forward(model: nn.Module, ids: Int64[Tensor, "batch length"], mask: Int64[Tensor, "batch length"]) -> Outputs:
    """Logits and pooled representations of a padded batch."""
    outputs = model(input_ids=ids, attention_mask=_attention_mask(model, mask), output_hidden_states=True)
    return Outputs(outputs.logits, mean_pooled(outputs.hidden_states[-1], mask))


def _attention_mask(model: nn.Module, mask: Int64[Tensor, "batch length"]) -> Tensor:
    """Given a plain mask, transformers asks the device whether it has any zero, and so waits for it every step."""
    config: Any = getattr(model, "config", None)
    if getattr(config, "model_type", None) not in FULL_MASK_MODELS or config._attn_implementation != "sdpa":
        return mask
    return mask.bool()[:, None, None, :].expand(-1, 1, mask.shape[1], -1)


def mean_pooled(
    hidden: Float[Tensor, "batch length dim"], mask: Int64[Tensor, "batch length"]
) -> Float[Tensor, "batch dim"]:
    """Mean over the tokens of the text, in float32; padding does not count."""
    weights = mask.unsqueeze(2).float()
    return (hidden.float() * weights).sum(1) / weights.sum(1).clamp_min(1)


def fingerprint(model: nn.Module) -> str:
    """A hash of the configuration and of every weight, by name."""
    config: Any = getattr(model, "config", None)
    described = {} if config is None else config.to_dict()
    computed = {name: value for name, value in described.items() if name not in PROVENANCE_KEYS}
    digest = hashlib.sha256(f"{type(model).__name__} {json.dumps(computed, sort_keys=True, default=str)}".encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
