"""The Kubernetes manifests of the examples: their fields, names and probes, and settings that a member accepts.

No cluster runs here. `FIELDS` has the fields of the API that the manifests use, as its reference declares them, so that
a misspelt or misplaced one is found; a cluster checks the rest.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from pybroker.broker.app.config import SETTINGS, Config, load
from pybroker.broker.app.variables import unknown_variables
from pybroker.management.checks import PATHS

TEXTS: Final = {"*": str}
META: Final = {"name": str, "labels": TEXTS}
SELECTOR: Final = {"matchLabels": TEXTS}
PROBE: Final = {
    "httpGet": {"path": str, "port": str},
    "periodSeconds": int,
    "timeoutSeconds": int,
    "failureThreshold": int,
}
CONTAINER: Final[dict[str, Any]] = {
    "name": str,
    "image": str,
    "args": [str],
    "env": [{"name": str, "value": str, "valueFrom": {"fieldRef": {"fieldPath": str}}}],
    "ports": [{"name": str, "containerPort": int}],
    "livenessProbe": PROBE,
    "startupProbe": PROBE,
    "readinessProbe": PROBE,
    "resources": {"requests": TEXTS, "limits": TEXTS},
    "securityContext": {
        "allowPrivilegeEscalation": bool,
        "readOnlyRootFilesystem": bool,
        "capabilities": {"drop": [str]},
    },
    "volumeMounts": [{"name": str, "mountPath": str, "readOnly": bool}],
}
POD: Final[dict[str, Any]] = {
    "terminationGracePeriodSeconds": int,
    "enableServiceLinks": bool,
    "automountServiceAccountToken": bool,
    "securityContext": {
        "runAsNonRoot": bool,
        "runAsUser": int,
        "runAsGroup": int,
        "fsGroup": int,
        "fsGroupChangePolicy": str,
        "seccompProfile": {"type": str},
    },
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": str, "labelSelector": SELECTOR}]
        }
    },
    "containers": [CONTAINER],
    "volumes": [
        {
            "name": str,
            "persistentVolumeClaim": {"claimName": str},
            "emptyDir": {"sizeLimit": str},
            "secret": {"secretName": str},
        }
    ],
}
FIELDS: Final[dict[tuple[str, str], dict[str, Any]]] = {
    ("v1", "PersistentVolumeClaim"): {
        "accessModes": [str],
        "storageClassName": str,
        "resources": {"requests": TEXTS},
    },
    ("v1", "Service"): {
        "clusterIP": str,
        "publishNotReadyAddresses": bool,
        "selector": TEXTS,
        "ports": [{"name": str, "port": int, "targetPort": str}],
    },
    ("policy/v1", "PodDisruptionBudget"): {"maxUnavailable": int, "selector": SELECTOR},
    ("apps/v1", "StatefulSet"): {
        "replicas": int,
        "serviceName": str,
        "podManagementPolicy": str,
        "updateStrategy": {"type": str},
        "selector": SELECTOR,
        "template": {"metadata": {"labels": TEXTS}, "spec": POD},
    },
}
"""The fields of `spec` by version and kind."""


def faults(value: Any, fields: Any, at: str = "") -> Iterator[str]:
    """Name what is not declared, or has another type."""
    if isinstance(fields, dict):
        if not isinstance(value, dict):
            yield f"{at} is no object"
            return
        for key, each in value.items():
            known = fields.get(key, fields.get("*"))
            if known is None:
                yield f"{at}.{key} is unknown"
            else:
                yield from faults(each, known, f"{at}.{key}")
    elif isinstance(fields, list):
        if not isinstance(value, list):
            yield f"{at} is no list"
            return
        for number, each in enumerate(value):
            yield from faults(each, fields[0], f"{at}[{number}]")
    elif type(value) is not fields:
        yield f"{at} is {value!r}, not {fields.__name__}"


@pytest.fixture(scope="module")
def objects(root: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((root / "examples" / "kubernetes" / "pybroker.yaml").read_text()))


@pytest.fixture(scope="module")
def named(objects: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """The `spec` by kind and name."""
    return {(each["kind"], each["metadata"]["name"]): each["spec"] for each in objects}


@pytest.fixture(scope="module")
def stateful(named: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
    return named["StatefulSet", "pybroker"]


@pytest.fixture(scope="module")
def pod(stateful: dict[str, Any]) -> dict[str, Any]:
    return stateful["template"]["spec"]


@pytest.fixture(scope="module")
def container(pod: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod["containers"]
    return only


@pytest.fixture(scope="module")
def environment(container: dict[str, Any]) -> dict[str, str]:
    """The variables of the first member, with references to variables before them filled in as Kubernetes does."""
    found: dict[str, str] = {}
    for each in container["env"]:
        if "valueFrom" in each:
            assert each["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
            found[each["name"]] = "pybroker-0"
        else:
            found[each["name"]] = re.sub(r"\$\((\w+)\)", lambda match: found[match[1]], each["value"])
    assert len(found) == len(container["env"]), "one of them is set twice"
    return found


@pytest.fixture(scope="module")
def config(environment: dict[str, str], container: dict[str, Any]) -> Config:
    assert container["args"] == ["start"]
    return load(None, {}, environment)


def test_fields_are_those_of_the_api(objects: list[dict[str, Any]]) -> None:
    for each in objects:
        spec = FIELDS[each["apiVersion"], each["kind"]]
        whole = {"apiVersion": str, "kind": str, "metadata": META, "spec": spec}
        assert list(faults(each, whole, each["kind"])) == []


def test_a_misspelt_field_would_be_found() -> None:
    fields = FIELDS["v1", "Service"]
    assert list(faults({"clusterIp": "None"}, fields)) == [".clusterIp is unknown"]
    assert list(faults({"ports": [{"port": "1"}]}, fields)) == [".ports[0].port is '1', not int"]
    assert list(faults({"ports": {"port": 1}, "selector": "x"}, fields)) == [
        ".ports is no list",
        ".selector is no object",
    ]


def test_variables_are_settings(environment: dict[str, str], config: Config) -> None:
    assert unknown_variables(environment) == []
    assert {name.removeprefix("PYBROKER_").lower() for name in environment} <= set(SETTINGS)
    assert config.name == "pybroker-0"
    assert config.bind == "0.0.0.0"


def test_ports_are_those_of_the_listeners(
    named: dict[tuple[str, str], dict[str, Any]], container: dict[str, Any], config: Config
) -> None:
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    listening = {each.name: each.port for each in config.listeners}
    assert ports == listening | {"health": config.health}
    for name in ("pybroker", "pybroker-members"):
        for each in named["Service", name]["ports"]:
            assert each["name"] == each["targetPort"]
            assert each["port"] == ports[each["targetPort"]]
    assert [each["name"] for each in named["Service", "pybroker"]["ports"]] == list(listening)[::-1]


def test_stop_is_not_cut_short(pod: dict[str, Any], config: Config) -> None:
    """An orderly stop waits for clients twice, and closes the store."""
    assert pod["terminationGracePeriodSeconds"] >= 2 * config.stop_timeout + 20


def test_probes_ask_what_they_have_to(container: dict[str, Any]) -> None:
    live, started, ready = (container[name] for name in ("livenessProbe", "startupProbe", "readinessProbe"))
    assert {each["httpGet"]["path"] for each in (live, started, ready)} <= set(PATHS)
    assert (live["httpGet"]["path"], started["httpGet"]["path"]) == ("/live", "/live"), "a standby must not be ended"
    assert ready["httpGet"]["path"] == "/master"
    assert live["periodSeconds"] * live["failureThreshold"] >= 60, "a disk that is slow for some seconds is no hang"
    assert ready["periodSeconds"] * ready["failureThreshold"] == 1, "the Service follows the master within a second"


def test_standby_that_is_never_ready_blocks_nothing(
    named: dict[tuple[str, str], dict[str, Any]], stateful: dict[str, Any]
) -> None:
    assert stateful["replicas"] == 2
    assert stateful["podManagementPolicy"] == "Parallel"
    assert stateful["updateStrategy"] == {"type": "OnDelete"}
    members = named["Service", stateful["serviceName"]]
    assert (members["clusterIP"], members["publishNotReadyAddresses"]) == ("None", True)
    assert "publishNotReadyAddresses" not in named["Service", "pybroker"]
    assert named["PodDisruptionBudget", "pybroker"]["maxUnavailable"] == 1


def test_selectors_find_the_members(named: dict[tuple[str, str], dict[str, Any]], stateful: dict[str, Any]) -> None:
    labels = stateful["template"]["metadata"]["labels"]
    budget = named["PodDisruptionBudget", "pybroker"]["selector"]["matchLabels"]
    services = [spec["selector"] for (kind, _), spec in named.items() if kind == "Service"]
    (rule,) = stateful["template"]["spec"]["affinity"]["podAntiAffinity"].popitem()[1]
    assert [budget, stateful["selector"]["matchLabels"], rule["labelSelector"]["matchLabels"], *services] == [
        labels
    ] * 5


def test_files_are_on_the_volumes(
    root: Path,
    named: dict[tuple[str, str], dict[str, Any]],
    pod: dict[str, Any],
    container: dict[str, Any],
    config: Config,
) -> None:
    volumes = {each["name"]: each for each in pod["volumes"]}
    mounts = {each["mountPath"]: volumes[each["name"]] for each in container["volumeMounts"]}
    claim = mounts[config.store]["persistentVolumeClaim"]["claimName"]
    assert named["PersistentVolumeClaim", claim]["accessModes"] == ["ReadWriteMany"], "both members mount it"
    assert config.users_file is not None
    secret = mounts[str(config.users_file.parent)]["secret"]["secretName"]
    head = (root / "examples" / "kubernetes" / "pybroker.yaml").read_text()
    assert f"kubectl create secret generic {secret} --from-file={config.users_file.name}" in head
    spool = mounts[str(config.spool_directory)]["emptyDir"]["sizeLimit"]
    assert int(spool.removesuffix("Gi")) << 30 > config.spool_limit


def test_members_run_as_the_user_of_the_image(root: Path, pod: dict[str, Any], container: dict[str, Any]) -> None:
    (uid,) = re.findall(r"useradd --system --uid (\d+)", (root / "Dockerfile").read_text())
    context = pod["securityContext"]
    assert {context[name] for name in ("runAsUser", "runAsGroup", "fsGroup")} == {int(uid)}
    assert context["runAsNonRoot"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_members_have_names_of_the_headless_service(config: Config, stateful: dict[str, Any]) -> None:
    assert config.openwire_url == f"tcp://{config.name}.{stateful['serviceName']}:{config.openwire}"
