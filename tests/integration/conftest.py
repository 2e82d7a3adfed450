"""Brokers for one test each; nothing is left running."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import BrokerProcess, Pair, free_port
from tests.integration.stomp_client import StompClient


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Start a broker, by default on a store of the test's own."""
    brokers: list[BrokerProcess] = []

    def start(
        *extra: str,
        store: object = tmp_path / "store",
        name: str = "a",
        port: int | None = None,
        is_fresh: bool = False,
    ) -> BrokerProcess:
        port = free_port() if port is None else port
        broker = BrokerProcess(str(store), name=name, port=port, extra=extra, is_fresh=is_fresh)
        brokers.append(broker)
        return broker

    yield start
    for broker in brokers:
        broker.close()


@pytest.fixture
def broker(start: Callable[..., BrokerProcess]) -> BrokerProcess:
    """A broker that serves, on a store in memory."""
    broker = start(store="memory:")
    broker.wait_for("listening on")
    return broker


@pytest.fixture
def connect() -> Iterator[Callable[..., StompClient]]:
    """Open STOMP connections that are closed after the test."""
    with contextlib.ExitStack() as clients:
        yield lambda port, **headers: clients.enter_context(contextlib.closing(StompClient(port, **headers)))


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """A master and a standby on one store."""
    with Pair(tmp_path / "store") as pair:
        pair.wait_for_standby()
        yield pair
