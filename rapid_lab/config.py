"""Settings: one name each in code, configuration files, flags and MLflow parameters.

A field of `Settings` says its default, the paper's symbol, what it means and whether the paper states it. What cannot
change a number is marked, and is not part of a run's identity.
"""

import dataclasses
import difflib
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from rapid_lab.checksums import is_intact, is_sealed, sealed
from rapid_lab.errors import SettingError
from rapid_lab.harmless import is_storable, shown
from rapid_lab.objectives import METHODS
from rapid_lab.ranges import RANGES, check

Value = int | float | str | bool | None
CONFIG_BYTES = 2**20
BOOLEANS = {"true": True, "false": False}


def _setting(
    default: Value,
    symbol: str,
    text: str,
    *,
    is_in_paper: bool = False,
    affects_numbers: bool = True,
    choices: Collection[str] = (),
) -> Any:
    details = {
        "symbol": symbol,
        "help": text,
        "is_in_paper": is_in_paper,
        "affects_numbers": affects_numbers,
        "choices": tuple(choices),
    }
    return dataclasses.field(default=default, metadata=details)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every setting of one run, resolved and within its range."""

    method: str = _setting("rapid", "", "what the student learns from", is_in_paper=True, choices=METHODS)
    dataset: str = _setting("agnews", "", "agnews, sst2, hub:owner/name[:config], or a folder", is_in_paper=True)
    data: str = _setting("auto", "", "where data and models come from: auto, hub, twin, or a folder")
    text_column: str | None = _setting(None, "", "the column of texts, where it cannot be told")
    label_column: str | None = _setting(None, "", "the column of labels, where it cannot be told")
    seed: int = _setting(42, "", "seed of the student: weights, order, dropout, pairs", is_in_paper=True)
    split_seed: int = _setting(1729, "", "seed of the split into training and selection", is_in_paper=True)

    gate_strength: float = _setting(0.5, "lambda", "share of the gated target", is_in_paper=True)
    max_residual_mix: float = _setting(0.5, "tau_max", "largest weight of the residual proposal", is_in_paper=True)
    pair_defense: float = _setting(0.1, "epsilon", "share of uniform pairs in the proposal")
    endpoint_defense: float = _setting(0.05, "epsilon_e", "share of uniform endpoints in the proposal")
    relation_budget: int = _setting(256, "R", "relations a batch may evaluate, pilots included", is_in_paper=True)
    relation_cap: int = _setting(4096, "C_cap", "upper limit to the relation budget")
    pilot_fraction: float = _setting(0.1, "rho", "share of the budget for pilots while adaptive", is_in_paper=True)
    entropy_power: float = _setting(1.0, "alpha", "power of the teacher's entropy in the proposal", is_in_paper=True)
    reliability_power: float = _setting(1.0, "beta", "power of the reliability in the proposal", is_in_paper=True)
    entropy_floor: float = _setting(0.01, "eps_u", "floor of the normalised entropy")
    residual_floor: float = _setting(1e-6, "eps_d", "floor of an endpoint's mean residual")
    reliability_floor: float = _setting(0.05, "r_min", "floor of the reliability")
    correction_clip: float | None = _setting(None, "", "clip of the correction 1/(M q): makes the estimator biased")
    kd_weight: float = _setting(1.0, "alpha_KD", "weight of the output-level term")
    kd_temperature: float = _setting(2.0, "T_KD", "temperature of the output-level term")
    relation_weight: float = _setting(1.0, "beta_rel", "weight of the relational term")

    epochs: int = _setting(10, "E", "training epochs")
    warmup_epochs: int = _setting(2, "W0", "epochs before the proposal adapts", is_in_paper=True)
    batch_size: int = _setting(32, "B", "examples a batch", is_in_paper=True)
    learning_rate: float = _setting(5e-5, "", "peak learning rate of the student")
    weight_decay: float = _setting(0.01, "", "weight decay of AdamW")
    lr_warmup_fraction: float = _setting(0.06, "", "share of the steps in which the learning rate rises")
    gradient_clip: float = _setting(1.0, "", "largest norm of the gradient")
    max_length: int = _setting(128, "", "tokens of a text that are read")
    group_by_length: bool = _setting(False, "", "batches of texts of similar length")
    precision: str = _setting(
        "auto", "", "auto is bf16 where CUDA has it, else fp32", choices=("auto", "fp32", "bf16", "fp16")
    )
    device: str = _setting(
        "auto", "", "auto is cuda where there is one", affects_numbers=False, choices=("auto", "cpu", "cuda")
    )
    compile: bool = _setting(False, "", "torch.compile the student (CUDA): other kernels, other last bits")

    teacher_model: str = _setting("bert-base-uncased", "", "teacher: a hub name or a folder", is_in_paper=True)
    student_model: str = _setting("distilbert-base-uncased", "", "student: a hub name or a folder", is_in_paper=True)
    teacher_layers: int | None = _setting(None, "", "the teacher's first layers that are kept; none is all")
    student_layers: int | None = _setting(
        4, "", "the student's first layers that are kept; none is all", is_in_paper=True
    )
    teacher_epochs: int = _setting(3, "", "epochs of the teacher's fine-tuning")
    teacher_batch_size: int = _setting(32, "", "examples a batch of the teacher's fine-tuning, whatever the student's")
    teacher_seed: int = _setting(42, "", "seed of the teacher's fine-tuning")
    teacher_learning_rate: float = _setting(2e-5, "", "peak learning rate of the teacher")

    report: str = _setting(
        "once", "", "whether the report split is read", affects_numbers=False, choices=("once", "never")
    )
    log_model: bool = _setting(True, "", "log the selected student as an MLflow model", affects_numbers=False)

    def __post_init__(self) -> None:
        for name, setting in SETTINGS.items():
            setting.check(getattr(self, name))

    @property
    def is_biased(self) -> bool:
        """Whether the estimator is no longer unbiased for its target."""
        return self.correction_clip is not None


@dataclass(frozen=True)
class Setting:
    """What is known of a setting besides its value."""

    name: str
    kind: type
    is_optional: bool
    default: Value
    symbol: str
    help: str
    is_in_paper: bool
    affects_numbers: bool
    choices: tuple[str, ...]

    @property
    def flag(self) -> str:
        """The command-line option."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def description(self) -> str:
        """The help text with choices, symbol, default and origin."""
        by_dataset = sorted({str(preset[self.name]) for preset in DATASETS.values() if self.name in preset})
        default = "none" if self.default is None else str(self.default)
        parts = [
            self.symbol,
            f"one of {', '.join(self.choices)}" if self.choices else "",
            f"default {' or '.join(by_dataset)} by dataset" if by_dataset else f"default {default}",
            "" if self.is_in_paper else "not in the paper",
        ]
        return f"{self.help} ({'; '.join(part for part in parts if part)})"

    def parse(self, text: str) -> Value:
        """The value from text, as flags and MLflow parameters bring it; 'none' where there may be none."""
        if self.is_optional and text.lower() == "none":
            return None
        value: Value = text
        if self.kind is bool:
            value = BOOLEANS.get(text.lower(), text)
        elif self.kind in (int, float):
            try:
                value = self.kind(text)
            except ValueError:
                value = text
        self.check(value)
        return value

    def check(self, value: object) -> None:
        """Raise SettingError with name, range, value and reason unless the value may stand."""
        if value is None and self.is_optional:
            return
        if self.name in RANGES:
            check(**{self.name: value})
        elif self.kind is bool and not isinstance(value, bool):
            raise SettingError(f"{self.name} must be true or false, got {shown(value)}: it is a switch")
        elif self.kind is str and (not isinstance(value, str) or not value.strip()):
            raise SettingError(f"{self.name} must be a text, got {shown(value)}: it names something")
        elif self.kind is str and not is_storable(str(value)):
            raise SettingError(
                f"{self.name} must be Unicode without NUL, got {shown(value)}: nothing else can be stored"
            )
        elif self.choices and value not in self.choices:
            names, hint = ", ".join(self.choices), nearest(str(value), self.choices)
            raise SettingError(f"{self.name} must be one of {names}, got {shown(value)}: {hint}")


