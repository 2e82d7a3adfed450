"""A standby that was given only its master's address: what it does until the master answers."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.broker.app import replica_join
from pybroker.broker.app.config import Config
from pybroker.broker.app.replica_join import MasterInquiry
from pybroker.transports.replica.handshake import GREETING_BYTES


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found


def inquiry_at(listener: socket.socket, root: Path) -> MasterInquiry:
    host, port = listener.getsockname()
    return MasterInquiry(Config(store=str(root), replicate=f"tcp://{host}:{port}"), "b")


def test_master_that_hangs_up_is_asked_again(
    tmp_path: Path, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_join, "PAUSE_SECONDS", 0.0)
    inquiry = inquiry_at(listener, tmp_path)

    def hang_up() -> None:
        for _ in range(2):
            with listener.accept()[0] as connection:
                connection.recv(GREETING_BYTES)
        inquiry.stop()

    master = threading.Thread(target=hang_up, daemon=True)
    master.start()
    assert asyncio.run(inquiry.learn()) is None
    master.join()
    assert "the master closed the connection" in inquiry.report().problem
