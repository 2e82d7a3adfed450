"""The memory of large frames of which only a part has come: a share of `memory_limit` for all connections.

A frame of `UNRESERVED_BYTES` needs no reservation. A larger one needs its announced length, from one of two halves:
that of frames of at most `USUAL_BYTES`, or that of larger ones. Of the frames that wait, the address with the fewest
reserved bytes is served next, and of its frames the oldest one. So however many connections of one machine begin frames
and do not end them, a frame of another machine waits until one of them is given up, and no longer.
A connection without a reservation is not read on, so that what it sends waits in the sockets:

```text
                     fits into the share, or no other frame proceeds
 update --> WAITING ------------------------------------------------> GRANTED --> complete: released
              |  not read on                                             |  read on
              |                                                          +-- too slow, while others wait: closed
              +-- the waiting parts exceed the share: the newest of the address with most of them is closed
```

The bytes of both kinds are counted in the broker's memory, by the callbacks, but never more than the share. One frame
proceeds at a time whatever its length, so a frame up to `frame_max` passes under every `memory_limit`.

A peer that announces a large frame and then sends too little of it would keep others from sending theirs. So while
others wait, a peer that has a reservation and is read has to send `PROGRESS_BYTES` in each `PROGRESS_SECONDS`. One that
is not read because it leaves its own output unread is closed likewise: it would hold its reservation for ever.
"""

from collections.abc import Callable
from typing import Final, Protocol

from pybroker.broker.domain.addresses import host_of
from pybroker.broker.domain.errors import ResourceLimit

UNRESERVED_BYTES: Final = 32 << 10
"""The part of a frame that needs no reservation: 32 MB in 1,000 connections."""

USUAL_BYTES: Final = 1 << 20
"""The length up to which frames have a half of the memory for themselves."""

PROGRESS_SECONDS: Final = 10.0
PROGRESS_BYTES: Final = 1 << 20
"""The bytes that a peer has to send of a large frame while others wait: 1 MB in 10 s, which a line of 1 Mbit/s does."""


class FrameHolder(Protocol):
    """A connection, as far as the memory of its frames is concerned."""

    @property
    def peer(self) -> str:
        """The other end: its address, a colon and its port."""
        ...

    @property
    def reading_since(self) -> float | None:
        """The time since which the peer is read without a break; None while it is not read."""
        ...

    @property
    def leaves_unread(self) -> bool:
        """True while the peer is not read because it leaves its output unread."""
        ...

    def pause_reading(self) -> None:
        """Stop reading until every pause is taken back."""
        ...

    def resume_reading(self) -> None:
        """End one pause."""
        ...

    def give_up(self, error: ResourceLimit) -> None:
        """Close the connection with an error."""
        ...


class _Frame:
    """An unfinished frame.

    Attributes:
        address: the address of its peer.
        size: bytes reserved, or asked for.
        received: bytes that have come.
        counted: bytes that are counted in the broker's memory.
        is_granted: the connection is read on.
        judged_at: the beginning of the period in which its progress is measured; None before the first.
        judged_received: bytes that had come at that time.
        judged_unread: the peer was not read at that time, because it left its output unread.
    """

    __slots__ = (
        "address",
        "counted",
        "is_granted",
        "judged_at",
        "judged_received",
        "judged_unread",
        "received",
        "size",
    )

    def __init__(self, address: str) -> None:
        self.address = address
        self.size = 0
        self.received = 0
        self.counted = 0
        self.is_granted = False
        self.judged_at: float | None = None
        self.judged_received = 0
        self.judged_unread = False