def nearest(value: str, names: Collection[str]) -> str:
    """What a person may have meant."""
    near = difflib.get_close_matches(value, names)
    return f"did you mean {' or '.join(near)}?" if near else "no name is near to it"


# What a dataset of the paper asks for where the user says nothing else.
DATASETS: dict[str, dict[str, Value]] = {
    "agnews": {
        "relation_budget": 256,
        "max_length": 128,
        "teacher_model": "bert-base-uncased",
        "teacher_layers": None,
    },
    "sst2": {
        "relation_budget": 64,
        "max_length": 64,
        "teacher_model": "distilbert-base-uncased",
        "teacher_layers": 4,
    },
}

# The twin's models are small and trained from scratch, which takes other rates and depths.
TWIN: dict[str, Value] = {
    "teacher_model": "twin-bert",
    "student_model": "twin-distilbert",
    "teacher_layers": None,
    "student_layers": 2,
    "learning_rate": 2e-3,
    "teacher_learning_rate": 1e-3,
    "teacher_epochs": 6,
}


def _described() -> dict[str, Setting]:
    hints = get_type_hints(Settings)
    described = {}
    for field in dataclasses.fields(Settings):
        kinds = [kind for kind in get_args(hints[field.name]) or (hints[field.name],) if kind is not type(None)]
        is_optional = type(None) in get_args(hints[field.name])
        default: Any = field.default
        described[field.name] = Setting(field.name, kinds[0], is_optional, default, **field.metadata)
    return described


