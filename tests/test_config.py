"""Settings: one name each, strict about what they may be, whatever brings them."""

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rapid_lab.config import DATASETS, SETTINGS, Settings, read_config, resolve, written_config
from rapid_lab.errors import SettingError
from rapid_lab.ranges import RANGES


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_explains_itself(name: str) -> None:
    setting = SETTINGS[name]
    assert setting.help
    assert "default " in setting.description
    if setting.kind in (int, float):
        assert name in RANGES


def test_what_the_paper_does_not_state_is_marked() -> None:
    assert SETTINGS["relation_cap"].description.endswith("(C_cap; default 4096; not in the paper)")
    assert SETTINGS["relation_budget"].description.endswith("(R; default 256 or 64 by dataset)")
    assert SETTINGS["pair_defense"].description.endswith("(epsilon; default 0.1; not in the paper)")


def test_the_defaults_are_those_of_the_specification() -> None:
    settings = resolve({"dataset": "agnews"})
    assert (settings.pair_defense, settings.endpoint_defense, settings.entropy_floor) == (0.1, 0.05, 0.01)
    assert (settings.residual_floor, settings.reliability_floor, settings.relation_cap) == (1e-6, 0.05, 4096)
    assert (settings.kd_temperature, settings.kd_weight, settings.relation_weight) == (2, 1, 1)
    assert (settings.learning_rate, settings.teacher_learning_rate, settings.weight_decay) == (5e-5, 2e-5, 0.01)
    assert (settings.lr_warmup_fraction, settings.gradient_clip, settings.student_layers) == (0.06, 1, 4)
    assert (settings.teacher_epochs, settings.teacher_seed, settings.split_seed) == (3, 42, 1729)
    assert (settings.epochs, settings.warmup_epochs, settings.batch_size) == (10, 2, 32)


def test_a_dataset_brings_its_own_budget_length_and_teacher() -> None:
    agnews, sst2 = (resolve({"dataset": name}) for name in DATASETS)
    assert (agnews.relation_budget, agnews.max_length, agnews.teacher_model) == (256, 128, "bert-base-uncased")
    assert (sst2.relation_budget, sst2.max_length, sst2.teacher_model) == (64, 64, "distilbert-base-uncased")
    assert (agnews.teacher_layers, sst2.teacher_layers) == (None, 4)


def test_a_setting_comes_from_the_user_then_the_twin_then_the_dataset_then_its_default() -> None:
    assert resolve({"dataset": "sst2", "relation_budget": 7}).relation_budget == 7
    assert resolve({"dataset": "sst2"}, is_twin=True).teacher_model == "twin-bert"
    assert resolve({"dataset": "sst2", "teacher_model": "x"}, is_twin=True).teacher_model == "x"
    assert resolve({"dataset": "sst2"}, is_twin=True).relation_budget == 64


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("epochs", 0, "epochs must be an integer in .1, 1e.09., got 0: training takes"),
        ("epochs", 2.0, "epochs must be an integer in .1, 1e.09., got 2.0"),
        ("learning_rate", math.nan, r"learning_rate must be in \(0, 1\], got nan"),
        ("method", "rapdi", "method must be one of .*, got 'rapdi': did you mean rapid?"),
        ("report", "twice", "report must be one of once, never, got 'twice'"),
        ("log_model", "yes", "log_model must be true or false, got 'yes': it is a switch"),
        ("dataset", " ", "dataset must be a text, got ' '"),
        ("seed", -1, "seed must be an integer in"),
        ("seed", None, "seed must be an integer in"),
        ("correction_clip", 0.5, "correction_clip must be of at least 1"),
        ("learning_rat", 0.1, "learning_rat is no setting: did you mean learning_rate"),
    ],
)
def test_a_bad_value_is_refused_by_name_range_value_and_reason(name: str, value: object, message: str) -> None:
    with pytest.raises(SettingError, match=f"^{message}"):
        resolve({name: value})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("epochs", "7", 7),
        ("learning_rate", "1e-3", 1e-3),
        ("log_model", "false", False),
        ("log_model", "True", True),
        ("teacher_layers", "none", None),
        ("teacher_layers", "3", 3),
        ("correction_clip", "none", None),
        ("method", "kd", "kd"),
    ],
)
def test_text_becomes_the_value_it_names(name: str, text: str, value: object) -> None:
    assert SETTINGS[name].parse(text) == value


@pytest.mark.parametrize("text", ["", "ten", "1.5", "0x10", "1e2", "none"])
def test_a_count_that_is_no_integer_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match=rf"epochs must be an integer in .*, got '{text}': training takes"):
        SETTINGS["epochs"].parse(text)


@given(
    st.text(min_size=1, alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0")).filter(str.strip),
    st.floats(1e-9, 1),
    st.one_of(st.none(), st.floats(1, 1e9)),
)
def test_a_written_config_is_read_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, dataset: str, rate: float, clip: float | None
) -> None:
    settings = Settings(dataset=dataset, learning_rate=rate, correction_clip=clip, group_by_length=True)
    path = tmp_path_factory.mktemp("config") / "config.toml"
    path.write_text(written_config(settings), encoding="utf-8")
    assert resolve(read_config(path)) == settings


@given(st.data())
@settings(max_examples=100)
def test_a_recorded_config_with_a_changed_byte_or_without_its_end_is_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("config") / "config.toml"
    content = bytearray(written_config(Settings(epochs=7)).encode())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[place] ^= data.draw(st.integers(1, 255))
    else:
        del content[place:]
    path.write_bytes(content)
    with pytest.raises(SettingError, match="config must be"):
        read_config(path, is_recorded=True)
    try:  # as a user's file, which need not have a checksum
        given = read_config(path)
    except SettingError:
        return
    assert resolve(given) == Settings(epochs=7)


def test_a_recorded_config_that_was_changed_on_purpose_is_taken_without_its_first_line(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    changed = written_config(Settings(epochs=7)).replace("epochs = 7", "epochs = 8")
    path.write_text(changed, encoding="utf-8")
    with pytest.raises(SettingError, match=r"config must be as it was written, got .* remove its first line"):
        read_config(path)
    path.write_text(changed.partition("\n")[2], encoding="utf-8")
    assert resolve(read_config(path)) == Settings(epochs=8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochs = 0", "epochs must be"),
        ("epoch = 3", "epoch is no setting: did you mean epochs"),
        ("epochs = 3\nepochs = 4", "config must be a readable TOML file"),
        ("epochs = [3]", "epochs must be"),
        ("[epochs]\na = 1", "epochs must be"),
        ("epochs = ", "config must be a readable TOML file"),
        ("", "config must be a TOML file with settings"),
    ],
)
def test_a_config_file_is_read_strictly(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingError, match=message):
        read_config(path)


def test_a_config_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="config must be a readable TOML file"):
        read_config(tmp_path / "missing.toml")


def test_only_what_can_change_a_number_is_part_of_the_identity() -> None:
    free = {name for name, setting in SETTINGS.items() if not setting.affects_numbers}
    assert free == {"device", "report", "log_model"}
