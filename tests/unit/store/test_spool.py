"""The spool: messages come back as written, space is freed, a full disk or limit is no error."""

import errno
import logging
import os
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest

from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.message import Message
from pybroker.store import spool as spool_module
from pybroker.store.runtime import start_thread
from pybroker.store.spool import READ_AHEAD_BYTES, RETRY_SECONDS, WRITE_BACK_BYTES, FileSpool, SpoolThread
from tests.descriptors import open_in
from tests.unit.core.conftest import make_message


class Disk:
    """A spool whose thread does what the test lets it, and its clock."""

    def __init__(self, directory, **limits):
        self.now = 0.0
        self.jobs: list[Callable[[], None]] = []
        self.spool = FileSpool(
            directory,
            submit=self.jobs.append,
            post=lambda callback: callback(),
            monotonic=lambda: self.now,
            **({"bytes_max": 1 << 30, "reserve_bytes": 0} | limits),
        )

    def work(self):
        while self.jobs:
            self.jobs.pop(0)()

    def write(self, *messages: Message) -> list[int]:
        """Write messages, and return their places; none if they could not be written."""
        answers: list[list[int]] = []
        assert self.spool.write(messages, lambda places: answers.append(list(places)))
        assert answers == []
        self.work()
        assert len(answers) == 1
        return answers[0]

    def names(self, *places: int, bytes_max: int = 1 << 30) -> list[str]:
        return [message.message_id for message in self.read(*places, bytes_max=bytes_max)]

    def read(self, *places: int, bytes_max: int = 1 << 30) -> list[Message]:
        found = self.spool.read_page(places, bytes_max)
        return [message for message in found if message is not None]


@pytest.fixture
def disk(tmp_path):
    made = Disk(tmp_path)
    yield made
    made.spool.close()
    made.work()


def large(length: int = 100_000) -> Message:
    return make_message("x" * length, "queue://Q", persistent=False)


def never(places: object) -> None:
    pytest.fail("nothing was written")


def test_messages_come_back_with_all_their_fields(disk):
    fields: tuple[dict[str, Any], ...] = (
        {},
        {"persistent": False},
        {"expiration": 12345, "priority": 9},
        {"properties": {"a": 1}},
    )
    messages = [make_message("m", "topic://T", **each) for each in fields]
    messages[0].persistent = False  # as the copies that durable subscriptions get of a topic's history
    found = disk.read(*disk.write(*messages))
    names = [name for name in Message.__slots__ if name != "decoded"]
    assert [[getattr(each, name) for name in names] for each in found] == [
        [getattr(each, name) for name in names] for each in messages
    ]


def test_the_directory_shows_no_file(disk, tmp_path):
    disk.write(large())
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_unnamed_files_shows_none_either(disk, tmp_path, monkeypatch):
    real = os.open

    def without(path, flags, *mode, **more):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "not here")
        return real(path, flags, *mode, **more)

    monkeypatch.setattr(os, "open", without)
    message = large()
    assert disk.names(*disk.write(message)) == [message.message_id]
    assert list(tmp_path.iterdir()) == []


def test_a_page_ends_with_the_message_that_reaches_its_bytes(disk):
    messages = [large(1000) for _ in range(10)]
    places = disk.write(*messages)
    assert len(disk.names(*places, bytes_max=2500)) == 3


def test_messages_larger_than_a_read_and_a_segment_come_back(disk, monkeypatch):
    monkeypatch.setattr(spool_module, "SEGMENT_BYTES", 500_000)
    messages = [large(length) for length in (10, READ_AHEAD_BYTES - 50, 2 * READ_AHEAD_BYTES, 700_000, 10)]
    places = [place for message in messages for place in disk.write(message)]
    for order in (places, places[::-1]):
        found = disk.read(*order)
        assert sorted(each.data for each in found) == sorted(each.data for each in messages)


def test_many_messages_are_written_in_several_calls(disk):
    messages = [large(20) for _ in range(3000)]
    assert disk.names(*disk.write(*messages)) == [each.message_id for each in messages]


