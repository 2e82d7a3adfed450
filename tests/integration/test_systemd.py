"""Real brokers under a service manager: READY=1 and what follows, received at a socket as systemd's."""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import BrokerProcess
from tests.integration.stomp_client import StompClient
from tests.integration.test_health import health_port, process_of, wait_for

SECONDS = 30.0
WATCHDOG_SECONDS = 0.4

Start = Callable[..., BrokerProcess]


class Manager:
    """The service manager's end: the notifications, in the order in which they came."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)

    def receive(self, seconds: float = SECONDS) -> dict[str, str]:
        """Return the assignments of the next notification; none if none comes in time."""
        self._socket.settimeout(seconds)
        try:
            lines = self._socket.recv(65536).decode().split("\n")
        except TimeoutError:
            return {}
        return dict(line.split("=", 1) for line in lines)

    def wait_for(self, name: str, value: str) -> dict[str, str]:
        """Return the first notification whose assignment begins with a value."""
        seen: list[dict[str, str]] = []
        deadline = time.monotonic() + SECONDS
        while not (seen and name in seen[-1] and seen[-1][name].startswith(value)):
            assert time.monotonic() < deadline, seen
            seen.append(self.receive())
        return seen[-1]

    def drain(self) -> list[dict[str, str]]:
        """Return what has come until now."""
        found: list[dict[str, str]] = []
        while each := self.receive(0.001):
            found.append(each)
        return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    address = str(tmp_path / "notify") if request.param == "path" else f"@pybroker-test-{os.getpid()}-{time.time_ns()}"
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", str(round(WATCHDOG_SECONDS * 1e6)))
    with contextlib.closing(Manager(address)) as made:
        yield made


def test_master_is_ready_when_clients_can_connect(start: Start, manager: Manager) -> None:
    broker = start("--health", "0", "--stop-timeout", "7s", is_fresh=True)
    assert int(manager.wait_for("EXTEND_TIMEOUT_USEC", "")["EXTEND_TIMEOUT_USEC"]) >= 10_000_000
    ready = manager.wait_for("READY", "1")
    StompClient(broker.port).close()  # connects at once
    assert ready["STATUS"].startswith("master")
    broker.wait_for("listening on")
    assert {"STATUS": f"master: serving on stomp://127.0.0.1:{broker.port}"} in [ready, *manager.drain()]

    began = time.monotonic()
    beats = [manager.wait_for("WATCHDOG", "1") for _ in range(5)]
    assert time.monotonic() - began >= 3 * WATCHDOG_SECONDS / 2, "no more beats than are asked for"
    assert not any("EXTEND_TIMEOUT_USEC" in beat for beat in beats), "the start is over"

    broker.process.send_signal(signal.SIGHUP)
    assert manager.wait_for("RELOADING", "1")["MONOTONIC_USEC"].isdecimal()
    assert manager.receive() == {"READY": "1"}

    wait_for(health_port(broker), "/master", (200, "master"))
    assert b"NOTIFY_SOCKET" not in Path(f"/proc/{process_of(broker)}/environ").read_bytes()

    broker.process.send_signal(signal.SIGTERM)
    stopping = manager.wait_for("STOPPING", "1")
    assert int(stopping["EXTEND_TIMEOUT_USEC"]) > 2 * 7_000_000
    assert broker.join() == 0


def test_standby_is_ready_once_and_shows_that_it_becomes_master(
    start: Start, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as unset:
        unset.delenv("NOTIFY_SOCKET")
        master = start(is_fresh=True)
        master.wait_for("listening on")
    start(name="b", is_fresh=True)
    ready = manager.wait_for("READY", "1")
    assert ready["STATUS"] == "standby: another member is master"
    master.kill()
    seen = [manager.wait_for("STATUS", ""), manager.wait_for("STATUS", ""), manager.wait_for("STATUS", "master: ")]
    assert [each["STATUS"].split(":")[0] for each in seen] == ["becoming master", "master", "master"]
    assert not any("READY" in each for each in [*seen, *manager.drain()])


def test_member_whose_loop_stands_still_sends_no_beat(start: Start, manager: Manager) -> None:
    broker = start(store="memory:", is_fresh=True)
    manager.wait_for("WATCHDOG", "1")
    broker.wait_for("listening on")
    broker.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, broker.process.pid, os.WSTOPPED)
    manager.drain()
    assert manager.receive(2 * WATCHDOG_SECONDS) == {}
    broker.process.send_signal(signal.SIGCONT)
    manager.wait_for("WATCHDOG", "1")


def test_manager_that_is_gone_is_one_warning(start: Start, manager: Manager, tmp_path: Path) -> None:
    manager.close()
    (tmp_path / "notify").unlink(missing_ok=True)
    broker = start(store="memory:", is_fresh=True)
    broker.wait_for("the service manager cannot be notified: ")
    broker.wait_for("listening on")
    assert broker.terminate() == 0
    assert len([line for line in broker.lines if "cannot be notified" in line]) == 1
