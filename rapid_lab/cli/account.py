"""The paper's relation table from sizes alone: no data, no teacher, no training.

Without options it prints the table for both datasets of the paper. Unique pairs have a closed form where pairs
are drawn uniformly or enumerated; elsewhere they depend on the teacher (a dash, null in JSON).
"""

import json
from collections.abc import Sequence
from typing import Any

from rapid_lab.accounting import method_account
from rapid_lab.cli.parsing import Parser, parsed
from rapid_lab.cli.tables import text_table
from rapid_lab.config import DATASETS, SETTINGS, Value, nearest, resolve
from rapid_lab.errors import SettingError
from rapid_lab.method.budget import Account
from rapid_lab.objectives import METHODS, PAPER_METHODS
from rapid_lab.ranges import RANGES, read_count

COLUMNS = Account._fields
TRAIN_EXAMPLES = {"agnews": 108_000, "sst2": 60_614}
ACCOUNTED = (
    "batch_size", "relation_budget", "relation_cap", "pilot_fraction", "epochs", "warmup_epochs", "max_residual_mix",
    "entropy_power", "reliability_power",
)  # fmt: skip


def run(arguments: Sequence[str]) -> None:
    """Parse, account, print."""
    options = vars(parsed(parser(), arguments))
    as_json, dataset, examples = (options.pop(name) for name in ("json", "dataset", "train_examples"))
    given = {name: SETTINGS[name].parse(text) for name, text in options.items() if text is not None}
    train_examples = None if examples is None else read_count("train_examples", examples)
    if dataset is not None and dataset not in DATASETS:
        raise SettingError(
            f"dataset must be one of {', '.join(DATASETS)}, got {dataset!r}: {nearest(dataset, DATASETS)}"
        )
    methods = [given["method"]] if "method" in given else PAPER_METHODS
    # Sizes of the user's own belong to no dataset of the paper.
    is_own = train_examples is not None and dataset is None
    if is_own and "relation_budget" not in given:
        raise SettingError("relation_budget must be given, got nothing: train_examples alone belong to no dataset")
    datasets: list[str | None] = [dataset] if dataset else [None] if is_own else [*DATASETS]
    rows = [
        account_row(data, train_examples or TRAIN_EXAMPLES[str(data)], {**given, "method": method})
        for data in datasets
        for method in methods
    ]
    if as_json:
        print(json.dumps(rows[0] if len(rows) == 1 else {"rows": rows}, indent=1))
    else:
        print(_rendered(rows))


def account_row(dataset: str | None, train_examples: int, given: dict[str, Value]) -> dict[str, Any]:
    """One line of the table: what was asked, and mean relations a batch."""
    settings = resolve({**given, "dataset": dataset} if dataset else given)
    account = method_account(settings, train_examples)
    means = {name: None if mean is None else float(mean) for name, mean in account._asdict().items()}
    asked = {"train_examples": train_examples, **{name: getattr(settings, name) for name in ACCOUNTED}}
    return {"dataset": dataset, "method": settings.method, **means, "settings": asked}


def parser() -> Parser:
    """The options of this command."""
    parser = Parser(prog="rapid-lab account", description=__doc__)
    parser.add_argument("--method", help=f"one of {', '.join(METHODS)} (default: the paper's six)")
    parser.add_argument("--dataset", help=f"one of {', '.join(DATASETS)} (default: both)")
    parser.add_argument("--train-examples", help=f"training examples, {RANGES['train_examples']} (N)", metavar="VALUE")
    for name in ACCOUNTED:
        parser.add_argument(SETTINGS[name].flag, help=SETTINGS[name].description, metavar="VALUE")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def _rendered(rows: list[dict[str, Any]]) -> str:
    header = ["data", "method", *(name.replace("_", " ") for name in COLUMNS)]
    cells = [
        [row["dataset"] or "own", METHODS[row["method"]].label]
        + ["-" if row[name] is None else f"{row[name]:.3f}" for name in COLUMNS]
        for row in rows
    ]
    note = "Mean relations a batch over all batches of all epochs; - depends on the teacher."
    return f"{text_table(header, cells)}\n\n{note}"
