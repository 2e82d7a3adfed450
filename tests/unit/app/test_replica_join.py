"""A standby that was given only its master's address: what it does until the master answers."""

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.app import replica_join, replica_wiring, serve
from pybroker.broker.app.config import Config
from pybroker.broker.app.membership import Membership
from pybroker.broker.app.replica_join import MasterInquiry
from pybroker.store.replica.identity import IdentityFile
from pybroker.transports.replica.handshake import GREETING_BYTES


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found


def inquiry_at(listener: socket.socket, root: Path) -> MasterInquiry:
    host, port = listener.getsockname()
    return MasterInquiry(Config(store=str(root), replicate=f"tcp://{host}:{port}"), "b")


def test_master_that_hangs_up_is_asked_again(
    tmp_path: Path, listener: socket.socket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
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
    assert "the master closed the connection" in caplog.text


class _StoppedAtTheStart:
    """A member's part in its cluster; a signal asks the process to stop while it starts."""

    def __init__(self) -> None:
        self.is_stopped = False
        self.on_change: Callable[[], None] = lambda: None

    async def start(self) -> None:
        signal.raise_signal(signal.SIGTERM)
        for _ in range(5):  # turns of the loop, until it has called the signal's handler
            await asyncio.sleep(0)

    async def stop(self) -> None:
        self.is_stopped = True


def test_stop_that_is_asked_for_while_the_member_starts_is_carried_out(
    tmp_path: Path, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = IdentityFile(tmp_path, boot="")
    told = '{"url": "etcd://127.0.0.1:1/orders", "lease": 5.0, "timeout": 2.0, "grace": true}'
    file.keep(replace(file.load(is_durable=True), election=told))
    replication = _StoppedAtTheStart()

    async def make(*_: object) -> _StoppedAtTheStart:
        return replication

    monkeypatch.setattr(replica_wiring, "make_replication", make)
    host, port = listener.getsockname()
    config = Config(store=str(tmp_path), replicate=f"tcp://{host}:{port}")
    membership = Membership(tmp_path / "members", "b", "what is locked", "flock")
    member: Any = _Figures()
    try:
        assert asyncio.run(serve._take_part(config, membership, member)) is None
    finally:
        membership.close()
    assert replication.is_stopped


class _Figures:
    """The part of `ThisMember` that shows figures."""

    replica_figures: object = None
