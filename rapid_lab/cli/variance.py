"""How the variance of every proposal is shown: a table, and a JSON document."""

import math
from collections.abc import Sequence
from typing import Any

from rapid_lab.cli.tables import text_table
from rapid_lab.method.judgement import ProposalSummary

HEADER = (
    "proposal", "main", "loss variance", "quartiles", "pooled", "gradient variance", "quartiles", "pooled", "ess",
)  # fmt: skip


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
