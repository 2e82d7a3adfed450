"""docker-compose.yml shows what the README promises: two brokers, one store, one of them master."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from pybroker.broker.app import cli
from pybroker.broker.app.config import SETTINGS, Config, load


@pytest.fixture(scope="module")
def services(root: Path) -> dict[str, Any]:
    """The members by name, as Docker Compose reads them."""
    return {name: service for name, service in composed(root).items() if name != "postgres"}


def composed(root: Path) -> dict[str, Any]:
    return yaml.safe_load((root / "docker-compose.yml").read_text())["services"]


def port(mapping: str, side: int) -> int:
    """Host (0) or container (1) port of a mapping such as `127.0.0.1:61613:61613`."""
    return int(mapping.rsplit(":", 2)[-2:][side])


def test_two_brokers_share_one_volume(root: Path, services: dict[str, Any]) -> None:
    declared = yaml.safe_load((root / "docker-compose.yml").read_text())["volumes"]
    mounts = [tuple(service["volumes"]) for service in services.values()]
    assert len(mounts) == 2
    assert len(set(mounts)) == 1
    assert mounts[0][0].split(":")[0] in declared


def filled(text: str, environment: dict[str, str]) -> str:
    """A text of the file with Compose's `${NAME:-default}` filled in."""
    return re.sub(r"\$\{(\w+):-(.*?)\}", lambda match: environment.get(match[1], match[2]), text)


def settings(service: dict[str, Any], **environment: str) -> Config:
    """The settings a service's `pybroker start` would run with."""
    name, *arguments = (filled(word, environment) for word in service["command"])
    assert name == "start"
    context = cli.commands.commands[name].make_context(name, arguments)
    flags = {key: value for key, value in context.params.items() if key in SETTINGS}
    return load(None, flags, environment=variables(service, environment) if environment else {})


def test_each_keeps_its_store_on_the_shared_volume(services: dict[str, Any]) -> None:
    stores = {settings(service).store for service in services.values()}
    mounts = {service["volumes"][0].split(":")[1] for service in services.values()}
    assert stores == mounts


def test_members_have_distinct_names(services: dict[str, Any]) -> None:
    assert {settings(service).name for service in services.values()} == set(services)


def test_clients_reach_both_by_the_ports_they_listen_on(services: dict[str, Any]) -> None:
    published = [mapping for service in services.values() for mapping in service["ports"]]
    assert len({port(mapping, 0) for mapping in published}) == len(published)
    for service in services.values():
        listening = settings(service)
        assert listening.bind == "0.0.0.0", "a container's loopback is no one else's"
        assert [port(mapping, 1) for mapping in service["ports"]] == [listening.stomp, listening.openwire]


def test_healthcheck_asks_a_port_that_answers(root: Path, services: dict[str, Any]) -> None:
    exposed = re.search(r"^EXPOSE (.+)$", (root / "Dockerfile").read_text(), re.MULTILINE)
    assert exposed is not None
    for service in services.values():
        (asked,) = re.findall(r"http://127\.0\.0\.1:(\d+)/ready", service["healthcheck"]["test"][-1])
        config = load(None, {}, environment=variables(service, {}))
        assert int(asked) == config.health
        assert asked in exposed[1].split()


def test_stop_is_not_cut_short_by_docker(services: dict[str, Any]) -> None:
    for service in services.values():
        assert int(service["stop_grace_period"].removesuffix("s")) > 2 * settings(service).stop_timeout


def variables(service: dict[str, Any], environment: dict[str, str]) -> dict[str, str]:
    """The environment of a service's process."""
    return {name: filled(str(value), environment) for name, value in service["environment"].items()}


def test_lock_is_on_the_volume_or_in_the_database(root: Path, services: dict[str, Any]) -> None:
    text = (root / "docker-compose.yml").read_text()
    requested = dict(re.findall(r"(PYBROKER_\w+)=(\S+)", text))
    database = composed(root)["postgres"]
    for service in services.values():
        assert load(None, {}, environment=variables(service, {})).lock == "file"
        config = load(None, {}, environment=variables(service, requested))
        assert config.lock == "postgres-row"
        user = database["environment"]["POSTGRES_USER"]
        assert config.lock_url == f"postgresql://{user}@postgres/{database['environment']['POSTGRES_DB']}"


def test_store_is_in_the_database_with_its_variables(root: Path, services: dict[str, Any]) -> None:
    """The variables are those that the file's head names, each as the shell would set it."""
    text = (root / "docker-compose.yml").read_text()
    requested: dict[str, str] = {}
    for name, value in re.findall(r"(PYBROKER_\w+)=(\S+)", text):
        requested[name] = requested[value[1:]] if value.startswith("$") else value
    for service in services.values():
        config = settings(service, **requested)
        assert config.store == config.lock_url == requested["PYBROKER_LOCK_URL"]


def test_database_container_is_optional_and_starts_first(root: Path, services: dict[str, Any]) -> None:
    assert composed(root)["postgres"]["profiles"] == ["postgres"]
    for service in services.values():
        assert service["depends_on"] == {"postgres": {"condition": "service_healthy", "required": False}}
    assert "ports" not in composed(root)["postgres"], "it trusts anyone who reaches it"


def test_image_has_the_databases_driver(root: Path) -> None:
    assert re.search(r"uv sync .*--extra postgres", (root / "Dockerfile").read_text())


def stages(root: Path) -> list[str]:
    """The Dockerfile's text from one FROM to the next."""
    return re.split(r"(?m)^(?=FROM )", (root / "Dockerfile").read_text())[1:]


def test_image_is_compiled_and_has_no_compiler(root: Path) -> None:
    build, final = stages(root)
    assert "gcc libc6-dev" in build
    assert "ARG COMPILED=1\nRUN HATCH_BUILD_HOOKS_ENABLE=$COMPILED uv sync" in build
    assert "gcc" not in final
    assert "COPY --from=build /opt/pybroker /opt/pybroker" in final


def test_image_is_built_from_all_that_a_wheel_needs(root: Path, tmp_path: Path) -> None:
    """No Docker engine runs here: what the first stage copies is built by the backend itself, without compiling."""
    copies = re.findall(r"(?m)^COPY (.+) (\./\S*)$", stages(root)[0])
    allowed = (root / ".dockerignore").read_text().split()
    for sources, target in copies:
        for source in sources.split():
            assert f"!{source}" in allowed
            if (root / source).is_dir():
                shutil.copytree(root / source, tmp_path / "src" / target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                (tmp_path / "src" / target).mkdir(parents=True, exist_ok=True)
                shutil.copy(root / source, tmp_path / "src" / target)
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path / "dist")]
    done = subprocess.run(command, cwd=tmp_path / "src", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {"pybroker", "pyspark_kahadb"} <= names


def test_image_runs_the_command_as_an_ordinary_user(root: Path) -> None:
    lines = (root / "Dockerfile").read_text().splitlines()
    assert 'ENTRYPOINT ["pybroker"]' in lines
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users
    assert users[-1] != "root"


def test_image_is_built_with_the_uv_that_setup_uses(root: Path) -> None:
    (wanted,) = re.findall(r"^UV_VERSION := (\S+)$", (root / "Makefile").read_text(), re.MULTILINE)
    assert f" uv=={wanted}\n" in (root / "Dockerfile").read_text()
