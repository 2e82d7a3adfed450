"""What a member of a replicated cluster asks of the election store, and what it tells the election of its copy."""

import asyncio
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pybroker.broker.app.replica_report import replica_report
from pybroker.broker.app.replica_term import StreamSettings
from pybroker.broker.app.replication import Replication, ReplicationSettings
from pybroker.broker.domain.errors import ConfigError, StoreUnavailable
from pybroker.broker.domain.replica.operations import FilePlace, Journal
from pybroker.broker.domain.replica.reports import ComparisonResult, FileDifference
from pybroker.locks.election.election_state import BeginEpoch, ElectionPolicy, ReadRegister, StopFollowing
from pybroker.locks.election.record import ElectionRecord, ElectionSettings, MasterEntry, RecordedState
from pybroker.locks.election.register import (
    RegisterCallback,
    RegisterState,
    RegisterUnavailable,
    SwapResult,
)
from pybroker.locks.memory import LockRegistry, MemoryLock
from pybroker.store.replica.identity import IdentityFile, boot_id
from pybroker.store.replica.receiver import UNFINISHED_NAME, ReceiverSettings
from pybroker.transports.replica.follower import NOTHING

HOUR_MS = 3_600_000
"""Nothing is due by time while a test runs."""


class _Watch:
    def close(self) -> None:
        pass


class _RecordedRegister:
    """Has one record, which can be changed, or not: as in an etcd whose disk is full."""

    name = cluster = "orders"

    def __init__(self, record: ElectionRecord, *, is_full: bool) -> None:
        self.state = RegisterState(7, record)
        self._is_full = is_full
        self.swaps = 0
        self.swapped = asyncio.Event()
        self.read_again = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def read(self) -> RegisterState:
        self._loop.call_soon_threadsafe(self.read_again.set)
        return self.state

    def swap(self, revision: int, record: ElectionRecord) -> SwapResult:
        self.swaps += 1
        self._loop.call_soon_threadsafe(self.swapped.set)
        if self._is_full:
            raise RegisterUnavailable(self.name, "no space")
        self.state = RegisterState(revision + 1, record)
        return SwapResult(True, self.state)

    def watch(self, callback: RegisterCallback) -> _Watch:
        return _Watch()

    def guardian_access(self) -> Mapping[str, Any]:
        return {}

    def close(self) -> None:
        pass


def make_member(
    root: Path, *, is_full: bool, policy: ElectionPolicy | None = None, port: int = 0
) -> tuple[Replication, _RecordedRegister]:
    """Return a member of a cluster that its former master has released, and the register."""
    identity_file = IdentityFile(root, boot=boot_id())
    identity = replace(identity_file.load(is_durable=True), cluster="c")
    identity_file.keep(identity)
    record = ElectionRecord(
        cluster="c",
        name="orders",
        epoch=5,
        state=RecordedState.RELEASED,
        master=MasterEntry(name="a", store="s-a", run="l-a"),
        in_sync=frozenset({"s-a", identity.store}),
        reserved={"kahadb": 5, "scheduler": 2},
        durable={},
        settings=ElectionSettings(lease_ms=HOUR_MS),
        nonce="n",
    )
    register = _RecordedRegister(record, is_full=is_full)
    settings = ReplicationSettings(
        root=root,
        journals={Journal.MESSAGES: root / "kahadb", Journal.SCHEDULER: root / "scheduler"},
        opened=frozenset(Journal),
        name="b",
        address="127.0.0.1:1",
        clients=(),
        policy=policy or ElectionPolicy(),
        stream=StreamSettings(host="127.0.0.1", port=port),
        receiver=ReceiverSettings(),
        is_durable=True,
    )
    return Replication(settings, register, MemoryLock(LockRegistry())), register


def test_member_that_cannot_change_the_register_waits_before_it_tries_again(tmp_path: Path) -> None:
    asyncio.run(_stand_in_vain(tmp_path))


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (ElectionSettings(min_in_sync=2), "count, from when it was created: replicate_min is 2 here, and 1 there"),
        (ElectionSettings(lease_ms=2000), f"replicate_lease is 2000 ms here, and {HOUR_MS} ms there"),
        (ElectionSettings(lease_ms=HOUR_MS), ""),
        (ElectionSettings(), ""),
    ],
)
def test_settings_that_do_not_count_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, own: ElectionSettings, expected: str
) -> None:
    """Who raises `replicate_min` later would rely on disks that messages do not wait for."""
    asyncio.run(_know_the_record(tmp_path, own))
    found = [each for each in caplog.messages if "the settings of cluster orders" in each]
    assert [expected in each for each in found] == ([True] if expected else [])


async def _know_the_record(root: Path, own: ElectionSettings) -> None:
    replication, _ = make_member(root, is_full=True, policy=ElectionPolicy(first_settings=own))
    known = asyncio.Event()
    replication.on_change = known.set
    await replication.start()
    await known.wait()
    await replication.stop()


async def _stand_in_vain(root: Path) -> None:
    replication, register = make_member(root, is_full=True)
    await replication.start()
    await register.swapped.wait()
    for _ in range(10):  # each comes behind all calls that were made before
        register.read_again.clear()
        replication.calls.perform(ReadRegister())
        await register.read_again.wait()
    await replication.stop()
    assert register.swaps == 1


def test_member_that_is_stopped_as_it_becomes_master_releases_the_cluster(tmp_path: Path) -> None:
    asyncio.run(_stop_while_promoting(tmp_path))


