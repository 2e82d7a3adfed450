"""Fair queueing of input: limits for what one connection, and all of them together, use of a turn of the event loop.

A connection with little input is processed as it is read. One that has used its slice stops reading, and its other
frames wait here with its virtual time advanced by what it used; so does a chunk that comes when the turn's time is
used up. At the end of each turn, those with the lowest virtual time are processed for a slice each:

```text
socket --chunk--> session -------------------------------> all frames carried out
                     |  slice or turn over: reading pauses      ^
                     +--> heap by virtual start --slice-- end of a turn
                              ^                    |
                              +--- frames left ----+
```

This is start-time fair queueing (Goyal, Vin, Cheng 1996): a slice starts at the later of the queue's virtual time and
the connection's finish, and the queue's virtual time is the start of the slice in service. So a connection that did
little overtakes those that did much, and saves no claim up while it does nothing.

Among hundreds of connections that flood, a fair share is too little for a client that sends one message and waits
for its answer: it would wait for a slice of each. So slices are shorter where many wait, and a sparse connection, one
whose input never had to wait for a second slice, begins at the queue's virtual time once in each turn, whatever it used
before (as the new flows of FQ-CoDel, RFC 8290). What sparse connections use is limited by `DIRECT_SECONDS`.

The clock is read for the first chunk of a turn, and not for a few small ones after it (`UNMEASURED_BYTES`): reading it
for each would cost 1 % of a message. Where a frame took more than usual (`EFFORT`), it is read after that frame, and
for all other chunks of the turn.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, Protocol

from pybroker.broker.domain.effort import EFFORT

SLICE_SECONDS: Final = 0.001
"""The time after which a connection's other frames wait: a hundred messages, so that the queue costs little."""

SLICE_SECONDS_MIN: Final = 0.0001
"""The shortest slice: some ten messages, so that the queue costs a few percent."""

ROUND_SECONDS: Final = 0.05
"""The time in which all that wait should have a slice: if it is too short for slices of `SLICE_SECONDS`, they are
shorter."""

SPARSE_SECONDS: Final = 0.002
"""The time that a sparse connection uses at most: two slices, as a page fault or a garbage collection may meet it."""

DIRECT_SECONDS: Final = 0.005
"""The limit to the time for input that is processed as it is read, in each turn of the event loop."""

QUEUED_SECONDS: Final = 0.005
"""The limit to the time for input that waits here, in each turn. It has a share of its own, because many connections
with little input would starve those with much."""

UNMEASURED_BYTES: Final = 32 << 10
"""The input of all connections that is processed in a turn before the clock is read."""

CHUNK_BYTES: Final = 1 << 10
"""The credit that each chunk takes in addition to its bytes: at most 32 chunks are unmeasured."""

FRAMES_PER_CLOCK: Final = 8
"""The number of frames, all usual ones, for which a session asks `is_slice_over` once."""


class InputOwner(Protocol):
    """A connection, as far as its waiting input is concerned.

    Attributes:
        peer: the other end, for logs.
        virtual_finish: the virtual time at which its last slice ended.
        is_sparse: its input was all processed within the slice in which it came.
        served_turn: the number of the turn of its last slice.
    """

    peer: str

    virtual_finish: float

    is_sparse: bool

    served_turn: int

    def proceed(self) -> bool:
        """Process one slice of the input that waits; return True if it has to wait for another one."""
        ...

    def drop_input(self) -> None:
        """Drop the input that waits."""
        ...


