"""The API server of a Kubernetes cluster that somebody provides, by `KUBECONFIG`: kind, k3s or a real one.

    from tests.kubernetes_cluster import kubernetes_cluster  # noqa: F401

    @pytest.mark.component("kubernetes")
    def test_something(kubernetes_cluster): ...

Its user has to have all rights on leases in the namespace of its context. The tests make Leases whose names begin with
`pybroker-test-`, and delete them. Without a cluster they are not run, which the summary of a run says.
"""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from pybroker.locks.election.http_calls import HttpAddress
from pybroker.locks.election.kubernetes_access import KubernetesAccess, find_access
from tests.integration.stalling_proxy import StallingProxy

LOOPBACK = ("127.0.0.1", "localhost")


class KubernetesCluster:
    """An API server.

    Attributes:
        port: at which it is reached on the loopback.
    """

    def __init__(self, access: KubernetesAccess, port: int) -> None:
        self._access = access
        self._names = count(1)
        self._made: list[str] = []
        self.port = port

    def new_name(self) -> str:
        """Return the name of a Lease that no other test has."""
        self._made.append(f"pybroker-test-{os.getpid()}-{next(self._names)}")
        return self._made[-1]

    def access(self, port: int = 0) -> KubernetesAccess:
        """Return how a register reaches it: through a proxy on the loopback, if a port is given."""
        access = self._access
        if not port:
            return access
        name = access.server_name or access.address.host
        return replace(access, address=HttpAddress("127.0.0.1", port), server_name=name)

    def get(self, name: str) -> dict[str, Any]:
        """Return a Lease; empty: there is none."""
        return self._call("GET", f"/{name}")

    def put(self, name: str, lease: dict[str, Any]) -> None:
        """Write a Lease, or create it."""
        whole = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **lease}
        method, path = ("PUT", f"/{name}") if "uid" in lease["metadata"] else ("POST", "")
        assert self._call(method, path, whole)

    def delete(self, name: str) -> None:
        """Delete a Lease, if there is one."""
        self._call("DELETE", f"/{name}")

    def remove(self) -> None:
        """Delete all that was made."""
        for name in self._made:
            self.delete(name)

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Call the API server, by other code than what is tested."""
        access = self._access
        leases = f"{access.path}/apis/coordination.k8s.io/v1/namespaces/{access.namespace}/leases{path}"
        headers = {"Content-Type": "application/json"}
        if access.token:
            headers["Authorization"] = f"Bearer {access.token}"
        url = f"{'https' if access.is_tls else 'http'}://{access.address}{leases}"
        data = None if body is None else json.dumps(body).encode()
        prepared = urllib.request.Request(url, data, headers, method=method)
        try:
            with urllib.request.urlopen(prepared, timeout=20, context=access.tls()) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return {}
            raise AssertionError(error.read().decode()) from error


@pytest.fixture(scope="session")
def kubernetes_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesCluster]:
    """The cluster that KUBECONFIG names, whose file may be YAML here."""
    given = Path(os.environ["KUBECONFIG"])
    file = given.with_name(f".{given.name}-{os.getpid()}.json")  # beside it, for relative names in it
    file.write_text(json.dumps(yaml.safe_load(given.read_text())))
    try:
        access = find_access({"KUBECONFIG": str(file)})
    finally:
        file.unlink()
    host, port = access.address
    relay = None if host in LOOPBACK else StallingProxy(port, host)
    cluster = KubernetesCluster(access, port if relay is None else relay.port)
    yield cluster
    cluster.remove()
    if relay is not None:
        relay.__exit__()
