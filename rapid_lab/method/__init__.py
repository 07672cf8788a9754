"""Section 3 of the paper as pure functions of tensors.

One file per subsection; `update` (Algorithm 1) is the only assembly. Nothing here reads a file, logs, or
knows of settings objects: hyperparameters are keyword arguments under their one name.

    relations     3.1       unit rows, cosine relations, their two backends
    calibration   3.2       temperature fit, calibrated probabilities, margin
    gate          3.2       reliability, normalised pair weights
    endpoints     3.3       entropy, static and residual scores, mixing, the schedule
    proposal      3.4       the defended factorised pair proposal, exact sampling
    estimator     3.4       the corrected estimate, and how concentrated its corrections are
    variance      3.5, app. exact variances, oracles, effective sample size, bounds
    judgement     3.5, app. every proposal judged on one batch
    budget        3.6       integer budget accounting, the relation table in closed form
    distillation  3.7       the output-level KD term
    target        3.2       the exact gated target over all pairs, and its gradient
    update        Alg. 1    the assembly
    validation              values of tensors, checked where they enter
"""
