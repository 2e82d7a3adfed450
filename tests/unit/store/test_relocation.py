# mypy: disable-error-code="arg-type"
"""Old records that are written again: which ones, at what cost, and what a crash at each step leaves."""

import random
import shutil
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.core import record_queue
from pybroker.broker.core.paging import Paging
from pybroker.broker.core.record_queue import RecordQueue
from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.reserved_queues import SESSION_RECORDS
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import LocalTransactionId
from pybroker.store.journal.appender import JournalSettings
from pybroker.store.journal.cleanup import RENEWALS_MAX, SubscriptionFiles, removable, unreferenced
from pybroker.store.journal.commands import AddMessage, Command, RemoveMessage, Subscribe
from pybroker.store.journal.follower import Follower
from pybroker.store.journal.format import Location
from pybroker.store.journal.reader import data_files
from pybroker.store.journal.relocation import MOVED_SHARE, RecordFiles, relocatable, worth_moving
from pybroker.store.journal.replay import replay
from pybroker.store.journal.state import StoreState
from pybroker.store.journal.store import JournalStore
from tests.compiled import interpreted
from tests.runtimes import runtime
from tests.unit.store.test_journal_store import message as store_message

QUEUE, TOPIC = queue("Q"), topic("T")
RECORD = AddMessage(SESSION_RECORDS.destination, "mqtt-session:a:1:1:7", b"session")
MEGABYTE = 1 << 20


# ---------------------------------------------------------------- the decision


def test_one_small_file_is_moved_for_the_chain_behind_it() -> None:
    references = {2: {1}, 3: {2}}
    sizes = {1: 2000, 2: MEGABYTE, 3: MEGABYTE}
    assert worth_moving(references, sizes, 4, (), {1: 1000}) == [1]
    assert worth_moving({}, sizes, 4, {2, 3}, {1: 1000}) == [], "its own bytes alone are not worth it"


def test_records_stay_where_their_file_stays_anyway() -> None:
    sizes = {1: MEGABYTE, 2: MEGABYTE}
    assert worth_moving({2: {1}}, sizes, 3, {1}, {2: 1000}) == []
    assert worth_moving({2: {1}}, sizes, 2, (), {1: 1000}) == [1]


FILES = st.integers(1, 8)


@given(
    st.dictionaries(FILES, st.sets(FILES)),
    st.dictionaries(FILES, st.integers(0, 1000), min_size=8),
    st.sets(FILES),
    st.dictionaries(FILES, st.integers(1, 300)),
)
def test_moved_bytes_are_a_share_of_those_freed(
    references: dict[int, set[int]], sizes: dict[int, int], pinned: set[int], movable: dict[int, int]
) -> None:
    older = {file_id: {each for each in answered if each < file_id} for file_id, answered in references.items()}
    movable = {file_id: each for file_id, each in movable.items() if file_id not in pinned}
    moved = set(worth_moving(older, sizes, 9, pinned, movable))
    before = set(unreferenced(older, sizes, 9, pinned | movable.keys()))
    after = set(unreferenced(older, sizes, 9, pinned | (movable.keys() - moved)))
    assert moved <= after
    assert MOVED_SHARE * sum(movable[each] for each in moved) <= sum(sizes[each] for each in after - before)


def chosen(*files: list[Command], sizes: int = MEGABYTE) -> list[int]:
    """Return the files of records to be moved when one more file is being written behind these."""
    state = StoreState()
    for file_id, commands in enumerate(files, 1):
        for number, command in enumerate(commands):
            state.apply(command, Location(file_id, 28 + 100 * number))
    keep_from = len(files) + 1
    found, records = SubscriptionFiles.of(state, keep_from), RecordFiles(state, keep_from)
    for _ in records.visit():
        pass
    return relocatable(state, dict.fromkeys(range(1, keep_from), sizes), found, records)


def test_records_and_subscriptions_are_moved_together() -> None:
    made = Subscribe(TOPIC, "s", b"info")
    assert chosen([RECORD, made], []) == [1]
    assert chosen([RECORD, made], [], sizes=4000) == []


