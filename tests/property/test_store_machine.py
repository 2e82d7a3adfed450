# mypy: disable-error-code="arg-type, union-attr"
"""A store, its model, crashes, restarts, frozen masters and standbys, all together: who promises what, and is it so?

Each master keeps a history: its operations, in the order of its records. A new master that found its
former master dead must have the outcome of the beginning of that history, up to some record, and no other. That record
is not before the last one that someone was promised. What was consumed before it was written is in no history.

A disk can be held: then a write is under way, and a crash finds it done or not, as the machine chooses. Otherwise the
writer's thread is waited for after each turn, so that a failure can be repeated.

After each step `check` finds no damage, and a standby that has read everything has what a replay has.

`PYBROKER_TEST_PROFILE=long` runs it for some minutes.
"""

import math
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from pybroker.broker.domain.destination import Destination, queue
from pybroker.broker.domain.errors import LockNotHeld, StoreError
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import RemovalReason
from pybroker.broker.domain.recovery import Recovery
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import LocalTransactionId, TransactionId, XATransactionId
from pybroker.store.journal import store_snapshot
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.follower import Follower
from pybroker.store.journal.store import JournalStore
from pybroker.store.journal.store_snapshot import SNAPSHOT_NAME, follower
from pybroker.store.memory import MemoryStore
from tests.conformance.conftest import WAIT_SECONDS, Loop, bodies, snapshot, text_message
from tests.conformance.test_store_model import (
    BRANCHES,
    ENDED,
    KEYS,
    NUMBERS,
    QUEUES,
    SETTINGS,
    SIZES,
    TOPICS,
    TRANSACTIONS,
)
from tests.property.test_follower import caught_up
from tests.runtimes import runtime
from tests.soundness import assert_sound
from tests.unit.store.states import described, replayed

IS_LONG = settings.get_current_profile_name() == "long"
EXAMPLES, STEPS = (1500, 80) if IS_LONG else (30, 35)

LOCAL = st.builds(LocalTransactionId, st.just("ID:c:1"), st.integers(1, 2))
"""Local transactions of operations."""

make_message = cache(text_message)
PRODUCER_ID = make_message(queue("A"), 1).message_id.removesuffix(":1")
BY_ANOTHER = RemovalReason.CONSUMED, "ID:another"
BY_PRODUCER = RemovalReason.CONSUMED, make_message(queue("A"), 1).connection_id
REMOVALS = st.sampled_from([BY_ANOTHER, BY_ANOTHER, BY_PRODUCER, (RemovalReason.DISCARDED, "")])
"""Mostly by another connection than the producer's, whose own messages may be made of what it consumes."""


class Operation(NamedTuple):
    """An operation of a store.

    Attributes:
        serial: its number in the machine's life.
        method: of the store; `elide`: its message was consumed unwritten, but its number is known; `recover`.
        arguments: of the method.
    """

    serial: int
    method: str
    arguments: tuple[Any, ...]


def model(history: Iterable[Operation]) -> MemoryStore:
    """Return the store that has such a history."""
    store = MemoryStore()
    for _, method, arguments in history:
        if method == "elide":
            store._sequences.record(*arguments)
        else:
            getattr(store, method)(*arguments)
    return store


