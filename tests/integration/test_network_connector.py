"""The connector of a real broker, and what it dials."""

import socket
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.integration.cluster import BrokerProcess, free_port

pytestmark = pytest.mark.timeout(60)


def listener() -> socket.socket:
    """Return a socket at which nothing is a broker."""
    made = socket.create_server(("127.0.0.1", 0))
    made.settimeout(20)
    return made


def test_port_without_a_broker_does_not_hide_the_next_address(tmp_path: Path) -> None:
    """The port of a slave may accept connections before the slave serves, and end them."""
    with ExitStack() as stack:
        first, second = (stack.enter_context(listener()) for _ in range(2))
        addresses = ",".join(f"tcp://127.0.0.1:{each.getsockname()[1]}" for each in (first, second))
        config = tmp_path / "pybroker.toml"
        config.write_text(f'[[network]]\nuri = "masterslave:({addresses})?initialReconnectDelay=600000"\n')
        extra = ("--config", str(config))
        stack.enter_context(closing(BrokerProcess(str(tmp_path / "store"), name="a", port=free_port(), extra=extra)))
        dialled, _ = first.accept()
        dialled.close()
        again, _ = second.accept()
        again.close()
