"""Reads pieces of data files as Arrow record batches; and the same row by row, as a reference.

| mode          | what is damaged, or does not decode                                                       |
|---------------|--------------------------------------------------------------------------------------------|
| PERMISSIVE    | is a row: where it is, how many bytes, and in `_corrupt_record` what is wrong with it      |
| DROPMALFORMED | is left out; the log says how much and where the first was                                 |
| FAILFAST      | is an error with path and offset                                                           |

A data file that is gone when its turn comes is treated alike. A torn batch at the end of a file that may be written to
is no damage: it may be one that is being written.
"""

import logging
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pybroker.broker.domain.errors import JournalCorrupt
from pybroker.store.columns.chunks import WINDOW_BYTES, Chunk, chunks
from pybroker.store.columns.files import Piece
from pybroker.store.columns.rows import MICROSECONDS, Row, arrival_of, row_of
from pybroker.store.columns.schema import CORRUPT, DEFAULT_COLUMNS, arrow_schema, layers
from pybroker.store.columns.selection import EVERYTHING, Selection
from pybroker.store.columns.timeline import Timeline, before
from pybroker.store.columns.vectors import POSITION_BITS, VectorDecoder
from pybroker.store.journal.commands import decode
from pybroker.store.journal.format import BATCH_HEADER_BYTES, RECORD_HEADER, RECORD_HEADER_BYTES
from pybroker.store.journal.malformed import MalformedRecord
from pybroker.store.journal.marks import mark_at
from pybroker.store.journal.reader import Damage, DataFileWalk, has_checksum, load

logger = logging.getLogger(__name__)

GONE: Final = "the data file is gone: its broker has collected it in the meantime"
_BAD_CHECKSUM: Final = "checksum does not fit"
"""The reader's reason for a batch with a wrong checksum."""


class Mode(Enum):
    """Treatments of damage, with Spark's names."""

    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"
    FAILFAST = "FAILFAST"


