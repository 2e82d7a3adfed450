"""A member from start to stop, with a lock that can be revoked and a store that can fail, on real sockets."""

import asyncio
import contextlib
import itertools
import socket
import threading
from collections.abc import Awaitable, Callable

import pytest

from pybroker.broker.app import binding, wiring
from pybroker.broker.app import node as node_module
from pybroker.broker.app.config import Config
from pybroker.broker.app.ha_events import HaEvent, HaEventKind
from pybroker.broker.app.node import Node
from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.core.offline_durables import OfflineDurables
from pybroker.broker.domain.errors import ConfigError, LockNotHeld, StoreUnavailable
from pybroker.broker.domain.role import Role
from pybroker.locks.memory import LockRegistry, MemoryLock
from pybroker.store.memory import MemoryStore

SECONDS = 20


class Store(MemoryStore):
    """A store that records how it was left, and whose recovery can be held up or fail."""

    def __init__(self) -> None:
        super().__init__()
        self.ready = threading.Event()
        self.ready.set()
        self.failure: Exception | None = None
        self.end = ""

    def recover(self):
        assert self.ready.wait(SECONDS)
        if self.failure:
            raise self.failure
        return super().recover()

    def close(self, delivered=()) -> None:
        self.end = "closed"
        super().close(delivered)

    def abandon(self) -> None:
        self.end = "abandoned"


class Member:
    """A node, its store and what it reported."""

    def __init__(self, port: int = 0, **settings: object) -> None:
        self.store = Store()
        self.roles: list[Role] = []
        self.listeners: list[str] = []
        self.fail: Callable[[Exception], None] = lambda error: None
        config = Config(store="memory:", stomp=port, openwire="off", lock_check="50ms", **settings)
        self.events: list[HaEvent] = []
        self.node = Node(config, self._publish, report=self.events.append)

    def make_store(self, config, lock, on_failure, turn, follower=None, *, may_create=True, machine=None, term=None):
        self.fail = on_failure
        return self.store

    def _publish(self, role: Role, listeners: list[str], epoch: int) -> None:
        self.roles.append(role)
        self.listeners = listeners

    async def until(self, role: Role) -> None:
        async with asyncio.timeout(SECONDS):
            while self.roles[-1:] != [role] or (role is Role.MASTER and not self.listeners):  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    @property
    def port(self) -> int:
        return int(self.listeners[0].rpartition(":")[2])

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)


@pytest.fixture
def registry(monkeypatch):
    registry = LockRegistry()
    monkeypatch.setattr(wiring, "make_lock", lambda config, machine: MemoryLock(registry, "lock"))
    return registry


@pytest.fixture
def live(registry, monkeypatch):
    """Run a scenario beside a member's run; return how that run ended."""

    def live(member: Member, scenario: Callable[[], Awaitable[None]]) -> BaseException | None:
        monkeypatch.setattr(wiring, "make_store", member.make_store)

        async def both() -> BaseException | None:
            running = asyncio.create_task(member.node.run())
            await scenario()
            async with asyncio.timeout(SECONDS):
                (result,) = await asyncio.gather(running, return_exceptions=True)
            return result

        return asyncio.run(both())

    return live


@pytest.fixture
def member(registry):
    return Member()


