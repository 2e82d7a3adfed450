"""The spool: files for messages that no store keeps, so that a long backlog of non-persistent messages leaves memory.

```text
  segment 1 (32 MB)                segment 2                      segment 3 (the current one)
  [ record record record ... ]     [ record ... ]                 [ record record            ]
  0                                ^ start                        ^ start       ^ end: where the next record goes

  record
  +----------+--------+-------+-----------------------------+
  | place    | length | flags | message                     |
  | u64 BE   | u32 BE | u8    | `length` bytes, OpenWire v11|      flags: 1 = persistent
  +----------+--------+-------+-----------------------------+
```

The place of a message is the sum of all bytes ever written before its record: places are never used twice. A segment is
a file without a name (`O_TMPFILE`, or unlinked once it is open). So nothing is left after a crash, and no other process
sees it. A segment is closed, which frees its space, once none of its messages is needed any more; so one message keeps
up to 32 MB of disk occupied.

Places are assigned on the event loop, which does not wait: one thread opens, writes and closes the files. Callers keep
the messages in memory until they are written. They are read back on the loop, as the messages of a journal are.

If the disk or the limit is full, or a write fails, messages stay in memory, and their producers wait at its limit. The
beginning is logged, and so is the end. After a failed write the next attempt comes after `RETRY_SECONDS`.

The spool promises nothing about crashes. It never syncs. But it has the system begin to write to the disk after each
`WRITE_BACK_BYTES`. Left to itself, Linux keeps some gigabytes and then writes them at once: in this time the journal's
syncs on the same disk took 130 to 190 ms, where they take one.

Source: ActiveMQ 5.17, `PListStore` and `tempUsage`.
"""

import errno
import logging
import os
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from struct import Struct
from typing import Final

from pybroker.broker.domain.errors import MalformedData, StoreUnavailable
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.routing import routing
from pybroker.store.runtime import Callback, Inbox, Schedule, Worker

SEGMENT_BYTES: Final = 32 << 20
"""Length at which a segment is full, as of a journal's data file. A longer message has a segment of its own."""

RETRY_SECONDS: Final = 10.0
"""Delay of the next attempt after a failed write."""

LOG_SECONDS: Final = 30.0
"""Least time between the log lines of the beginning of a shortage and of its end."""

READ_AHEAD_BYTES: Final = 256 << 10
"""Bytes read at once: a page of short messages lies together, and needs few calls of the system."""

WRITE_BACK_BYTES: Final = 1 << 20
"""Bytes of a segment that gather before the system is to write them to the disk."""

_BUFFERS_MAX: Final = 512
"""Buffers of one system call, below Linux's limit (`IOV_MAX`, 1024)."""

_UNNEEDED: Final = getattr(os, "POSIX_FADV_DONTNEED", None)

_HEADER: Final = Struct(">QIB")
_HEADER_BYTES: Final = _HEADER.size
_PERSISTENT: Final = 1

_log = logging.getLogger(__name__)


