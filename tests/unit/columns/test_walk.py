"""The walk over the records of many batches at once: lengths that lie, and memory that is read into again."""

import os
from pathlib import Path
from struct import Struct

import pytest

from pybroker.store.columns.chunks import FEW_LANES, STEPS_MAX, Chunk, chunks
from pybroker.store.columns.files import list_files, plan
from pybroker.store.columns.schema import CORRUPT
from pybroker.store.columns.table import read
from pybroker.store.journal.commands import Trace, encode
from pybroker.store.journal.format import BATCH_HEADER_BYTES, EOF_MARKER, batch_header, encode_batch, encode_record
from tests.unit.columns.agreement import assert_agreement, assert_same, scalar_rows, vector_rows, write_file

SIZE = Struct(">I")
LENGTHS = [1 + (7 * number) % 11 for number in range(2 * FEW_LANES)]
"""Records per batch: more batches than are walked one by one, and of many lengths."""


def encoded_traces(count: int, text: str = "a remark of some bytes,") -> list[bytes]:
    return [encode(Trace(f"{text} {number}")) for number in range(count)]


def starts_of(directory: Path) -> list[int]:
    """Return where the batches of a journal's first data file begin."""
    (piece, *_) = plan("j", list_files(directory), None)
    (chunk,) = (each for each in chunks(piece) if isinstance(each, Chunk))
    return [int(first) - BATCH_HEADER_BYTES for first in chunk.first]


@pytest.mark.parametrize("size", [0, 1, 4, 5, 6, 12, 27, 28, 29, 1000, 2**31 - 1, 2**31, 2**32 - 1])
@pytest.mark.parametrize("batch", [3, len(LENGTHS) - 1])
def test_a_wrong_size_is_reported_at_the_start_of_its_batch(tmp_path: Path, size: int, batch: int) -> None:
    """The batch has no checksum, so only the walk can find it."""
    path = write_file(tmp_path, [encoded_traces(count) for count in LENGTHS], checksum=False)
    write_file(tmp_path, [encoded_traces(1)], file_id=2)  # damage at the end of the newest file may be no damage
    starts = starts_of(tmp_path)
    content = bytearray(path.read_bytes())
    SIZE.pack_into(content, starts[batch] + BATCH_HEADER_BYTES, size)
    path.write_bytes(content)
    rows = assert_agreement(tmp_path)
    assert [row["offset"] for row in rows if row[CORRUPT]] == [starts[batch]]


def test_sizes_of_0_in_all_batches_end(tmp_path: Path) -> None:
    """The walk stands still in every lane."""
    body = encode_record(encoded_traces(1)[0]) + bytes(20)
    sound = encode_batch([encode_record(each) for each in encoded_traces(2)])
    (tmp_path / "db-1.log").write_bytes(sound + (batch_header(len(body), 0) + body) * (2 * FEW_LANES) + EOF_MARKER)
    write_file(tmp_path, [encoded_traces(1)], file_id=2)
    rows = assert_agreement(tmp_path)
    assert len([row for row in rows if not row[CORRUPT]]) == 3
    starts = [len(sound) + number * (BATCH_HEADER_BYTES + len(body)) for number in range(2 * FEW_LANES)]
    assert [row["offset"] for row in rows if row[CORRUPT]] == starts


def test_batches_with_more_records_than_are_walked_at_once(tmp_path: Path) -> None:
    write_file(tmp_path, [encoded_traces(STEPS_MAX + 40 + number % 3) for number in range(FEW_LANES + 1)])
    columns = ("offset", "size", "batch", "record_type", "trace", CORRUPT)
    assert_same(vector_rows(tmp_path, columns), scalar_rows(tmp_path, columns))


def test_record_batches_stay_as_they_are_when_more_is_read(tmp_path: Path) -> None:
    """The next window is read into the memory of the one before."""
    write_file(tmp_path, [encoded_traces(count, f"batch {number}") for number, count in enumerate(LENGTHS)])
    (piece,) = plan("journal", list_files(tmp_path), None)
    batches = list(read(piece, window_bytes=1500))
    assert len(batches) > 4
    assert_same([row for batch in batches for row in batch.to_pylist()], scalar_rows(tmp_path, batches[0].schema.names))


def test_no_more_is_read_than_the_piece_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(tmp_path, [encoded_traces(count) for count in LENGTHS])
    pieces = plan("journal", list_files(tmp_path), 1000)
    asked: list[tuple[int, int]] = []

    def recorded(descriptor: int, into: list[memoryview], offset: int) -> int:
        asked.append((offset, offset + len(into[0])))
        return preadv(descriptor, into, offset)

    preadv = os.preadv
    monkeypatch.setattr("pybroker.store.columns.chunks.os.preadv", recorded)
    for piece in pieces[:-1]:
        assert sum(len(each) for each in chunks(piece) if isinstance(each, Chunk))
    assert len(pieces) > 3
    assert [end for _, end in asked] == [piece.end for piece in pieces[:-1] for _ in range(2)]
