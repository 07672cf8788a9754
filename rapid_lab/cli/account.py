"""The paper's relation table from sizes alone: no data, no teacher, no training.

Without options it prints the table for both datasets of the paper. Unique pairs have a closed form where pairs
are drawn uniformly or enumerated; elsewhere they depend on the teacher (a dash, null in JSON).
"""

import argparse
import json
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from rapid_lab.cli import Parser
from rapid_lab.cli.choices import chosen
from rapid_lab.cli.tables import text_table
from rapid_lab.config import DATASETS, SETTINGS, parse, resolve
from rapid_lab.method.budget import Account, relation_account
from rapid_lab.objectives import METHODS, Components

COLUMNS = Account._fields


def run(arguments: Sequence[str]) -> None:
    """Parse, account, print."""
    options = vars(_parser().parse_args(arguments))
    as_json, method, dataset = (options.pop(name) for name in ("json", "method", "dataset"))
    given = {name: parse(name, text) for name, text in options.items() if text is not None}
    methods = [chosen("method", method, METHODS)] if method else [name for name in METHODS if name != "exact"]
    # Sizes of the user's own belong to no dataset of the paper.
    is_own = {"train_examples", "relation_budget"} <= given.keys()
    datasets = [chosen("dataset", dataset, DATASETS)] if dataset else [None] if is_own else list(DATASETS)
    rows = [account_row(data, name, given) for data in datasets for name in methods]
    if as_json:
        print(json.dumps(rows[0] if len(rows) == 1 else {"rows": rows}, indent=1))
    else:
        print(_rendered(rows))


def account_row(dataset: str | None, method: str, given: dict[str, Any]) -> dict[str, Any]:
    """One line of the table: what was asked, and mean relations a batch."""
    settings = resolve(dataset, given)
    account = method_account(METHODS[method], settings)
    means = {name: None if mean is None else float(mean) for name, mean in account._asdict().items()}
    return {"dataset": dataset, "method": method, **means, "settings": settings}


def method_account(components: Components, settings: dict[str, Any]) -> Account:
    """Relations a method spends under these settings."""
    settings = dict(settings)
    powers = settings.pop("entropy_power"), settings.pop("reliability_power")
    if not components.has_relations:
        return Account(Fraction(0), Fraction(0), 0.0, 0.0, 0.0)
    if components.is_exact:
        settings["relation_budget"] = settings["relation_cap"] = settings["batch_size"] ** 2
    if not components.is_adaptive:
        settings["max_residual_mix"] = 0
    is_uniform = not components.has_static_proposal or powers == (0, 0)
    return relation_account(**settings, has_uniform_proposal=is_uniform)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="rapid-lab account", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--method", help=f"one of {', '.join(METHODS)} (default: the paper's six)")
    parser.add_argument("--dataset", help=f"one of {', '.join(DATASETS)} (default: both)")
    for name, setting in SETTINGS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", help=setting.description, metavar="VALUE")
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
