# mypy: disable-error-code="arg-type, method-assign, misc, union-attr, var-annotated"
"""Records on a reserved queue: one per key, replaced in a transaction, recovered without bodies."""

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.core import record_queue
from pybroker.broker.core.paging import Paging
from pybroker.broker.core.record_queue import RecordQueue
from pybroker.broker.domain.destination import topic
from pybroker.broker.domain.openwire.message import view
from pybroker.broker.domain.reserved_queues import RETAINED_RECORDS, SESSION_RECORDS, RecordId
from pybroker.broker.domain.transaction import LocalTransactionId
from pybroker.store.memory import MemoryStore
from tests.compiled import interpreted
from tests.slow import SlowStore
from tests.unit.core.conftest import make_message

NOW = 1_700_000_000_000


class Records:
    """The records of masters that follow one another."""

    def __init__(self, store=None):
        self.store = store or MemoryStore()
        self._transactions = count(1)
        self.paging = Paging()
        self.now_ms = NOW
        self.waiting = []
        self.take_over()

    def take_over(self):
        self.queue = RecordQueue(
            RETAINED_RECORDS,
            self.store,
            lambda: LocalTransactionId("t", next(self._transactions)),
            lambda: self.now_ms,
            self.paging,
        )
        self.queue.recover(self.ids())
        return self.queue

    def ids(self):
        return self.store.recover().queues.get(RETAINED_RECORDS.destination, ())

    def bodies(self):
        return {key: self.body(key) for key in self.queue}

    def body(self, key):
        got = []
        self.queue.request(key, got.append)
        (body,) = got
        return body


@given(st.text(), st.integers(min_value=0))
def test_id_round_trips_whatever_the_key(key, number):
    record = RecordId(key, number)
    assert RETAINED_RECORDS.record_id(RETAINED_RECORDS.message_id(record)) == record
    assert SESSION_RECORDS.record_id(RETAINED_RECORDS.message_id(record)) is None


def test_record_is_replaced_and_removed():
    records = Records()
    records.queue.put("a", b"1")
    records.queue.put("b:1:1:7", b"2")
    records.queue.put("a", b"3")
    assert len(records.ids()) == len(records.queue) == 2
    records.take_over()
    assert records.bodies() == {"a": b"3", "b:1:1:7": b"2"}
    records.queue.remove("a")
    records.queue.remove("a")
    assert list(records.take_over()) == ["b:1:1:7"]


def test_record_shows_its_key_to_an_activemq():
    records = Records()
    records.queue.put("a/b", b"body")
    (message,) = records.store.read(RETAINED_RECORDS.destination, records.ids())
    fields = view(message)
    assert (message.persistent, fields.correlation_id, fields.original_destination) == (True, "a/b", topic("a/b"))
    assert (fields.expiration, fields.content) == (0, b"body")


def test_of_two_records_the_newest_is_kept():
    records = Records()
    records.queue.put("a", b"old")
    (old,) = records.store.read(RETAINED_RECORDS.destination, records.ids())
    records.queue.put("a", b"new")
    records.store.add(old)  # last in the order of the queue
    records.take_over()
    assert records.bodies() == {"a": b"new"}
    assert len(records.ids()) == 1


def test_foreign_message_on_the_queue_stays(caplog):
    records = Records()
    records.store.add(make_message("theirs", str(RETAINED_RECORDS.destination)))
    records.queue.put("a", b"1")
    assert list(records.take_over()) == ["a"]
    assert len(records.ids()) == 2
    assert "1 messages that this broker has not made" in caplog.text


def test_crash_before_the_commit_leaves_the_former_record():
    records = Records()
    records.queue.put("a", b"1")
    records.store.commit = lambda transaction: None
    records.queue.put("a", b"2")
    del records.store.commit
    records.take_over()
    assert records.bodies() == {"a": b"1"}


def test_numbers_grow_though_the_clock_goes_back():
    records = Records()
    records.queue.put("a", b"1")
    records.now_ms -= 10_000
    records.take_over()
    records.queue.put("a", b"2")
    (message_id,) = records.ids()
    assert RETAINED_RECORDS.record_id(message_id).number == NOW * 1000 + 1


def test_removal_is_pending_until_it_is_on_disk():
    records = Records(SlowStore())
    records.queue.put("a", b"1")
    assert not records.queue.is_removing
    records.queue.remove("a")
    assert records.queue.is_removing
    records.store.sync()
    assert not records.queue.is_removing


