"""What every test shares."""

from collections.abc import Iterator

import hypothesis
import pytest
import torch
from jaxtyping import config

from rapid_lab.allocation import keep_freed_memory

keep_freed_memory()
# The same cases in every run: a test that fails fails for everybody.
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=50)
hypothesis.settings.load_profile("fixed")


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(20261118)


@pytest.fixture
def unchecked_shapes() -> Iterator[None]:
    """As a user runs it: without the shape checker of the tests, which would speak first."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