class FrameMemory:
    """The memory for the unfinished frames of all connections: one half is for those of at most `USUAL_BYTES`.

    So the frames of usual messages never wait for one of 100 MB that comes over a slow line.
    """

    def __init__(
        self,
        bytes_max: int = 0,
        *,
        acquire: Callable[[int], None] | None = None,
        release: Callable[[int], None] | None = None,
        time: Callable[[], float] | None = None,
        call_later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        """Create it without reservations; the arguments are those of `FrameShare`, for both halves together."""
        self._usual, self._large = (
            FrameShare(bytes_max // 2, acquire=acquire, release=release, time=time, call_later=call_later)
            for _ in range(2)
        )

    @property
    def reserved_bytes(self) -> int:
        """The bytes of frames that proceed."""
        return self._usual.reserved_bytes + self._large.reserved_bytes

    @property
    def waiting_count(self) -> int:
        """The number of connections that wait for a reservation."""
        return self._usual.waiting_count + self._large.waiting_count

    def update(self, holder: FrameHolder, size: int, received: int) -> None:
        """Record the state of a connection's unfinished frame; see `FrameShare.update`."""
        if size <= USUAL_BYTES:
            self._usual.update(holder, size, received)
        else:
            self._usual.end(holder)  # a frame without announced length may have grown
            self._large.update(holder, size, received)

    def end(self, holder: FrameHolder) -> None:
        """Release the reservation of a connection whose frame is complete, or that is gone."""
        self._usual.end(holder)
        self._large.end(holder)


class FrameShare:
    """Reservations for unfinished frames: addresses take turns, and each is served first come, first served."""

    def __init__(
        self,
        bytes_max: int = 0,
        *,
        acquire: Callable[[int], None] | None = None,
        release: Callable[[int], None] | None = None,
        time: Callable[[], float] | None = None,
        call_later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        """Create it without reservations.

        Args:
            bytes_max: the share; 0 for no limit.
            acquire: counts bytes in the broker's memory.
            release: subtracts them.
            time: monotonic seconds.
            call_later: calls back after so many seconds; None: no peer is closed for being slow.
        """
        self.bytes_max = bytes_max
        self._acquire = acquire
        self._release = release
        self._time = time
        self._call_later = call_later
        self._frames: dict[FrameHolder, _Frame] = {}
        self._waiting: dict[str, dict[FrameHolder, _Frame]] = {}
        """By address; one that was served is the last."""
        self._waiting_count = 0
        self._granted: dict[str, int] = {}
        """The bytes of the frames that proceed, by address."""
        self._granted_bytes = 0
        self._waiting_bytes = 0
        self._is_timed = False

    @property
    def reserved_bytes(self) -> int:
        """The bytes of frames that proceed."""
        return self._granted_bytes

    @property
    def waiting_count(self) -> int:
        """The number of connections that wait for a reservation."""
        return self._waiting_count

    def update(self, holder: FrameHolder, size: int, received: int) -> None:
        """Record the state of a connection's unfinished frame.

        Args:
            holder: the connection; not read on from now until there is memory for the frame.
            size: bytes that the frame takes when it is complete; it may grow.
            received: bytes that have come.
        """
        if not self.bytes_max:
            return
        frame = self._frames.get(holder)
        if frame is None:
            frame = self._frames[holder] = _Frame(host_of(holder.peer))
        frame.received = received
        if frame.is_granted and size <= frame.size:
            return
        has_grown = frame.is_granted
        if has_grown:
            self._withdraw(frame)
        else:
            self._waiting_bytes -= frame.counted
        frame.size = size
        if (has_grown or not self._waiting) and self._fits(size):
            self._grant(frame)
            return
        self._wait(holder, frame, is_first=has_grown)
        self._serve()
        if not frame.is_granted and self._waiting_bytes > self.bytes_max:
            self._give_up_newest()
        self._arm_timer()

    def end(self, holder: FrameHolder) -> None:
        """Release the reservation of a connection whose frame is complete, or that is gone."""
        frame = self._frames.pop(holder, None)
        if frame is None:
            return
        if frame.is_granted:
            self._withdraw(frame)
        else:
            self._leave(holder, frame)
            holder.resume_reading()
        self._count(frame, 0)
        self._serve()

    def _wait(self, holder: FrameHolder, frame: _Frame, *, is_first: bool) -> None:
        """Let a frame wait; one that has grown comes first, because if all grew in turn none would be complete."""
        size = max(frame.counted, frame.received)
        self._waiting_bytes += size
        self._count(frame, size)
        queue = self._waiting.setdefault(frame.address, {})
        if holder not in queue:
            self._waiting_count += 1
            if is_first:
                self._waiting[frame.address] = {holder: frame, **queue}
            else:
                queue[holder] = frame
            holder.pause_reading()

    def _leave(self, holder: FrameHolder, frame: _Frame) -> None:
        """Remove a frame from those that wait."""
        queue = self._waiting[frame.address]
        del queue[holder]
        if not queue:
            del self._waiting[frame.address]
        self._waiting_count -= 1
        self._waiting_bytes -= frame.counted

    def _give_up_newest(self) -> None:
        """Close the newest connection of the address whose waiting parts are most."""
        queue = max(self._waiting.values(), key=lambda frames: sum([frame.counted for frame in frames.values()]))
        next(reversed(queue)).give_up(
            ResourceLimit(
                f"Unfinished large frames that wait for memory take {self._waiting_bytes} bytes, at most "
                f"{self.bytes_max} are allowed: send later, or raise memory_limit"
            )
        )

    def _fits(self, size: int) -> bool:
        """Return True if a frame of this size may proceed."""
        return not self._granted_bytes or self._granted_bytes + size <= self.bytes_max

    def _grant(self, frame: _Frame) -> None:
        frame.is_granted = True
        frame.judged_at = None
        self._granted_bytes += frame.size
        self._granted[frame.address] = self._granted.get(frame.address, 0) + frame.size
        # One frame that is larger than the share proceeds too. Counted in full it could fill the memory, and make
        # producers wait that it has nothing to do with.
        self._count(frame, min(frame.size, self.bytes_max))

    def _withdraw(self, frame: _Frame) -> None:
        """Take back a reservation."""
        frame.is_granted = False
        self._granted_bytes -= frame.size
        self._granted[frame.address] -= frame.size
        if not self._granted[frame.address]:
            del self._granted[frame.address]

    def _count(self, frame: _Frame, size: int) -> None:
        """Count a frame with so many bytes."""
        more, frame.counted = size - frame.counted, size
        if more > 0 and self._acquire is not None:
            self._acquire(more)
        elif more < 0 and self._release is not None:
            self._release(-more)

    def _serve(self) -> None:
        """Grant reservations to one address after the other, and to each in the order of its requests."""
        granted = self._granted
        while self._waiting:
            address = min(self._waiting, key=lambda each: granted.get(each, 0))
            holder, frame = next(iter(self._waiting[address].items()))
            if not self._fits(frame.size):
                return
            self._leave(holder, frame)
            if address in self._waiting:
                self._waiting[address] = self._waiting.pop(address)
            self._grant(frame)
            holder.resume_reading()

    # ------------------------------------------------------------ progress

    def _arm_timer(self) -> None:
        if self._waiting and not self._is_timed and self._call_later is not None:
            self._is_timed = True
            for frame in self._frames.values():
                frame.judged_at = None
            self._judge()
            self._call_later(PROGRESS_SECONDS, self._on_timer)

    def _on_timer(self) -> None:
        self._is_timed = False
        if self._waiting:
            self._judge()
        if self._waiting and self._call_later is not None:
            self._is_timed = True
            self._call_later(PROGRESS_SECONDS, self._on_timer)

    def _judge(self) -> None:
        """Close the connections that were read for a whole period, or not by their own fault, and sent too little."""
        assert self._time is not None, "a timer has a clock"
        now = self._time()
        for holder, frame in list(self._frames.items()):
            if not frame.is_granted:
                continue
            since, begun = holder.reading_since, frame.judged_at
            leaves_unread = holder.leaves_unread
            is_whole = begun is not None and (
                since <= begun if since is not None else leaves_unread and frame.judged_unread
            )
            if is_whole and frame.received - frame.judged_received < PROGRESS_BYTES:
                holder.give_up(
                    ResourceLimit(
                        f"{frame.received} of {frame.size} bytes of a frame came, too slowly while the large frames of "
                        f"other connections wait: at least {PROGRESS_BYTES} bytes in {PROGRESS_SECONDS:g} seconds"
                    )
                )
            else:
                frame.judged_at, frame.judged_received = now, frame.received
                frame.judged_unread = leaves_unread
