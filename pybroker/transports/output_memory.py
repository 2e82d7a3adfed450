"""The memory of output that peers leave unread: a share of `memory_limit` for all connections.

A connection is in it from the moment its kernel takes no more until all its output has left. Its bytes are counted in
the broker's memory, by the callbacks. A large piece that several connections write, such as one message to many
subscribers, is in memory once and is counted once.

```text
 total <= share        nothing: a peer may leave `UNREAD_BYTES_MAX` unread
 share < total         peers that leave output unread are not read either, and a peer that takes none of it for
                       `STALLED_SECONDS` is closed
 2 * share < total     the same after `STALLED_SECONDS_MIN`
```

A peer that takes something is never closed, nor is the only one: one message may be larger than the share, and if its
reader were closed, the message would be delivered again until it is a dead letter.

Source: ActiveMQ's `AbortSlowConsumerStrategy` closes slow consumers too, and counts messages instead of memory.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol

_log = logging.getLogger(__name__)

STALLED_SECONDS: Final = 10
"""The time in which a peer has to take a part of its output while the share is exceeded."""

STALLED_SECONDS_MIN: Final = 2
"""The same above twice the share: a client that reads takes something even while it decodes a large message."""

LARGE_BYTES: Final = 64 << 10
"""The length from which a piece of output may be shared by connections; shorter ones are counted for each."""


class SlowReader(Protocol):
    """A connection whose peer leaves output unread."""

    @property
    def peer(self) -> str:
        """The other end, for logs."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """The bytes of output that the kernel has not taken."""
        ...

    def abort(self) -> None:
        """Close the connection without its output."""
        ...


class _Unread:
    """The unread output of one connection.

    Attributes:
        counted: bytes that belong to this connection alone.
        pieces: large pieces that other connections may write, too.
        judged: the unread bytes at the last look; -1: there was none yet.
        stalled_seconds: for how long nothing was taken, by these looks.
    """

    __slots__ = ("counted", "judged", "pieces", "stalled_seconds")

    def __init__(self) -> None:
        self.counted = 0
        self.pieces: list[bytes] = []
        self.judged = -1
        self.stalled_seconds = 0


class OutputMemory:
    """Counts what the peers of all connections leave unread, and closes the slowest of them above a limit."""

    def __init__(
        self,
        bytes_max: int = 0,
        *,
        acquire: Callable[[int], None] | None = None,
        release: Callable[[int], None] | None = None,
        call_later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        """Create it empty.

        Args:
            bytes_max: the share; 0 for no limit.
            acquire: counts bytes in the broker's memory.
            release: subtracts them.
            call_later: calls back after so many seconds; None: no peer is closed.
        """
        self.bytes_max = bytes_max
        self.total = 0
        """The bytes that are counted."""
        self._acquire = acquire
        self._release = release
        self._call_later = call_later
        self._unread: dict[SlowReader, _Unread] = {}
        self._shared: dict[int, int] = {}  # connections by the identity of a large piece, which one of them holds
        self._is_timed = False

    @property
    def is_full(self) -> bool:
        """True when the share is exceeded, and peers that leave output unread must not be read."""
        return self.bytes_max > 0 and self.total > self.bytes_max

    def update(self, reader: SlowReader, size: int, pieces: Iterable[bytes] = ()) -> None:
        """Record what a peer leaves unread.

        Args:
            reader: the connection.
            size: bytes of its output.
            pieces: large pieces among it that were not recorded before.
        """
        if not self.bytes_max:
            return
        unread = self._unread.get(reader)
        if unread is None:
            unread = self._unread[reader] = _Unread()
        added = 0
        for piece in pieces:
            unread.pieces.append(piece)
            holders = self._shared.get(id(piece), 0)
            self._shared[id(piece)] = holders + 1
            if not holders:
                added += len(piece)
        counted = max(0, size - sum(map(len, unread.pieces)))
        added += counted - unread.counted
        unread.counted = counted
        self._count(added)
        if self.is_full:
            self._arm()

    def end(self, reader: SlowReader) -> None:
        """Release what is counted for a connection: its output has left, or it is gone."""
        unread = self._unread.pop(reader, None)
        if unread is None:
            return
        released = unread.counted
        for piece in unread.pieces:
            holders = self._shared[id(piece)] - 1
            if holders:
                self._shared[id(piece)] = holders
            else:
                del self._shared[id(piece)]
                released += len(piece)
        self._count(-released)

    def _count(self, size: int) -> None:
        self.total += size
        if size > 0 and self._acquire is not None:
            self._acquire(size)
        elif size < 0 and self._release is not None:
            self._release(-size)

    # ------------------------------------------------------------ slow readers

    def _arm(self) -> None:
        if self._call_later is not None and not self._is_timed:
            self._is_timed = True
            self._call_later(1, self._judge)

    def _judge(self) -> None:
        """Close the connections whose peers have taken nothing for too long; called every second."""
        self._is_timed = False
        for reader, unread in list(self._unread.items()):
            before, unread.judged = unread.judged, reader.unsent_bytes
            if 0 <= before <= unread.judged:
                unread.stalled_seconds += 1
            else:
                unread.stalled_seconds = 0
        for reader, unread in sorted(self._unread.items(), key=_stalled_seconds, reverse=True):
            patience = STALLED_SECONDS if self.total <= 2 * self.bytes_max else STALLED_SECONDS_MIN
            if not self.is_full or unread.stalled_seconds < patience or len(self._unread) == 1:
                break
            self._close(reader)
        if self.is_full:
            self._arm()

    def _close(self, reader: SlowReader) -> None:
        _log.warning(
            "%s closed: it leaves %d bytes unread, and all such connections together %d of the %d that are allowed",
            reader.peer,
            reader.unsent_bytes,
            self.total,
            self.bytes_max,
        )
        self.end(reader)
        reader.abort()


def _stalled_seconds(item: tuple[SlowReader, _Unread]) -> int:
    return item[1].stalled_seconds
