"""Where data comes from: a folder, the hub or its cache, or the twin. `find_data` is the door.

Only `auto` may end at the twin, only because the hub is out of reach, and never silently: the twin has a name of its
own, and the reason is among the warnings.
"""

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rapid_lab.config import DATASETS, nearest
from rapid_lab.data import hub, local, twin
from rapid_lab.data.examples import Columns, Examples
from rapid_lab.data.hub import HubName
from rapid_lab.errors import DataError, SettingError
from rapid_lab.folders import is_folder, path_of
from rapid_lab.harmless import shown
from rapid_lab.reach import HubOutOfReachError

__all__ = ["Examples", "TextData", "check_names", "find_data"]

PLACES = ("auto", "hub", "twin")
HUB_NAME = re.compile(r"hub:(?P<repo>\w[\w.-]*/\w[\w.-]*)(:(?P<config>\w[\w.-]*))?")


@dataclass(frozen=True)
class Official:
    """What is known of a dataset of the paper."""

    folder: str
    hub_name: HubName
    report_names: tuple[str, ...]
    train_count: int


OFFICIAL = {
    "agnews": Official("ag_news", HubName("fancyzhx/ag_news"), ("test", "validation"), 120_000),
    # The test split of GLUE has no labels.
    "sst2": Official("sst2", HubName("nyu-mll/glue", "sst2"), ("validation", "test"), 67_349),
}
OTHER_REPORT_NAMES = ("test", "validation")


@dataclass(frozen=True)
class TextData:
    """A labelled text set: the training split in full, and the way to the report split."""

    dataset: str
    name: str
    source: str
    train: Examples
    num_labels: int
    data_hash: str
    report_name: str
    read_report: Callable[[], Examples]
    train_rows_in_report: int = 0
    warnings: tuple[str, ...] = ()

    @property
    def is_twin(self) -> bool:
        """Whether the texts were generated; its results are not those of the real data."""
        return self.source == "twin"


def find_data(dataset: str, data: str, *, text_column: str | None = None, label_column: str | None = None) -> TextData:
    """The dataset from where `data` says; faults of names, files and content are raised here, before any model."""
    check_names(dataset, data)
    columns = Columns(text_column, label_column)
    if data == "twin":
        return _from_twin(dataset)
    if dataset not in DATASETS and not dataset.startswith("hub:"):
        return _from_folder(dataset, path_of(dataset), columns)
    if data not in PLACES:
        return _from_folder(dataset, _subfolder(dataset, path_of(data)), columns)
    if data == "auto" and (folder := _local_copy(dataset)):
        return _from_folder(dataset, folder, columns)
    try:
        return _from_hub(dataset, columns)
    except HubOutOfReachError as error:
        if data == "hub" or dataset not in twin.TWINS:
            raise DataError(f"{dataset}: {error}, and it may not be replaced by the twin (data={data})") from None
        return _from_twin_instead(dataset, error)


def check_names(dataset: str, data: str) -> None:
    """Refuse what names no dataset or no place, before anything is read."""
    is_path = "/" in dataset and not dataset.startswith("hub:")
    if dataset.startswith("hub:") and not HUB_NAME.fullmatch(dataset):
        raise SettingError(f"dataset must be hub:owner/name[:config], got {shown(dataset)}: the hub names its sets so")
    if not (is_path or dataset.startswith("hub:") or dataset in DATASETS):
        known = ", ".join(DATASETS)
        hint = nearest(dataset, DATASETS)
        raise SettingError(
            f"dataset must be {known}, hub:owner/name[:config] or a folder with a slash, got {shown(dataset)}: {hint}"
        )
    if is_path and not is_folder(path_of(dataset)):
        raise SettingError(f"dataset must be a folder where it has a slash, got {shown(dataset)}: there is none")
    _check_place(dataset, data, is_path=is_path)


def _check_place(dataset: str, data: str, *, is_path: bool) -> None:
    if is_path and data != "auto":
        raise SettingError(
            f"data must be auto where the dataset is a folder, got {shown(data)}: {dataset} is where it is"
        )
    if data not in PLACES and not is_folder(path_of(data)):
        raise SettingError(f"data must be auto, hub, twin or a folder, got {shown(data)}: {nearest(data, PLACES)}")
    if dataset not in DATASETS and data not in ("auto", "hub"):
        raise SettingError(
            f"data must be auto or hub for {dataset}, got {shown(data)}: it has neither twin nor local copy"
        )


