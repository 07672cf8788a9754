"""Section 3.6: exact integer budget accounting, for one batch and for a whole training."""

import functools
import math
from fractions import Fraction
from typing import NamedTuple

from rapid_lab.method.endpoints import num_warmup_epochs
from rapid_lab.method.relations import num_pairs
from rapid_lab.ranges import check


class Allocation(NamedTuple):
    """What one batch may spend. Enumerated: every pair once, so no pilots and q = 1 / M."""

    main: int
    pilot: int
    is_enumerated: bool


class Account(NamedTuple):
    """Mean relations a batch over a training, main and pilot exactly; None where it depends on the teacher."""

    main: Fraction
    pilot: Fraction
    unique_main: float | None
    unique_pilot: float
    unique_union: float | None


def effective_budget(batch_size: int, *, relation_budget: int, relation_cap: int) -> int:
    """K = min(M, R, cap)."""
    check(relation_budget=relation_budget, relation_cap=relation_cap)
    return min(num_pairs(batch_size), relation_budget, relation_cap)


@functools.lru_cache(maxsize=256)
def allocate(
    batch_size: int, *, relation_budget: int, relation_cap: int, pilot_fraction: float, is_adaptive: bool
) -> Allocation:
    """Pilots K_p = min(max(1, floor(rho K + 1/2)), K - 1) while adaptive, out of the same K.

    >>> allocate(32, relation_budget=256, relation_cap=4096, pilot_fraction=0.1, is_adaptive=True)
    Allocation(main=230, pilot=26, is_enumerated=False)
    """
    check(pilot_fraction=pilot_fraction)
    budget = effective_budget(batch_size, relation_budget=relation_budget, relation_cap=relation_cap)
    if budget == num_pairs(batch_size):
        return Allocation(budget, 0, is_enumerated=budget > 0)
    if not is_adaptive:
        return Allocation(budget, 0, is_enumerated=False)
    # Half up, not round(): Python rounds 2.5 to 2, the paper to 3. In decimals: 0.29 of 50 is 14.5, not below it.
    pilot = min(max(1, math.floor(Fraction(str(pilot_fraction)) * budget + Fraction(1, 2))), budget - 1)
    return Allocation(budget - pilot, pilot, is_enumerated=False)


def expected_unique(draws: int, population: int) -> float:
    """E[distinct of n uniform draws with replacement from M] = M (1 - (1 - 1/M)^n).

    >>> round(expected_unique(256, 496), 3)
    200.128
    """
    if draws <= 1 or population <= 1:
        return float(min(draws, population))
    return -population * math.expm1(draws * math.log1p(-1 / population))


def batch_sizes(train_examples: int, batch_size: int) -> dict[int, int]:
    """How many batches of each size an epoch has; the last partial one is kept."""
    full, rest = divmod(train_examples, batch_size)
    return {size: count for size, count in ((batch_size, full), (rest, 1)) if size and count}


def relation_account(
    *,
    train_examples: int,
    batch_size: int,
    relation_budget: int,
    relation_cap: int,
    pilot_fraction: float,
    epochs: int,
    warmup_epochs: int,
    max_residual_mix: float,
    has_uniform_proposal: bool,
) -> Account:
    """The paper's relation table from sizes alone: means over all batches of all epochs.

    Unique main pairs have a closed form where the proposal is uniform or the batch enumerated; elsewhere they
    depend on the teacher.
    """
    check(train_examples=train_examples, batch_size=batch_size, max_residual_mix=max_residual_mix)
    warmup = num_warmup_epochs(epochs=epochs, warmup_epochs=warmup_epochs)
    phases = ((False, warmup), (True, epochs - warmup)) if max_residual_mix > 0 else ((False, epochs),)
    batches: list[tuple[int, Allocation, float | None, float]] = []
    for is_adaptive, num_epochs in phases:
        for size, count in batch_sizes(train_examples, batch_size).items():
            spent = allocate(
                size,
                relation_budget=relation_budget,
                relation_cap=relation_cap,
                pilot_fraction=pilot_fraction,
                is_adaptive=is_adaptive,
            )
            unique_main = _expected_unique_main(size, spent, has_uniform_proposal)
            unique_pilot = expected_unique(spent.pilot, num_pairs(size))
            batches.append((num_epochs * count, spent, unique_main, unique_pilot))

    total = sum(count for count, *_ in batches)
    main = Fraction(sum(count * spent.main for count, spent, *_ in batches), total)
    pilot = Fraction(sum(count * spent.pilot for count, spent, *_ in batches), total)
    unique_pilot = sum(count * unique for count, _, _, unique in batches) / total
    known = [(count, unique) for count, _, unique, _ in batches if unique is not None]
    if len(known) < len(batches):
        return Account(main, pilot, None, unique_pilot, None)
    unique_main = sum(count * unique for count, unique in known) / total
    return Account(main, pilot, unique_main, unique_pilot, unique_main if pilot == 0 else None)


def _expected_unique_main(size: int, spent: Allocation, has_uniform_proposal: bool) -> float | None:
    if spent.is_enumerated or spent.main <= 1:
        return float(spent.main)
    # Pilots bend even a uniform static proposal towards what they saw.
    return expected_unique(spent.main, num_pairs(size)) if has_uniform_proposal and not spent.pilot else None