SETTINGS: dict[str, Setting] = _described()


def known(name: str) -> Setting:
    """The setting of this name, underscores or dashes."""
    name = name.replace("-", "_")
    if name not in SETTINGS:
        raise SettingError(f"{name} is no setting: {nearest(name, SETTINGS)}")
    return SETTINGS[name]


def resolve(given: Mapping[str, Value], *, is_twin: bool = False) -> Settings:
    """As given, else by twin, else by dataset, else the default; everything given is checked first."""
    for name, value in given.items():
        known(name).check(value)
    presets = DATASETS.get(str(given.get("dataset", Settings.dataset)), {}) | (TWIN if is_twin else {})
    return Settings(**{**presets, **given})  # type: ignore[arg-type]


def read_config(path: Path, *, is_recorded: bool = False) -> dict[str, Value]:
    """Settings of a TOML file, checked; unknown names are refused, and so is a setting that is named twice.

    A file that has a checksum in its first line is refused where it is that of something else; one that a run has
    recorded must have it.
    """
    values: dict[str, Value] = {}
    for name, value in _document(path, is_recorded=is_recorded).items():
        setting = known(name)
        if setting.name in values:
            raise SettingError(
                f"{setting.name} must be given once, got it twice in {str(path)!r}: dashes are underscores"
            )
        value = None if setting.is_optional and value == "none" else value
        setting.check(value)
        # After the check, which no number passes that is too large for it.
        values[setting.name] = float(value) if setting.kind is float and type(value) is int else value
    return values


def _document(path: Path, *, is_recorded: bool) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(CONFIG_BYTES + 1)
        if len(content) > CONFIG_BYTES:
            raise ValueError(f"it has more than {CONFIG_BYTES} bytes")
        text = content.decode("utf-8")
        document = tomllib.loads(text)
    # ValueError: no TOML, no UTF-8, no path, a number without end. RecursionError: brackets without end.
    except (OSError, ValueError, RecursionError) as error:
        raise SettingError(f"config must be a readable TOML file, got {shown(str(path))}: {error}") from None
    if (is_recorded or is_sealed(text)) and not is_intact(text):
        raise SettingError(
            f"config must be as it was written, got {shown(str(path))}: its checksum is that of another content; if it "
            "was changed on purpose, remove its first line"
        )
    if not document:
        raise SettingError(
            f"config must be a TOML file with settings, got {shown(str(path))}: it has none, or has lost them"
        )
    return document


def written_config(settings: Settings) -> str:
    """The settings as TOML that `read_config` takes, with a checksum."""
    lines = []
    for name in SETTINGS:
        value = getattr(settings, name)
        lines.append(f"{name} = {_toml('none' if value is None else value)}")
    return sealed("\n".join(lines) + "\n")


def _toml(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
    return repr(value)
