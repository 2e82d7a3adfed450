"""Large messages are read from a journal in a thread: the event loop gets them when it asks again."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pybroker.broker.domain.destination import Destination, queue
from pybroker.broker.domain.errors import NotReadYet, StoreUnavailable
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.message import (
    MessageType,
    OpenWireMessage,
    OpenWireMessageId,
    ProducerId,
    to_message,
)
from pybroker.broker.domain.transaction import LocalTransactionId
from pybroker.store.journal.format import data_file_name
from pybroker.store.journal.large_bodies import KEPT_SECONDS, LARGE_BODY_BYTES
from pybroker.store.journal.store import JournalStore
from pybroker.store.runtime import Callback, Worker, start_thread
from tests.runtimes import runtime, wait_for_end

QUEUE, OTHER = queue("Q"), queue("OTHER")
PRODUCER = ProducerId("ID:c:1", 1, 1)
MANY = 1 << 40
"""More bytes than a page has."""


def message(sequence: int, size: int = LARGE_BODY_BYTES, destination: Destination = QUEUE) -> Message:
    return to_message(
        OpenWireMessage(
            type=MessageType.BYTES,
            producer_id=PRODUCER,
            destination=destination,
            message_id=OpenWireMessageId(None, PRODUCER, sequence),
            persistent=True,
            content=sequence.to_bytes() * size,
        )
    )


class Loop:
    """A store with an event loop whose turns the test runs."""

    def __init__(self, directory: Path, *, has_timer: bool = True) -> None:
        self.directory = directory
        self.posted: list[Callback] = []
        self.timers: list[tuple[float, Callback]] = []
        self.readers: list[Worker] = []
        self.readable_count = 0
        timer = {"call_later": lambda seconds, callback: self.timers.append((seconds, callback))} if has_timer else {}
        self.store = JournalStore(directory, runtime=runtime(self.posted.append, spawn=self.spawn, **timer))
        self.store.on_readable = self._on_readable
        self.store.recover()

    def _on_readable(self) -> None:
        self.readable_count += 1

    def spawn(self, name: str, run: Callback) -> Worker:
        worker = start_thread(name, run)
        if name == "large-message":
            self.readers.append(worker)
        return worker

    def add(self, *messages: Message, transaction: LocalTransactionId | None = None) -> None:
        """Store messages durably."""
        for each in messages:
            self.store.write(each, transaction)
        if transaction is not None:
            self.store.commit(transaction)
        done = threading.Event()
        self.store._writer.submit(done.set)
        assert done.wait(20)
        self.turn()

    def turn(self) -> None:
        """Wait for what is being read, and run what was posted."""
        for reader in self.readers:
            wait_for_end(reader)
        self.readers.clear()
        while self.posted:
            self.posted.pop(0)()

    def page(self, *messages: Message) -> list[bytes]:
        """Return the bytes of a page."""
        ids = [each.message_id for each in messages]
        return [each.data for each in self.store.read_page(messages[0].destination, ids, MANY).messages]


@pytest.fixture
def made() -> Iterator[list[Loop]]:
    loops: list[Loop] = []
    yield loops
    for each in loops:
        each.store.abandon()


@pytest.fixture
def loop(tmp_path: Path, made: list[Loop]) -> Loop:
    made.append(Loop(tmp_path))
    return made[0]


def test_large_message_is_not_read_by_the_loop(loop: Loop) -> None:
    large = message(1)
    loop.add(large)
    for _ in range(2):
        with pytest.raises(NotReadYet):
            loop.page(large)
    assert len(loop.readers) == 1, "it is read once, however often it is requested"
    loop.turn()
    assert loop.readable_count == 1
    assert loop.page(large) == [large.data]
    with pytest.raises(NotReadYet):
        loop.page(large)  # which was not kept


def test_page_ends_before_a_large_message(loop: Loop) -> None:
    small, large, last = message(1, 10), message(2), message(3, 10)
    loop.add(small, large, last)
    ids = [each.message_id for each in (small, large, last)]
    page = loop.store.read_page(QUEUE, ids, LARGE_BODY_BYTES)
    assert ([each.data for each in page.messages], page.looked_at) == ([small.data], 1)


def test_second_large_message_is_read_after_the_first(loop: Loop) -> None:
    first, second = message(1), message(2, destination=OTHER)
    loop.add(first, second)
    for each in (first, second):
        with pytest.raises(NotReadYet):
            loop.page(each)
    loop.turn()
    with pytest.raises(NotReadYet):
        loop.page(second)
    assert loop.page(first) == [first.data]
    loop.turn()
    assert loop.readable_count == 2, "the second one may be requested now"
    with pytest.raises(NotReadYet):
        loop.page(second)
    loop.turn()
    assert loop.page(second) == [second.data]


def test_large_message_that_is_not_wanted_any_more_is_dropped(loop: Loop) -> None:
    first, second = message(1), message(2)
    loop.add(first, second)
    for each in (first, second):
        with pytest.raises(NotReadYet):
            loop.page(each)
    loop.turn()
    for seconds, callback in loop.timers:
        if seconds == KEPT_SECONDS:
            callback()
    loop.turn()
    assert loop.readable_count == 2
    with pytest.raises(NotReadYet):
        loop.page(second)
    loop.turn()
    assert loop.page(second) == [second.data]


def test_large_message_in_a_missing_file_is_an_error(loop: Loop) -> None:
    large = message(1)
    loop.add(large)
    (loop.directory / data_file_name(1)).unlink()
    with pytest.raises(NotReadYet):
        loop.page(large)
    loop.turn()
    with pytest.raises(StoreUnavailable, match=r"db-1\.log"):
        loop.page(large)


def test_damaged_large_message_is_reported(loop: Loop) -> None:
    large = message(1)
    loop.add(large)
    path = loop.directory / data_file_name(1)
    data = path.read_bytes()
    path.write_bytes(data.replace(large.message_id.encode(), b"X" * len(large.message_id)))
    with pytest.raises(NotReadYet):
        loop.page(large)
    loop.turn()
    assert loop.page(large) == []
    assert [each.file_id for each in loop.store.damages] == [1]


def test_without_a_loop_a_large_message_is_read_at_once(tmp_path: Path, made: list[Loop]) -> None:
    made.append(Loop(tmp_path, has_timer=False))
    large = message(1)
    made[0].add(large)
    assert made[0].page(large) == [large.data]


@pytest.mark.parametrize("transaction", [None, LocalTransactionId("ID:c:1", 1)])
def test_large_message_is_read_into_its_own_memory(
    loop: Loop, transaction: LocalTransactionId | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not cut out of other bytes, which would copy it."""
    large = message(1)
    loop.add(large, transaction=transaction)
    read = list[int]()
    pread: Callable[[int, int, int], bytes] = os.pread

    def reading(descriptor: int, length: int, offset: int) -> bytes:
        read.append(length)
        return pread(descriptor, length, offset)

    monkeypatch.setattr(os, "pread", reading)
    with pytest.raises(NotReadYet):
        loop.page(large)
    loop.turn()
    assert loop.page(large) == [large.data]
    assert read[-1] == len(large.data) > 10 * sum(read[:-1])
