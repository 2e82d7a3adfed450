"""Java clients that know one broker of a mesh: they are spread, follow its changes, and keep to a site."""

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.integration.activemq_broker import ActiveMQProcess
from tests.integration.mesh import MOVE_SECONDS, SITE_SECONDS, Mesh, wait_until
from tests.java.checks import Programs

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(180)]

CLIENT_COUNT = 20
"""With ten, one run in five hundred would leave all at one of two brokers by chance."""


class JavaClients:
    """The clients of `Spread.java`, one for each URI."""

    def __init__(self, programs: Programs, mesh: Mesh, *uris: str) -> None:
        self._mesh = mesh
        self._count = len(uris)
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(programs.command("Spread", *uris), stdin=pipe, stdout=pipe, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()

    def at(self) -> Counter[str]:
        """Return the number of clients at each broker."""
        return Counter(self.brokers())

    def brokers(self) -> list[str]:
        """Return the broker of each client that is connected, in the order of the URIs."""
        answer: list[str | None] = json.loads(self._ask("where"))
        return self._mesh.names(each and each.partition("@")[0] for each in answer)

    def wait(self, condition: Callable[[Counter[str]], bool], seconds: float = MOVE_SECONDS) -> None:
        """Wait until all are connected, and the numbers of clients satisfy a condition."""
        wait_until(lambda: (at := self.at()).total() == self._count and condition(at), self.at, seconds)

    def use(self) -> None:
        """Send a message with each client."""
        assert self._ask("send") == str(self._count)

    def _ask(self, question: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{question}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


def test_clients_of_one_broker_follow_the_mesh(programs: Programs, tmp_path: Path) -> None:
    with Mesh(tmp_path, "x", "y", "z") as mesh:
        mesh.start("x", "y")
        plain = mesh.address("y")
        with JavaClients(programs, mesh, plain, *[mesh.uri("x")] * CLIENT_COUNT) as clients:
            clients.wait(lambda at: at["x"] > 0 and at["y"] > 1)
            mesh.start("z")
            clients.wait(lambda at: at["z"] > 0)
            mesh.stop("x")
            clients.wait(lambda at: at.keys() == {"y", "z"})
            clients.use()
            assert clients.brokers()[0] == "y"


def test_clients_without_random_order_are_spread_evenly(programs: Programs, tmp_path: Path) -> None:
    with Mesh(tmp_path, "x", "y") as mesh:
        mesh.start("x", "y")
        with JavaClients(programs, mesh, *[mesh.uri("x", query="&randomize=false")] * 10) as clients:
            clients.wait(lambda at: at["x"] in (4, 5, 6))


def test_clients_with_priority_backup_keep_to_their_site(programs: Programs, tmp_path: Path) -> None:
    site = {"east1", "east2"}
    with Mesh(tmp_path, "east1", "east2", "west1", has_sites=True) as mesh:
        mesh.start("east1", "east2", "west1")
        uris = [
            mesh.uri(*order, "west1", query=f"&priorityBackup=true&priorityURIs={','.join(map(mesh.address, order))}")
            for order in (("east1", "east2"), ("east2", "east1"))
        ]
        with JavaClients(programs, mesh, *uris * (CLIENT_COUNT // 2)) as clients:
            clients.wait(lambda at: at.keys() == site, SITE_SECONDS)
            mesh.stop("east2")
            clients.wait(lambda at: at.keys() == {"east1"}, SITE_SECONDS)
            mesh.stop("east1")
            clients.wait(lambda at: at.keys() == {"west1"})
            mesh.start("east1", "east2")
            clients.wait(lambda at: at.keys() <= site, SITE_SECONDS)
            clients.use()


def test_address_of_an_activemq_is_sent_to_clients(programs: Programs, tmp_path: Path) -> None:
    with closing(ActiveMQProcess(programs.class_path, tmp_path / "stock")) as activemq:
        activemq.wait()
        with Mesh(tmp_path, "x", stock=activemq.openwire) as mesh:
            mesh.launch("x").wait_for("is up: broker stock,")
            with JavaClients(programs, mesh, *[mesh.uri("x")] * CLIENT_COUNT) as clients:
                clients.wait(lambda at: at.keys() == {"x", "stock"})
                mesh.stop("x")
                clients.wait(lambda at: at.keys() == {"stock"})
                clients.use()


def test_address_of_an_activemq_with_a_duplex_bridge_is_sent(programs: Programs, tmp_path: Path) -> None:
    with Mesh(tmp_path, "x") as mesh:
        mesh.launch("x").wait_for("listening on")
        network = f"duplex=nc:static:({mesh.address('x')})"
        with closing(ActiveMQProcess(programs.class_path, tmp_path / "stock", policies=(network,))) as activemq:
            activemq.wait()
            mesh.ports["stock"] = activemq.openwire
            with JavaClients(programs, mesh, *[mesh.uri("x")] * CLIENT_COUNT) as clients:
                clients.wait(lambda at: at.keys() == {"x", "stock"})
