"""What a member of a replicated cluster asks of the election store, and what it tells the election of its copy."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pybroker.broker.app.replica_term import StreamSettings
from pybroker.broker.app.replication import Replication, ReplicationSettings
from pybroker.broker.domain.replica.operations import FilePlace, Journal
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


def make_member(root: Path, *, is_full: bool) -> tuple[Replication, _RecordedRegister]:
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
        policy=ElectionPolicy(),
        stream=StreamSettings(host="127.0.0.1", port=0),
        receiver=ReceiverSettings(),
        is_durable=True,
    )
    return Replication(settings, register, MemoryLock(LockRegistry())), register


def test_member_that_cannot_change_the_register_waits_before_it_tries_again(tmp_path: Path) -> None:
    asyncio.run(_stand_in_vain(tmp_path))


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
