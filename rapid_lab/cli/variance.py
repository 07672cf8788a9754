"""What an estimator's variance really is: every proposal judged on real batches of a run's state.

The state is a run id (its selected weights), or a checkpoint of a run that is not finished. Variances of the loss and
of its gradient are exact given the representations, and shown relative to uniform draws at the same budget.
"""

import json
import math
from collections.abc import Sequence
from typing import Any

from rapid_lab.cli.parsing import Parser, parsed
from rapid_lab.cli.progress import watcher
from rapid_lab.cli.tables import text_table
from rapid_lab.method.judgement import ProposalSummary
from rapid_lab.ranges import read_count

HEADER = (
    "proposal", "main", "loss variance", "quartiles", "pooled", "gradient variance", "quartiles", "pooled", "ess",
)  # fmt: skip


def run(arguments: Sequence[str]) -> None:
    """Parse, judge, print."""
    options = parsed(parser(), arguments)
    num_batches, realisations = (read_count(name, getattr(options, name)) for name in ("batches", "realisations"))

    from rapid_lab.experiment.variance import judge_state

    with watcher("variance") as watching:
        summaries = judge_state(options.state, num_batches=num_batches, realisations=realisations, watcher=watching)
    print(json.dumps(document(summaries), indent=1) if options.json else rendered(summaries))


def parser() -> Parser:
    """The options of this command."""
    parser = Parser(prog="rapid-lab variance", description=__doc__)
    parser.add_argument("state", metavar="RUN_OR_CHECKPOINT", help="a run id, or the path of a checkpoint")
    parser.add_argument("--batches", default="50", metavar="NUMBER", help="batches that are judged (default 50)")
    help_text = "draws of the pilots that RAPID's variance is the mean of (default 8)"
    parser.add_argument("--realisations", default="8", metavar="NUMBER", help=help_text)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def rendered(summaries: Sequence[ProposalSummary]) -> str:
    """Variances relative to uniform draws with replacement at the same budget, with their spread over batches."""
    rows = []
    for summary in summaries:
        cells = [summary.proposal, f"{summary.main:.1f}"]
        for ratio in (summary.loss_ratio, summary.gradient_ratio):
            cells += [
                f"{ratio.median:.3f}", f"{ratio.low_quartile:.3f} .. {ratio.high_quartile:.3f}", f"{ratio.pooled:.3f}"
            ]  # fmt: skip
        rows.append([*cells, f"{summary.ess_fraction:.3f}"])
    note = f"Medians over {summaries[0].num_batches} batches, relative to uniform at equal budget; below 1 is better."
    return f"{text_table(HEADER, rows)}\n\n{note}"


def document(summaries: Sequence[ProposalSummary]) -> dict[str, Any]:
    """The same for machines; null where a variance is not finite."""
    return {"num_batches": summaries[0].num_batches, "proposals": [_plain(summary) for summary in summaries]}


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return {name: _plain(part) for name, part in value._asdict().items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