@interpreted
def test_pages_end_with_their_bytes_and_skip_missing_keys(monkeypatch):
    records = Records()
    for key in "abcd":
        records.queue.put(key, key.encode() * 1000)
    monkeypatch.setattr(record_queue, "PAGE_BYTES_MAX", 1500)
    turns, got = [], []
    records.paging.later = turns.append
    for key in ("a", "b", "a", "c", "x", "d"):
        records.queue.request(key, lambda body, key=key: got.append((key, body and len(body))))
    records.queue.remove("b")
    counts = []
    while turns:
        turns.pop()()
        counts.append(len(got))
    assert got == [("a", 1000), ("b", None), ("a", 1000), ("c", 1000), ("x", None), ("d", 1000)]
    assert len(counts) > 1


def test_record_is_read_once_it_is_on_disk():
    """Those put while a page waits for that are passed from memory: a page would wait for each of them again."""
    records = Records(SlowStore())
    store, got = records.store, []
    records.queue.put("a", b"1")
    records.queue.put("b", b"1")
    for key in ("a", "b"):
        records.queue.request(key, got.append)
    assert got == []
    records.queue.put("b", b"2")
    store.sync()
    assert got == [b"1", b"2"]
    records.queue.request("b", got.append)
    store.sync()
    assert got == [b"1", b"2", b"2"]


def test_records_leave_no_producer_sequences():
    records = Records()
    records.queue.put("a", b"1")
    assert records.store.last_sequence("retained:a:1:1") == -1


class TestRefresh:
    """A data file of a journal stays while it has a record, so the store selects records to be written again."""

    def selected(self, *keys):
        """Return records of which the store selects all."""
        records = Records()
        for key in keys:
            records.queue.put(key, key.encode())
        records.take_over()
        waiting = list(records.ids())

        def take(queue, count_max):
            assert queue == RETAINED_RECORDS.destination
            return [waiting.pop(0) for _ in range(min(count_max, len(waiting)))]

        records.store.take_records_to_move = take
        records.waiting = waiting
        return records

    @interpreted
    def test_selected_records_are_written_again_a_few_at_a_time(self, monkeypatch):
        monkeypatch.setattr(record_queue, "REFRESHED_MAX", 2)
        records = self.selected("a", "b", "c")
        before = list(records.ids())
        records.queue.refresh()
        assert len(set(before) & set(records.ids())) == 1
        records.queue.refresh()
        assert not set(before) & set(records.ids())
        after = list(records.ids())
        records.queue.refresh()
        assert list(records.ids()) == after
        records.take_over()
        assert records.bodies() == {"a": b"a", "b": b"b", "c": b"c"}

    def test_record_that_changes_meanwhile_is_left_alone(self):
        records = self.selected("a", "b")
        turns = []
        records.paging.later = turns.append
        records.queue.refresh()
        records.queue.put("a", b"new")
        records.queue.remove("b")
        read, asked = records.store.read, []
        records.store.read = lambda destination, ids: asked.extend(ids) or read(destination, ids)
        turns.pop()()
        assert asked == []  # the new record may not be on disk yet
        records.paging.later = None
        assert records.bodies() == {"a": b"new"}

    def test_unreadable_record_stays_and_is_not_asked_for_again(self):
        records = self.selected("a", "b")
        read = records.store.read
        asked = []
        first = next(iter(records.ids()))
        records.store.read = lambda destination, ids: (
            asked.extend(ids) or [each for each in read(destination, ids) if each.message_id != first]
        )
        records.queue.refresh()
        records.waiting.append(first)
        records.queue.refresh()
        assert asked.count(first) == 1
        assert len(asked) == 2
        assert first in records.ids()

    def test_message_that_is_no_record_is_left_alone(self):
        records = self.selected()
        records.store.add(make_message("theirs", str(RETAINED_RECORDS.destination)))
        before = list(records.ids())
        records.waiting += before
        records.queue.refresh()
        assert list(records.ids()) == before != []

    def test_store_without_space_is_left_alone(self, monkeypatch):
        records = self.selected("a")
        before = list(records.ids())
        monkeypatch.setattr(type(records.store), "is_full", True)
        records.queue.refresh()
        assert list(records.ids()) == before
        assert records.waiting == before
