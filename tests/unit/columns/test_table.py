# mypy: disable-error-code="arg-type, attr-defined"
"""Pieces, modes and times of the table; what a reader may meet on a disk."""

import logging
import os
import zlib
from pathlib import Path

import numpy as np
import pytest

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.errors import JournalCorrupt, StoreUnavailable
from pybroker.broker.domain.openwire.body import encode_text as openwire_text
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, to_message
from pybroker.store.columns.files import NoJournal, growing, list_files, plan
from pybroker.store.columns.rows import ACK_TYPES
from pybroker.store.columns.schema import CORRUPT, arrow_schema
from pybroker.store.columns.table import Mode, read
from pybroker.store.columns.timeline import Timeline, before
from pybroker.store.columns.vectors import ODD_BYTES_MAX, ROWS_MAX
from pybroker.store.journal.commands import RemoveMessage, RewrittenDataFile, Trace, encode, encode_add_record
from pybroker.store.journal.format import (
    BATCH_HEADER_BYTES,
    EOF_MARKER,
    RECORD_HEADER_BYTES,
    encode_batch,
    encode_record,
)
from pybroker.store.journal.marks import encode_mark
from tests.descriptors import open_in
from tests.unit.columns.agreement import assert_agreement, vector_rows, write_file

ORDERS = queue("ORDERS")
TRACE_RECORD = encode(Trace("x"))


def added(number: int, *, broker_in_ms: int = 0) -> bytes:
    producer = ProducerId("ID:h:1", 1, 1)
    message = OpenWireMessage(
        type=MessageType.TEXT,
        destination=ORDERS,
        producer_id=producer,
        message_id=OpenWireMessageId(None, producer, number),
        broker_in_time=broker_in_ms,
    )
    message.content = openwire_text(f"text {number}")
    return encode_add_record(to_message(message))[RECORD_HEADER_BYTES:]


def removed(number: int) -> bytes:
    return encode(RemoveMessage(ORDERS, f"ID:h:1:1:1:{number}"))


# ---------------------------------------------------------------- directories and pieces


def test_empty_directory_is_an_empty_journal_also_with_a_lock(tmp_path: Path) -> None:
    assert list_files(tmp_path) == {}
    (tmp_path / "lock").touch()
    (tmp_path / "db.data").touch()
    assert list_files(tmp_path) == {}


@pytest.mark.parametrize("name", ["missing", "file", "other"])
def test_what_is_no_journal_is_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    with pytest.raises(NoJournal, match=f"{tmp_path / name}: "):
        list_files(tmp_path / name)


def test_archive_is_read_and_the_journal_takes_precedence(tmp_path: Path) -> None:
    archive = tmp_path / "data-archive"
    archive.mkdir()
    for folder, file_id in ((archive, 1), (archive, 2), (tmp_path, 2), (tmp_path, 3)):
        write_file(folder, [[TRACE_RECORD]], file_id)
    assert list(list_files(tmp_path)) == [2, 3]
    assert list(list_files(tmp_path, archive=True).values()) == [
        archive / "db-1.log",
        tmp_path / "db-2.log",
        tmp_path / "db-3.log",
    ]


def test_pieces_begin_with_batches_and_cover_the_file_once(tmp_path: Path) -> None:
    write_file(tmp_path, [[added(number)] * 3 for number in range(50)])
    pieces = plan("j", list_files(tmp_path), 2000)
    batches = {row["batch"] for row in vector_rows(tmp_path)}
    assert len(pieces) > 5
    assert {piece.start for piece in pieces} <= batches
    assert [piece.end for piece in pieces] == [*(piece.start for piece in pieces[1:]), None]


def test_a_file_before_a_compacted_one_may_still_grow(tmp_path: Path) -> None:
    write_file(tmp_path, [[TRACE_RECORD]], 1)
    write_file(tmp_path, [[TRACE_RECORD]], 2)
    write_file(tmp_path, [[encode(RewrittenDataFile(1)), removed(1)]], 3)
    assert growing(list_files(tmp_path)) == {2, 3}


# ---------------------------------------------------------------- damage


def torn(tmp_path: Path, file_id: int) -> Path:
    path = write_file(tmp_path, [[added(1)], [added(2)]], file_id)
    path.write_bytes(path.read_bytes()[:-40])
    return path