class _Segment:
    """One file of the spool.

    Attributes:
        start: the place of its first byte.
        length: bytes assigned so far.
        live: number of its messages that are needed, or are being written.
        descriptor: the open file; -1 before its first write.
        written_back: its first bytes that the system was to write to the disk.
    """

    __slots__ = ("descriptor", "length", "live", "start", "written_back")

    def __init__(self, start: int) -> None:
        self.start = start
        self.length = 0
        self.live = 0
        self.descriptor = -1
        self.written_back = 0

    def write_back(self, end: int) -> None:
        """Have the system begin to write to the disk what is before an offset, if it has become much."""
        count = end - self.written_back
        if count >= WRITE_BACK_BYTES and _UNNEEDED is not None:
            with suppress(OSError):  # advice, which a file system may not take
                os.posix_fadvise(self.descriptor, self.written_back, count, _UNNEEDED)
            self.written_back = end

    def close(self) -> None:
        """Close the file, which frees its space. Blocks."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        with suppress(OSError):  # a spool that was dropped without `close`
            self.close()


class FileSpool:
    """Spools messages to files of one directory; implements `MessageSpool`.

    Args:
        directory: where the files are; it must exist when the first message is written.
        bytes_max: limit of the space that the files take.
        reserve_bytes: free space of the disk that is left to others.
        submit: runs a callback in the spool's thread, one after the other.
        post: runs a callback on the event loop, from that thread.
        monotonic: seconds.
        when_closed: called at the end of `close`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        bytes_max: int,
        reserve_bytes: int,
        submit: Callable[[Callback], None],
        post: Schedule,
        monotonic: Callable[[], float],
        when_closed: Callback | None = None,
    ) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self.unwritten_bytes = 0
        self._waiting: list[Callback] = []
        """Callbacks for the end of the next write."""
        self._is_short = False
        self._refused_bytes = 0
        self._directory = directory
        self._reserve_bytes = reserve_bytes
        self._submit = submit
        self._post = post
        self._monotonic = monotonic
        self._when_closed = when_closed
        self._segments: list[_Segment] = []
        self._starts: list[int] = []
        self._end = 0
        self._retry_at = 0.0
        self._is_logged = False
        self._log_at = 0.0
        self._is_closed = False
        self._window = b""
        self._window_start = 0

    @property
    def is_full(self) -> bool:
        """True after a failed write, and while there is no space for the messages refused at its limit."""
        refused = self._refused_bytes
        return self._is_short and (not refused or self.used_bytes + refused > self.bytes_max)

    # ------------------------------------------------------------ writing

    def write(self, messages: Sequence[Message], when_written: Callable[[Sequence[int]], None]) -> bool:
        """Write messages in the thread; see `MessageSpool`."""
        size = sum([len(message.data) for message in messages]) + _HEADER_BYTES * len(messages)
        if self._is_closed or self._monotonic() < self._retry_at:
            return False
        if self.used_bytes + size > self.bytes_max:
            self._refused_bytes = size
            self._record_shortage(
                f"it has reached its limit, {self.bytes_max} bytes", "consume the messages, or raise spool_limit"
            )
            return False
        segment = self._segment_for(size)
        place = segment.start + segment.length
        places: list[int] = []
        for message in messages:
            places.append(place)
            place += _HEADER_BYTES + len(message.data)
        segment.length += size
        segment.live += len(messages)
        self.used_bytes += size
        self.unwritten_bytes += size
        self._end = place
        self._submit(partial(self._perform, segment, messages, places, partial(self._end_write, size, when_written)))
        return True

    def when_written(self, callback: Callback) -> None:
        """Call back once after the next callback of a `write`, of which one must be outstanding."""
        self._waiting.append(callback)

    def _end_write(self, size: int, when_written: Callable[[Sequence[int]], None], places: Sequence[int]) -> None:
        """Call those back who wait for a write."""
        self.unwritten_bytes -= size
        when_written(places)
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()

    def _segment_for(self, size: int) -> _Segment:
        """Return the current segment, or a new one if it is full, or was freed: its places must not be used again."""
        if self._segments:
            last = self._segments[-1]
            if last.start + last.length == self._end and last.length + size <= SEGMENT_BYTES:
                return last
        segment = _Segment(self._end)
        self._segments.append(segment)
        self._starts.append(self._end)
        return segment

    def _perform(
        self,
        segment: _Segment,
        messages: Sequence[Message],
        places: Sequence[int],
        when_written: Callable[[Sequence[int]], None],
    ) -> None:
        """Write messages, in the thread."""
        failure: OSError | None = None
        try:
            if segment.descriptor < 0:
                segment.descriptor = _open(self._directory)
            self._check_space(messages)
            for begin in range(0, len(messages), _BUFFERS_MAX // 2):
                part = slice(begin, begin + _BUFFERS_MAX // 2)
                buffers, offset = _records(messages[part], places[part]), places[begin] - segment.start
                _write(segment.descriptor, buffers, offset)
                segment.write_back(offset + sum(map(len, buffers)))
        except OSError as error:
            failure = error
        self._post(partial(self._written, segment, places, when_written, failure))

    def _check_space(self, messages: Sequence[Message]) -> None:
        """Check that the disk keeps its reserve.

        Raises:
            OSError: `ENOSPC`, if it does not.
        """
        state = os.statvfs(self._directory)
        wanted = sum([len(message.data) for message in messages])
        if state.f_bavail * state.f_frsize < self._reserve_bytes + wanted:
            raise OSError(errno.ENOSPC, f"no more than the reserve of {self._reserve_bytes} bytes is free")

    def _written(
        self,
        segment: _Segment,
        places: Sequence[int],
        when_written: Callable[[Sequence[int]], None],
        failure: OSError | None,
    ) -> None:
        """Pass the places on, or report the failure, on the event loop."""
        if self._is_closed:
            return
        if failure is None:
            self._record_space()
            when_written(places)
            return
        self._retry_at = self._monotonic() + RETRY_SECONDS
        self._refused_bytes = 0
        self._record_shortage(
            f"it cannot be written ({failure.strerror or repr(failure)})",
            "free space on that disk, or choose another spool_directory",
        )
        for place in places:
            self.release(place)
        when_written(())

    def _record_space(self) -> None:
        self._is_short = False
        if self._is_logged and self._monotonic() >= self._log_at:
            self._is_logged = False
            _log.info("the spool in %s takes messages again", self._directory)

    def _record_shortage(self, cause: str, remedy: str) -> None:
        self._is_short = True
        if not self._is_logged:  # while it is at its limit it takes messages whenever others are consumed
            self._is_logged = True
            self._log_at = self._monotonic() + LOG_SECONDS
            _log.error(
                "the spool in %s takes no more messages: %s. Non-persistent messages stay in memory, and at its limit "
                "their producers wait: %s",
                self._directory,
                cause,
                remedy,
            )

    # ------------------------------------------------------------ reading

    def read_page(self, places: Sequence[int], bytes_max: int) -> Sequence[Message | None]:
        """Return messages from the first place on; see `MessageSpool`."""
        messages: list[Message | None] = []
        for place in places:
            try:
                message = self._read(place)
            except (OSError, MalformedData) as error:
                _log.error("a message of the spool in %s is lost: %s", self._directory, error)
                messages.append(None)
                continue
            messages.append(message)
            bytes_max -= len(message.data)
            if bytes_max <= 0:
                break
        if len(self._window) > READ_AHEAD_BYTES:
            self._window = b""
        return messages

    def _read(self, place: int) -> Message:
        """Return one message.

        Raises:
            OSError: the file cannot be read.
            MalformedData: there is no such message in it.
            StoreUnavailable: the spool is closed.
        """
        if self._is_closed:
            raise StoreUnavailable("the spool is closed")
        start = place - self._window_start
        if start < 0 or start + _HEADER_BYTES > len(self._window):
            start = self._load(place, _HEADER_BYTES)
        if start + _HEADER_BYTES > len(self._window):
            raise MalformedData(f"its file ends before place {place}")
        written_place, length, flags = _HEADER.unpack_from(self._window, start)
        if written_place != place:
            raise MalformedData(f"another record at place {place}")
        if start + _HEADER_BYTES + length > len(self._window):
            start = self._load(place, _HEADER_BYTES + length)
        data = self._window[start + _HEADER_BYTES : start + _HEADER_BYTES + length]
        if len(data) < length:
            raise MalformedData(f"its file ends in the record at place {place}")
        message = routing(data)
        message.persistent = bool(flags & _PERSISTENT)
        return message

    def _load(self, place: int, length: int) -> int:
        """Load a record, and what follows it in its segment, into the window; return its index there: 0."""
        segment = self._segment_of(place)
        self._window = os.pread(segment.descriptor, max(length, READ_AHEAD_BYTES), place - segment.start)
        self._window_start = place
        return 0

    # ------------------------------------------------------------ space

    def release(self, place: int) -> None:
        """Free a message; see `MessageSpool`."""
        if self._is_closed:
            return
        at = bisect_right(self._starts, place) - 1
        segment = self._segments[at]
        segment.live -= 1
        if not segment.live:
            del self._segments[at], self._starts[at]
            self.used_bytes -= segment.length
            self._submit(segment.close)

    def _segment_of(self, place: int) -> _Segment:
        return self._segments[bisect_right(self._starts, place) - 1]

    def close(self) -> None:
        """Free all space; callbacks for messages that are being written do not come any more."""
        if not self._is_closed:
            self._is_closed = True
            for segment in self._segments:
                self._submit(segment.close)
            self._window = b""
            self.used_bytes = 0
            if self._when_closed is not None:
                self._when_closed()


class SpoolThread:
    """Runs callbacks in a thread, one after the other; the thread is started by the first one.

    Args:
        spawn: starts a thread with a name.
        inbox: makes a queue with one reading thread.
    """

    def __init__(self, spawn: Callable[[str, Callback], Worker], inbox: Callable[[], Inbox]) -> None:
        self._spawn = spawn
        self._inbox = inbox()
        self._worker: Worker | None = None

    def submit(self, callback: Callback) -> None:
        """Run a callback after those submitted before."""
        self._inbox.put(callback)
        if self._worker is None:
            self._worker = self._spawn("spool", self._run)

    def end(self) -> None:
        """End the thread after the callbacks submitted before."""
        if self._worker is not None:
            self._inbox.put(None)

    def _run(self) -> None:
        while (callback := self._inbox.get()) is not None:
            try:
                callback()
            except Exception:  # a bug; the thread must go on, or every later message would wait for it
                _log.exception("a write of the spool failed unexpectedly")


def _records(messages: Sequence[Message], places: Sequence[int]) -> list[bytes]:
    """Return the buffers of records: a header and the message of each."""
    buffers: list[bytes] = []
    for message, place in zip(messages, places, strict=True):
        buffers.append(_HEADER.pack(place, len(message.data), _PERSISTENT if message.persistent else 0))
        buffers.append(message.data)
    return buffers


def _open(directory: Path) -> int:
    """Open a new file without a name."""
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        return os.open(directory, flags | os.O_TMPFILE, 0o600)
    except OSError as error:  # NFS, for one, has no such files
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT):
            raise
    descriptor, path = tempfile.mkstemp(prefix="pybroker-spool-", dir=directory)
    Path(path).unlink()
    return descriptor


def _write(descriptor: int, buffers: list[bytes], offset: int) -> None:
    """Write all buffers, one after the other, at an offset."""
    total = sum(map(len, buffers))
    written = os.pwritev(descriptor, buffers, offset)
    if written == total:
        return
    rest = memoryview(b"".join(buffers))
    while written < total:  # a short write: the disk is filling up, which the next call reports
        count = os.pwrite(descriptor, rest[written:], offset + written)
        if count == 0:
            raise OSError(errno.EIO, "the device takes no more bytes")
        written += count
