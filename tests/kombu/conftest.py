"""Every test of the transport runs against pybroker and, unchanged, against a stock ActiveMQ."""

from collections.abc import Iterator
from typing import Any

import kombu
import pytest

import pybroker.kombu
from tests.client.conftest import broker_ports, broker_uri, module_pair, pair

__all__ = ["broker_ports", "broker_uri", "module_pair", "pair"]

pybroker.kombu.register()


@pytest.fixture
def url(broker_ports: tuple[str, int, int]) -> str:
    """The broker's URL for Kombu."""
    return f"activemq://127.0.0.1:{broker_ports[1]}/"


@pytest.fixture
def connection(url: str) -> Iterator[Any]:
    """A connection of Kombu."""
    with kombu.Connection(url, connect_timeout=30) as connection:
        yield connection


@pytest.fixture
def other(url: str) -> Iterator[Any]:
    """A connection of another process, which knows nothing of what the first has declared."""
    with kombu.Connection(url, connect_timeout=30) as connection:
        yield connection


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name of the test's own for queues and exchanges."""
    return f"{request.path.stem}.{request.node.name}".replace("[", ".").replace("]", "")
