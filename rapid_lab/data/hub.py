"""The hub and its cache: the only module that imports `datasets`, and only when there is something to load.

Whether the hub is in reach is asked once, with a limit of its own, before the libraries with their many retries are
let near it. An answer of any kind means in reach: what goes wrong from there on is an error, never a reason for the
twin.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rapid_lab.data.examples import Columns, Examples, report_examples, rows_within, training_examples
from rapid_lab.errors import DataError
from rapid_lab.folders import is_folder, path_of
from rapid_lab.reach import endpoint, require_reach, said


@dataclass(frozen=True)
class HubName:
    """A dataset on the hub."""

    repo: str
    config: str | None = None

    def __str__(self) -> str:
        return f"hub:{self.repo}" + (f":{self.config}" if self.config else "")


@dataclass(frozen=True)
class HubData:
    """A prepared dataset: every split is on this machine, and is read when asked for."""

    name: HubName
    builder: Any
    columns: Columns

    def training(self) -> tuple[Examples, int]:
        """The training split and its number of classes."""
        (split,) = self._present(("train",))
        texts, labels = self._columns_of(split)
        return training_examples(texts, labels, where=f"{self.name}, split {split}")

    def report(self, split: str, num_labels: int) -> Examples:
        """The report split, checked."""
        texts, labels = self._columns_of(split)
        return report_examples(texts, labels, where=f"{self.name}, split {split}", num_labels=num_labels)

    def report_name(self, names: Sequence[str], num_labels: int, train: Examples) -> tuple[str, int]:
        """The split to report on, and how many training rows are in it.

        Faults of form are found now, before any model is loaded; nothing of the examples is kept but that number.
        """
        present = self._present(names)
        # Competitions keep the labels of their test split, and write -1 in their place.
        labelled = [split for split in present if set(self._columns_of(split)[1]) != {-1}]
        split = (labelled or present)[0]
        return split, rows_within(train, self.report(split, num_labels))

    def identity(self, split: str) -> str:
        """What a split is, without reading it: the commit it was prepared from."""
        return f"{self.name}@{self.builder.hash}/{self.builder.config.name}/{split}"

    def _present(self, names: Sequence[str]) -> list[str]:
        found = list(self.builder.info.splits or {})
        present = [name for name in names if name in found]
        if not present:
            raise DataError(f"{self.name} has no split {' or '.join(names)}: the splits found are {', '.join(found)}")
        return present

    def _columns_of(self, split: str) -> tuple[list[object], list[object]]:
        where = f"{self.name}, split {split}"
        try:
            dataset = self.builder.as_dataset(split=split)
        except Exception as error:
            raise DataError(f"{where} is damaged in the cache {self.builder.cache_dir}: {said(error)}") from None
        text, label = self.columns.among(dataset.column_names, where=where)
        rows = dataset.select_columns([text, label])[:]
        return rows[text], rows[label]


def load_cached(name: HubName, columns: Columns) -> HubData | None:
    """The dataset as an earlier download prepared it; nothing is asked of the network."""
    owner, _, short_name = name.repo.partition("/")
    if not is_folder(cache_folder()) or not any(cache_folder().glob(f"{owner}___*")):
        return None  # spares the import of `datasets`, which takes seconds
    from datasets.packaged_modules.cache.cache import Cache

    _be_quiet()
    where = {"cache_dir": str(cache_folder()), "dataset_name": short_name, "repo_id": name.repo}
    try:
        builder = Cache(config_name=name.config, version="auto", hash="auto", **where)
    except json.JSONDecodeError as error:
        raise DataError(f"{name} is damaged in the cache {cache_folder()}: {error}") from None
    except (ValueError, FileNotFoundError):
        return None  # never prepared, or not to the end
    return HubData(name, builder, columns)


def load_from_hub(name: HubName, columns: Columns) -> HubData:
    """The dataset downloaded, or HubOutOfReachError within REACH_SECONDS."""
    require_reach()
    import datasets

    _be_quiet()
    try:
        # With the scheme, or a folder of that name in the working directory would be taken for it.
        builder = datasets.load_dataset_builder(
            f"hf://datasets/{name.repo}", name.config, cache_dir=str(cache_folder())
        )
        builder.download_and_prepare()
    except Exception as error:
        # The library raises whatever it meets, down to the HTTP client's own errors. All of it is about this dataset.
        raise DataError(f"{name} cannot be loaded from {endpoint()}: {said(error)}") from None
    return HubData(name, builder, columns)


def cache_folder() -> Path:
    """Where `datasets` keeps what it has prepared, found without importing it."""
    general = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{general}/huggingface"
    return path_of(os.environ.get("HF_DATASETS_CACHE") or f"{home}/datasets")


def _be_quiet() -> None:
    """Leave the saying to us: the library would warn of each use of its cache."""
    import datasets

    datasets.logging.set_verbosity_error()
