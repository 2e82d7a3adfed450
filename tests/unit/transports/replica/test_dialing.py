"""A follower that dials a machine which does not answer."""

import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pybroker.transports.replica import follower as following
from tests.replicas import follower


def fill(listener: socket.socket) -> list[socket.socket]:
    """Fill a listener's queue: what dials it from then on gets no answer."""
    found = [socket.socket() for _ in range(3)]
    for each in found:
        each.setblocking(False)
        each.connect_ex(listener.getsockname())
    return found


def test_close_does_not_wait_for_a_master_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_dialing = threading.Event()

    class Dialing(socket.socket):
        def connect_ex(self, address: Any, /) -> int:
            is_dialing.set()
            return super().connect_ex(address)

    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        waiting = fill(listener)
        monkeypatch.setattr(socket, "socket", Dialing)
        it = follower(tmp_path / "b", listener.getsockname()[1], timeout=60.0)
        monkeypatch.setattr(following, "DIAL_SECONDS", 60.0)
        it.start()
        assert is_dialing.wait(30)
        began = time.monotonic()
        it.close()
        assert time.monotonic() - began < 30
        for each in waiting:
            each.close()
