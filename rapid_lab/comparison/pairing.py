"""Which seeds a table's means are taken over: the same for every method in it."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import combinations


def paired_seeds(seeds: Mapping[str, AbstractSet[int]]) -> tuple[int, ...]:
    """The seeds that fill the most cells: seeds times the methods that have them all; of equals, more methods.

    A method with one seed so far does not take the others' seeds away, and neither do seeds that are not run yet:

    >>> paired_seeds({"student_ce": {1, 2, 3}, "rapid": {1, 2, 3}, "exact": {1}})
    (1, 2, 3)
    >>> paired_seeds({"student_ce": {1, 2, 3}, "kd": {1, 2}, "rapid": {1, 2}})
    (1, 2)
    """
    best: tuple[int, ...] = ()
    best_score = (0, 0)
    for size in range(1, len(seeds) + 1):
        for methods in combinations(seeds, size):
            common = frozenset.intersection(*(frozenset(seeds[method]) for method in methods))
            score = (len(common) * size, size)
            if common and score > best_score:
                best, best_score = tuple(sorted(common)), score
    return best


def missing(seeds: Sequence[int], owned: AbstractSet[int]) -> tuple[int, ...]:
    """Those of the paired seeds that a method lacks."""
    return tuple(seed for seed in seeds if seed not in owned)


def listed(seeds: Sequence[int]) -> str:
    """Seeds in words.

    >>> listed([42]), listed([42, 43, 44, 50])
    ('seed 42', 'seeds 42, 43, 44, 50')
    """
    return f"seed{'' if len(seeds) == 1 else 's'} {', '.join(map(str, seeds))}"
