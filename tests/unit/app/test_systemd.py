"""What a service manager is sent, and when."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.broker.app import systemd, wiring
from pybroker.broker.app.systemd import ServiceNotifier, open_notifier
from pybroker.broker.domain.role import Role
from pybroker.locks.memory import LockRegistry, MemoryLock
from tests.unit.app.test_node import SECONDS, Member


class WatchedNode:
    def __init__(self) -> None:
        self.is_waiting = False
        self.is_stopping = False
        self.reason = ""

    def obstacle(self) -> str:
        return self.reason


class Received:
    """The other end of a notifier."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._socket.setblocking(False)

    def all(self) -> list[list[str]]:
        """Return the lines of each notification since the last call."""
        found: list[list[str]] = []
        with contextlib.suppress(BlockingIOError):
            while True:
                found.append(self._socket.recv(65536).decode().split("\n"))
        return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def received(tmp_path: Path) -> Iterator[Received]:
    with contextlib.closing(Received(tmp_path / "notify")) as made:
        yield made


@pytest.fixture
def notifier(received: Received) -> Iterator[ServiceNotifier]:
    with contextlib.closing(ServiceNotifier(received.path, watchdog_seconds=0, stop_seconds=5)) as made:
        made.node = WatchedNode()
        yield made


@pytest.fixture
def node(notifier: ServiceNotifier) -> WatchedNode:
    assert isinstance(notifier.node, WatchedNode)
    return notifier.node


def test_member_that_tries_the_lock_is_not_ready(notifier: ServiceNotifier, received: Received) -> None:
    notifier.publish(Role.STANDBY, [], 0)
    notifier.publish(Role.PROMOTING, [], 0)
    assert received.all() == [
        ["STATUS=starting: trying to get the lock"],
        ["STATUS=becoming master: opening the store"],
    ]
    notifier.publish(Role.MASTER, [], 0)
    assert received.all() == [["READY=1", "STATUS=master"]]


def test_obstacle_of_a_standby_is_its_status(notifier: ServiceNotifier, node: WatchedNode, received: Received) -> None:
    node.is_waiting, node.reason = True, "port 1\nis taken " + "x" * 1000
    notifier.publish(Role.STANDBY, [], 0)
    [[ready, status]] = received.all()
    assert ready == "READY=1"
    assert status.startswith("STATUS=standby, which could not serve: port 1 is taken xxx")
    assert len(status) < 520


def test_master_that_loses_its_lock_is_not_stopping(
    notifier: ServiceNotifier, node: WatchedNode, received: Received
) -> None:
    notifier.publish(Role.MASTER, ["tcp://a:1"], 1)
    for role in (Role.RELINQUISHING, Role.STOPPED, Role.STANDBY):
        notifier.publish(role, [], 0)
    node.is_waiting = True
    notifier.publish(Role.STANDBY, [], 0)
    lines = [line for each in received.all() for line in each]
    assert [line for line in lines if not line.startswith("STATUS=")] == ["READY=1"]
    assert lines[-1] == "STATUS=standby: another member is master"
    node.is_stopping = True
    notifier.publish(Role.STOPPED, [], 0)
    assert received.all() == [["STOPPING=1", "EXTEND_TIMEOUT_USEC=40000000", "STATUS=stopped"]]


def test_reload_while_it_starts_makes_it_not_ready(notifier: ServiceNotifier, received: Received) -> None:
    with notifier.reloading():
        pass
    assert received.all() == []


def test_promotion_that_takes_long_extends_the_start_and_beats(
    received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store's recovery takes as long as the test lets it, here some dozen watchdog's times."""
    registry, member = LockRegistry(), Member()
    monkeypatch.setattr(wiring, "make_lock", lambda config, machine: MemoryLock(registry, "lock"))
    monkeypatch.setattr(wiring, "make_store", member.make_store)
    member.store.ready.clear()
    notifier = ServiceNotifier(received.path, watchdog_seconds=0.02, stop_seconds=5)
    notifier.node = member.node
    monkeypatch.setattr(member.node, "_publish", notifier.publish)
    extended = ["WATCHDOG=1", "EXTEND_TIMEOUT_USEC=30000000"]

    async def until(line: str, count: int) -> list[list[str]]:
        seen: list[list[str]] = []
        async with asyncio.timeout(SECONDS):
            while sum(line in each for each in seen) < count:
                await asyncio.sleep(0.001)
                seen += received.all()
        return seen

    async def scenario() -> None:
        running, beating = asyncio.create_task(member.node.run()), asyncio.create_task(notifier.run())
        await until("STATUS=becoming master: opening the store", 1)
        seen = await until("WATCHDOG=1", 24)
        assert [each for each in seen if each != extended] == []
        member.store.ready.set()
        assert extended not in (await until("READY=1", 1))[-1:]
        assert (await until("WATCHDOG=1", 3))[-1] == ["WATCHDOG=1"]
        member.node.stop()
        await until("STOPPING=1", 1)
        await running
        beating.cancel()

    asyncio.run(scenario())
    notifier.close()


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({"NOTIFY_SOCKET": "/run/x"}, 0.0),
        ({"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "60000000"}, 60.0),
        ({"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "7"}, 60.0),
        ({"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "8"}, 0.0),
        ({"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "soon"}, 0.0),
        ({"NOTIFY_SOCKET": "vsock:2:1234", "WATCHDOG_USEC": "60000000"}, None),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "7"}, None),
        ({}, None),
    ],
)
def test_variables_are_read_and_removed(environment: dict[str, str], seconds: float | None) -> None:
    made = open_notifier(5.0, environment, pid=7)
    assert environment == {}
    assert (None if made is None else made._watchdog_seconds) == seconds
    if made is not None:
        made.close()


def test_beats_come_at_half_of_the_watchdogs_time_at_least(received: Received, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slept(Exception):
        pass

    async def record(seconds: float) -> None:
        intervals.append(seconds)
        raise Slept

    intervals: list[float] = []
    monkeypatch.setattr(systemd, "sleep", record)
    for watchdog in (2.0, 60.0, 0.0):
        each = ServiceNotifier(received.path, watchdog_seconds=watchdog, stop_seconds=5)
        with contextlib.closing(each), pytest.raises(Slept):
            asyncio.run(each.run())
    assert intervals == [1.0, 5.0, 5.0]
