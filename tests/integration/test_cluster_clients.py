"""Clients of pybroker's own that know one broker of a mesh: they are spread, follow its changes, and keep to a site."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import pybroker
from pybroker.client.sync import Connection
from tests.integration.mesh import SITE_SECONDS, Mesh, wait_until

pytestmark = pytest.mark.timeout(180)

CLIENT_COUNT = 20
"""With ten, one run in five hundred would leave all at one of two brokers by chance."""


class Clients:
    """Clients with one URI each."""

    def __init__(self, mesh: Mesh, connections: list[Connection]) -> None:
        self._mesh = mesh
        self._connections = connections

    def at(self) -> Counter[str]:
        """Return the number of clients at each broker."""
        return Counter(self._mesh.names(each.broker for each in self._connections))

    def wait(self, condition: Callable[[Counter[str]], bool], seconds: float = 5.0) -> None:
        """Wait until all are connected, and the numbers of clients satisfy a condition."""
        wait_until(lambda: (at := self.at()).total() == len(self._connections) and condition(at), self.at, seconds)

    def use(self) -> None:
        """Send a message and receive it, with each client."""
        for number, each in enumerate(self._connections):
            each.send(f"queue://Q{number}", "text")
            with each.consumer(f"queue://Q{number}") as consumer:
                assert consumer.receive(timeout=10) is not None


@pytest.fixture
def connect() -> Iterator[Callable[..., Clients]]:
    with ExitStack() as held:

        def connected(mesh: Mesh, uri: str, count: int = CLIENT_COUNT) -> Clients:
            return Clients(mesh, [held.enter_context(pybroker.connect(uri)) for _ in range(count)])

        yield connected


def test_clients_of_one_broker_follow_the_mesh(tmp_path: Path, connect: Callable[..., Clients]) -> None:
    with Mesh(tmp_path, "x", "y", "z") as mesh:
        mesh.start("x", "y")
        clients, plain = connect(mesh, mesh.uri("x")), connect(mesh, mesh.address("y"), 1)
        clients.wait(lambda at: at.keys() == {"x", "y"})
        mesh.start("z")
        clients.wait(lambda at: at["z"] > 0)
        mesh.stop("x")
        clients.wait(lambda at: at.keys() == {"y", "z"})
        clients.use()
        assert plain.at() == {"y": 1}
        plain.use()


def test_broker_that_comes_later_is_dialled_at_once(tmp_path: Path, connect: Callable[..., Clients]) -> None:
    """The bridge to it waits ten minutes after its second failure, and its own bridge ends that."""
    delays = "initialReconnectDelay=1000&backOffMultiplier=600&maxReconnectDelay=600000"
    with Mesh(tmp_path, "x", "y", delays=delays) as mesh:
        mesh.launch("x").wait_for("the next attempt is in 600 s")
        clients = connect(mesh, mesh.uri("x"))
        mesh.start("y")
        clients.wait(lambda at: at["y"] > 0)


def test_clients_with_priority_backup_keep_to_their_site(tmp_path: Path, connect: Callable[..., Clients]) -> None:
    site = {"east1", "east2"}
    with Mesh(tmp_path, "east1", "east2", "west1", has_sites=True) as mesh:
        mesh.start("east1", "east2", "west1")
        clients = connect(mesh, mesh.uri("east1", "west1", query="&priorityBackup=true"))
        clients.wait(lambda at: at.keys() == site)
        mesh.stop("east2")
        clients.wait(lambda at: at.keys() == {"east1"}, SITE_SECONDS)
        mesh.stop("east1")
        clients.wait(lambda at: at.keys() == {"west1"})
        mesh.start("east1", "east2")
        clients.wait(lambda at: at.keys() == site, SITE_SECONDS)
        clients.use()


def test_both_members_of_a_pair_are_sent_to_clients(tmp_path: Path, connect: Callable[..., Clients]) -> None:
    with Mesh(tmp_path, "y", pair=("a", "b")) as mesh:
        master = mesh.launch("a")
        master.wait_for("listening on")
        mesh.launch("b").wait_for("waiting for the lock")
        mesh.launch("y").wait_for("is up: broker pair,")
        clients = connect(mesh, mesh.uri("y"))
        clients.wait(lambda at: at.keys() == {"a", "y"})
        mesh.stop("y")
        clients.wait(lambda at: at.keys() == {"a"})
        master.kill()
        clients.wait(lambda at: at.keys() == {"b"}, SITE_SECONDS)
        clients.use()
