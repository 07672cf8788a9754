"""How strongly should the teacher's reliability gate the relations?

A search over lambda in [0, 1]. Its ends are tried exactly as they are: 0 is the ungated target, 1 the fully gated
one. The paper's 0.5 comes first. `--method gated` asks the same of uniform draws.
"""

import sys

from rapid_lab.sweep.driver import main
from rapid_lab.sweep.space import Interval, Sweep

SWEEP = Sweep(
    name="gate",
    question=__doc__,
    axes={"gate_strength": Interval(0.0, 1.0)},
    has_ends=True,
    num_trials=20,
    defaults={"method": "rapid"},
)

if __name__ == "__main__":
    sys.exit(main(SWEEP))