def test_what_waits_for_a_write_is_called_after_it(disk):
    events: list[object] = []
    messages = [large(20), large(20)]
    for message in messages:
        assert disk.spool.write([message], lambda places: events.append(len(places)))
    both = disk.spool.unwritten_bytes
    disk.spool.when_written(lambda: events.append(disk.spool.unwritten_bytes))
    disk.jobs.pop(0)()
    assert events == [1, both // 2]
    disk.work()
    assert events == [1, both // 2, 1]
    assert disk.spool.unwritten_bytes == 0


def test_a_short_write_is_continued(disk, monkeypatch):
    monkeypatch.setattr(os, "pwritev", lambda descriptor, buffers, offset: os.pwrite(descriptor, buffers[0], offset))
    messages = [large(20) for _ in range(5)]
    assert disk.names(*disk.write(*messages)) == [each.message_id for each in messages]


def test_the_disk_gets_what_is_written_a_piece_at_a_time(disk, monkeypatch):
    pieces: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda descriptor, start, count, advice: pieces.append((start, count)))
    monkeypatch.setattr(spool_module, "SEGMENT_BYTES", 4 * WRITE_BACK_BYTES)
    for _ in range(60):
        disk.write(large(), large())
    assert len(pieces) > 8
    assert all(WRITE_BACK_BYTES <= count < 2 * WRITE_BACK_BYTES for _, count in pieces)
    begins = [start for start, _ in pieces]
    ends = [start + count for start, count in pieces]
    assert all(
        begin in (0, end) for begin, end in zip(begins[1:], ends, strict=False)
    )  # of one segment, then of the next
    assert begins.count(0) > 2


def test_a_file_system_that_takes_no_advice_is_no_error(disk, monkeypatch):
    def refuse(*_: int) -> None:
        raise OSError(errno.EINVAL, "no advice")

    monkeypatch.setattr(os, "posix_fadvise", refuse)
    messages = [large() for _ in range(30)]
    assert disk.names(*disk.write(*messages)) == [each.message_id for each in messages]


def test_space_is_free_once_no_message_of_a_segment_is_needed(disk, tmp_path, monkeypatch):
    monkeypatch.setattr(spool_module, "SEGMENT_BYTES", 250_000)
    places = [place for _ in range(6) for place in disk.write(large())]
    assert len(open_in(tmp_path)) == 3
    used = disk.spool.used_bytes
    for place in (places[2], places[3]):
        disk.spool.release(place)
    disk.work()
    assert (len(open_in(tmp_path)), disk.spool.used_bytes) == (2, used * 2 // 3)
    kept = [places[0], places[1], places[4], places[5]]
    assert len(disk.names(*kept)) == 4
    for place in kept:
        disk.spool.release(place)
    disk.work()
    assert (open_in(tmp_path), disk.spool.used_bytes) == ([], 0)
    assert len(disk.names(*disk.write(large()))) == 1


def test_messages_beyond_the_limit_are_refused_until_space_is_free(tmp_path, caplog):
    disk = Disk(tmp_path, bytes_max=150_000)
    places = disk.write(large())
    assert not disk.spool.write([large()], never)
    assert disk.spool.is_full
    assert "raise spool_limit" in caplog.text
    disk.spool.release(places[0])
    assert not disk.spool.is_full, "there is space, though nothing was written since"
    disk.now += 60
    with caplog.at_level(logging.INFO):
        assert len(disk.write(large())) == 1
    assert not disk.spool.is_full
    assert "takes messages again" in caplog.text


def test_a_failed_write_keeps_what_was_written_and_is_tried_again_later(disk, monkeypatch, caplog):
    first = disk.write(large())

    def full(descriptor, buffers, offset):
        raise OSError(errno.ENOSPC, "No space left on device")

    used = disk.spool.used_bytes
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", full)
        assert disk.write(large(), large()) == []
    assert caplog.text.count("it cannot be written (No space left on device)") == 1
    assert "choose another spool_directory" in caplog.text
    assert disk.spool.is_full
    assert disk.spool.used_bytes < 2 * used + 200_000
    assert not disk.spool.write([large()], never), "the disk may take seconds to fail"
    assert len(disk.names(*first)) == 1
    disk.now += RETRY_SECONDS
    second = disk.write(large())
    assert len(disk.names(*first, *second)) == 2
    for place in (*first, *second):
        disk.spool.release(place)
    assert disk.spool.used_bytes == 0


def test_the_reserve_of_the_disk_is_left_alone(tmp_path, caplog):
    state = os.statvfs(tmp_path)
    disk = Disk(tmp_path, reserve_bytes=state.f_bavail * state.f_frsize + (1 << 40))
    assert disk.write(large()) == []
    assert "the reserve of" in caplog.text


def test_a_missing_directory_is_an_answer_and_no_error(tmp_path, caplog):
    assert Disk(tmp_path / "gone").write(large()) == []
    assert "No such file or directory" in caplog.text


def test_a_damaged_record_is_left_out_and_logged(disk, caplog):
    messages = [large(1000), large(1000), large(1000)]
    places = disk.write(*messages)
    (segment,) = disk.spool._segments
    os.pwrite(segment.descriptor, b"\xff" * 20, places[1])
    found = disk.spool.read_page(places, 1 << 30)
    assert [each and each.message_id for each in found] == [messages[0].message_id, None, messages[2].message_id]
    assert "is lost" in caplog.text


def test_a_closed_spool_frees_its_files_without_callbacks(disk, tmp_path):
    places = disk.write(large())
    assert len(open_in(tmp_path)) == 1
    assert disk.spool.write([large()], never)
    closings: list[str] = []
    disk.spool._when_closed = lambda: closings.append("closed")
    disk.spool.close()
    disk.spool.close()
    disk.work()
    assert open_in(tmp_path) == []
    assert closings == ["closed"]
    assert not disk.spool.write([large()], never)
    disk.spool.release(places[0])
    with pytest.raises(StoreUnavailable):
        disk.spool.read_page(places, 1000)


def test_the_thread_begins_with_the_first_callback_and_outlives_a_bug(caplog):
    results: SimpleQueue[int] = SimpleQueue()
    workers = []

    def spawn(name, run):
        workers.append(start_thread(name, run))
        return workers[0]

    def bug():
        raise ZeroDivisionError

    thread = SpoolThread(spawn, SimpleQueue)
    thread.end()
    assert workers == []
    thread.submit(lambda: results.put(1))
    thread.submit(bug)
    thread.submit(lambda: results.put(2))
    assert [results.get(timeout=10), results.get(timeout=10)] == [1, 2]
    thread.end()
    workers[0].join(10)
    assert not workers[0].is_alive()
    assert len(workers) == 1
    assert "failed unexpectedly" in caplog.text


def test_the_places_of_a_freed_segment_are_not_used_again(disk, monkeypatch):
    monkeypatch.setattr(spool_module, "SEGMENT_BYTES", 10_000)
    disk.write(make_message("a" * 6000, "queue://KEPT", persistent=False))
    freed = disk.write(make_message("b" * 6000, "queue://Q", persistent=False))  # in a segment of its own
    disk.read(*freed)
    disk.spool.release(freed[0])
    disk.work()
    last = make_message("c", "queue://Q", persistent=False)  # there is space for it in the first segment
    places = disk.write(last)
    assert places[0] > freed[0]
    assert disk.names(*places) == [last.message_id]
