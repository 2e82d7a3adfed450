"""Brokers in a full mesh of bridges, as real processes, whose clients get each other's addresses."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Self

from tests.integration.cluster import BrokerProcess, free_port

MOVE_SECONDS = 5.0
"""The time within which clients are elsewhere once a broker has come or gone."""

SITE_SECONDS = 20.0
"""The time within which clients return to their site: they look for it after pauses that grow."""


class Mesh:
    """The brokers; none of them runs yet.

    Attributes:
        ports: their OpenWire ports by their names.
    """

    def __init__(
        self,
        directory: Path,
        *names: str,
        has_sites: bool = False,
        pair: Sequence[str] = (),
        delays: str = "initialReconnectDelay=100&maxReconnectDelay=200",
        **foreign: int,
    ) -> None:
        """Choose the ports.

        Args:
            directory: gets the stores.
            names: of the brokers.
            has_sites: a broker sends the addresses of its site alone, which is its name without the digit at its end.
            pair: the members of a pair, whose broker name is `pair`.
            delays: the options of the bridges' URIs.
            foreign: the ports of other brokers to which bridges lead.
        """
        self.ports = {name: free_port() for name in (*names, *pair)} | foreign
        self._pair = pair
        self._delays = delays
        self._directory = directory
        self._has_sites = has_sites
        self._running: dict[str, BrokerProcess] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self._running.values():
            broker.close()

    def uri(self, *names: str, query: str = "", options: str = "maxReconnectDelay=200") -> str:
        """Return a failover URI of some brokers."""
        return f"failover:({','.join(map(self.address, names))})?{options}{query}"

    def address(self, name: str) -> str:
        """Return the address of a broker."""
        return f"tcp://127.0.0.1:{self.ports[name]}"

    def start(self, *names: str) -> None:
        """Start brokers, and wait until bridges lead from each running one to each other one."""
        for name in names:
            self.launch(name)
        for name, broker in self._running.items():
            for other in self._running.keys() - {name}:
                if name in names or other in names:
                    broker.wait_for(f"is up: broker {other},")

    def launch(self, name: str) -> BrokerProcess:
        """Start a broker."""
        extra = ("--config", str(self._settings(name)), "--openwire", str(self.ports[name]))
        store = str(self._directory / ("pair" if name in self._pair else name))
        self._running[name] = broker = BrokerProcess(store, name=name, port=free_port(), extra=extra)
        return broker

    def stop(self, *names: str) -> None:
        """Stop brokers in order."""
        for name in names:
            broker = self._running.pop(name)
            assert broker.terminate() == 0
            broker.close()

    def names(self, addresses: Iterable[str | None]) -> list[str]:
        """Return the names of the brokers of some addresses; those without one are left out."""
        by_port = {str(port): name for name, port in self.ports.items()}
        return [by_port[each.rpartition(":")[2]] for each in addresses if each is not None]

    def _settings(self, name: str) -> Path:
        own = self._pair if name in self._pair else (name,)
        text = (
            f'broker_name = "{"pair" if name in self._pair else name}"\n'
            f'openwire_brokers = "{",".join(map(self.address, own)) if name in self._pair else ""}"\n'
            "update_cluster_clients = true\n"
            "rebalance_cluster_clients = true\n"
            "update_cluster_clients_on_remove = true\n"
            f'update_cluster_filter = "{name.rstrip("0123456789") + ".*" if self._has_sites else ""}"\n'
        )
        others = [self.address(each) for each in self.ports if each not in own]
        if others:
            text += (
                "[[network]]\n"
                'name = "mesh"\n'
                f'uri = "static:({",".join(others)})?{self._delays}"\n'
                "static_bridge = true\n"
            )
        path = self._directory / f"{name}.toml"
        path.write_text(text)
        return path


def wait_until(condition: Callable[[], bool], describe: Callable[[], object], seconds: float = MOVE_SECONDS) -> None:
    """Wait for a condition.

    Args:
        condition: is asked every 20 ms.
        describe: returns the state, for the error.
        seconds: the limit.
    """
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, describe()
        pause.wait(0.02)
