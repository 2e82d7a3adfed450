"""Every test runs against pybroker and, unchanged, against a stock ActiveMQ."""

from collections.abc import Iterator

import pytest

from pybroker.client.sync import Connection, connect
from pybroker.testing import Broker
from tests.client.brokers import Pair, PybrokerPair, StockPair, stock_broker, stock_classes
from tests.conftest import Java

BOTH = ["pybroker", pytest.param("activemq", marks=pytest.mark.component("activemq"))]


@pytest.fixture(scope="session", params=BOTH)
def broker_ports(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, int, int]]:
    """One broker for all tests: which, its OpenWire port, and its STOMP port."""
    if request.param == "pybroker":
        with Broker() as broker:
            yield "pybroker", int(broker.uri.rpartition(":")[2]), broker.stomp_address[1]
    else:
        java: Java = request.getfixturevalue("java")
        with stock_broker(stock_classes(java), tmp_path_factory.mktemp("stock")) as broker:
            yield "activemq", broker.openwire, broker.stomp


@pytest.fixture
def broker_uri(broker_ports: tuple[str, int, int]) -> str:
    """Its URI."""
    return f"tcp://127.0.0.1:{broker_ports[1]}"


@pytest.fixture
def stomp_uri(broker_ports: tuple[str, int, int]) -> str:
    """The same for STOMP."""
    return f"stomp://127.0.0.1:{broker_ports[2]}"


@pytest.fixture
def connection(broker_uri: str) -> Iterator[Connection]:
    """A connection to it."""
    with connect(broker_uri, timeout=30) as connection:
        yield connection


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A queue of the test's own."""
    name = f"{request.path.stem}.{request.node.name}"
    return f"queue://{name.replace('[', '.').replace(']', '')}"


@pytest.fixture(scope="module", params=BOTH)
def module_pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two brokers on one store."""
    if request.param == "pybroker":
        with PybrokerPair() as pair:
            yield pair
    else:
        java: Java = request.getfixturevalue("java")
        with StockPair(stock_classes(java), tmp_path_factory.mktemp("pair") / "stock") as pair:
            yield pair


@pytest.fixture
def pair(module_pair: Pair) -> Pair:
    """The same, both running; what other tests left in the store is in other queues."""
    module_pair.revive()
    return module_pair
