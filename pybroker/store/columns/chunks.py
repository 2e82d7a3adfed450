"""Walks through a piece of a data file window by window, and finds where its records are: many at a time.

A chunk is a run of sound batches in memory, with the offsets of all records in it. What `journal.reader` calls sound is
sound here: the usual case is decided by few instructions per batch and a vectorised walk over the records of all
batches at once; as soon as anything is unusual, the reader's own walk goes on from there, to the end of the file.

```text
batches   |c r r r r |c r |c r r r |         c: control record, r: user record
step 1       ^          ^    ^               one record of every batch per step: its size leads to the next
step 2         ^               ^
step 3           ^               ^
```

Files are read, not mapped: an error then is an exception, where a mapping kills the process, and a worker's memory is
bounded by the window whatever the size of the file. (A batch that is longer than a window is read whole.)
"""

import os
import zlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from struct import Struct
from typing import Final

import numpy as np
import numpy.typing as npt

from pybroker.store.columns.files import Piece
from pybroker.store.journal.format import (
    BATCH_HEADER,
    BATCH_HEADER_BYTES,
    BATCH_MAGIC,
    EOF_MARKER,
    RECORD_HEADER_BYTES,
    USER_RECORD,
)
from pybroker.store.journal.reader import Buffer, Damage, DataFileWalk, load, unavailable

WINDOW_BYTES: Final = 8 * 1024 * 1024
"""Read at a time: more than a batch has as a rule, and some ten thousand records."""
PADDING: Final = 512
"""Bytes behind a chunk's batches, so that fixed-width fields can be looked at before it is known whether they fit."""
FEW_LANES: Final = 64
"""With fewer batches than this left, a step costs more than it saves."""

Longs = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
_SIZE: Final = Struct(">i")
"""With which a record's header begins; its type follows."""


@dataclass(slots=True, eq=False)
class Chunk:
    """Sound batches that follow one another.

    Attributes:
        data: bytes of the file; at least `PADDING` more than the batches have.
        base: where in the file they begin.
        first: per batch, where in `data` its first record begins.
        last: per batch, where in `data` its last record ends.
        records: per record, where in `data` it begins; ascending.
        ends: per record, where it ends.
        batch_of: per record, the index of its batch.
    """

    data: bytes
    base: int
    first: Longs
    last: Longs
    records: Longs
    ends: Longs
    batch_of: Longs

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.records)


