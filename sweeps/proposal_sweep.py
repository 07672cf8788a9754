"""From which pairs should the student learn?

A search over the proposal: tau_max, epsilon, epsilon_e, the pilot fraction and the powers of entropy and reliability.
None of them changes what is estimated, nor how many relations it takes: they only move the variance of the estimate.
The paper's settings come first.
"""

import sys

from rapid_lab.sweep.driver import main
from rapid_lab.sweep.space import Interval, Sweep

SWEEP = Sweep(
    name="proposal",
    question=__doc__,
    axes={
        "max_residual_mix": Interval(0.0, 1.0),
        "pair_defense": Interval(0.01, 1.0, is_log=True),
        "endpoint_defense": Interval(0.0, 0.5),
        "pilot_fraction": Interval(0.02, 0.5),
        "entropy_power": Interval(0.0, 2.0),
        "reliability_power": Interval(0.0, 2.0),
    },
    num_trials=60,
    defaults={"method": "rapid"},
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
