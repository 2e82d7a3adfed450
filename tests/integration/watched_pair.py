"""A pair of members with management on ports of their own, and Prometheus beside it."""

import contextlib
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.prometheus_server import PrometheusServer

SECONDS: Final = 30.0
WAITING: Final = "following"


class WatchedPair:
    """The members `a` and `b` of one store, which Prometheus scrapes from before they are started.

    Attributes:
        prometheus: scrapes both.
    """

    def __init__(self, directory: Path, store: Path) -> None:
        """Start Prometheus, and no member yet."""
        self.store = store
        self.stomp = {name: free_port() for name in ("a", "b")}
        self._management = {name: free_port() for name in ("a", "b")}
        self._members: list[BrokerProcess] = []
        self.prometheus = PrometheusServer(directory / "prometheus", self._management)

    def start(
        self,
        name: str,
        *extra: str,
        wait_for: str = "listening on",
        store: Path | None = None,
        kind: type[BrokerProcess] = BrokerProcess,
    ) -> BrokerProcess:
        """Start a member."""
        options = ("--management", f"127.0.0.1:{self._management[name]}", *extra)
        member = kind(str(store or self.store), name=name, port=self.stomp[name], extra=options)
        self._members.append(member)
        if wait_for:
            member.wait_for(wait_for)
        return member

    def instance(self, name: str) -> str:
        """Return the label `instance` of a member."""
        return self.prometheus.instances[name]

    def metrics(self, name: str) -> str:
        """Return the metrics of a member."""
        return self._get(name, "/metrics")

    def state(self, name: str) -> dict[str, Any]:
        """Return the state of the pair as a member shows it."""
        found: dict[str, Any] = json.loads(self._get(name, "/api/v1/ha"))
        return found

    def close(self) -> None:
        """End all."""
        for member in self._members:
            member.close()
        self.prometheus.close()

    def _get(self, name: str, path: str) -> str:
        url = f"http://127.0.0.1:{self._management[name]}{path}"
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:
            text: str = answer.read().decode()
            return text


@contextlib.contextmanager
def watched_pair(directory: Path, store: Path) -> Iterator[WatchedPair]:
    """Begin with Prometheus and no member, and end all."""
    with contextlib.closing(WatchedPair(directory, store)) as pair:
        yield pair
