"""Times at which records were written, from their data file: acknowledgements and commits carry no time.

The best available source counts, and `time_source` names it:

| source    | from                                                     | error                                        |
|-----------|----------------------------------------------------------|----------------------------------------------|
| broker_in | the message's own time of arrival                        | none                                         |
| mark      | the last time mark before it in its file (`journal.marks`) | a second at most                           |
| estimate  | the arrival of the last message before it in its file    | unknown: it was written then, or later       |

Nothing is carried from one data file to the next, so each file can be read alone. A compacted file begins with
acknowledgements copied from an older one: their time is unknown, and so is their `time_source`.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pybroker import regular
from pybroker.store.columns.chunks import Chunk, Longs, chunks
from pybroker.store.columns.files import Hop, Piece
from pybroker.store.columns.rows import arrival_of
from pybroker.store.journal.commands import decode
from pybroker.store.journal.format import BATCH_HEADER, BATCH_HEADER_BYTES, RECORD_HEADER, RECORD_HEADER_BYTES
from pybroker.store.journal.malformed import MalformedRecord
from pybroker.store.journal.marks import MARK_BYTES, mark_at
from pybroker.store.journal.reader import Buffer, verify

SOURCES: Final = ("broker_in", "mark", "estimate")
_NOTHING: Final = len(SOURCES)


@dataclass(slots=True)
class Timeline:
    """The latest times known at a place in a data file, in milliseconds since the epoch; 0 for none.

    Attributes:
        mark: of the last time mark.
        arrival: of the last message that says when it arrived.
    """

    mark: int = 0
    arrival: int = 0

    def at(self, arrival: int | None, mark: int | None) -> tuple[int, str] | None:
        """Move past a record; return when it was written and how that is known.

        Args:
            arrival: when the message in the record arrived, if it says so.
            mark: what the record says, if it is a time mark.
        """
        if mark is not None:
            self.mark = mark
        if arrival is not None:
            self.arrival = arrival
            return arrival, "broker_in"
        if self.mark:
            return self.mark, "mark"
        return (self.arrival, "estimate") if self.arrival else None

    def along(self, arrivals: Longs, marks: Longs) -> tuple[Longs, Longs]:
        """Pass many records; return their times and the indices of their sources in `SOURCES` (past the end: none).

        Args:
            arrivals: per record, when its message arrived; 0 if unknown.
            marks: per record, what it says if it is a time mark, otherwise 0.
        """
        last_mark, last_arrival = _latest(marks, self.mark), _latest(arrivals, self.arrival)
        has_arrived, has_mark = arrivals > 0, last_mark > 0
        times = np.where(has_arrived, arrivals, np.where(has_mark, last_mark, last_arrival))
        others = np.where(has_mark, 1, np.where(last_arrival > 0, 2, _NOTHING))
        if len(times):
            self.mark, self.arrival = int(last_mark[-1]), int(last_arrival[-1])
        return times, np.where(has_arrived, 0, others)


def _latest(values: Longs, before: int) -> Longs:
    """Return, per place, the last value above 0 up to there."""
    index = np.maximum.accumulate(np.where(values > 0, np.arange(len(values)), -1))
    return np.where(index >= 0, values[index], before)


def before(piece: Piece) -> Timeline:
    """Return the times known at a piece's beginning.

    Raises:
        FileNotFoundError: the file is gone.
        StoreUnavailable: it cannot be read.
    """
    return Timeline() if piece.start == 0 else _back(piece) or _from_the_start(piece)


def _back(piece: Piece) -> Timeline | None:
    """Look for the last mark, or else for the last arrival, going back from the piece; None when there is damage."""
    with open(piece.path, "rb", buffering=0, opener=regular.opener) as file:
        descriptor = file.fileno()
        hop, offsets, marked = Hop(descriptor, 0, piece.start), list[int](), list[int]()
        for offset in hop:
            offsets.append(offset)
            first = offset - hop.base + BATCH_HEADER_BYTES
            data = hop.data[first : first + MARK_BYTES]
            if len(data) < MARK_BYTES:
                data = os.pread(descriptor, MARK_BYTES, offset + BATCH_HEADER_BYTES)
            if mark_at(data, 0) is not None:
                marked.append(offset)
        if hop.reached != piece.start:
            return None
        for batch in _sound(descriptor, marked):
            return Timeline(mark=mark_at(batch, BATCH_HEADER_BYTES) or 0)
        for batch in _sound(descriptor, offsets):
            arrival = _last_arrival(batch, _records(batch))
            if arrival is not None:
                return Timeline(arrival=arrival)
    return Timeline()


def _from_the_start(piece: Piece) -> Timeline:
    """Walk through all that comes before the piece, over any damage."""
    timeline = Timeline()
    for chunk in chunks(piece._replace(start=0, end=piece.start)):
        if isinstance(chunk, Chunk):
            marks = (mark_at(chunk.data, first) for first in chunk.first.tolist())
            timeline.mark = next(filter(None, reversed(list(marks))), timeline.mark)
            spans = list(zip(chunk.records.tolist(), chunk.ends.tolist(), strict=True))
            timeline.arrival = _last_arrival(chunk.data, spans) or timeline.arrival
    return timeline


def _sound(descriptor: int, offsets: Sequence[int]) -> Iterator[bytes]:
    """Yield the batches at these offsets that are sound, the last one first."""
    for offset in reversed(offsets):
        length: int = BATCH_HEADER.unpack(os.pread(descriptor, BATCH_HEADER_BYTES, offset))[1]
        batch = os.pread(descriptor, BATCH_HEADER_BYTES + length, offset)
        if not isinstance(verify(batch, 0), str):
            yield batch


def _records(batch: bytes) -> list[tuple[int, int]]:
    """Return where the records of a sound batch begin and end."""
    spans: list[tuple[int, int]] = []
    offset = BATCH_HEADER_BYTES
    while offset < len(batch):
        size: int = RECORD_HEADER.unpack_from(batch, offset)[0]
        spans.append((offset, offset + size))
        offset += size
    return spans


def _last_arrival(data: Buffer, spans: Sequence[tuple[int, int]]) -> int | None:
    for begin, end in reversed(spans):
        try:
            arrival = arrival_of(decode(data[begin + RECORD_HEADER_BYTES : end]))
        except MalformedRecord:
            continue
        if arrival is not None:
            return arrival
    return None
