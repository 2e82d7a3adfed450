"""Finds the records in a piece of a data file, window by window and many at a time.

A chunk is a run of sound batches in memory, with the offsets of all records in it. Sound batches are those of
`journal.reader`. The usual case costs few instructions per batch and a vectorised walk over the records of all batches
at once; at the first unusual batch the reader's walk takes over to the end of the file.

```text
batches   |c r r r r |c r |c r r r |         c: control record, r: user record
step 1       ^          ^    ^               one record of every batch per step: its size leads to the next
step 2         ^               ^
step 3           ^               ^
```

Files are read, not mapped: an error then is an exception, where a mapping kills the process, and a worker's memory is
bounded by the window whatever the size of the file. (A batch that is longer than a window is read whole.)
"""

import contextlib
import mmap
import os
import zlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from pybroker import regular
from pybroker.broker.domain.big_endian import UNSIGNED_INT
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
"""Bytes per read: more than most batches have, and some ten thousand records."""
PADDING: Final = 512
"""Bytes behind a chunk's batches, so that fixed-width fields can be read before it is known if they fit."""
FEW_LANES: Final = 24
"""The least number of batches for which a step saves more than it costs."""
STEPS_MAX: Final = 512
"""Records per batch that are read from all batches at once: few batches have more."""

Longs = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
_SIZE: Final = UNSIGNED_INT
"""The size with which a record's header begins; its type follows. A negative one counts as very large."""


@dataclass(slots=True, eq=False)
class Chunk:
    """Sound batches that follow one another.

    Attributes:
        data: bytes of the file; at least `PADDING` more than the batches have. They change when the next chunk is read.
        base: where in the file they begin.
        first: per batch, where in `data` its first record begins.
        last: per batch, where in `data` its last record ends.
        records: per record, where in `data` it begins; ascending.
        ends: per record, where it ends.
        batch_of: per record, the index of its batch.
    """

    data: Buffer
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

    Damage at the end of a file that may be written to is left out: such a batch may be incomplete, or was when its
    broker died, and was never acknowledged.

    Raises:
        FileNotFoundError: the file is gone.
        StoreUnavailable: it cannot be read.
    """
    path = Path(piece.path)
    try:
        descriptor = regular.descriptor(path)
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
    """Reasons for the end of a run of sound batches."""

    LIMIT = "the next batch is another piece's"
    MARKER = "an EOF marker"
    WINDOW = "the next batch is not whole in the window"
    ODD = "something else is there"


def _usual(descriptor: int, piece: Piece, window_bytes: int) -> Generator[Chunk, None, int | None]:
    """Yield chunks as long as all is sound; return where the reader's walk must continue, or None at the end."""
    position, needed = piece.start, 0
    data = _buffer(window_bytes)
    while True:
        left = window_bytes if piece.end is None else piece.end - position
        wanted = needed or min(window_bytes, left)
        if wanted + PADDING > len(data):
            data = _buffer(wanted)
        count = os.preadv(descriptor, [memoryview(data)[:wanted]], position)
        spans, stop = _sound_run(data, count, count if piece.end is None else left)
        if spans:
            chunk = _located(data, position, spans)
            if len(chunk):
                yield chunk
                position += int(chunk.last[-1])
            if len(chunk.first) < len(spans):
                return position
        if stop in (_Stop.LIMIT, _Stop.MARKER) or not count:
            return None
        if stop is _Stop.ODD:
            return position
        needed = 0
        if not spans:
            needed = _batch_bytes(data, count)
            if needed <= count or position + needed > os.fstat(descriptor).st_size:
                return position