class FairQueue:
    """The waiting input of all connections of a server.

    Attributes:
        credit: the input that may still be processed in this turn without a look at the clock, see `CHUNK_BYTES`; 0
            before the turn's first input.
        is_closed: True once all input is dropped that waits or would have to.
        is_measuring: True while a slice has a beginning, and needs an `end`.
        begun_at: monotonic seconds at which this turn's first input came; 0 if none has.
        longest_seconds: the longest slice of this turn.
        longest_owner: the connection that had it.
    """

    __slots__ = (
        "_entries",
        "_finish_max",
        "_monotonic",
        "_number",
        "_pause",
        "_schedule",
        "_slice_began_at",
        "_slice_ends_at",
        "_slice_seconds",
        "_turn",
        "_turn_ends_at",
        "_virtual",
        "begun_at",
        "credit",
        "is_closed",
        "is_measuring",
        "longest_owner",
        "longest_seconds",
    )

    def __init__(
        self,
        monotonic: Callable[[], float],
        schedule: Callable[[], None],
        pause: Callable[[float], float] = lambda now: now,
    ) -> None:
        """Begin with an empty queue.

        Args:
            monotonic: seconds, exact within a turn.
            schedule: requests that `run` is called at the end of this turn.
            pause: called with the time after each slice of waiting input; returns the time.
        """
        self.credit: int = 0
        self.is_measuring = False
        self.begun_at = 0.0
        self.longest_seconds = 0.0
        self.longest_owner: InputOwner | None = None
        self._monotonic = monotonic
        self._schedule = schedule
        self._pause = pause
        self._entries: list[tuple[float, int, InputOwner]] = []
        self._number = 0
        self._virtual = 0.0
        self._finish_max = 0.0
        self._slice_began_at = 0.0
        self._slice_seconds = SLICE_SECONDS
        self._turn = 0
        self._slice_ends_at = 0.0
        self._turn_ends_at = 0.0
        self.is_closed = False

    def __len__(self) -> int:
        return len(self._entries)

    def begin(self, owner: InputOwner) -> bool:
        """Begin a slice for input that was just read; False if it has to wait.

        It waits if the turn's time is used up, or if the connection has used more than others that wait: one that
        waits, or may be read many times in one turn, used at most a slice. What a sparse connection used in earlier
        turns does not count.
        """
        now = self._monotonic()
        self._begin_turn(now)
        if owner.is_sparse and owner.served_turn != self._turn and owner.virtual_finish > self._virtual:
            owner.virtual_finish = self._virtual
        if now >= self._turn_ends_at:
            self.credit = 0
            return False
        if owner.virtual_finish > self._virtual and (
            self._entries or owner.virtual_finish >= self._virtual + self._slice_seconds
        ):
            return False
        self._begin_slice(now)
        return True

    def is_slice_over(self) -> bool:
        """Return True if the connection in service should let others go first. The first question begins its slice."""
        now = self._monotonic()
        if EFFORT.is_large:
            EFFORT.is_large = False
            self.credit = 0
        if self.is_measuring:
            return now >= self._slice_ends_at
        self._begin_turn(now)
        self._begin_slice(now)
        return False

    def measure_all(self) -> None:
        """Have all other chunks of this turn ask `begin`: one that was not measured took more than usual."""
        EFFORT.is_large = False
        self.credit = 0

    def end(self, owner: InputOwner, *, is_left: bool = False) -> None:
        """End the slice of a connection, and advance its virtual time by what it used; `is_left`: input waits."""
        now = self._charge(owner)
        owner.is_sparse = not is_left and now - self._slice_began_at <= SPARSE_SECONDS
        if now >= self._turn_ends_at or EFFORT.is_large:
            EFFORT.is_large = False
            self.credit = 0  # whatever comes in this turn asks `begin`

    def add(self, owner: InputOwner) -> None:
        """Append a connection: `proceed` is called when those with a lower virtual time have had their slices."""
        if self.is_closed:
            owner.drop_input()
            return
        self._number += 1
        heappush(self._entries, (max(self._virtual, owner.virtual_finish), self._number, owner))
        self._schedule()

    def run(self) -> bool:
        """Process waiting input at the end of a turn, up to the limit; return True if some still waits."""
        self.credit = 0
        self.begun_at = 0.0
        entries = self._entries
        if entries:
            self._slice_seconds = max(SLICE_SECONDS_MIN, min(ROUND_SECONDS / len(entries), SLICE_SECONDS))
            now = self._monotonic()
            stop = now + QUEUED_SECONDS
            while entries and now < stop:
                start, _, owner = heappop(entries)
                self._virtual = max(self._virtual, start)
                self._begin_slice(now)
                is_left = owner.proceed()
                now = self._charge(owner)
                if is_left:
                    owner.is_sparse = False
                    self.add(owner)
                now = self._pause(now)
        if not entries:
            self._virtual = max(self._virtual, self._finish_max)
            self._slice_seconds = SLICE_SECONDS
        return bool(entries)

    def close(self) -> None:
        """Drop all that waits and will wait: the server stops, and what was not processed counts as not read."""
        self.is_closed = True
        entries, self._entries = self._entries, []
        for _, _, owner in entries:
            owner.drop_input()

    def _begin_turn(self, now: float) -> None:
        if not self.begun_at:
            self.begun_at = EFFORT.turn_at = now
            self._turn += 1
            self._turn_ends_at = now + DIRECT_SECONDS
            self.credit = UNMEASURED_BYTES
            self._schedule()

    def _begin_slice(self, now: float) -> None:
        self.is_measuring = True
        self._slice_began_at = now
        self._slice_ends_at = now + self._slice_seconds

    def _charge(self, owner: InputOwner) -> float:
        now = self._monotonic()
        self.is_measuring = False
        owner.served_turn = self._turn
        used = now - self._slice_began_at
        if used > self.longest_seconds:
            self.longest_seconds = used
            self.longest_owner = owner
        # At most a slice ahead: what took long was one frame, or an interruption by the machine, and among hundreds of
        # connections each slice ahead is a wait of a round.
        finish = min(max(self._virtual, owner.virtual_finish) + used, self._virtual + self._slice_seconds)
        owner.virtual_finish = finish
        if finish > self._finish_max:
            self._finish_max = finish
        return now
