"""A run killed at any moment, also in the middle of a write: asked for again, it ends as one that never was."""

import random
import signal
import tempfile
from pathlib import Path

import pytest
from faults.children import TINY, WITH_MODEL, Strike, ask, begin, ended
from faults.outcomes import Outcome, Undisturbed, assert_same, assert_whole, copy_store, outcome
from tracking.programs import MLFLOW_WARNINGS

pytestmark = pytest.mark.filterwarnings(MLFLOW_WARNINGS)

SEED, NUM_KILLS = 20261118, 20
# Inside a write of the checkpoint, of the teacher's cache and of the selected weights; a metric flush; an upload.
QUICK = [Strike("checkpoint.safetensors", 3, "within")]
SLOW = [
    Strike("metrics", 2, "after"),
    Strike("model", 1, "within"),
    Strike("checkpoint.safetensors", 1, "before"),
    Strike("checkpoint.safetensors", 2, "after"),
    Strike("selected-*.safetensors", 1, "within"),
    Strike("selected-*.safetensors", 1, "after"),
    Strike("metrics", 1, "before"),
    Strike("metrics", 4, "after"),
    Strike("artifact", 1, "within"),
    Strike("artifact", 2, "before"),
    Strike("artifact", 3, "within"),
    Strike("artifact", 4, "after"),
    Strike("model", 1, "before"),
    Strike("model", 1, "after"),
]
COLD = [
    Strike("signals.safetensors", 1, "within"),
    Strike("signals.safetensors", 1, "before"),
    Strike("model.safetensors", 1, "after"),
    Strike("checkpoint.safetensors", 1, "within"),
]


def soaked(strikes: list[Strike]) -> list[object]:
    return [pytest.param(strike, marks=pytest.mark.soak) for strike in strikes]


def killed_and_asked_again(folder: Path, strike: Strike, reference: Outcome) -> None:
    words = ["run", *(WITH_MODEL if strike.at == "model" else TINY)]
    assert ask(folder, words, strike).code == -signal.SIGKILL
    again = ask(folder, words)
    assert again.code == 0, again.err
    assert_whole(folder)
    assert_same(outcome(folder), reference)


@pytest.mark.parametrize("strike", [*QUICK, *soaked(SLOW)], ids=str)
def test_a_run_killed_inside_a_write_ends_as_one_that_never_was(
    taught: Path, undisturbed: Undisturbed, strike: Strike
) -> None:
    killed_and_asked_again(taught, strike, undisturbed.outcome)


@pytest.mark.soak
@pytest.mark.parametrize("strike", COLD, ids=str)
def test_a_run_killed_while_its_teacher_is_made_or_cached_ends_as_one_that_never_was(
    cold: Path, undisturbed: Undisturbed, strike: Strike
) -> None:
    killed_and_asked_again(cold, strike, undisturbed.outcome)


def kill_at_random(folder: Path, chance: random.Random, seconds: float) -> bool:
    """Whether the kill came before the end."""
    process = begin(folder, ["run", *WITH_MODEL])
    moment = chance.uniform(0, seconds)
    process.join(moment)
    process.kill()
    code = ended(process, folder).code
    print(f"killed after {moment:.3f} s" if code == -signal.SIGKILL else f"done within {moment:.3f} s")
    return code == -signal.SIGKILL


@pytest.mark.soak
def test_twenty_kills_at_random_moments_change_nothing(
    made_store: Path, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    """Runs from nothing, each killed until it gets through, and asked for once more."""
    chance, num_kills = random.Random(SEED), 0
    print(f"seed {SEED}")
    while num_kills < NUM_KILLS:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        copy_store(made_store, folder)
        while num_kills < NUM_KILLS and kill_at_random(folder, chance, undisturbed.seconds):
            num_kills += 1
        again = ask(folder, ["run", *WITH_MODEL])
        assert again.code == 0, again.err
        assert_whole(folder)
        assert_same(outcome(folder), undisturbed.outcome)
