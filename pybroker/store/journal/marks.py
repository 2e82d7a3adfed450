"""Time marks: trace records with the time of writing, for readers of the journal.

KahaDB records no time for an acknowledgement or for the end of a transaction. So at most once a second the broker
begins a batch with a trace record of the current time; ActiveMQ ignores trace records.

```text
batch control record | mark | record, record, ...         <- the first batch of a second
batch control record | record, ...
batch control record | record, record, record, ...
...
batch control record | mark | record, ...                 <- some later second, or a new data file

a mark, 36 bytes in all
+----------+------+---------+--------+--------------+----------------------------------+
| size: 36 | type | command | length | text's field | pybroker time 1700000000000      |
| i32      | u8 1 | u8 0    | 29     | 0A, 27       | milliseconds since the epoch, 13 |
+----------+------+---------+--------+--------------+----------------------------------+
```

* The time of a record is that of the last mark before it, and never more than a second later, as long as no one sets
  the clock. When the clock is set back, the marks go back too.
* A mark is the first record of its batch, also in a file that was compacted. A reader that goes from one batch control
  record to the next finds all of them: `mark_at`.
* A new data file begins with one, unless its first record fills a whole batch, so a file can be read by itself. That
  may make it more than one a second where a file fills in less.
* It causes no write and no sync: without records there are no marks. It has no effect on the store's contents, keeps no
  data file, and no recovery depends on it.
"""

import re
from mmap import mmap

from pybroker.broker.domain.ports import Clock
from pybroker.store.journal.commands import Trace, encode
from pybroker.store.journal.format import RECORD_HEADER_BYTES, encode_record

MARK = "pybroker time "
"""Begins the trace record's text."""
INTERVAL_MS = 1000
"""Seconds between two marks, the greatest error of a time. At 36 bytes each they take 3 MB a day."""

_DIGITS = 13
_TIME_MAX = 10**_DIGITS - 1
"""The year 2286."""


def encode_mark(time_ms: int) -> bytes:
    """Return the whole user record of a mark; a time out of range is clamped."""
    return encode_record(encode(Trace(f"{MARK}{min(max(time_ms, 0), _TIME_MAX):0{_DIGITS}}")))


MARK_BYTES = len(encode_mark(0))
"""Of every mark."""
_HEAD = encode_mark(0)[: MARK_BYTES - _DIGITS]
_TEXT = re.compile(re.escape(MARK) + rf"([0-9]{{{_DIGITS}}})", re.ASCII)


class TimeMarks:
    """Decides which batches begin with a mark.

    Args:
        clock: milliseconds since the epoch.
    """

    __slots__ = ("_clock", "_due_at", "_file_id", "_marked_at")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._file_id = 0
        self._marked_at = 0
        self._due_at = 0

    def begin(self, file_id: int) -> bytes:
        """Return the mark that a new batch in this data file is to begin with, as a record; empty when none is due."""
        now = self._clock()
        if file_id == self._file_id and self._marked_at <= now < self._due_at:
            return b""
        self._file_id = file_id
        self._marked_at = now
        self._due_at = now + INTERVAL_MS
        return encode_mark(now)


def decode_mark(text: str | None) -> int | None:
    """Return the time in a trace record, in milliseconds since the epoch; None if it is no time mark."""
    match = None if text is None else _TEXT.fullmatch(text)
    return None if match is None else int(match[1])


def mark_at(data: bytes | mmap, offset: int) -> int | None:
    """Return the time of the mark that is the record at an offset, None when another record is there.

    Args:
        data: bytes of a data file.
        offset: where a record begins: of a batch's records, only the first can be a mark.
    """
    if data[offset : offset + len(_HEAD)] != _HEAD:
        return None
    begin = offset + RECORD_HEADER_BYTES + 4
    return decode_mark(data[begin : offset + MARK_BYTES].decode("ascii", "replace"))