class HeldDisk(JournalFiles):
    """A disk on which writes can be stopped on their way."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.is_held = False
        self._is_dead = False
        self._changed = threading.Condition()

    def hold(self) -> None:
        self.is_held = True

    def release(self, *, dead: bool = False) -> None:
        """Let writes go on, or none any more."""
        with self._changed:
            self.is_held, self._is_dead = False, dead
            self._changed.notify_all()

    def create(self, file_id: int, preallocate_bytes: int = 0, *, is_claim: bool = False) -> int:
        self._wait()
        return super().create(file_id, preallocate_bytes, is_claim=is_claim)

    def write(self, descriptor: int, buffers: Any, offset: int) -> None:
        self._wait()
        super().write(descriptor, buffers, offset)

    def truncate(self, descriptor: int, length: int) -> None:
        self._wait()
        super().truncate(descriptor, length)

    def _wait(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: not self.is_held, WAIT_SECONDS), "the disk is held for ever"
            if self._is_dead:
                raise OSError("the process is dead")


class Master:
    """A store, its loop turned by hand, and its lock."""

    def __init__(self, directory: Path, standby: Follower | None, *, holding: bool, inline: bool) -> None:
        self.loop = Loop()
        self.disk = HeldDisk(directory)
        self.has_lock = True
        self.is_inline = inline
        self.failures: list[Exception] = []
        self.alarms: list[Callable[[], None]] = []
        self.store = JournalStore(
            directory,
            settings=replace(SETTINGS, inline_seconds_max=math.inf if inline else 0.0),
            files=self.disk,
            runtime=runtime(
                self.loop.call_soon,
                call_later=self._call_later if holding else None,
                fence=self._check,
                on_failure=self.failures.append,
            ),
            follower=standby,
            snapshot_bytes_min=0,
        )
        self.recovery = self.store.recover()
        self.elision = self.store._elision
        self.open_buffer()

    def _check(self) -> None:
        if not self.has_lock:
            raise LockNotHeld("the lock was taken away")

    def _call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.alarms.append(callback)

    def open_buffer(self) -> None:
        """Hold what may be held, whatever happened to what was held before."""
        if self.elision is not None:
            self.elision.is_open = True
            self.elision._share = 1e9

    def ring(self) -> None:
        """Let the time pass that something was to wait."""
        alarms, self.alarms = self.alarms, []
        for alarm in alarms:
            alarm()

    def quiet(self) -> None:
        """Wait for the thread: some batches come to it before the turn ends."""
        writer = self.store._writer._commits
        if not self.disk.is_held and writer._writing_count:
            idle = threading.Event()
            writer._submitted_count += 1
            writer._inbox.put(idle.set)
            assert idle.wait(WAIT_SECONDS), "the thread hangs"

    def turn(self) -> None:
        """Let the loop turn; then wait for the thread, if the disk lets it work."""
        self.loop.turn()
        writer = self.store._writer._commits
        while not self.disk.is_held and (writer._writing_count or self.store.is_cleaning):
            with self.loop.arrived:
                assert self.loop.arrived.wait_for(lambda: self.loop.ready, WAIT_SECONDS), "nothing happens any more"
            self.loop.turn()
        for thread in threading.enumerate():
            if thread.name == "journal-snapshot":
                thread.join(WAIT_SECONDS)

    def flush(self) -> None:
        """Have all written that was appended, and all callbacks run."""
        self.disk.release()
        while self.store.unwritten_bytes or self.store.is_cleaning:
            self.store.when_durable(lambda: None)
            self.ring()
            self.turn()
        self.turn()

    def die(self, *, written: bool) -> None:
        """Be killed; a write that is under way is done before, or never."""
        self.disk.release(dead=not written)
        self.end()

    def thaw(self, late: Message) -> None:
        """Go on after someone else has taken over, until the fence is met."""
        assert not self.has_lock
        self.disk.release()
        try:
            self.store.add(late)
            self.store.when_durable(self.lie)
            self.ring()
            self.loop.turn()
            self.store.close()
        except (LockNotHeld, StoreError):
            pass
        else:
            raise AssertionError("a master without its lock closed its store as if nothing was")
        self.loop.turn()
        self.end()
        assert all(isinstance(each, LockNotHeld | StoreError) for each in self.failures), self.failures

    def lie(self) -> None:
        raise AssertionError("a master without its lock has promised something")

    def end(self) -> None:
        """Wait for the thread. What it would still report is dropped."""
        writer = self.store._writer._commits
        assert writer._worker is not None
        if writer._writing_count and not writer._abandoned.is_set():
            writer._inbox.put(None)  # behind the batches
            writer._worker.join(WAIT_SECONDS)
        self.store.abandon()
        assert not writer._worker.is_alive()
        self.loop.ready.clear()


class ClusterMachine(RuleBasedStateMachine):
    """One master after the other, and two standbys."""

    holding = False

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp()) / "kahadb"
        self.directory.mkdir()
        self.serial = 0
        self.durable = 0
        """The caller was promised that everything up to this operation lasts."""
        self.sent = 0
        """The same of messages added."""
        self.history: list[Operation] = []
        self.unwritten_max = -1
        """The highest number of a message that was consumed unwritten: an index may know it, and a journal not."""
        self.standbys = [Follower(self.directory), Follower(self.directory)]
        self.caught_up: set[int] = set()
        self.frozen: Master | None = None
        self.master = Master(self.directory, None, holding=self.holding, inline=False)
        self.begin()

    # ------------------------------------------------------------ operations

    def do(self, method: str, *arguments: Any) -> None:
        getattr(self.master.store, method)(*arguments)
        self.record(method, *arguments)

    def record(self, method: str, *arguments: Any) -> None:
        self.serial += 1
        self.history.append(Operation(self.serial, method, arguments))
        self.master.quiet()

    @rule(destination=QUEUES | TOPICS, number=NUMBERS, size=SIZES, transaction=TRANSACTIONS)
    def add(self, destination: Destination, number: int, size: int, transaction: Any) -> None:
        message = make_message(destination, number, "x" * size)
        if transaction not in self.prepared and self.master.store.add(message, transaction):  # else it is there already
            self.record("add", message, transaction)

    @rule(destination=QUEUES, number=NUMBERS, transaction=TRANSACTIONS, removal=REMOVALS)
    def remove(
        self, destination: Destination, number: int, transaction: Any, removal: tuple[RemovalReason, str]
    ) -> None:
        message_id = make_message(destination, number).message_id
        if transaction in self.prepared:
            return
        reason, connection_id = removal
        is_consumed = transaction is None and reason is RemovalReason.CONSUMED
        if is_consumed and self.is_elided(destination, message_id, connection_id):
            self.master.store.remove(destination, message_id, connection_id=connection_id)
            self.forget_unwritten(destination, message_id)
        else:
            self.master.store.remove(destination, message_id, transaction, reason, connection_id)
            self.record("remove", destination, message_id, transaction)

    def is_elided(self, destination: Destination, message_id: str, connection_id: str) -> bool:
        """Return True if a message that is consumed now is never written."""
        elision, key = self.master.elision, (destination, message_id)
        return (
            elision is not None
            and key in elision
            and elision._newest.get(connection_id) in (None, elision._by_key[key].number)
        )

    def forget_unwritten(self, destination: Destination, message_id: str) -> None:
        for index in reversed(range(len(self.history))):
            serial, method, arguments = self.history[index]
            if method == "add" and (arguments[0].destination, arguments[0].message_id) == (destination, message_id):
                self.history[index] = Operation(serial, "elide", (message_id,))
                self.unwritten_max = max(self.unwritten_max, int(message_id.rpartition(":")[2]))
                return
        raise AssertionError("what is in the elision was never added")

    @rule(destination=QUEUES, first=NUMBERS, size=SIZES, count=st.integers(1, 4), behind=st.integers(0, 2))
    def relay(self, destination: Destination, first: int, size: int, count: int, behind: int) -> None:
        """Send some and consume the older ones, as it is where consumers keep up."""
        numbers = [(first + offset) % 16 for offset in range(count)]
        for number in numbers:
            self.add(destination, number, size, None)
        for number in numbers[: max(0, count - behind)]:
            self.remove(destination, number, None, BY_ANOTHER)

    @rule(destination=TOPICS, key=KEYS, number=NUMBERS, transaction=TRANSACTIONS)
    def acknowledge(self, destination: Destination, key: str, number: int, transaction: Any) -> None:
        if transaction in self.prepared:
            return
        message_id, subscription = make_message(destination, number).message_id, f"client:{key}"
        contents = self.master.store._state.destinations.get(destination)
        is_its_own = contents is not None and subscription in contents.subscriptions
        if transaction is None and is_its_own and self.is_elided(destination, message_id, ""):
            self.master.store.acknowledge(destination, subscription, message_id)
            self.forget_unwritten(destination, message_id)
        else:
            self.do("acknowledge", destination, subscription, message_id, transaction)

    @rule(destination=TOPICS, key=KEYS, first=NUMBERS, size=SIZES, count=st.integers(1, 4), behind=st.integers(0, 2))
    def relay_to_subscription(
        self, destination: Destination, key: str, first: int, size: int, count: int, behind: int
    ) -> None:
        """Send some to a subscription that keeps up."""
        numbers = [(first + offset) % 16 for offset in range(count)]
        for number in numbers:
            self.add(destination, number, size, None)
        for number in numbers[: max(0, count - behind)]:
            self.acknowledge(destination, key, number, None)

    @rule(destination=TOPICS, key=KEYS, selector=st.sampled_from([None, "x = 1"]))
    def subscribe(self, destination: Destination, key: str, selector: str | None) -> None:
        made = DurableSubscription(
            client_id="client", name=key, destination=destination, subscribed_destination=destination
        )
        self.do("subscribe", replace(made, selector=selector))

    @rule(destination=TOPICS, key=KEYS)
    def unsubscribe(self, destination: Destination, key: str) -> None:
        self.do("unsubscribe", destination, f"client:{key}")

    @rule(transaction=BRANCHES)
    def prepare(self, transaction: XATransactionId) -> None:
        if transaction not in self.prepared:
            self.do("prepare", transaction)
            self.prepared.add(transaction)

    @rule(transaction=ENDED, end=st.sampled_from(["commit", "commit", "rollback"]))
    def decide(self, transaction: TransactionId, end: str) -> None:
        self.do(end, transaction)
        self.prepared.discard(transaction)

    @rule(destination=QUEUES, method=st.sampled_from(["declare", "remove_destination"]))
    def declare_or_remove(self, destination: Destination, method: str) -> None:
        self.do(method, destination)

    # ------------------------------------------------------------ promises, and the master's time

    @rule()
    def request_when_durable(self) -> None:
        self.master.store.when_durable(partial(self.promised, self.master, "durable", self.serial))

    @rule()
    def request_when_confirmed(self) -> None:
        self.master.store.when_confirmed(partial(self.promised, self.master, "sent", self.serial))

    def promised(self, master: Master, what: str, serial: int) -> None:
        assert master in (self.master, self.frozen), "a dead master has promised something"
        setattr(self, what, max(getattr(self, what), serial))

    @rule(ringing=st.booleans())
    def turn(self, ringing: bool) -> None:
        if ringing:
            self.master.ring()
        self.master.turn()
        self.master.open_buffer()

    @rule()
    def flush(self) -> None:
        self.master.flush()
        self.master.open_buffer()

    @precondition(lambda self: not self.master.is_inline and not self.master.disk.is_held)
    @rule()
    def hold_the_disk(self) -> None:
        self.master.flush()  # else what is on its way might or might not be stopped
        self.master.disk.hold()

    @precondition(lambda self: not self.master.disk.is_held)
    @rule()
    def cleanup(self) -> None:
        self.master.store.cleanup()
        self.master.flush()

    # ------------------------------------------------------------ one master after the other

    @rule(numbers=st.sets(NUMBERS), standby=st.integers(-1, 1), inline=st.booleans())
    def stop_and_start(self, numbers: set[int], standby: int, inline: bool) -> None:
        delivered = [make_message(queue("A"), number).message_id for number in numbers]
        self.master.disk.release()
        self.master.store.close(delivered)
        self.master.loop.turn()
        assert not self.master.failures
        self.durable = self.sent = self.serial
        self.promote(standby, inline)
        assert self.master.recovery.delivered == frozenset(delivered)
        self.begin()

    @rule(written=st.booleans(), standby=st.integers(-1, 1), inline=st.booleans())
    def crash_and_start(self, written: bool, standby: int, inline: bool) -> None:
        self.master.die(written=written)
        self.promote(standby, inline)
        assert self.master.recovery.delivered is None
        self.begin()

    @rule(transaction=LOCAL, number=NUMBERS, standby=st.integers(-1, 1), inline=st.booleans())
    def crash_within_a_transaction(self, transaction: TransactionId, number: int, standby: int, inline: bool) -> None:
        """The next master has rolled back what was open: another transaction of that name begins with nothing."""
        self.add(queue("B"), number, 0, transaction)
        self.flush()
        self.crash_and_start(written=True, standby=standby, inline=inline)
        self.do("commit", transaction)

    @rule(standby=st.integers(-1, 1), inline=st.booleans(), number=NUMBERS)
    def freeze_and_take_over(self, standby: int, inline: bool, number: int) -> None:
        self.frozen = old = self.master
        old.has_lock = False
        self.promote(standby, inline)
        # It may still confirm what it knew before it froze. That has to be true for its new master as well.
        old.thaw(make_message(queue("A"), number + 100, "late"))
        self.frozen = None
        self.begin()

    def promote(self, number: int, inline: bool) -> None:
        """Let a standby become master, or (-1) a member that has only the index, if there is one."""
        standby = None
        if number >= 0:
            standby, self.standbys[number] = self.standbys[number], Follower(self.directory)
        self.master = Master(self.directory, standby, holding=self.holding, inline=inline)

    def begin(self) -> None:
        """Compare what was recovered with the history, and cut that off where the last master's run ended."""
        found = self.master.recovery
        assert self.master.store.damages == []
        number = self.master.store.last_sequence(PRODUCER_ID)
        for end in range(len(self.history), self.first_end() - 1, -1):
            history = [*self.history[:end], Operation(self.serial, "recover", ())]
            if self.is_outcome(found, number, history):
                break
        else:
            raise AssertionError(f"no history leads to {seen(found)}, audit {number}")
        expected = model(history).recover()
        assert bodies(self.master.store, found) == bodies(model(history), expected)
        self.history = [each for each in history if each.method != "elide"]
        if model(self.history).last_sequence(PRODUCER_ID) != number:
            self.record("elide", f"{PRODUCER_ID}:{number}")
        self.prepared = {each.transaction_id for each in expected.prepared}

    def first_end(self) -> int:
        """Return how many operations have happened at least."""
        return 1 + max(
            (
                index
                for index, (serial, method, _) in enumerate(self.history)
                if serial <= self.durable or (method == "add" and serial <= self.sent)
            ),
            default=-1,
        )

    def is_outcome(self, found: Recovery, number: int, history: list[Operation]) -> bool:
        """Return True if a history leads to that. What was consumed unwritten may be remembered or not."""
        expected = model(history)
        certain = model(each for each in history if each.method != "elide").last_sequence(PRODUCER_ID)
        known_max = max(expected.last_sequence(PRODUCER_ID), self.unwritten_max)
        return seen(found) == seen(expected.recover()) and certain <= number <= known_max

    # ------------------------------------------------------------ standbys

    @rule(number=st.integers(0, 1), look=st.booleans())
    def follow(self, number: int, look: bool) -> None:
        if self.standbys[number].advance(scan=look).is_at_end and look:
            self.caught_up.add(number)

    @rule(number=st.integers(0, 1))
    def follow_to_the_end(self, number: int) -> None:
        caught_up(self.standbys[number])
        self.caught_up.add(number)

    @rule()
    def write_an_index(self) -> None:
        self.master.store.write_snapshot()
        self.master.quiet()
        self.master.turn()

    @rule(number=st.integers(0, 1))
    def follow_from_the_index(self, number: int) -> None:
        self.standbys[number] = follower(self.directory)

    @rule()
    def remove_the_index(self) -> None:
        (self.directory / SNAPSHOT_NAME).unlink(missing_ok=True)

    # ------------------------------------------------------------ always

    @invariant()
    def nothing_failed(self) -> None:
        assert self.master.failures == []

    @invariant()
    def the_journal_is_sound(self) -> None:
        assert_sound(self.directory, in_use=True)

    @invariant()
    def who_has_caught_up_has_what_a_replay_has(self) -> None:
        for number in self.caught_up:
            assert_same_as_replayed(caught_up(self.standbys[number]))
        self.caught_up.clear()

    @invariant()
    def the_master_knows_whom_it_has_heard_of(self) -> None:
        assert self.master.store.last_sequence(PRODUCER_ID) == model(self.history).last_sequence(PRODUCER_ID)

    def teardown(self) -> None:
        try:
            self.flush()
            for each in (*self.standbys, follower(self.directory)):
                assert_same_as_replayed(caught_up(each))
            self.crash_and_start(written=True, standby=-1, inline=False)
            self.stop_and_start(numbers=set(), standby=-1, inline=False)
            assert_sound(self.directory)
        finally:
            self.master.die(written=False)
            shutil.rmtree(self.directory.parent)


def seen(recovery: Recovery) -> Any:
    """Return a recovery's contents, queues declared while they are empty included."""
    kept = sorted(str(each) for each, message_ids in recovery.queues.items() if not message_ids)
    return {**snapshot(recovery), "kept": kept}


def assert_same_as_replayed(reader: Follower) -> None:
    """Compare a follower that has read everything with a replay from the first file."""
    fresh, _ = replayed(reader.directory)
    assert described(reader.state) == described(fresh)
    for producer, (number, _) in fresh.sequences.items():
        known = reader.state.sequences.last(producer)
        # An index also knows of what was consumed before it was written.
        assert known >= number if reader.resumed_at.file_id else known == number


class HoldingMachine(ClusterMachine):
    """The same with masters that hold each message for a moment."""

    holding = True


@pytest.mark.timeout(1800 if IS_LONG else 600)
@pytest.mark.parametrize("machine", [ClusterMachine, HoldingMachine])
def test_masters_standbys_and_their_model_agree(machine: type[ClusterMachine], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_snapshot, "SLICE_MESSAGES", 2)  # so that queues are long, and materialised after a start
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