def test_member_serves_until_a_stop_is_requested(live, member):
    async def scenario() -> None:
        await member.until(Role.MASTER)
        reader, writer = await member.connect()
        writer.write(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
        assert (await reader.read(9)) == b"CONNECTED"
        member.node.stop()
        await reader.read()
        writer.close()

    assert live(member, scenario) is None
    assert member.roles[0] is Role.STANDBY
    assert member.roles[-2:] == [Role.RELINQUISHING, Role.STOPPED]
    assert member.store.end == "closed"


def test_member_waits_while_another_holds_the_lock(live, registry, member):
    other = MemoryLock(registry, "lock")
    assert other.try_acquire()

    async def scenario() -> None:
        await member.until(Role.STANDBY)
        assert member.listeners == []
        other.release()
        await member.until(Role.MASTER)
        member.node.stop()

    assert live(member, scenario) is None


def test_unused_destinations_go_at_their_interval(live, registry, monkeypatch):
    """Without waiting for the interval of expired messages, which is half a minute."""
    swept = threading.Event()
    monkeypatch.setattr(BrokerCore, "remove_inactive_destinations", lambda broker: swept.set())
    member = Member(destination_purge_interval="100ms")

    async def scenario() -> None:
        await asyncio.to_thread(swept.wait, SECONDS)
        member.node.stop()

    assert live(member, scenario) is None
    assert swept.is_set()


@pytest.mark.parametrize("timeout", ["1h", None])
def test_offline_subscriptions_are_looked_for_if_wanted(live, registry, monkeypatch, timeout):
    swept = threading.Event()
    looked = threading.Event()
    monkeypatch.setattr(OfflineDurables, "sweep", lambda offline: swept.set())
    monkeypatch.setattr(BrokerCore, "remove_expired", lambda broker: looked.set())
    member = Member(
        offline_durable_subscriber_timeout=timeout,
        offline_durable_subscriber_task_schedule="100ms",
        expire_interval="200ms",
    )

    async def scenario() -> None:
        await asyncio.to_thread(looked.wait, SECONDS)
        member.node.stop()

    assert live(member, scenario) is None
    assert swept.is_set() is (timeout is not None)


@pytest.mark.parametrize("is_lost", [False, True])
def test_dispatch_starts_after_its_time_and_timers_end_with_the_term(live, registry, is_lost):
    policy = {"queue": "q", "consumers_before_dispatch_starts": 2, "time_before_dispatch_starts": "50ms"}
    member = Member(policies=[policy, {"queue": "late", "time_before_dispatch_starts": "1h"}])
    timers: list[asyncio.TimerHandle] = []

    async def scenario() -> None:
        await member.until(Role.MASTER)
        term = member.node.serving()
        assert term is not None
        reader, writer = await member.connect()
        writer.write(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0SEND\ndestination:/queue/q\n\nfirst\0")
        for name in (b"late", b"q"):
            writer.write(b"SUBSCRIBE\nid:%s\ndestination:/queue/%s\n\n\0" % (name, name))
        async with asyncio.timeout(SECONDS):
            await reader.readuntil(b"first\0")
        timers.extend((term.server.turn._timers or {}).values())
        assert not timers[0].cancelled()
        if is_lost:
            registry.revoke("lock")
        else:
            member.node.stop()
        await reader.read()
        writer.close()

    live(member, scenario)
    assert [each.cancelled() for each in timers] == [True]


def test_a_standby_stops_at_once(live, registry, member):
    MemoryLock(registry, "lock").try_acquire()

    async def scenario() -> None:
        await member.until(Role.STANDBY)
        member.node.stop()

    assert live(member, scenario) is None
    assert member.roles == [Role.STANDBY, Role.STANDBY, Role.STOPPED], "the second one: another member has the lock"


def test_losing_the_lock_cuts_clients_off_and_writes_nothing(live, registry, member):
    async def scenario() -> None:
        await member.until(Role.MASTER)
        port = member.port
        reader, writer = await member.connect()
        registry.revoke("lock")
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        with pytest.raises(OSError, match=str(port)):
            await asyncio.open_connection("127.0.0.1", port)

    assert isinstance(live(member, scenario), LockNotHeld)
    assert member.store.end == "abandoned"


def test_a_failed_store_ends_it_with_the_reason(live, member):
    async def scenario() -> None:
        await member.until(Role.MASTER)
        member.fail(StoreUnavailable("the disk is gone"))

    result = live(member, scenario)
    assert isinstance(result, StoreUnavailable)
    assert "the disk is gone" in str(result)
    assert member.store.end == "abandoned"


def test_a_recovery_that_fails_gives_the_lock_back(live, registry, member):
    member.store.failure = StoreUnavailable("unreadable")

    async def scenario() -> None:
        await member.until(Role.STOPPED)

    assert isinstance(live(member, scenario), StoreUnavailable)
    assert MemoryLock(registry, "lock").try_acquire()
    assert Role.MASTER not in member.roles


def test_a_taken_port_gives_the_lock_back(live, registry, monkeypatch):
    monkeypatch.setattr(binding, "_BIND_SECONDS", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        member = Member(port=taken.getsockname()[1])

        async def scenario() -> None:
            await member.until(Role.STOPPED)

        assert isinstance(live(member, scenario), ConfigError)
    assert MemoryLock(registry, "lock").try_acquire()


@pytest.mark.parametrize("event", ["stop", "revoke"])
def test_what_happens_during_recovery_is_heeded_before_listening(live, registry, member, event):
    member.store.ready.clear()

    async def scenario() -> None:
        await member.until(Role.PROMOTING)
        if event == "stop":
            member.node.stop()
        else:
            member.fail(LockNotHeld("taken"))
        member.store.ready.set()
        await member.until(Role.STOPPED)

    result = live(member, scenario)
    assert result is None if event == "stop" else isinstance(result, LockNotHeld)
    assert Role.MASTER not in member.roles
    assert member.listeners == []


def test_a_recovery_that_fails_while_stopping_is_reported_too(live, member):
    member.store.ready.clear()
    member.store.failure = StoreUnavailable("unreadable")

    async def scenario() -> None:
        await member.until(Role.PROMOTING)
        member.node.stop()
        member.store.ready.set()
        await member.until(Role.STOPPED)

    assert isinstance(live(member, scenario), StoreUnavailable)


def test_a_periodic_task_that_fails_ends_the_term(live, member, monkeypatch):
    calls = []

    def fail() -> None:
        calls.append(True)
        if len(calls) > 1:  # the first is part of the promotion
            raise RuntimeError("a bug")

    monkeypatch.setattr(member.store, "cleanup", fail)
    monkeypatch.setattr(member.node, "_config", member.node._config.replace(cleanup_interval=0.1))

    async def scenario() -> None:
        await member.until(Role.STOPPED)

    result = live(member, scenario)
    assert isinstance(result, StoreUnavailable)
    assert "a bug" in str(result)
    assert Role.MASTER in member.roles
    assert member.store.end == "abandoned"


def test_new_master_cleans_up_at_growing_intervals(live, member, monkeypatch):
    monkeypatch.setattr(node_module, "_CLEANUP_SECONDS", 0.01)
    times: list[float] = []
    monkeypatch.setattr(member.store, "cleanup", lambda: times.append(asyncio.get_running_loop().time()))

    async def scenario() -> None:
        await member.until(Role.MASTER)
        async with asyncio.timeout(SECONDS):  # the interval is longer than that
            while len(times) < 5:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        member.node.stop()

    assert live(member, scenario) is None
    for nth, (earlier, later) in enumerate(itertools.pairwise(times)):
        assert later - earlier > 0.0099 * 2**nth


def test_a_promotion_that_fails_unexpectedly_gives_the_lock_back(live, registry, member):
    member.store.failure = RuntimeError("a bug")

    async def scenario() -> None:
        await member.until(Role.STOPPED)

    result = live(member, scenario)
    assert isinstance(result, StoreUnavailable)
    assert "a bug" in str(result)
    assert MemoryLock(registry, "lock").try_acquire()


def test_losing_the_lock_while_stopping_still_stops(live, registry, member):
    async def scenario() -> None:
        await member.until(Role.MASTER)
        reader, writer = await member.connect()
        member.node.stop()
        member.fail(LockNotHeld("taken"))
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    assert isinstance(live(member, scenario), LockNotHeld)
    assert member.node.is_stopping


def test_the_port_of_a_dying_master_is_waited_for(live, registry):
    taken = socket.create_server(("127.0.0.1", 0))
    member = Member(port=taken.getsockname()[1])

    async def scenario() -> None:
        await member.until(Role.PROMOTING)
        taken.close()
        await member.until(Role.MASTER)
        member.node.stop()

    assert live(member, scenario) is None


# ---------------------------------------------------------------- events and stepping down


def test_promotion_is_reported_with_its_phases(live, member):
    async def scenario() -> None:
        await member.until(Role.MASTER)
        member.node.stop()

    assert live(member, scenario) is None
    changes = [(event.role, event.former) for event in member.events if event.kind is HaEventKind.ROLE]
    assert changes == [
        (Role.STANDBY, None),
        (Role.PROMOTING, Role.STANDBY),
        (Role.MASTER, Role.PROMOTING),
        (Role.RELINQUISHING, Role.MASTER),
        (Role.STOPPED, Role.RELINQUISHING),
    ]
    (promotion,) = [event for event in member.events if event.kind is HaEventKind.PROMOTION]
    assert list(promotion.phases) == ["waiting", "binding", "opening", "loading", "listening"]
    assert promotion.epoch == 1
    assert sum(promotion.phases.values()) - promotion.phases["waiting"] - promotion.total_ms in range(-4, 5)


def test_reason_of_a_lost_lock_is_reported(live, registry, member):
    async def scenario() -> None:
        await member.until(Role.MASTER)
        since_ms, confirmed_ms = member.node.lock_times()
        assert 0 < since_ms <= confirmed_ms
        registry.revoke("lock")
        await member.until(Role.STOPPED)

    assert isinstance(live(member, scenario), LockNotHeld)
    (event,) = [each for each in member.events if each.role is Role.RELINQUISHING]
    assert event.reason.startswith("lost the lock: clients are cut off, nothing more is acknowledged (lock: ")
    assert member.node.lock_times() == (0, 0)


def test_lock_of_a_master_is_confirmed_again_and_again(live, member):
    async def scenario() -> None:
        await member.until(Role.MASTER)
        since_ms, _ = member.node.lock_times()
        async with asyncio.timeout(SECONDS):
            while member.node.lock_times()[1] <= since_ms + 100:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        member.node.stop()

    assert live(member, scenario) is None


@pytest.mark.parametrize("problem", ["", "there is no standby"])
def test_master_steps_down_if_a_standby_is_there(live, registry, member, problem):
    async def may_step_down() -> str:
        return problem

    member.node._may_step_down = may_step_down

    async def scenario() -> None:
        await member.until(Role.MASTER)
        reader, writer = await member.connect()
        refusal = await member.node.request_stepdown()
        assert refusal == (f"{problem}: no member would take over" if problem else "")
        if problem:
            assert member.node.role is Role.MASTER
            assert await member.node.request_stepdown(force=True) == ""
        assert await member.node.request_stepdown() == "this member is no master: it is relinquishing"
        assert await reader.read() == b""
        writer.close()

    assert live(member, scenario) is None
    assert member.node.has_stepped_down
    assert not member.node.is_stopping
    assert member.store.end == "closed"
    assert MemoryLock(registry, "lock").try_acquire()


def test_standby_cannot_step_down(live, registry, member):
    MemoryLock(registry, "lock").try_acquire()

    async def scenario() -> None:
        await member.until(Role.STANDBY)
        assert await member.node.request_stepdown(force=True) == "this member is no master: it is standby"
        member.node.stop()

    assert live(member, scenario) is None
    assert not member.node.has_stepped_down


def test_master_that_loses_its_lock_meanwhile_does_not_step_down(live, registry, member):
    asked, goes_on = asyncio.Event(), asyncio.Event()

    async def may_step_down() -> str:
        asked.set()
        await goes_on.wait()
        return ""

    member.node._may_step_down = may_step_down

    async def scenario() -> None:
        await member.until(Role.MASTER)
        asking = asyncio.create_task(member.node.request_stepdown())
        await asked.wait()
        registry.revoke("lock")
        await member.until(Role.STOPPED)
        goes_on.set()
        assert await asking == "this member is no master: it is stopped"

    assert isinstance(live(member, scenario), LockNotHeld)
    assert not member.node.has_stepped_down
