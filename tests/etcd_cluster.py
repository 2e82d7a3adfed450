"""Private etcd nodes for tests: Debian's etcd, each in a directory of its own, on free ports of the loopback.

    from tests.etcd_cluster import EtcdCluster, etcd_cluster  # noqa: F401

    @pytest.mark.component("etcd")
    def test_something(etcd_cluster): ...

A test that stops or freezes nodes starts a cluster of its own; others share one node, and have names of their own.
"""

import base64
import json
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.in_memory import place
from tests.integration.cluster import free_port

START_SECONDS = 60.0
"""Far beyond what a node needs on a busy machine."""

ETCD = shutil.which("etcd")

_names = count(1)


@dataclass(frozen=True)
class EtcdHost:
    """The host of a node, for nodes in network namespaces.

    Attributes:
        address: the address for members of a cluster.
        seen_at: the address for the test.
        enter: the beginning of a command that is run there.
    """

    address: str = "127.0.0.1"
    seen_at: str = "127.0.0.1"
    enter: tuple[str, ...] = ()

    @property
    def bind(self) -> str:
        """The address to listen on."""
        return "0.0.0.0" if self.enter else self.address


class EtcdNode:
    """One process of etcd."""

    def __init__(self, name: str, directory: Path, client_port: int, peer_port: int, host: EtcdHost) -> None:
        self.name = name
        self.host = host
        self.directory = directory
        self.port = client_port
        self.peer_url = f"http://127.0.0.1:{peer_port}"
        self.log = directory / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, cluster: str, options: Sequence[str], scheme: str = "http") -> None:
        """Start the process, without waiting for it."""
        assert ETCD
        listened, told = (f"{scheme}://{each}:{self.port}" for each in (self.host.bind, self.host.address))
        command = [*self.host.enter, ETCD, "--name", self.name, "--data-dir", str(self.directory / self.name)]
        command += ["--listen-client-urls", listened, "--advertise-client-urls", told]
        command += ["--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url]
        command += ["--initial-cluster", cluster, "--logger", "zap", *options]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "GOMAXPROCS": "1"})

    def signal(self, number: signal.Signals) -> None:
        """Send a signal. After SIGSTOP the process has stopped on return, which takes a moment on a busy machine."""
        assert self.process is not None
        self.process.send_signal(number)
        if number == signal.SIGSTOP:
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def kill(self) -> None:
        """Kill the process as `kill -9` does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class EtcdCluster:
    """Some nodes of one cluster."""

    def __init__(
        self,
        size: int = 1,
        options: Sequence[str] = (),
        tls: ssl.SSLContext | None = None,
        host: EtcdHost = EtcdHost(),
    ) -> None:
        """Start the nodes on a host; `tls` has a client's trust and certificate, where the options demand them."""
        self._tls = tls
        self._scheme = "https" if tls else "http"
        self.directory = Path(tempfile.mkdtemp(prefix="pybroker-etcd-", dir=place()))
        self.options = options
        self.nodes = [EtcdNode(f"n{index}", self.directory, free_port(), free_port(), host) for index in range(size)]
        self._members = ",".join(f"{node.name}={node.peer_url}" for node in self.nodes)
        for node in self.nodes:
            self.start(node)
        self.wait()

    @property
    def addresses(self) -> str:
        """Hosts and ports of all nodes, as in a URL."""
        return ",".join(f"{node.host.address}:{node.port}" for node in self.nodes)

    def url(self, name: str = "") -> str:
        """Return the URL of a register that no other test has."""
        return f"etcd{'+https' if self._tls else ''}://{self.addresses}/{name or f'test-{next(_names)}'}"

    def start(self, node: EtcdNode) -> None:
        """Start a node that was killed."""
        node.start(self._members, self.options, self._scheme)

    def wait(self) -> None:
        """Wait until each running node serves linearizable reads."""
        deadline = time.monotonic() + START_SECONDS
        for node in self.nodes:
            while node.process is not None:
                try:
                    self.call("/v3/kv/range", {"key": "eA=="}, node)
                except (OSError, urllib.error.URLError):
                    assert node.process.poll() is None, node.log.read_text()
                    assert time.monotonic() < deadline, node.log.read_text()
                else:
                    break

    def call(
        self, path: str, request: dict[str, Any], node: EtcdNode | None = None, *, token: str = ""
    ) -> dict[str, Any]:
        """Call a node's JSON gateway, by other code than what is tested."""
        node = node or self.nodes[0]
        url = f"{self._scheme}://{node.host.seen_at}:{node.port}{path}"
        headers = {"Authorization": token} if token else {}
        prepared = urllib.request.Request(url, json.dumps(request).encode(), headers)
        with urllib.request.urlopen(prepared, timeout=2, context=self._tls) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def put(self, key: str, value: bytes) -> None:
        """Write a key whatever it holds."""
        self.call("/v3/kv/put", {"key": encoded(key), "value": base64.b64encode(value).decode()})

    def delete(self, key: str) -> None:
        """Delete a key."""
        self.call("/v3/kv/deleterange", {"key": encoded(key)})

    def leader(self) -> EtcdNode:
        """Return the node that leads."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            self.wait()  # none leads for a moment after another has ended
            status = self.call("/v3/maintenance/status", {})
            members = self.call("/v3/cluster/member/list", {})["members"]
            names = [each["name"] for each in members if each["ID"] == status.get("leader")]
            if names:
                return next(node for node in self.nodes if node.name == names[0])
            assert time.monotonic() < deadline

    def remove(self) -> None:
        """Kill the nodes and leave nothing behind."""
        for node in self.nodes:
            if node.process is not None:
                node.signal(signal.SIGCONT)
                node.kill()
        shutil.rmtree(self.directory)


def encoded(text: str) -> str:
    """Return a text as the gateway wants keys and values."""
    return base64.b64encode(text.encode()).decode()


@pytest.fixture(scope="session")
def etcd_cluster() -> Iterator[EtcdCluster]:
    """One node that the tests of a process share. None of them stops it."""
    cluster = EtcdCluster()
    yield cluster
    cluster.remove()


@pytest.fixture
def own_etcd() -> Iterator[EtcdCluster]:
    """A node of a test's own."""
    cluster = EtcdCluster()
    yield cluster
    cluster.remove()


@pytest.fixture
def three_etcds() -> Iterator[EtcdCluster]:
    """Three nodes of a test's own, which elect another leader within a second or so."""
    cluster = EtcdCluster(3, options=("--heartbeat-interval", "100", "--election-timeout", "1000"))
    yield cluster
    cluster.remove()