def read(
    piece: Piece,
    columns: Sequence[str] = DEFAULT_COLUMNS,
    selection: Selection = EVERYTHING,
    mode: Mode = Mode.PERMISSIVE,
    *,
    must_exist: bool = False,
    window_bytes: int = WINDOW_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Yield a piece's rows in record batches, in the journal's order; each has some thousand rows.

    Args:
        piece: what to read, see `files.plan`.
        columns: names of the columns wanted; what only others need is not decoded.
        selection: rows wanted.
        mode: what becomes of what is damaged.
        must_exist: a file that is gone is an error in any mode.
        window_bytes: read at a time.

    Raises:
        JournalCorrupt: there is damage, or the file is gone, and the mode is FAILFAST.
        FileNotFoundError: the file is gone, and must not be.
        StoreUnavailable: the file cannot be read.
    """
    strict = mode is not Mode.PERMISSIVE
    decoded = [*columns, *(name for name in ("offset", CORRUPT) if strict and name not in columns)]
    sift = _Sift(piece, mode)
    for batch in _batches(piece, decoded, selection, must_exist, window_bytes):
        kept = sift(batch) if strict else batch
        if kept.num_rows:
            yield kept.select(columns) if len(decoded) > len(columns) else kept
    sift.report()


def _batches(
    piece: Piece, columns: Sequence[str], selection: Selection, must_exist: bool, window_bytes: int
) -> Iterator[pa.RecordBatch]:
    try:
        timeline = before(piece) if {"time", "time_source"} & set(columns) else Timeline()
        decoder = VectorDecoder(piece, columns, timeline, selection)
        for found in chunks(piece, window_bytes):
            if isinstance(found, Chunk):
                yield from decoder.batches(found)
            else:
                yield from _one_row(damage_row(piece, found), columns, selection)
    except FileNotFoundError:
        if must_exist:
            raise
        yield from _one_row(damage_row(piece, Damage(piece.file_id, piece.start, 0, GONE)), columns, selection)


def _one_row(row: Row, columns: Sequence[str], selection: Selection) -> Iterator[pa.RecordBatch]:
    if selection.takes(row):
        yield pa.RecordBatch.from_pylist([row], schema=arrow_schema(tuple(columns)))


class _Sift:
    """Takes the rows out that do not decode, or raises for the first of them."""

    def __init__(self, piece: Piece, mode: Mode) -> None:
        self._piece = piece
        self._mode = mode
        self._dropped = 0
        self._first = ""

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        reasons = batch.column(CORRUPT)
        if reasons.null_count == batch.num_rows:
            return batch
        if self._mode is Mode.FAILFAST:
            raise self._error(batch)
        self._dropped += batch.num_rows - reasons.null_count
        self._first = self._first or str(next(filter(None, reasons.to_pylist())))
        return batch.filter(pc.is_null(reasons))

    def report(self) -> None:
        if self._dropped:
            logger.warning("%s: %d records left out; the first: %s", self._piece.path, self._dropped, self._first)

    def _error(self, batch: pa.RecordBatch) -> JournalCorrupt:
        first = batch.filter(pc.is_valid(batch.column(CORRUPT))).select(["offset", CORRUPT]).slice(0, 1)
        row = first.to_pylist()[0]
        return JournalCorrupt(
            row[CORRUPT],
            path=self._piece.path,
            offset=row["offset"],
            hint="mode PERMISSIVE shows what is damaged, DROPMALFORMED leaves it out",
        )


def damage_row(piece: Piece, damage: Damage) -> Row:
    """Return the row that stands for bytes that cannot be used."""
    return {
        "directory": piece.directory,
        "file": piece.file_id,
        "offset": damage.offset,
        "position": (piece.file_id << POSITION_BITS) + damage.offset,
        "size": damage.length,
        "checksum": "bad" if _BAD_CHECKSUM in damage.reason else None,
        CORRUPT: damage.reason,
    }


# ---------------------------------------------------------------- the reference


def read_rows(
    piece: Piece, columns: Sequence[str] = DEFAULT_COLUMNS, selection: Selection = EVERYTHING
) -> Iterator[Row]:
    """Yield a piece's rows one by one, in plain sequential Python: what `read` has to agree with.

    Raises:
        FileNotFoundError: the file is gone.
        StoreUnavailable: it cannot be read.
    """
    wanted, names = layers(tuple(columns)), tuple(columns)
    dated = bool({"time", "time_source"} & set(columns))
    if not selection.is_everything:
        wanted |= layers(("record_type",))
    timeline = before(piece) if dated else Timeline()
    data = load(Path(piece.path))
    walk = DataFileWalk(data, piece.file_id, start=piece.start)
    reported = 0
    for first, last in walk.batches():
        yield from _damage_rows(piece, walk.damages[reported:], names, selection)
        reported = len(walk.damages)
        if piece.end is not None and first - BATCH_HEADER_BYTES >= piece.end:
            return
        checksum = "ok" if has_checksum(data, first) else "none"
        offset = first
        while offset < last:
            size: int = RECORD_HEADER.unpack_from(data, offset)[0]
            payload = bytes(data[offset + RECORD_HEADER_BYTES : offset + size])
            row = row_of(payload, wanted)
            row |= {
                "directory": piece.directory,
                "file": piece.file_id,
                "offset": offset,
                "position": (piece.file_id << POSITION_BITS) + offset,
                "batch": first - BATCH_HEADER_BYTES,
                "size": size,
                "checksum": checksum,
            }
            if dated:
                mark = mark_at(data, offset) if offset == first else None
                row |= _time(timeline.at(_arrival(payload), mark))
            if selection.takes(row):
                yield {name: row.get(name) for name in names}
            offset += size
    yield from _damage_rows(piece, walk.damages[reported:], names, selection)


def _time(written: tuple[int, str] | None) -> Row:
    return {} if written is None else {"time": written[0] * MICROSECONDS, "time_source": written[1]}


def _damage_rows(piece: Piece, damages: Sequence[Damage], names: Sequence[str], selection: Selection) -> Iterator[Row]:
    for damage in damages:
        row = damage_row(piece, damage)
        beyond = piece.end is not None and damage.offset >= piece.end
        if not beyond and not (damage.at_end and piece.growing) and selection.takes(row):
            yield {name: row.get(name) for name in names}


def _arrival(payload: bytes) -> int | None:
    try:
        return arrival_of(decode(payload))
    except MalformedRecord:
        return None
