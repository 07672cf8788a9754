"""Where data is looked for, and what it is called."""

import os
from pathlib import Path

import pytest
from data.conftest import MakeFolder

from rapid_lab.data.sources import Examples, find_data
from rapid_lab.errors import DataError, SettingError


@pytest.mark.parametrize(
    ("dataset", "data", "parts"),
    [
        ("agnew", "auto", ["dataset", "'agnew'", "did you mean agnews?"]),
        ("imdb", "auto", ["dataset", "agnews, sst2", "no name is near"]),
        ("hub:imdb", "auto", ["hub:owner/name[:config]", "'hub:imdb'"]),
        ("hub:a/b/c", "auto", ["hub:owner/name[:config]"]),
        ("./nowhere", "auto", ["dataset", "'./nowhere'", "there is none"]),
        ("agnews", "twni", ["data must be auto, hub, twin or a folder", "'twni'", "did you mean twin?"]),
        ("agnews", "./nowhere", ["data must be", "'./nowhere'"]),
        ("hub:owner/name", "twin", ["data must be auto or hub", "'twin'"]),
    ],
)
def test_a_name_that_says_nothing_is_refused_with_what_may_be_meant(
    bare_machine: Path, dataset: str, data: str, parts: list[str]
) -> None:
    with pytest.raises(SettingError) as error:
        find_data(dataset, data)
    assert all(part in str(error.value) for part in parts), str(error.value)


def test_a_bare_word_is_no_folder_even_where_one_has_its_name(
    make_folder: MakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(make_folder("reviews").parent)
    with pytest.raises(SettingError, match="folder with a slash"):
        find_data("reviews", "auto")
    assert find_data("./reviews", "auto").name == "folder-reviews"


@pytest.mark.parametrize("data", ["hub", "twin"])
def test_a_folder_has_no_hub_and_no_twin(make_folder: MakeFolder, data: str) -> None:
    with pytest.raises(SettingError, match="data must be auto"):
        find_data(str(make_folder()), data)


def test_auto_takes_the_local_copy_first(make_folder: MakeFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_folder("copies/ag_news")
    monkeypatch.setenv("RAPID_DATA_DIR", str(folder.parent))
    data = find_data("agnews", "auto")
    assert (data.dataset, data.source, data.is_twin, data.warnings) == ("agnews", "local", False, ())


def test_a_local_copy_that_is_damaged_is_no_reason_to_look_elsewhere(
    make_folder: MakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAPID_DATA_DIR", str(make_folder("copies/ag_news", train_csv=None).parent))
    with pytest.raises(DataError, match="no train"):
        find_data("agnews", "auto")


@pytest.mark.parametrize("asked", ["copies", "copies/sst2"])
def test_a_path_is_the_folder_or_holds_it(make_folder: MakeFolder, asked: str) -> None:
    root = make_folder("copies/sst2").parents[1]
    assert find_data("sst2", str(root / asked)).source == "local"


def test_a_copy_of_another_size_is_shown_with_its_row_count(make_folder: MakeFolder) -> None:
    assert find_data("agnews", str(make_folder("ag_news"))).name == "agnews[2]"


def test_a_copy_of_the_official_size_bears_the_plain_name(make_folder: MakeFolder) -> None:
    rows = "".join(f"{row % 2},t\n" for row in range(67_349))
    assert find_data("sst2", str(make_folder("sst2", train_csv="label,text\n" + rows))).name == "sst2"


def test_a_folder_called_agnews_shares_no_cell_with_agnews(make_folder: MakeFolder) -> None:
    assert find_data(str(make_folder("agnews")), "auto").name == "folder-agnews"


def test_sst2_reports_on_validation_and_other_sets_on_test_where_they_have_both(make_folder: MakeFolder) -> None:
    folder = make_folder("sst2", validation_csv="label,text\n0,x\n")
    assert find_data("sst2", str(folder)).report_name == "validation"
    assert find_data(str(folder), "auto").report_name == "test"
    assert find_data("agnews", str(folder)).report_name == "test"


def test_the_report_split_is_not_held_by_the_data(make_folder: MakeFolder) -> None:
    data = find_data(str(make_folder(test_csv="label,text\n1,a very peculiar text\n")), "auto")
    assert "peculiar" not in repr(vars(data))
    assert data.read_report() == Examples(["a very peculiar text"], [1])


@pytest.mark.parametrize(("dataset", "classes"), [("agnews", 4), ("sst2", 2)])
def test_the_twin_has_another_name_and_no_warning_where_it_was_asked_for(
    bare_machine: Path, dataset: str, classes: int
) -> None:
    data = find_data(dataset, "twin")
    assert (data.dataset, data.name, data.source, data.is_twin) == (dataset, f"{dataset}-twin", "twin", True)
    assert (data.num_labels, data.warnings) == (classes, ())
    assert len(data.read_report()) == 1000


def test_the_real_copies_are_what_their_page_says() -> None:
    root = os.environ.get("RAPID_DATA_DIR")
    if not root:
        pytest.skip("RAPID_DATA_DIR is not set: no real data to read")
    if not all((Path(root) / folder).is_dir() for folder in ("ag_news", "sst2")):
        pytest.skip(f"RAPID_DATA_DIR={root} holds no ag_news and sst2: no real data to read")
    agnews, sst2 = find_data("agnews", "auto"), find_data("sst2", "auto")
    if len(agnews.train) != 60_324:
        pytest.skip(f"another copy of AG News: {len(agnews.train)} rows")
    assert [agnews.train.labels.count(label) for label in range(4)] == [15_047, 15_177, 15_128, 14_972]
    assert [agnews.read_report().labels.count(label) for label in range(4)] == [1_900] * 4
    assert (agnews.name, sst2.name) == ("agnews[60324]", "sst2")
    assert sst2.train.labels.count(1) == 37_569
    assert sst2.train.texts[0] == "hide new secretions from the parental units "
    assert (sst2.report_name, sst2.read_report().labels.count(1), len(sst2.read_report())) == ("validation", 444, 872)
