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
from pybroker.locks.election.kubernetes_url import KubernetesUrl
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
CLAIM: Final[dict[str, Any]] = {
    "accessModes": [str],
    "storageClassName": str,
    "resources": {"requests": TEXTS},
}
CONTAINER: Final[dict[str, Any]] = {
    "name": str,
    "image": str,
    "command": [str],
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
    "serviceAccountName": str,
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
    "initContainers": [CONTAINER],
    "containers": [CONTAINER],
    "volumes": [
        {
            "name": str,
            "persistentVolumeClaim": {"claimName": str},
            "emptyDir": {"medium": str, "sizeLimit": str},
            "secret": {"secretName": str},
        }
    ],
}
SERVICE: Final[dict[str, Any]] = {
    "clusterIP": str,
    "publishNotReadyAddresses": bool,
    "selector": TEXTS,
    "ports": [{"name": str, "port": int, "targetPort": str}],
}
STATEFUL: Final[dict[str, Any]] = {
    "replicas": int,
    "serviceName": str,
    "podManagementPolicy": str,
    "updateStrategy": {"type": str},
    "selector": SELECTOR,
    "template": {"metadata": {"labels": TEXTS}, "spec": POD},
    "volumeClaimTemplates": [{"metadata": {"name": str}, "spec": CLAIM}],
}
FIELDS: Final[dict[tuple[str, str], dict[str, Any]]] = {
    ("v1", "PersistentVolumeClaim"): {"spec": CLAIM},
    ("v1", "Service"): {"spec": SERVICE},
    ("v1", "ServiceAccount"): {},
    ("rbac.authorization.k8s.io/v1", "Role"): {
        "rules": [{"apiGroups": [str], "resources": [str], "resourceNames": [str], "verbs": [str]}]
    },
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): {
        "roleRef": {"apiGroup": str, "kind": str, "name": str},
        "subjects": [{"kind": str, "name": str}],
    },
    ("policy/v1", "PodDisruptionBudget"): {"spec": {"maxUnavailable": int, "selector": SELECTOR}},
    ("apps/v1", "StatefulSet"): {"spec": STATEFUL},
}
"""The fields, beside those that all objects have, by version and kind."""

PAIR, REPLICATED = "pybroker.yaml", "replicated.yaml"


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


@pytest.fixture(scope="module", params=[PAIR, REPLICATED])
def manifest(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def text(root: Path, manifest: str) -> str:
    return (root / "examples" / "kubernetes" / manifest).read_text()


@pytest.fixture(scope="module")
def objects(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text))