def _buffer(size: int) -> mmap.mmap:
    """Return a reusable buffer: new memory for every window costs more than reading into it.

    It is aligned to a page, to which the system copies several times faster.
    """
    bytes(size)  # Freed at once: afterwards malloc keeps memory for the next array instead of returning it.
    space = mmap.mmap(-1, size + PADDING, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(AttributeError, OSError):  # large pages; without them it is only slower
        space.madvise(mmap.MADV_HUGEPAGE)
    return space


def _sound_run(data: Buffer, size: int, limit: int) -> tuple[list[tuple[int, int]], _Stop]:
    """Return the bounds of each sound batch's records from the start of `data` on, and the reason for the end.

    The records are not checked.

    Args:
        data: with the batches.
        size: how many of its bytes count.
        limit: a batch that begins here or behind is another piece's.
    """
    spans: list[tuple[int, int]] = []
    unpack, adler32, view = BATCH_HEADER.unpack_from, zlib.adler32, memoryview(data)
    offset = 0
    while offset < limit:
        first = offset + BATCH_HEADER_BYTES
        if first > size:
            marker = data[offset : min(offset + len(EOF_MARKER), size)] == EOF_MARKER
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


def _batch_bytes(data: Buffer, size: int) -> int:
    if size < BATCH_HEADER_BYTES:
        return 0
    length: int = BATCH_HEADER.unpack_from(data)[1]
    return BATCH_HEADER_BYTES + length


# ---------------------------------------------------------------- records


def _located(data: Buffer, base: int, spans: Sequence[tuple[int, int]]) -> Chunk:
    """Return a chunk of these batches, up to the first one whose records do not fit it."""
    bounds = np.array(spans, np.int64)
    first, last = bounds[:, 0].copy(), bounds[:, 1].copy()
    records = _walk(data, first, last)
    begins = np.searchsorted(records, first)
    final = np.append(begins[1:], len(records)) - 1
    batch_of = np.repeat(np.arange(len(first)), np.diff(begins, append=len(records)))
    ends = np.empty_like(records)
    ends[:-1] = records[1:]
    ends[final] = last
    # The walk followed the sizes, so only the last size of a batch may lead past its end.
    fits = (ends - records >= RECORD_HEADER_BYTES) & (
        np.frombuffer(data, np.uint8)[records + _SIZE.size] == USER_RECORD
    )
    fits[final] &= records[final] + _sizes(data)[records[final]] == last
    if not fits.all():
        batches = int(batch_of[np.argmin(fits)])
        count = int(begins[batches])
        first, last = first[:batches], last[:batches]
        records, ends, batch_of = records[:count], ends[:count], batch_of[:count]
    return Chunk(data, base, first, last, records, ends, batch_of)


def _sizes(data: Buffer) -> npt.NDArray[np.uint32]:
    """Return the record size that the bytes at each offset would be."""
    return np.ndarray((len(data) - _SIZE.size + 1,), ">u4", data, 0, (1,))


def _walk(data: Buffer, first: Longs, last: Longs) -> Longs:
    """Return where records begin, ascending, going by their sizes alone: in each batch at least one, the first.

    All batches take a step at once. The caller checks that the records fit their batch; then none is missing. A size of
    0 does not advance, so the number of steps has a limit.
    """
    sizes = _sizes(data)
    offsets, limits = first, last
    found: list[Longs] = []
    while len(offsets) >= FEW_LANES and len(found) < STEPS_MAX:
        found.append(offsets)
        offsets = offsets + sizes[offsets]
        more = offsets < limits
        offsets, limits = offsets[more], limits[more]
    found.append(_walk_one_by_one(data, offsets, limits))
    records = np.concatenate(found)
    records.sort()
    return records


def _walk_one_by_one(data: Buffer, begins: Longs, ends: Longs) -> Longs:
    """Return what `_walk` does, batch by batch."""
    unpack = _SIZE.unpack_from
    found: list[int] = []
    append = found.append
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        offset = begin
        while offset < end:
            append(offset)
            (size,) = unpack(data, offset)
            if not size:
                break
            offset += size
    return np.array(found, np.int64)


# ---------------------------------------------------------------- unusual batches


def _careful(path: Path, piece: Piece, start: int, window_bytes: int) -> Iterator[Chunk | Damage]:
    """Yield the rest of a piece, found by the reader's walk."""
    data = load(path)
    walk = DataFileWalk(data, piece.file_id, start=start)
    run: list[tuple[int, int]] = []
    reported = 0
    for first, last in walk.batches():
        damages, reported = walk.damages[reported:], len(walk.damages)
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
    yield from _ours(piece, walk.damages[reported:])


def _ours(piece: Piece, damages: Sequence[Damage]) -> Iterator[Damage]:
    for damage in damages:
        if (piece.end is None or damage.offset < piece.end) and not (damage.at_end and piece.growing):
            yield damage


def _run_of(data: Buffer, run: Sequence[tuple[int, int]]) -> Chunk:
    base = run[0][0] - BATCH_HEADER_BYTES
    return _located(
        data[base : run[-1][1]] + bytes(PADDING), base, [(first - base, last - base) for first, last in run]
    )
