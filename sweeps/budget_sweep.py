"""How much accuracy does a relation buy, and what does it cost in time?

The sweep the paper leaves to future work: the relational methods at K = 16 to 256 relations a batch and at all pairs,
at one batch size, on paired seeds. A grid, not a search: every point is run, and none is given up early. It ends with
the curve of selection accuracy and time over the budget. `--batch-size 16,32,64` crosses batch sizes with budgets.
"""

import sys

from rapid_lab.sweep.driver import main
from rapid_lab.sweep.space import ALL_PAIRS, Listed, Sweep

SWEEP = Sweep(
    name="budget",
    question=__doc__,
    axes={
        "relation_budget": Listed((16, 32, 64, 128, 256, ALL_PAIRS)),
        "method": Listed(("uniform", "gated", "static", "rapid")),
    },
    also=("batch_size",),
    is_grid=True,
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