@pytest.fixture(scope="module")
def named(objects: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """The `spec` by kind and name; the whole object of a kind without one."""
    return {(each["kind"], each["metadata"]["name"]): each.get("spec", each) for each in objects}


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
        own = FIELDS[each["apiVersion"], each["kind"]]
        whole = {"apiVersion": str, "kind": str, "metadata": META, **own}
        assert list(faults(each, whole, each["kind"])) == []


def test_a_misspelt_field_would_be_found() -> None:
    fields = SERVICE
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
    stream = {"replicate": config.replicate_port} if config.replicate else {}
    assert ports == listening | {"health": config.health} | stream
    assert [each["name"] for each in named["Service", "pybroker-members"]["ports"]] == list(ports)
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


@pytest.fixture(scope="module")
def volumes(pod: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in pod["volumes"]}


@pytest.fixture(scope="module")
def mounts(container: dict[str, Any]) -> dict[str, str]:
    """The names of volumes by the directories they are mounted on."""
    return {each["mountPath"]: each["name"] for each in container["volumeMounts"]}


def test_files_are_on_the_volumes(
    text: str, volumes: dict[str, dict[str, Any]], mounts: dict[str, str], config: Config
) -> None:
    assert config.users_file is not None
    secret = volumes[mounts[str(config.users_file.parent)]]["secret"]["secretName"]
    assert f"kubectl create secret generic {secret} --from-file={config.users_file.name}" in text
    spool = volumes[mounts[str(config.spool_directory)]]["emptyDir"]["sizeLimit"]
    assert int(spool.removesuffix("Gi")) << 30 > config.spool_limit


def test_store_is_on_one_volume_or_on_one_each(
    manifest: str,
    named: dict[tuple[str, str], dict[str, Any]],
    stateful: dict[str, Any],
    volumes: dict[str, dict[str, Any]],
    mounts: dict[str, str],
    config: Config,
) -> None:
    store = mounts[config.store]
    if manifest == PAIR:
        claim = volumes[store]["persistentVolumeClaim"]["claimName"]
        assert named["PersistentVolumeClaim", claim]["accessModes"] == ["ReadWriteMany"], "both members mount it"
    else:
        (template,) = stateful["volumeClaimTemplates"]
        assert template["metadata"]["name"] == store
        assert template["spec"]["accessModes"] == ["ReadWriteOnce"]
        assert store not in volumes


def test_members_run_as_the_user_of_the_image(root: Path, pod: dict[str, Any], container: dict[str, Any]) -> None:
    (uid,) = re.findall(r"useradd --system --uid (\d+)", (root / "Dockerfile").read_text())
    context = pod["securityContext"]
    assert {context[name] for name in ("runAsUser", "runAsGroup", "fsGroup")} == {int(uid)}
    assert context["runAsNonRoot"]
    for each in (container, *pod.get("initContainers", [])):
        assert each["image"] == container["image"]
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_members_have_names_of_the_headless_service(config: Config, stateful: dict[str, Any]) -> None:
    assert config.openwire_url == f"tcp://{config.name}.{stateful['serviceName']}:{config.openwire}"


# ---------------------------------------------------------------- members with a volume each


only_replicated = pytest.mark.parametrize("manifest", [REPLICATED], indirect=True)


def test_only_replicated_members_may_ask_the_api_server(manifest: str, pod: dict[str, Any]) -> None:
    assert pod["automountServiceAccountToken"] == (manifest == REPLICATED)


@only_replicated
def test_lease_is_that_of_the_rights(
    config: Config, pod: dict[str, Any], named: dict[tuple[str, str], dict[str, Any]], text: str
) -> None:
    register = lease_of(config)
    account = pod["serviceAccountName"]
    assert ("ServiceAccount", account) in named
    binding = named["RoleBinding", account]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account}]
    assert binding["roleRef"]["kind"] == "Role"
    rules = named["Role", binding["roleRef"]["name"]]["rules"]
    rights = {(verb, *rule.get("resourceNames", [])) for rule in rules for verb in rule["verbs"]}
    assert rights == {("create",), ("get", register), ("update", register), ("watch", register)}
    assert {(*rule["apiGroups"], *rule["resources"]) for rule in rules} == {("coordination.k8s.io", "leases")}
    assert f"kubectl get lease {register}\x20" in text


def lease_of(config: Config) -> str:
    """Return the name of the Lease, by the setting as the broker reads it."""
    assert config.replicate is not None
    url = KubernetesUrl.parse(config.replicate)
    assert not url.namespace, "that of the pod, which the objects of the manifest are in"
    return url.cluster


@only_replicated
def test_members_reach_each_other_by_their_names(config: Config, stateful: dict[str, Any]) -> None:
    assert config.replicate_url == f"pybroker-0.{stateful['serviceName']}:{config.replicate_port}"


@only_replicated
def test_secret_is_a_file_of_the_brokers_own(
    config: Config,
    pod: dict[str, Any],
    volumes: dict[str, dict[str, Any]],
    mounts: dict[str, str],
    text: str,
) -> None:
    """A file of a Secret volume can be read by its group, which the broker refuses."""
    assert config.replicate_secret_file is not None
    (copying,) = pod["initContainers"]
    source, target = map(Path, copying["command"][2:])
    assert copying["command"][:2] == ["install", "--mode=600"]
    assert target == config.replicate_secret_file
    own = {each["mountPath"]: each["name"] for each in copying["volumeMounts"]}
    assert own[str(target.parent)] == mounts[str(target.parent)]
    assert volumes[own[str(target.parent)]]["emptyDir"]["medium"] == "Memory", "it is on no disk"
    secret = volumes[own[str(source.parent)]]["secret"]["secretName"]
    assert f"kubectl create secret generic {secret} --from-literal={source.name}=$(openssl rand -hex 32)" in text