@pytest.mark.parametrize(
    "other",
    [
        AddMessage(QUEUE, "live", b""),
        AddMessage(SESSION_RECORDS.destination, "a client's", b""),
        RemoveMessage(QUEUE, "m", transaction=LocalTransactionId("c", 1)),
    ],
)
def test_records_are_not_moved_from_a_file_that_stays(other: Command) -> None:
    assert chosen([RECORD, other], []) == []


def test_subscription_is_not_moved_while_it_has_messages() -> None:
    made, published = Subscribe(TOPIC, "s", b"info"), AddMessage(TOPIC, "m", b"")
    assert chosen([made], [published], []) == []
    assert chosen([made], [published], [RemoveMessage(TOPIC, "m", subscription_key="s")], []) == [1]


def test_subscription_is_not_moved_if_a_message_came_since_the_visit() -> None:
    state = StoreState()
    made = Subscribe(TOPIC, "s", b"info")
    state.apply(made, Location(1, 28))
    found = SubscriptionFiles.of(state, 3)
    assert found.take_moved(1) == [made]
    state.apply(AddMessage(TOPIC, "m", b""), Location(3, 28))
    assert found.take_moved(1) is None


def test_subscriptions_are_moved_a_thousand_at_a_time() -> None:
    state = StoreState()
    for number in range(RENEWALS_MAX + 1):
        state.apply(Subscribe(TOPIC, f"s{number}", b"info"), Location(1 + number % 2, 28 + number))
    found = SubscriptionFiles.of(state, 3)
    assert len(found.take_moved(1) or ()) == RENEWALS_MAX // 2 + 1
    assert found.take_moved(2) is None


def test_a_commit_in_pieces_keeps_earlier_records() -> None:
    """Its messages that are not applied yet came before the latest record, though none of them is pending."""
    state, transaction = StoreState(), LocalTransactionId("c", 1)
    made = Subscribe(TOPIC, "s", b"info")
    state.apply(made, Location(1, 28))
    state.apply(AddMessage(TOPIC, "m", b"", transaction=transaction), Location(2, 28))
    steps = state.commit_steps(transaction, Location(2, 128))
    state.apply(made, Location(3, 28))
    assert state.is_in_pieces
    assert SubscriptionFiles.of(state, 4).all == {1, 3}
    for _ in steps:
        pass
    assert removable(state, range(1, 5), 4) == []


def test_subscription_needs_its_latest_record_once_older_messages_are_gone() -> None:
    state = StoreState()
    made = Subscribe(TOPIC, "s", b"info")
    for file_id, command in enumerate([made, AddMessage(TOPIC, "old", b""), made, AddMessage(TOPIC, "new", b"")], 1):
        state.apply(command, Location(file_id, 28))
    assert removable(state, range(1, 6), 5) == []
    state.apply(RemoveMessage(TOPIC, "old", subscription_key="s"), Location(5, 28))
    assert removable(state, range(1, 6), 5) == [1, 2]


# ---------------------------------------------------------------- in the store


def message(destination: Destination, sequence: int) -> Message:
    return store_message(sequence, 2000, destination)


SUBSCRIPTIONS = [
    DurableSubscription(client_id=name, name="s", destination=TOPIC, subscribed_destination=TOPIC) for name in "ab"
]