def test_a_torn_end_counts_only_where_no_one_writes(tmp_path: Path) -> None:
    torn(tmp_path, 1)
    assert [row["message_id"] for row in vector_rows(tmp_path)] == ["ID:h:1:1:1:1"]
    write_file(tmp_path, [[added(3)]], 2)
    rows = vector_rows(tmp_path)
    assert [row["record_type"] for row in rows] == ["add_message", None, "add_message"]
    assert rows[1][CORRUPT] == "the file ends inside a batch"
    assert rows[1]["offset"] == rows[0]["offset"] + rows[0]["size"]


def test_modes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_file(tmp_path, [[added(1)], [added(2), b"\x63\x00"], [added(3)]])
    content = bytearray(path.read_bytes())
    content[content.index(b"text 1")] ^= 1
    path.write_bytes(content)
    (piece,) = plan("j", list_files(tmp_path), None)

    shown = [row for batch in read(piece, ("checksum", "record_type")) for row in batch.to_pylist()]
    assert [row["checksum"] for row in shown] == ["bad", "ok", "ok", "ok"]
    assert [row["record_type"] for row in shown] == [None, "add_message", "unknown", "add_message"]

    with caplog.at_level(logging.WARNING):
        kept = [row for batch in read(piece, ("text",), mode=Mode.DROPMALFORMED) for row in batch.to_pylist()]
    assert kept == [{"text": "text 2"}, {"text": "text 3"}]
    assert f"{path}: 2 records left out; the first: a batch's checksum does not fit its bytes" in caplog.text

    with pytest.raises(JournalCorrupt) as error:
        list(read(piece, ("text",), mode=Mode.FAILFAST))
    assert (error.value.path, error.value.offset) == (str(path), 0)


@pytest.mark.timeout(20)
def test_pipe_as_data_file_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "db-1.log")
    (piece,) = plan("j", list_files(tmp_path), None)
    with pytest.raises(StoreUnavailable, match=r"db-1\.log cannot be read: it is no regular file"):
        list(read(piece, ("file",)))


def test_a_file_that_is_gone_is_a_row_or_an_error(tmp_path: Path) -> None:
    path = write_file(tmp_path, [[TRACE_RECORD]], 7)
    (piece,) = plan("j", list_files(tmp_path), None)
    path.unlink()
    (batch,) = read(piece, ("file", CORRUPT))
    assert batch.to_pylist() == [
        {"file": 7, CORRUPT: "the data file is gone: its broker has collected it in the meantime"}
    ]
    with pytest.raises(JournalCorrupt, match=r"db-7\.log: offset 0: "):
        list(read(piece, ("file",), mode=Mode.FAILFAST))
    with pytest.raises(FileNotFoundError):
        list(read(piece, ("file",), must_exist=True))


def test_wrong_length_does_not_mislead_the_walk(tmp_path: Path) -> None:
    """The batch has no checksum, and its records do not come out at its end."""
    batches = [[added(number), removed(number)] for number in range(100)]
    path = write_file(tmp_path, batches, checksum=False)
    content = bytearray(path.read_bytes())
    (piece,) = plan("j", list_files(tmp_path), None)
    starts = [row["batch"] for batch in read(piece, ("batch",)) for row in batch.to_pylist()]
    content[starts[120] + BATCH_HEADER_BYTES + 3] ^= 1
    path.write_bytes(content)
    rows = assert_agreement(tmp_path)
    assert [row["offset"] for row in rows if row[CORRUPT]] == [starts[120]]
    assert len(rows) == 199


def test_a_negative_checksum_is_none(tmp_path: Path) -> None:
    path = write_file(tmp_path, [[added(1)]])
    content = bytearray(path.read_bytes())
    content[BATCH_HEADER_BYTES - 8] = 0x80
    path.write_bytes(content)
    assert [row["checksum"] for row in assert_agreement(tmp_path)] == ["none"]


def test_batches_longer_than_window_and_record_batch_are_read(tmp_path: Path) -> None:
    write_file(tmp_path, [[TRACE_RECORD], [TRACE_RECORD] * (ROWS_MAX + 10), [added(1)]])
    (piece,) = plan("j", list_files(tmp_path), None)
    batches = list(read(piece, ("offset", "trace"), window_bytes=1000))
    assert sum(batch.num_rows for batch in batches) == ROWS_MAX + 12
    assert max(batch.num_rows for batch in batches) == ROWS_MAX


def test_a_preallocated_file_ends_where_its_zeros_begin(tmp_path: Path) -> None:
    batch = encode_batch([encode_record(TRACE_RECORD)])
    (tmp_path / "db-1.log").write_bytes(batch + bytes(100_000) + EOF_MARKER)
    (tmp_path / "db-2.log").write_bytes(EOF_MARKER + bytes(100) + batch)
    assert [(row["file"], row[CORRUPT]) for row in vector_rows(tmp_path)] == [(1, None)]


