"""The options every sweep shares, and what the user asked with them: refused here or not at all."""

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rapid_lab.cli.parsing import SWITCH, Parser, parsed
from rapid_lab.config import SETTINGS, Value, read_config, resolve
from rapid_lab.errors import SettingError
from rapid_lab.harmless import shown
from rapid_lab.ranges import read_count
from rapid_lab.sweep.plan import OF_EVERY_TRIAL, check_methods
from rapid_lab.sweep.space import ALL_PAIRS, OBJECTIVES, Axis, Interval, Listed, Sweep, read_axis, read_objectives

DEFAULT_SEEDS = (42, 43, 44)
DEFAULT_FOLDER = "rapid-sweeps"
PRUNES = ("off", "seeds", "epochs")
ENGINES = ("local", "ray")
# The sweep's own business: seeds are given as a list, and the report split is read at the end or not at all.
TAKEN = {"seed", *OF_EVERY_TRIAL}
MIN_SEEDS_TO_PRUNE = 4


@dataclass(frozen=True, kw_only=True)
class Options:
    """What was asked for."""

    given: dict[str, Value]
    axes: dict[str, Axis]
    seeds: tuple[int, ...]
    objectives: tuple[str, ...]
    prune: str
    storage: str
    study: str | None
    num_trials: int | None
    timeout: float | None
    num_workers: int
    engine: str
    gpus_per_worker: float
    is_worker: bool
    is_dry_run: bool
    is_reporting: bool
    as_json: bool


def sweep_parser(sweep: Sweep) -> Parser:
    """The parser of one sweep; all sweeps have the same options."""
    parser = Parser(prog=f"{sweep.name}_sweep.py", description=sweep.question)
    asked = parser.add_argument_group("the sweep")
    add = asked.add_argument
    add("--trials", metavar="N", help="trials of the study in total, those of earlier commands included")
    add("--timeout", metavar="SECONDS", help="begin no trial after so long; trials that have begun are finished")
    add("--seeds", metavar="NUMBERS", help="comma-separated seeds, the same for every trial (default 42,43,44)")
    add("--objective", metavar="NAMES", help=f"one or two of {', '.join(OBJECTIVES)} ({','.join(sweep.objectives)})")
    add("--prune", metavar="HOW", default="off", help="off, seeds (Wilcoxon, 4 seeds or more) or epochs (median)")
    add("--report", **SWITCH, help="read the report split once, at the end: of a grid, or of the winner")
    add("--dry-run", **SWITCH, help="print the plan with its relation and time cost, and make nothing")
    add("--json", **SWITCH, help="print one JSON document")
    where = parser.add_argument_group("where and by whom")
    add = where.add_argument
    add("--study", metavar="NAME", help="name of the study (default: the sweep and the dataset)")
    add("--storage", metavar="PLACE", help="a folder, or postgresql+psycopg://user@host/database (RAPID_STORAGE)")
    add("--workers", metavar="N", default="1", help="processes that share the trials (default 1)")
    add("--worker", **SWITCH, help="be one of many workers: take trials of the study until none is left")
    add("--engine", metavar="NAME", default="local", help="local processes, or the nodes of a ray cluster")
    add("--gpus-per-worker", metavar="NUMBER", default="0", help="GPUs that ray gives to each worker")
    settings = parser.add_argument_group("settings", "one value fixes a setting; a swept one takes low:high or a,b,c")
    settings.add_argument("--config", metavar="FILE", help="settings from a TOML file; options here come after it")
    for setting in SETTINGS.values():
        if setting.name not in TAKEN:
            is_swept = setting.name in sweep.axes or setting.name in sweep.also
            text = setting.description.replace("%", "%%") + (" [swept]" if setting.name in sweep.axes else "")
            settings.add_argument(setting.flag, help=text, metavar="VALUES" if is_swept else "VALUE")
    return parser


