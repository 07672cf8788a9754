"""The compose file and the Dockerfile, without a container engine: schema, linter, and what they promise."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from compose_processes import HERE, MissingError, Setup, interpolated, read_compose, written_environment
from image_requirements import image_requirements, name_of
from mlflow.projects._project_spec import load_project
from packaging.requirements import Requirement

from rapid_lab.tracking.provenance import ROOT

PROGRAMS = Path(sys.executable).parent
SECRETS = {
    "POSTGRES_PASSWORD": "the-owners-secret",
    "MLFLOW_DATABASE_PASSWORD": "the-databases-secret",
    "OPTUNA_PASSWORD": "the-studies-secret",
    "MLFLOW_ADMIN_PASSWORD": "the-admins-secret",
    "MLFLOW_SECRET_KEY": "the-forms-secret",
}
SERVERS = ("database", "mlflow", "dashboard")


@pytest.fixture
def compose() -> dict[str, Any]:
    return read_compose(SECRETS)


def test_the_compose_file_is_one_by_its_schema(tmp_path: Path) -> None:
    check: list[str | Path] = [PROGRAMS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec"]
    good = subprocess.run([*check, HERE / "compose.yaml"], capture_output=True, text=True, check=False)
    assert good.returncode == 0, good.stdout
    wrong = tmp_path / "compose.yaml"
    wrong.write_text((HERE / "compose.yaml").read_text().replace("restart: unless-stopped", "restart: [never]"))
    assert subprocess.run([*check, wrong], capture_output=True, check=False).returncode == 1


def test_the_dockerfile_has_no_fault_that_hadolint_finds(tmp_path: Path) -> None:
    good = subprocess.run([PROGRAMS / "hadolint", HERE / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (good.returncode, good.stdout) == (0, "")
    wrong = tmp_path / "Dockerfile"
    wrong.write_text("FROM python:latest\nRUN cd /tmp\n")
    assert subprocess.run([PROGRAMS / "hadolint", wrong], capture_output=True, check=False).returncode == 1


def test_both_targets_are_built_from_the_lock_on_one_exact_image_by_a_user_without_privileges() -> None:
    text = (HERE / "Dockerfile").read_text(encoding="utf-8")
    (base,) = re.findall(r"^FROM (\S+:\S+)", text, re.MULTILINE)
    assert re.fullmatch(r"python:3\.11\.\d+-slim-bookworm", base)
    stages = dict(re.findall(r"^FROM python AS (\w+)\n(.*?)(?=^FROM|\Z)", text, re.MULTILINE | re.DOTALL))
    assert set(stages) == {"cpu", "cuda"}
    pinned = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (torch,) = [one.partition("==")[2] for one in pinned if one.startswith("torch==")]
    for stage in stages.values():
        assert f"ARG TORCH={torch}\n" in stage
        torch_first, _, rest = stage.partition(
            "COPY pyproject.toml requirements.lock docker/image_requirements.py ./\n"
        )
        assert '"torch==${TORCH}"' in torch_first
        filtered, installed = rest.splitlines()[:2]
        assert filtered == "RUN python image_requirements.py pyproject.toml requirements.lock > image.lock \\"
        assert installed == "    && pip install --require-hashes --no-deps --requirement image.lock"
        users = re.findall(r"^USER (\S+)", stage, re.MULTILINE)
        assert users == ["10001"]
    own_index = r'^#.*\n|^ARG TORCH_INDEX_URL=\n|PIP_INDEX_URL="\S+" '
    assert re.sub(own_index, "", stages["cpu"], flags=re.MULTILINE).split() == stages["cuda"].split()


def needed(*asked: str) -> set[str]:
    """The packages of these requirements and all that they need, as those that are installed here say of themselves."""
    found: set[tuple[str, str]] = set()
    left = [Requirement(text) for text in asked]
    while left:
        one = left.pop()
        for case in {(name_of(one.name), extra) for extra in ("", *one.extras)} - found:
            found.add(case)
            others = map(Requirement, distribution(one.name).requires or ())
            left += [other for other in others if not other.marker or other.marker.evaluate({"extra": case[1]})]
    return {name for name, _ in found}


def test_an_image_has_all_that_the_laboratory_and_its_server_need_and_no_tool_of_developers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    own, extras = project["project"]["dependencies"], project["project"]["optional-dependencies"]
    entries = re.split(r"(?m)^(?=\w)", image_requirements(project, lock))[1:]
    pinned = {name_of(entry) for entry in entries}
    assert needed(*own, *extras["server"], *extras["postgres"]) - needed("torch") <= pinned
    assert {name_of(one) for name in ("dev", "ray", "static") for one in extras[name]} & pinned == {"setuptools"}
    assert all(f"\n{entry}" in f"\n{lock}" and "--hash=sha256:" in entry for entry in entries)


def test_one_variable_names_what_is_built_and_the_page_has_all_of_them() -> None:
    for asked, expected in (
        ({}, ("cpu", "rapid-lab:cpu")),
        ({"RAPID_TARGET": "cuda"}, ("cuda", "rapid-lab:cuda")),
        ({"RAPID_IMAGE": "ours:1"}, ("cpu", "ours:1")),
    ):
        worker = read_compose({**SECRETS, **asked})["services"]["worker"]
        assert (worker["build"]["target"], worker["image"]) == expected
    page = (ROOT / "docs" / "server.md").read_text(encoding="utf-8")
    named = re.findall(r"\$\{([A-Z_]+)", (HERE / "compose.yaml").read_text(encoding="utf-8"))
    assert [name for name in named if name not in page] == []


def test_nothing_but_the_laboratory_comes_into_an_image() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    let_in = {rule[1:] for rule in rules if rule.startswith("!")}
    assert all((ROOT / name).exists() for name in let_in)
    assert {name for name in let_in if (ROOT / name).is_dir()} == {"rapid_lab", "sweeps"}


@pytest.mark.parametrize("name", SECRETS)
def test_nothing_starts_without_its_password(name: str) -> None:
    for missing in ({**SECRETS, name: ""}, {key: value for key, value in SECRETS.items() if key != name}):
        with pytest.raises(MissingError, match=f"{name} must be set to"):
            read_compose(missing)


def shown_secrets(compose: dict[str, Any]) -> list[str]:
    """Those that stand anywhere but in the environment of a service."""
    shown = [{**service, "environment": None} for service in compose["services"].values()]
    return [secret for secret in SECRETS.values() if secret in str(shown)]


def test_no_password_is_written_down_nor_on_a_command_line(compose: dict[str, Any]) -> None:
    assert all(secret in str(compose) for secret in SECRETS.values())
    assert shown_secrets(compose) == []
    compose["services"]["dashboard"]["command"][1] = f"postgresql://optuna:{SECRETS['OPTUNA_PASSWORD']}@database"
    assert shown_secrets(compose) == [SECRETS["OPTUNA_PASSWORD"]]
    for path in HERE.iterdir():
        if path.is_file() and path.suffix in ("", ".yaml", ".ini", ".sql"):
            text = path.read_text(encoding="utf-8")
            assert not re.findall(r"://[^/\s]*:[^/\s]*@", text), path
            assert "password1234" not in text, path


def test_every_server_restarts_is_checked_and_keeps_its_data_in_a_named_volume(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert set(services) == {*SERVERS, "studies", "worker"}
    for name in SERVERS:
        assert services[name]["restart"] == "unless-stopped"
        assert services[name]["healthcheck"]["test"][0] == "CMD"
    named = {volume.partition(":")[0] for service in services.values() for volume in service.get("volumes", ())}
    assert {name for name in named if not name.startswith("./")} == set(compose["volumes"])
    for name in ("mlflow", "studies", "worker"):
        assert services[name]["depends_on"]["database"] == {"condition": "service_healthy"}
    assert services["dashboard"]["depends_on"] == {"studies": {"condition": "service_completed_successfully"}}


def test_ports_are_those_of_this_machine_unless_asked_and_the_dashboards_always(compose: dict[str, Any]) -> None:
    def ports(document: dict[str, Any]) -> dict[str, list[str]]:
        return {name: service.get("ports", []) for name, service in document["services"].items()}

    expected = {"database": ["127.0.0.1:5432:5432"], "mlflow": ["127.0.0.1:5000:5000"]}
    assert ports(compose) == {**expected, "dashboard": ["127.0.0.1:8080:8080"], "studies": [], "worker": []}
    asked = ports(read_compose({**SECRETS, "MLFLOW_BIND": "10.0.0.1", "DATABASE_BIND": "10.0.0.1"}))
    assert asked["mlflow"] == ["10.0.0.1:5000:5000"]
    assert asked["dashboard"] == ["127.0.0.1:8080:8080"]


def test_the_tracking_server_checks_hosts_and_users_and_hands_out_artifacts_itself(compose: dict[str, Any]) -> None:
    command = compose["services"]["mlflow"]["command"]
    assert {"--app-name=basic-auth", "--serve-artifacts"} <= set(command)
    assert "--allowed-hosts=localhost:*,127.0.0.1:*,mlflow:5000" in command
    assert not [word for word in command if word.startswith(("--default-artifact-root", "--disable-security"))]


def test_the_docker_form_of_the_project_is_one_that_mlflow_reads(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "server.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(docker_env:.*?)```", page, re.DOTALL)
    project = (ROOT / "MLproject").read_text(encoding="utf-8").replace("python_env: python_env.yaml\n", block)
    (tmp_path / "MLproject").write_text(project)
    found = load_project(str(tmp_path))
    assert (found.env_type, found.docker_env["image"]) == ("docker_env", "rapid-lab:cpu")
    assert len(found._entry_points) == 9


def test_variables_are_read_as_compose_reads_them() -> None:
    values = {"FULL": "a$B", "EMPTY": ""}
    assert interpolated("${FULL}-$FULL-${EMPTY:-b}-${NONE:-c d}-${NONE}-$$FULL", values) == "a$B-a$B-b-c d--$FULL"
    assert interpolated("${NONE:-${EMPTY:-${FULL}}}", values) == "a$B"
    with pytest.raises(MissingError, match="NONE must be set"):
        interpolated("${NONE:?must be set}", values)


def test_processes_differ_from_containers_in_addresses_and_paths_alone(tmp_path: Path) -> None:
    setup = Setup(tmp_path, SECRETS)
    port = {name: str(setup.ports[name]) for name in ("5432", "5000", "8080")}
    assert setup.command("mlflow") == [
        "mlflow", "server", "--app-name=basic-auth", "--backend-store-uri=postgresql+psycopg:///mlflow",
        "--serve-artifacts", f"--artifacts-destination={tmp_path}/artifacts",
        f"--allowed-hosts=localhost:*,127.0.0.1:*,127.0.0.1:{port['5000']}", "--workers=2",
        "--host=127.0.0.1", f"--port={port['5000']}",
    ]  # fmt: skip
    assert setup.command("worker") == ["python", "sweeps/budget_sweep.py", "--worker"]
    variables = setup.variables("worker")
    assert variables["MLFLOW_TRACKING_URI"] == f"http://127.0.0.1:{port['5000']}"
    assert (variables["PGHOST"], variables["PGPORT"], variables["PGUSER"]) == ("127.0.0.1", port["5432"], "optuna")
    assert (variables["RAPID_CACHE_DIR"], variables["PGPASSWORD"]) == (f"{tmp_path}/cache", "the-studies-secret")
    assert variables["MLFLOW_TRACKING_PASSWORD"] == SECRETS["MLFLOW_ADMIN_PASSWORD"]
    own = setup.variables("mlflow")
    assert (own["PGUSER"], own["MLFLOW_AUTH_CONFIG_PATH"]) == ("mlflow", str(HERE / "basic_auth.ini"))


def test_passwords_come_from_a_file_beside_the_compose_file(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    assert written_environment(path) == {}
    path.write_text("# ours\nPOSTGRES_PASSWORD=a=b\n\nOPTUNA_PASSWORD = c\n")
    assert written_environment(path) == {"POSTGRES_PASSWORD": "a=b", "OPTUNA_PASSWORD": "c"}