def chunks(piece: Piece, window_bytes: int = WINDOW_BYTES) -> Iterator[Chunk | Damage]:
    """Yield what is in a piece, in its order.

    Damage at the end of a file that may be written to is left out: such a batch may be in the making, or was when its
    broker died, and nobody was told that it is safe.

    Raises:
        FileNotFoundError: the file is gone.
        StoreUnavailable: it cannot be read.
    """
    path = Path(piece.path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            resume = yield from _usual(descriptor, piece, window_bytes)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unavailable(path, error) from error
    if resume is not None:
        yield from _careful(path, piece, resume, window_bytes)


# ---------------------------------------------------------------- the usual case


class _Stop(Enum):
    """Why a run of sound batches ended."""

    LIMIT = "the next batch is another piece's"
    MARKER = "an EOF marker"
    WINDOW = "the next batch is not whole in the window"
    ODD = "something else is there"


def _usual(descriptor: int, piece: Piece, window_bytes: int) -> Generator[Chunk, None, int | None]:
    """Yield chunks as long as all is sound; return where the careful walk has to go on, or None at the end."""
    position, wanted = piece.start, window_bytes
    while True:
        data = os.pread(descriptor, wanted, position)
        spans, stop = _sound_run(data, len(data) if piece.end is None else piece.end - position)
        if spans:
            chunk = _located(data, position, spans)
            if len(chunk):
                yield chunk
                position += int(chunk.last[-1])
            if len(chunk.first) < len(spans):
                return position
        if stop in (_Stop.LIMIT, _Stop.MARKER) or not data:
            return None
        if stop is _Stop.ODD:
            return position
        if not spans:
            needed = _batch_bytes(data)
            if needed <= wanted or position + needed > os.fstat(descriptor).st_size:
                return position
            wanted = needed
        else:
            wanted = window_bytes


def _sound_run(data: bytes, limit: int) -> tuple[list[tuple[int, int]], _Stop]:
    """Return where each sound batch's records begin and end, from the start of `data` on, and why there are no more.

    Whether the records fit their batch is not looked at.
    """
    spans: list[tuple[int, int]] = []
    unpack, adler32, view, size = BATCH_HEADER.unpack_from, zlib.adler32, memoryview(data), len(data)
    offset = 0
    while offset < limit:
        first = offset + BATCH_HEADER_BYTES
        if first > size:
            marker = data.startswith(EOF_MARKER, offset)
            return spans, _Stop.MARKER if marker else _Stop.WINDOW
        magic, length, checksum = unpack(data, offset)
        if magic != BATCH_MAGIC or length <= 0:
            return spans, _Stop.MARKER if magic.startswith(EOF_MARKER) else _Stop.ODD
        end = first + length
        if end > size:
            return spans, _Stop.WINDOW
        if checksum > 0 and adler32(view[first:end]) != checksum:
            return spans, _Stop.ODD
        spans.append((first, end))
        offset = end
    return spans, _Stop.LIMIT if offset < size or limit < size else _Stop.WINDOW


def _batch_bytes(data: bytes) -> int:
    if len(data) < BATCH_HEADER_BYTES:
        return 0
    length: int = BATCH_HEADER.unpack_from(data)[1]
    return BATCH_HEADER_BYTES + length


# ---------------------------------------------------------------- records


def _located(data: bytes, base: int, spans: Sequence[tuple[int, int]]) -> Chunk:
    """Return a chunk of these batches, up to the first one whose records do not fit it."""
    bounds = np.array(spans, np.int64)
    first, last = bounds[:, 0].copy(), bounds[:, 1].copy()
    if len(data) - spans[-1][1] < PADDING:
        data += bytes(PADDING)
    steps, tails, misfits = _walk(data, first, last)
    if misfits:
        count = min(misfits)
        first, last = first[:count], last[:count]
        steps, tails, _ = _walk(data, first, last)
    counts = np.zeros(len(first), np.int64)
    for lanes, _ in steps:
        counts[lanes] += 1
    counts[tails.lanes] += tails.counts
    begins = np.cumsum(counts) - counts
    records = np.empty(int(counts.sum()), np.int64)
    for step, (lanes, offsets) in enumerate(steps):
        records[begins[lanes] + step] = offsets
    before = np.cumsum(tails.counts) - tails.counts
    records[np.arange(len(tails.offsets)) + np.repeat(begins[tails.lanes] + len(steps) - before, tails.counts)] = (
        tails.offsets
    )
    ends = np.empty_like(records)
    ends[:-1] = records[1:]
    ends[begins + counts - 1] = last
    return Chunk(data, base, first, last, records, ends, np.repeat(np.arange(len(first)), counts))


Steps = list[tuple[Longs, Longs]]


@dataclass(slots=True, eq=False)
class _Tails:
    """The rest of some batches: which, how many records each has left, and the offsets of these, batch by batch."""

    lanes: Longs
    counts: Longs
    offsets: Longs


def _walk(data: bytes, first: Longs, last: Longs) -> tuple[Steps, _Tails, set[int]]:
    """Walk through the records of all batches at once.

    Returns:
        Per step, which batches still had a record and where; what was left when only few batches were; batches whose
        records do not fit.
    """
    kinds = np.frombuffer(data, np.uint8)
    sizes = np.ndarray((len(data) - 3,), ">i4", data, 0, (1,))
    steps: Steps = []
    misfits: set[int] = set()
    lanes, offsets = np.arange(len(first)), first
    while len(lanes) >= FEW_LANES:
        size = sizes[offsets]
        following, limit = offsets + size, last[lanes]
        fits = (size >= RECORD_HEADER_BYTES) & (kinds[offsets + _SIZE.size] == USER_RECORD) & (following <= limit)
        if not fits.all():
            misfits.update(lanes[~fits].tolist())
            lanes, offsets, following, limit = lanes[fits], offsets[fits], following[fits], limit[fits]
        steps.append((lanes, offsets))
        more = following < limit
        lanes, offsets = lanes[more], following[more]
    tails = _walk_one_by_one(data, lanes, offsets, last[lanes])
    owners = np.repeat(tails.lanes, tails.counts)
    misfits.update(set(lanes.tolist()) - set(tails.lanes.tolist()))
    misfits.update(owners[kinds[tails.offsets + _SIZE.size] != USER_RECORD].tolist())
    return steps, tails, misfits


def _walk_one_by_one(data: bytes, lanes: Longs, begins: Longs, ends: Longs) -> _Tails:
    """Return where the records of some batches begin; those whose records do not fit are left out."""
    unpack = _SIZE.unpack_from
    found: list[int] = []
    append = found.append
    fitting: list[tuple[int, int]] = []
    for lane, begin, end in zip(lanes.tolist(), begins.tolist(), ends.tolist(), strict=True):
        offset, before = begin, len(found)
        while offset < end:
            append(offset)
            (size,) = unpack(data, offset)
            if size < RECORD_HEADER_BYTES:
                break
            offset += size
        if offset == end:
            fitting.append((lane, len(found) - before))
        else:
            del found[before:]
    table = np.array(fitting, np.int64).reshape(-1, 2)
    return _Tails(table[:, 0], table[:, 1], np.array(found, np.int64))


# ---------------------------------------------------------------- whatever else


def _careful(path: Path, piece: Piece, start: int, window_bytes: int) -> Iterator[Chunk | Damage]:
    """Yield what is left of a piece, as the reader's own walk finds it."""
    data = load(path)
    walk = DataFileWalk(data, piece.file_id, start=start)
    run: list[tuple[int, int]] = []
    told = 0
    for first, last in walk.batches():
        damages, told = walk.damages[told:], len(walk.damages)
        beyond = piece.end is not None and first - BATCH_HEADER_BYTES >= piece.end
        if run and (damages or beyond or last - run[0][0] > window_bytes):
            yield _run_of(data, run)
            run = []
        yield from _ours(piece, damages)
        if beyond:
            return
        run.append((first, last))
    if run:
        yield _run_of(data, run)
    yield from _ours(piece, walk.damages[told:])


def _ours(piece: Piece, damages: Sequence[Damage]) -> Iterator[Damage]:
    for damage in damages:
        if (piece.end is None or damage.offset < piece.end) and not (damage.at_end and piece.growing):
            yield damage


def _run_of(data: Buffer, run: Sequence[tuple[int, int]]) -> Chunk:
    base = run[0][0] - BATCH_HEADER_BYTES
    return _located(data[base : run[-1][1]], base, [(first - base, last - base) for first, last in run])