def read_options(sweep: Sweep, arguments: Sequence[str]) -> Options:
    """Every option checked, before data, storage or store is touched."""
    for word in arguments:
        if word.partition("=")[0] == "--seed":
            raise SettingError("seed must be given as --seeds 42,43, got --seed: every trial is run on the same seeds")
    words = vars(parsed(sweep_parser(sweep), arguments))
    own = {name: words.pop(name) for name in _own_names(words)}
    given, axes = _space(sweep, words)
    seeds = _seeds(own["seeds"])
    objectives = read_objectives(own["objective"], sweep.objectives)
    return Options(
        given=given,
        axes=axes,
        seeds=seeds,
        objectives=objectives,
        prune=_prune(own["prune"], sweep, seeds, objectives),
        storage=_storage(own["storage"]),
        study=_study(own["study"]),
        num_trials=None if own["trials"] is None else read_count("trials", own["trials"]),
        timeout=None if own["timeout"] is None else _positive("timeout", own["timeout"]),
        num_workers=read_count("workers", own["workers"]),
        engine=_choice("engine", own["engine"], ENGINES),
        gpus_per_worker=_positive("gpus_per_worker", own["gpus_per_worker"], may_be_zero=True),
        is_worker=own["worker"],
        is_dry_run=own["dry_run"],
        is_reporting=own["report"],
        as_json=own["json"],
    )


def _own_names(words: dict[str, Any]) -> list[str]:
    return [name for name in words if name == "report" or (name not in SETTINGS and name != "config")]


def _space(sweep: Sweep, words: dict[str, Any]) -> tuple[dict[str, Value], dict[str, Axis]]:
    """The fixed settings and the axes that are left."""
    config = words.pop("config")
    given = {**sweep.defaults, **(read_config(Path(config)) if config is not None else {})}
    given = {name: value for name, value in given.items() if name not in TAKEN}
    axes: dict[str, Axis] = dict(sweep.axes)
    for name, text in words.items():
        if text is None:
            continue
        if name not in sweep.axes and name not in sweep.also:
            given[name] = SETTINGS[name].parse(text)
            continue
        found = read_axis(name, text, sweep.axes.get(name), is_grid=sweep.is_grid)
        if isinstance(found, Interval | Listed):
            axes[name] = found
        else:
            axes.pop(name, None)
            given[name] = found
    given = {name: value for name, value in given.items() if name not in axes}
    if not axes:
        raise SettingError(f"a sweep must have a setting that varies, got none: {', '.join(sweep.axes)} are all fixed")
    check_methods(axes, given)
    resolve({name: value for name, value in given.items() if value != ALL_PAIRS})
    return given, axes


def _seeds(text: str | None) -> tuple[int, ...]:
    if text is None:
        return DEFAULT_SEEDS
    seeds = tuple(int(str(SETTINGS["seed"].parse(part.strip()))) for part in text.split(",") if part.strip())
    if not seeds or len(set(seeds)) < len(seeds):
        raise SettingError(f"seeds must be different numbers such as 42,43, got {text!r}: a run counts once")
    return seeds


def _prune(how: str, sweep: Sweep, seeds: Sequence[int], objectives: Sequence[str]) -> str:
    _choice("prune", how, PRUNES)
    if how == "off":
        return how
    if sweep.is_grid:
        raise SettingError(f"prune must be off in a grid, got {how!r}: every point of the curve is wanted")
    if len(objectives) > 1:
        raise SettingError(f"prune must be off with two objectives, got {how!r}: neither alone says which trial is bad")
    if objectives[0] not in ("accuracy", "nll"):
        raise SettingError(f"prune must be off for {objectives[0]}, got {how!r}: no step before the last tells it")
    if how == "seeds" and len(seeds) < MIN_SEEDS_TO_PRUNE:
        raise SettingError(
            f"prune must be off or epochs with fewer than {MIN_SEEDS_TO_PRUNE} seeds, got 'seeds' with {len(seeds)}: "
            f"the smallest p of Wilcoxon's test is then {0.5 ** len(seeds):g}, and it acts below 0.1"
        )
    return how


def _storage(text: str | None) -> str:
    place = text or os.environ.get("RAPID_STORAGE") or DEFAULT_FOLDER
    if "://" in place and not re.match(r"postgresql(\+psycopg)?://", place):
        kind = place.partition("://")[0]
        raise SettingError(
            f"storage must be a folder or postgresql+psycopg://..., got {kind}://...: "
            "a folder serves one machine, PostgreSQL many"
        )
    return place


def _study(name: str | None) -> str | None:
    if name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise SettingError(f"study must be letters, digits and . _ -, got {shown(name)}: it names a file")
    return name


def _choice(name: str, value: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise SettingError(f"{name} must be one of {', '.join(choices)}, got {value!r}: there is no other")
    return value


def _positive(name: str, text: str, *, may_be_zero: bool = False) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (value > 0 or (may_be_zero and value == 0)) or math.isinf(value):
        bound = "a number of at least 0" if may_be_zero else "a number above 0"
        raise SettingError(f"{name} must be {bound}, got {text!r}: it is an amount")
    return value