async def _stop_while_promoting(root: Path) -> None:
    replication, register = make_member(root, is_full=False)
    await replication.start()
    assert await asyncio.to_thread(replication.lock.acquire)
    record = register.state.record
    assert record is not None
    assert record.state is RecordedState.SERVING
    await replication.stop()  # the node did not come to open the store
    record = register.state.record
    assert record is not None
    assert record.state is RecordedState.RELEASED


def test_member_that_cannot_open_its_store_releases_the_cluster(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also for a reason that was not expected: otherwise it would hold the lease, and never serve."""
    asyncio.run(_fail_while_promoting(tmp_path))
    assert "cannot become master" in caplog.text
    assert "a mistake" in caplog.text


async def _fail_while_promoting(root: Path) -> None:
    replication, register = make_member(root, is_full=False)
    replication._keep = _make_mistake  # type: ignore[method-assign]
    await replication.start()
    for _ in range(2):
        await register.swapped.wait()
        register.swapped.clear()
    await replication.stop()
    record = register.state.record
    assert record is not None
    assert record.state is RecordedState.RELEASED


def test_member_whose_port_is_taken_ends_and_stands_once(tmp_path: Path) -> None:
    """Else it would be elected again each second, and each time use up numbers of data files."""
    asyncio.run(_stand_without_a_port(tmp_path))


async def _stand_without_a_port(root: Path) -> None:
    failed = asyncio.Event()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        replication, register = make_member(root, is_full=False, port=taken.getsockname()[1])
        replication.on_failed = failed.set
        await replication.start()
        await failed.wait()
        await replication.stop()
    assert isinstance(replication.failure, ConfigError)
    assert replication.failure.setting == "replicate_port"
    assert register.state.record is not None
    assert register.state.record.state is RecordedState.RELEASED
    assert register.swaps == 2, "it stood, and released the cluster"


def _make_mistake(**_: object) -> None:
    raise RuntimeError("a mistake")


def test_catch_up_that_begins_without_a_new_end_is_told(tmp_path: Path) -> None:
    asyncio.run(_begin_catch_up(tmp_path))


async def _begin_catch_up(root: Path) -> None:
    replication, _ = make_member(root, is_full=True)
    await replication.start()
    copy: Any = SimpleNamespace(progress=NOTHING._replace(ends=((Journal.MESSAGES, FilePlace(3, 70)),)))
    replication._follower = copy
    soundness: list[bool] = []
    mark = root / "replica" / UNFINISHED_NAME
    changes: list[Callable[[], None]] = [lambda: None, mark.touch, mark.unlink]
    for change in changes:
        change()
        replication._report_copy()
        store = replication.state.store
        assert store is not None
        soundness.append(store.is_sound)
    replication._follower = None
    await replication.stop()
    assert soundness == [True, False, True]


def test_decision_that_comes_after_the_end_is_not_performed(tmp_path: Path) -> None:
    asyncio.run(_decide_after_the_end(tmp_path))


async def _decide_after_the_end(root: Path) -> None:
    replication, register = make_member(root, is_full=True)
    await replication.start()
    await replication.stop()
    assert register.state.record is not None
    replication._perform(StopFollowing())
    replication._perform(BeginEpoch(6, {"kahadb": 14, "scheduler": 11}))
    assert replication.elected is None


def test_copy_that_cannot_be_begun_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a disk that has no space for the epoch, until it has."""
    monkeypatch.setattr("pybroker.broker.app.replication.BEGIN_AGAIN_SECONDS", 0.01)
    asyncio.run(_begin_copy_again(tmp_path))


async def _begin_copy_again(root: Path) -> None:
    replication, register = make_member(root, is_full=False)
    record = register.state.record
    assert record is not None
    master = replace(record.master, replicate="127.0.0.1:1")
    register.state = RegisterState(8, replace(record, state=RecordedState.SERVING, master=master))
    problems: list[str] = []
    keep = replication._keep
    begun = asyncio.Event()

    def keep_at_last(**changes: object) -> None:
        problems.append(replica_report(replication).problem)
        if len(problems) <= 3:
            raise StoreUnavailable("store.json cannot be written: no space")
        keep(**changes)
        replication._loop.call_soon_threadsafe(begun.set)

    replication._keep = keep_at_last  # type: ignore[method-assign]
    await replication.start()
    async with asyncio.timeout(30):
        await begun.wait()
        while replication.copy is None:  # noqa: ASYNC110 - the copying thread makes it next
            await asyncio.sleep(0)
    await replication.stop()
    assert problems[0] == ""
    assert "no space" in problems[3]
    assert replication.copy_problem == ""


def test_restart_does_not_forget_that_the_store_differed(tmp_path: Path) -> None:
    """Else a damaged store would be promoted beside a sound one, until it was compared again an hour later."""
    asyncio.run(_restart_with_damage(tmp_path))


async def _restart_with_damage(root: Path) -> None:
    damage = FileDifference(Journal.SCHEDULER, 12, is_masters=False)
    was_damaged: list[bool] = []
    for differences in ([damage], [], None):
        replication, _ = make_member(root, is_full=True)
        await replication.start()
        store = replication.state.store
        assert store is not None
        was_damaged.append(store.is_damaged)
        assert replication.activity.damaged == ((damage,) if store.is_damaged else ())
        if differences is not None:
            replication.verified(ComparisonResult(file_count=1, differences=differences))
            await asyncio.sleep(0)
            replication._look()
        await replication.stop()
    assert was_damaged == [False, True, False]
