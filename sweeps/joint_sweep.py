"""Which settings are best at which price?

A search over lambda, tau_max, epsilon and the budget K together, with two objectives: selection accuracy, and the
relations a batch evaluates. It ends with the front of trials that no other beats in both, and its hypervolume: the
share of the box between nothing right at the cost of all pairs and everything right for free. The paper's settings
come first.
"""

import sys

from rapid_lab.sweep.driver import main
from rapid_lab.sweep.space import Interval, Sweep

SWEEP = Sweep(
    name="joint",
    question=__doc__,
    axes={
        "gate_strength": Interval(0.0, 1.0),
        "max_residual_mix": Interval(0.0, 1.0),
        "pair_defense": Interval(0.01, 1.0, is_log=True),
        "relation_budget": Interval(16, 256, is_log=True, is_integer=True),
    },
    objectives=("accuracy", "relations"),
    num_trials=60,
    defaults={"method": "rapid"},
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