class Load:
    """A store with records of sessions, and two durable subscriptions that now and then have no pending messages."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.posted: list[Callable[[], None]] = []
        self.store = JournalStore(
            directory,
            settings=JournalSettings(file_bytes_max=40_000, compact_after_cleanups=0),
            runtime=runtime(self.posted.append, clock=lambda: 0),
        )
        self.store.recover()
        transactions = count(1)
        self.records = RecordQueue(
            SESSION_RECORDS, self.store, lambda: LocalTransactionId("t", next(transactions)), lambda: 0, Paging()
        )
        self.numbers = count()
        self.pending: dict[str, list[str]] = {each.key: [] for each in SUBSCRIPTIONS}

    def begin(self) -> None:
        self.records.put("a", b"of a")
        self.records.put("b", b"of b")
        for each in SUBSCRIPTIONS:
            self.store.subscribe(each)

    def sync(self) -> None:
        done = threading.Event()
        self.store._writer.submit(done.set)
        assert done.wait(20)
        while self.posted:
            self.posted.pop(0)()

    def publish(self) -> None:
        sent = message(TOPIC, next(self.numbers))
        self.store.add(sent)
        for pending in self.pending.values():
            pending.append(sent.message_id)

    def acknowledge(self, key: str) -> None:
        self.store.acknowledge(TOPIC, key, self.pending[key].pop(0))

    def drain(self) -> None:
        """Acknowledge everything."""
        for key, pending in self.pending.items():
            while pending:
                self.acknowledge(key)

    def run(self, rounds: int) -> Iterator[None]:
        """Publish and acknowledge, some messages behind, and clean up; yields after each durable step.

        One cleanup finds nothing pending, and the next messages that came since.
        """
        chooser = random.Random(1)
        for _ in range(rounds):
            for _ in range(60):
                self.publish()
                for key, pending in self.pending.items():
                    while len(pending) > 3 + chooser.randrange(4):
                        self.acknowledge(key)
            self.sync()
            yield
            self.drain()
            self.store.cleanup()
            self.sync()
            yield
            for _ in range(3):
                self.publish()
            self.sync()
            yield
            self.store.cleanup()
            self.sync()
            yield
            self.records.refresh()
            self.sync()
            yield

    def assert_replays(self, directory: Path) -> None:
        """A replay, and a follower from the first file, find what the store has, one record for each session."""
        state = StoreState()
        assert not replay(directory, state).damages
        for key, pending in self.pending.items():
            assert [each.message_id for each in state.entries(TOPIC, key)] == pending
        kept = [each.message_id for each in state.entries(SESSION_RECORDS.destination)]
        found = [SESSION_RECORDS.record_id(each) for each in kept]
        assert sorted(each.key for each in found if each is not None) == ["a", "b"]
        assert len(found) == 2


def test_few_small_records_do_not_keep_the_journal(tmp_path: Path) -> None:
    load = Load(tmp_path)
    load.begin()
    file_counts = []
    for _ in load.run(12):
        load.assert_replays(tmp_path)
        file_counts.append(len(data_files(tmp_path)))
    assert load.store.end.file_id > 40
    assert max(file_counts) < 16, file_counts
    assert min(data_files(tmp_path)) > 30
    assert load.store.activity.written_bytes < 1.02 * sum_of_messages(load)
    bodies: list[bytes | None] = []
    for key in "ab":
        load.records.request(key, bodies.append)
    load.sync()
    assert bodies == [b"of a", b"of b"]
    load.store.abandon()


def sum_of_messages(load: Load) -> int:
    """Return about how many bytes messages and acknowledgements took."""
    return next(load.numbers) * (len(message(TOPIC, 0).data) + 800)


def test_a_standby_follows_without_reading_again(tmp_path: Path) -> None:
    load, follower = Load(tmp_path), Follower(tmp_path)
    load.begin()
    for _ in load.run(8):
        follower.catch_up()
        for key, pending in load.pending.items():
            assert [each.message_id for each in follower.state.entries(TOPIC, key)] == pending
    assert follower.rebuild_count == 0
    assert min(data_files(tmp_path)) > 10
    load.store.abandon()


@interpreted
def test_a_kill_at_any_step_leaves_each_record_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal is cut behind each record that the moves of the records and subscriptions append."""
    monkeypatch.setattr(record_queue, "REFRESHED_MAX", 1)
    load = Load(tmp_path / "store")
    load.begin()
    steps = load.run(4)
    next(steps)
    load.drain()
    load.sync()
    appended = load.store._writer.append
    cut_count = count()

    def append(record: bytes) -> Location:
        location = appended(record)
        load.sync()
        killed = tmp_path / f"killed-{next(cut_count)}"
        shutil.copytree(load.directory, killed)
        load.assert_replays(killed)
        shutil.rmtree(killed)
        return location

    monkeypatch.setattr(load.store._writer, "append", append)
    load.store.cleanup()
    load.sync()
    for _ in range(2):
        load.records.refresh()
    assert next(cut_count) >= 2 + 2 * 3, "two subscriptions; add, removal and commit of two records"
    monkeypatch.undo()
    removed = load.store._files.remove

    def remove(*paths: Path) -> None:
        removed(*paths)
        load.assert_replays(load.directory)

    monkeypatch.setattr(load.store._files, "remove", remove)
    for _ in steps:
        pass
    assert min(data_files(load.directory)) > 1
    load.store.abandon()
