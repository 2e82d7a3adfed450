"""Two installations for every test: pybroker, and a stock ActiveMQ 5.17; each one broker, or a pair on one store."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from pybroker.testing import Cluster
from tests.conftest import Java
from tests.integration.activemq_broker import ActiveMQProcess
from tests.integration.cluster import free_port

STOCK_BROKER = Path(__file__).parents[1] / "java" / "StockBroker.java"
KINDS = ("pybroker", "activemq")


class Pair(Protocol):
    """Two brokers on one store, of which one serves."""

    uri: str
    stomp_uri: str

    def kill(self) -> None:
        """Kill the one that serves."""
        ...

    def revive(self) -> None:
        """Start the one again that was killed, if one was; it waits."""
        ...


class PybrokerPair:
    """Two of ours."""

    def __init__(self, cluster: Cluster | None = None) -> None:
        self._cluster = cluster or Cluster(2)
        self._killed = ""
        self.uri = self.stomp_uri = ""

    def __enter__(self) -> Self:
        self._cluster.__enter__()
        self.uri, self.stomp_uri = self._cluster.uri, self._cluster.stomp_uri
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.close()

    def kill(self) -> None:
        self._cluster.wait_master()
        self._killed = self._cluster.kill9("master").name

    def revive(self) -> None:
        if self._killed:
            self._cluster.restart(self._killed)
        self._killed = ""


class StockPair:
    """Two stock brokers: the second waits for the first one's lock."""

    def __init__(self, class_path: str, directory: Path, policies: Sequence[str] = ()) -> None:
        self._class_path = class_path
        self._directory = directory
        self._policies = policies
        self._ports = [(free_port(), free_port()) for _ in range(2)]
        self._brokers: list[ActiveMQProcess] = []
        self.uri = f"failover:({','.join(f'tcp://127.0.0.1:{port}' for port, _ in self._ports)})"
        self.stomp_uri = f"failover:({','.join(f'stomp://127.0.0.1:{port}' for _, port in self._ports)})"

    def __enter__(self) -> Self:
        self._brokers.append(self._start(self._ports[0]).wait())
        self._brokers.append(self._start(self._ports[1]))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker in self._brokers:
            broker.close()

    def _start(self, ports: tuple[int, int]) -> ActiveMQProcess:
        return ActiveMQProcess(
            self._class_path, self._directory, policies=self._policies, openwire=ports[0], stomp=ports[1]
        )

    def kill(self) -> None:
        self._brokers.pop(0).close()

    def revive(self) -> None:
        if len(self._brokers) > 1:
            return
        (running,) = self._brokers
        ports = next(ports for ports in self._ports if ports[0] != running.openwire)
        running.wait()
        self._brokers.append(self._start(ports))


def stock_classes(java: Java) -> str:
    """Return the class path of a stock broker."""
    return f"{Path(java.command(STOCK_BROKER)[4].partition(':')[0])}:{java.class_path}"


@contextlib.contextmanager
def stock_broker(class_path: str, directory: Path):
    """Run one stock broker."""
    with contextlib.closing(ActiveMQProcess(class_path, directory).wait()) as broker:
        yield broker
