"""What a comparison is made of: students as the store has them, setups of paired students, tables, sections."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


@dataclass(frozen=True)
class Student:
    """A finished run of a student: counts, never rates."""

    run_id: str
    experiment_id: str
    name: str
    method: str
    dataset: str
    seed: int
    config_id: str
    teacher_id: str
    source_hash: str
    schema_version: int
    data_source: str
    data_hash: str
    device: str
    hardware: str
    is_biased: bool
    settings: Mapping[str, str]
    correct: int | None  # of the report split; None where it was never read
    total: int | None
    steps: int
    relations: Mapping[str, int]  # main, pilot, unique_main, unique_pilot, unique_union: sums over all steps, if logged
    train_minutes: float  # NaN where it was not logged, as the next
    peak_mb: float


@dataclass(frozen=True)
class Setup:
    """Students that may stand in one table: one dataset and its hash, one teacher, equal settings, the same seeds."""

    label: str
    dataset: str
    seeds: tuple[int, ...]
    students: Mapping[str, tuple[Student, ...]]  # by method, in the paper's order; each in the order of `seeds`
    marks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by method: why its cell needs a remark
    unpaired: Mapping[str, tuple[Student, ...]] = field(default_factory=dict)  # methods that lack some of `seeds`
    notes: tuple[str, ...] = ()  # what a reader of the whole setup must know


@dataclass(frozen=True)
class Details:
    """What figures and example-level tests read besides; every mapping may lack a run."""

    selection: Mapping[str, "pd.DataFrame"] = field(default_factory=dict)  # run id: epoch, step, accuracy, nll
    steps: Mapping[str, "pd.DataFrame"] = field(default_factory=dict)  # run id: step, relations, proposal health
    predictions: Mapping[str, "pd.DataFrame"] = field(default_factory=dict)  # run id: row, label, predicted
    calibration: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # teacher id: calibration.json
    teachers: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # teacher id: its metrics by name


@dataclass(frozen=True)
class Excluded:
    """A run that is in no table, by name and reason."""

    run_id: str
    name: str
    reason: str


@dataclass(frozen=True)
class Cell:
    """One cell: its text as printed, the number behind it, and the runs it came from."""

    text: str
    value: float | int | str | None = None
    spread: float | None = None
    is_best: bool = False
    run_ids: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """Cells under a header, with notes below; `name` is its file's name."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Drawing:
    """A figure with what it shows said in words; `name` is its file's name."""

    name: str
    caption: str
    figure: "go.Figure"


@dataclass(frozen=True)
class Section:
    """A part of the report."""

    heading: str
    paragraphs: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    drawings: tuple[Drawing, ...] = ()
