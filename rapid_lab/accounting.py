"""What a run's settings make it spend, known before anything is trained."""

from fractions import Fraction

from rapid_lab.config import Settings
from rapid_lab.errors import SettingError
from rapid_lab.method.budget import Account, batch_sizes, relation_account
from rapid_lab.objectives import METHODS

MOST_IN_A_BATCH = 31_622  # whose square is the largest budget there is


def method_account(settings: Settings, train_examples: int) -> Account:
    """Mean relations a batch of the settings' method."""
    components = METHODS[settings.method]
    if not components.has_relations:
        return Account(Fraction(0), Fraction(0), 0.0, 0.0, 0.0)
    largest = min(settings.batch_size, train_examples)
    if components.is_exact and largest > MOST_IN_A_BATCH:
        raise SettingError(
            f"batch_size must be at most {MOST_IN_A_BATCH} in the exact method, got {settings.batch_size}: "
            "it evaluates all pairs"
        )
    all_pairs = max(1, largest**2)
    powers = (settings.entropy_power, settings.reliability_power)
    return relation_account(
        train_examples=train_examples,
        batch_size=settings.batch_size,
        relation_budget=all_pairs if components.is_exact else settings.relation_budget,
        relation_cap=all_pairs if components.is_exact else settings.relation_cap,
        pilot_fraction=settings.pilot_fraction,
        epochs=settings.epochs,
        warmup_epochs=settings.warmup_epochs,
        max_residual_mix=settings.max_residual_mix if components.is_adaptive else 0,
        has_uniform_proposal=not components.has_static_proposal or powers == (0, 0),
    )


def run_relations(settings: Settings, train_examples: int) -> int:
    """Relations that one run evaluates, pilots included."""
    account = method_account(settings, train_examples)
    batches = sum(batch_sizes(train_examples, settings.batch_size).values()) * settings.epochs
    return int((account.main + account.pilot) * batches)