def _local_copy(dataset: str) -> Path | None:
    """The dataset's folder under RAPID_DATA_DIR, where there is one."""
    root = os.environ.get("RAPID_DATA_DIR")
    if not root or dataset not in OFFICIAL:
        return None
    folder = path_of(root) / OFFICIAL[dataset].folder
    return folder if is_folder(folder) else None


def _subfolder(dataset: str, folder: Path) -> Path:
    """The folder itself, or the one inside it that has the dataset's name."""
    inner = folder / OFFICIAL[dataset].folder
    return inner if is_folder(inner) else folder


def _from_folder(dataset: str, folder: Path, columns: Columns) -> TextData:
    report_path = local.split_file(folder, _report_names(dataset))
    train, num_labels = local.read_training(local.split_file(folder, ("train",)), columns)
    report, shared = local.report_file(report_path, columns, num_labels, train)
    return TextData(
        dataset=dataset,
        name=_cell_name(dataset, len(train)),
        source="local",
        train=train,
        num_labels=num_labels,
        data_hash=_data_hash(train, report_path.stem, report.sha256),
        report_name=report_path.stem,
        read_report=report.read,
        train_rows_in_report=shared,
        warnings=_shared_warning(dataset, shared, len(train)),
    )


def _from_hub(dataset: str, columns: Columns) -> TextData:
    name = _hub_name(dataset)
    loaded = hub.load_cached(name, columns) or hub.load_from_hub(name, columns)
    train, num_labels = loaded.training()
    report_name, shared = loaded.report_name(_report_names(dataset), num_labels, train)
    return TextData(
        dataset=dataset,
        name=_cell_name(dataset, len(train)),
        source="hub",
        train=train,
        num_labels=num_labels,
        data_hash=_data_hash(train, report_name, loaded.identity(report_name)),
        report_name=report_name,
        read_report=partial(loaded.report, report_name, num_labels),
        train_rows_in_report=shared,
        warnings=_shared_warning(dataset, shared, len(train)),
    )


def _shared_warning(dataset: str, shared: int, train_count: int) -> tuple[str, ...]:
    """A student that has seen a text has not shown that it understands it; whose fault that is the data knows."""
    said = f"{dataset}: {shared} of {train_count} training rows have a text that is in the report split too"
    return (f"{said}: its accuracy there may be memory",) if shared else ()


def _from_twin(dataset: str) -> TextData:
    parameters = twin.TWINS[dataset]
    train = twin.make_split(dataset, "train")
    return TextData(
        dataset=dataset,
        name=f"{dataset}-twin",
        source="twin",
        train=train,
        num_labels=parameters.classes,
        data_hash=_data_hash(train, "test", repr(parameters)),
        report_name="test",
        read_report=partial(twin.make_split, dataset, "report"),
    )


def _from_twin_instead(dataset: str, reason: Exception) -> TextData:
    found = _from_twin(dataset)
    root = os.environ.get("RAPID_DATA_DIR")
    copy = f"no {OFFICIAL[dataset].folder} in RAPID_DATA_DIR={root}" if root else "RAPID_DATA_DIR is not set"
    warning = (
        f"{dataset}: the hub is out of reach, so this run uses the embedded twin under the name {found.name}; "
        f"results are not those of the real data ({copy}; {reason})"
    )
    return replace(found, warnings=(warning,))


def _hub_name(dataset: str) -> HubName:
    match = HUB_NAME.fullmatch(dataset)
    return HubName(match["repo"], match["config"]) if match else OFFICIAL[dataset].hub_name


def _report_names(dataset: str) -> tuple[str, ...]:
    return OFFICIAL[dataset].report_names if dataset in OFFICIAL else OTHER_REPORT_NAMES


def _cell_name(dataset: str, train_count: int) -> str:
    """The name of a table's cell: an official dataset bears its plain name only in its official size.

    >>> _cell_name("agnews", 120000), _cell_name("agnews", 60324)
    ('agnews', 'agnews[60324]')
    >>> _cell_name("hub:owner/name:config", 100), _cell_name("../my reviews/", 100)
    ('hub-owner-name-config', 'folder-my-reviews')
    """
    if dataset in OFFICIAL:
        return dataset if train_count == OFFICIAL[dataset].train_count else f"{dataset}[{train_count}]"
    # Prefixed, so that a folder called agnews shares no name with agnews.
    plain = dataset if dataset.startswith("hub:") else f"folder-{Path(dataset).resolve().name}"
    return re.sub(r"[^\w.]+", "-", plain).strip("-")


def _data_hash(train: Examples, report_name: str, report_identity: str) -> str:
    parts = (train.content_hash, report_name, report_identity)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
