# mypy: disable-error-code="arg-type, assignment, comparison-overlap"
"""Time marks: when a batch begins with one, what they cost in places, and who may rely on them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.message import (
    MessageType,
    OpenWireMessage,
    OpenWireMessageId,
    ProducerId,
    to_message,
)
from pybroker.store.journal.appender import JournalSettings
from pybroker.store.journal.cleanup import removable
from pybroker.store.journal.commands import CommandType, Trace, decode, encode
from pybroker.store.journal.compaction import encode_data_file
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.format import BATCH_HEADER_BYTES, Location, encode_record
from pybroker.store.journal.marks import (
    INTERVAL_MS,
    MARK,
    MARK_BYTES,
    TimeMarks,
    decode_mark,
    encode_mark,
    mark_at,
)
from pybroker.store.journal.reader import DataFileWalk, data_files
from pybroker.store.journal.replay import replay
from pybroker.store.journal.state import StoreState
from pybroker.store.journal.store import JournalStore
from pybroker.store.journal.store_snapshot import follower as resume
from pybroker.store.journal.writer import JournalWriter
from tests.runtimes import runtime

NOW = 1_700_000_000_000
QUEUE = queue("Q")
RECORD = encode_record(encode(Trace("a record")))


class HandClock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


# ---------------------------------------------------------------- the metadata record


@pytest.mark.parametrize("time_ms", [0, 1, NOW, 10**13 - 1])
def test_a_mark_holds_its_time(time_ms: int) -> None:
    record = encode_mark(time_ms)
    assert len(record) == MARK_BYTES == 36
    assert mark_at(b"before" + record + b"after", 6) == time_ms
    trace = decode(record[5:])
    assert isinstance(trace, Trace)
    assert decode_mark(trace.message) == time_ms


@pytest.mark.parametrize(("time_ms", "expected"), [(-1, 0), (10**13, 10**13 - 1), (-(2**63), 0)])
def test_a_clock_beyond_all_reason_does_not_change_the_size(time_ms: int, expected: int) -> None:
    assert mark_at(encode_mark(time_ms), 0) == expected


@pytest.mark.parametrize(
    "text", [None, "", MARK, MARK + "1", MARK + "17000000000000", MARK + "-170000000000", MARK + "١٧٠٠٠٠٠٠٠٠٠٠٠"]
)
def test_other_remarks_are_no_marks(text: str | None) -> None:
    assert decode_mark(text) is None
    assert mark_at(encode_record(encode(Trace(text))), 0) is None


def test_no_part_of_a_mark_is_taken_for_one() -> None:
    record = encode_mark(NOW)
    assert [end for end in range(MARK_BYTES) if mark_at(record[:end], 0) is not None] == []
    assert [start for start in range(1, MARK_BYTES) if mark_at(record, start) is not None] == []
    assert mark_at(record[:-1] + b"\xff", 0) is None


# ---------------------------------------------------------------- when one is due


def test_a_mark_is_due_once_a_second_and_in_each_data_file(clock: HandClock) -> None:
    marks = TimeMarks(clock)
    assert mark_at(marks.begin(1), 0) == NOW
    clock.now += INTERVAL_MS - 1
    assert marks.begin(1) == b""
    clock.now += 1
    assert mark_at(marks.begin(1), 0) == NOW + INTERVAL_MS
    assert marks.begin(1) == b""
    assert mark_at(marks.begin(2), 0) == NOW + INTERVAL_MS, "a data file can be read by itself"


def test_a_clock_that_is_set_back_is_followed(clock: HandClock) -> None:
    marks = TimeMarks(clock)
    marks.begin(1)
    clock.now -= 3_600_000
    assert mark_at(marks.begin(1), 0) == NOW - 3_600_000
    assert marks.begin(1) == b""


# ---------------------------------------------------------------- in the writer


class Rig:
    """A writer with marks, whose batches go to a data file by its thread."""

    def __init__(self, directory: Path, clock: HandClock, **settings: Any) -> None:
        self.directory = directory
        self.alarms: list[float] = []
        self.writer = JournalWriter(
            JournalFiles(directory),
            file_id=1,
            settings=JournalSettings(**settings),
            runtime=runtime(call_later=lambda seconds, _: self.alarms.append(seconds)),
            marks=TimeMarks(clock),
        )
        self.writer.start([RECORD])

    def batch(self, *records: bytes) -> list[Location]:
        locations = [self.writer.append(record) for record in records]
        self.writer.end_batch()
        return locations

    def read(self) -> tuple[list[tuple[Location, bytes]], list[tuple[int, int, int]]]:
        """Close; return all records with their places, and the marks with file, batch and time."""
        self.writer.close()
        records: list[tuple[Location, bytes]] = []
        marks: list[tuple[int, int, int]] = []
        for file_id, path in data_files(self.directory).items():
            data = path.read_bytes()
            walk = DataFileWalk(data, file_id)
            for offset, _ in walk.batches():
                if (time_ms := mark_at(data, offset)) is not None:
                    marks.append((file_id, offset - BATCH_HEADER_BYTES, time_ms))
            records += DataFileWalk(data, file_id)
            assert not walk.damages
        return records, marks


def test_records_lie_behind_the_mark_where_the_writer_reported(tmp_path: Path, clock: HandClock) -> None:
    rig = Rig(tmp_path, clock)
    located: dict[Location, bytes] = {}
    for second in range(3):
        for number in range(3):
            records = [encode_record(encode(Trace(f"{second} {number} {index}"))) for index in range(2)]
            located |= zip(rig.batch(*records), records, strict=True)
            clock.now += 10
        clock.now += INTERVAL_MS
    records, marks = rig.read()
    assert {place: payload for place, payload in records if place in located} == {
        place: record[5:] for place, record in located.items()
    }
    assert [time_ms for _, _, time_ms in marks] == [NOW, NOW + 1030, NOW + 2060]
    mark_count = sum(decode_mark(decode(payload).message) is not None for _, payload in records)  # type: ignore[union-attr]
    assert mark_count == len(marks), "each is the first of its batch"


def test_an_idle_journal_is_not_written_to(tmp_path: Path, clock: HandClock) -> None:
    rig = Rig(tmp_path, clock)
    end = rig.writer.end
    clock.now += 3_600_000
    assert (rig.writer.end, rig.alarms) == (end, [])
    assert rig.read()[1] == [(1, 0, NOW)]


def test_each_data_file_begins_with_a_mark(tmp_path: Path, clock: HandClock) -> None:
    rig = Rig(tmp_path, clock, file_bytes_max=1000)
    for _ in range(100):
        rig.batch(RECORD)
    _, marks = rig.read()
    assert marks == [(file_id, 0, NOW) for file_id in data_files(tmp_path)]
    assert len(marks) > 3
    assert all(path.stat().st_size <= 1000 + BATCH_HEADER_BYTES + 5 for path in data_files(tmp_path).values())


@pytest.mark.parametrize("space", [-1, 0, 1])
def test_a_record_that_fills_its_batch_goes_without(tmp_path: Path, clock: HandClock, space: int) -> None:
    """The batch, its mark included, never grows beyond what ActiveMQ writes at once."""
    limit = 1000
    rig = Rig(tmp_path, clock, batch_bytes_max=limit)
    clock.now += INTERVAL_MS
    overhead = len(encode_record(encode(Trace("x" * 200)))) - 200
    size = limit - 1 - BATCH_HEADER_BYTES - MARK_BYTES - space
    (location,) = rig.batch(encode_record(encode(Trace("x" * (size - overhead)))))
    rig.batch(RECORD)
    records, marks = rig.read()
    begun = location.offset - BATCH_HEADER_BYTES
    fits = space >= 0
    assert (1, begun - (MARK_BYTES if fits else 0), NOW + INTERVAL_MS) in marks if fits else len(marks) == 2
    assert len(marks) == 2, "the next batch has it otherwise"
    assert [place for place, _ in records if place == location] == [location]


# ---------------------------------------------------------------- in the store


def message(sequence: int) -> Message:
    producer = ProducerId("ID:c:1", 1, 1)
    return to_message(
        OpenWireMessage(
            type=MessageType.BYTES,
            producer_id=producer,
            destination=QUEUE,
            message_id=OpenWireMessageId(None, producer, sequence),
            persistent=True,
            content=b"x" * 100,
        )
    )


def opened(directory: Path, clock: Callable[[], int], **options: Any) -> JournalStore:
    store = JournalStore(
        directory,
        runtime=runtime(post=lambda callback: callback(), clock=clock),
        **options,
    )
    store.recover()
    return store


def exchange(store: JournalStore, clock: HandClock, numbers: range) -> None:
    """Send and consume messages, one a second."""
    for number in numbers:
        store.add(message(number))
        store._writer.end_batch()
        store.remove(QUEUE, message(number).message_id)
        store._writer.end_batch()
        clock.now += INTERVAL_MS


def test_recovery_with_marks_is_the_same_and_sees_a_clean_stop(tmp_path: Path, clock: HandClock) -> None:
    store = opened(tmp_path, clock)
    exchange(store, clock, range(20))
    store.add(message(50))
    store.close(delivered=[message(50).message_id])
    new_master = opened(tmp_path, clock)
    new_master.abandon()
    state = StoreState()
    result = replay(tmp_path, state)
    assert result.records[CommandType.TRACE] >= 20
    assert list(state.destinations[QUEUE].messages) == [message(50).message_id]
    again = opened(tmp_path, clock)
    again.abandon()


def test_a_clean_stop_is_believed_whatever_the_clock(tmp_path: Path, clock: HandClock) -> None:
    store = opened(tmp_path, clock)
    store.add(message(1))
    clock.now += INTERVAL_MS
    store.close(delivered=[message(1).message_id])
    result = replay(tmp_path, StoreState())
    assert [text.split("{")[0] for text in result.closing_traces] == ["pybroker clean stop "]


def test_a_snapshot_covers_the_journal_up_to_its_mark(tmp_path: Path, clock: HandClock) -> None:
    store = opened(tmp_path, clock, snapshot_bytes_min=0)
    for number in range(5):
        store.add(message(number))
    clock.now += INTERVAL_MS
    store.close()
    following = resume(tmp_path)
    data = (tmp_path / "db-1.log").read_bytes()
    assert following.resumed_at.file_id == 1
    assert mark_at(data, following.resumed_at.offset + BATCH_HEADER_BYTES) == clock.now
    following.finish()
    assert len(following.state.destinations[QUEUE].messages) == 5


def test_marks_keep_no_data_file() -> None:
    state = StoreState()
    for file_id in (1, 2, 3):
        state.apply(decode(encode_mark(NOW)[5:]), Location(file_id, BATCH_HEADER_BYTES))
    assert removable(state, (1, 2, 3), keep_from=3) == [1, 2]


def test_a_mark_begins_its_batch_in_a_compacted_file_too() -> None:
    records = [encode_mark(NOW), RECORD, RECORD, encode_mark(NOW + 1000), encode_mark(NOW + 2000), RECORD]
    data = b"".join(encode_data_file(records))
    walk = DataFileWalk(data, 1)
    begun = [mark_at(data, offset) for offset, _ in walk.batches()]
    assert begun == [NOW, NOW + 1000, NOW + 2000]
    assert [encode_record(payload) for _, payload in DataFileWalk(data, 1)] == records
