"""The team's server in a real browser: what a person sees of runs, their charts, parameters, models and reports."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from comparison.browsers import PATIENCE, chromium, needs_chromium
from mlflow import MlflowClient
from playwright.sync_api import Browser, Page, Route
from server.teams import EXPERIMENT, Team

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@contextmanager
def signed_in(browser: Browser, team: Team) -> Iterator[Page]:
    """A page for admin; whatever is asked of anybody but the server is refused."""
    credentials = {"username": team.admin[0], "password": team.admin[1]}
    context = browser.new_context(viewport={"width": 1440, "height": 900}, http_credentials=credentials)  # type: ignore[arg-type]
    context.set_default_timeout(PATIENCE)

    def route(asked: Route) -> None:
        if asked.request.url.startswith((team.uri, "data:", "blob:")):
            asked.continue_()
        else:
            asked.abort()

    context.route("**/*", route)
    yield context.new_page()
    context.close()


@pytest.fixture
def experiment(team: Team, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", team.admin[0])
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", team.admin[1])
    found = MlflowClient(team.uri).get_experiment_by_name(EXPERIMENT)
    assert found is not None
    return f"{team.uri}/#/experiments/{found.experiment_id}"