def test_columns_come_in_the_requested_order(tmp_path: Path) -> None:
    write_file(tmp_path, [[added(1)]])
    (piece,) = plan("j", list_files(tmp_path), None)
    (batch,) = read(piece, ("text", "file", "properties"))
    assert batch.schema.equals(arrow_schema(("text", "file", "properties")))


# ---------------------------------------------------------------- times


def sources(tmp_path: Path, **options: int) -> list[tuple[str | None, int | None]]:
    rows = vector_rows(tmp_path, ("time", "time_source"), **options)
    return [
        (row["time_source"], None if row["time"] is None else round(row["time"].timestamp() * 1000)) for row in rows
    ]


def test_record_time_is_arrival_mark_or_estimate(tmp_path: Path) -> None:
    mark = encode_mark(9000)[5:]
    write_file(tmp_path, [[removed(1)], [added(1, broker_in_ms=5000), removed(1)], [mark, removed(2)], [added(2)]])
    expected = [
        (None, None),
        ("broker_in", 5000),
        ("estimate", 5000),
        ("mark", 9000),
        ("mark", 9000),
        ("mark", 9000),
    ]
    assert sources(tmp_path) == expected
    assert sources(tmp_path, piece_bytes=1) == expected


def test_times_behind_damage_do_not_depend_on_pieces(tmp_path: Path) -> None:
    batches = [[encode_mark(1000)[5:], removed(0)], [added(1, broker_in_ms=5000)], [removed(1)], [removed(2)]]
    path = write_file(tmp_path, [*batches, *([removed(3)] for _ in range(20))])
    content = bytearray(path.read_bytes())
    content[content.index(b"text 1")] ^= 1
    path.write_bytes(content)
    assert sources(tmp_path, piece_bytes=100) == sources(tmp_path)


def test_piece_behind_a_broken_chain_has_times(tmp_path: Path) -> None:
    path = write_file(tmp_path, [[encode_mark(1000)[5:]], [added(1)], [added(2)]])
    content = bytearray(path.read_bytes())
    rows = vector_rows(tmp_path)
    content[rows[1]["batch"] + 7] ^= 1  # the magic of the second batch
    path.write_bytes(content)
    (whole,) = plan("j", list_files(tmp_path), None)
    assert before(whole._replace(start=rows[2]["batch"])) == Timeline(mark=1000)


def test_many_steps_at_once_are_the_single_steps() -> None:
    arrivals, marks = [0, 5, 0, 0, 7, 0], [0, 0, 0, 6, 0, 0]
    one, many = Timeline(arrival=1), Timeline(arrival=1)
    single = [one.at(arrival or None, mark or None) for arrival, mark in zip(arrivals, marks, strict=True)]
    times, kinds = many.along(np.array(arrivals), np.array(marks))
    names = ("broker_in", "mark", "estimate")
    assert [(time, names[kind]) for time, kind in zip(times.tolist(), kinds.tolist(), strict=True)] == single
    assert one == many


# ---------------------------------------------------------------- memory


def test_highly_compressed_bodies_yield_small_record_batches(tmp_path: Path) -> None:
    text = openwire_text("x" * 1_000_000)
    message = OpenWireMessage(
        type=MessageType.TEXT,
        destination=ORDERS,
        message_id=OpenWireMessageId(None, ProducerId("ID:h:1", 1, 1), 1),
        content=zlib.compress(text),
        compressed=True,
    )
    write_file(tmp_path, [[encode_add_record(to_message(message))[RECORD_HEADER_BYTES:], TRACE_RECORD] * 100])
    (piece,) = plan("j", list_files(tmp_path), None)
    rows = 0
    for batch in read(piece, ("text", "trace")):
        assert batch.nbytes < ODD_BYTES_MAX + 2_000_000
        rows += batch.num_rows
    assert rows == 200


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    write_file(tmp_path, [[added(number)] for number in range(300)])
    (piece,) = plan("j", list_files(tmp_path), None)
    batches = read(piece, window_bytes=1000)
    next(batches)
    assert open_in(tmp_path)
    batches.close()
    assert not open_in(tmp_path)


def test_numbers_of_acknowledgement_types_have_no_gap() -> None:
    """The vectorised decoder looks their names up by number."""
    assert sorted(ACK_TYPES) == [*range(len(ACK_TYPES))]
