"""Reads bodies in a thread of its own, ahead of who asks, so that the event loop never waits for a database for long.

```text
event loop   read 1..200              read 201..400        read 401..600
             | waits, 200 ms at most  | is there           | is there
thread       `-> 1..200, 201..400     `-> 401..600         `-> 601..800
```

A queue is read page by page, by age. So with each page the next one is asked for: messages of the same destination with
the ids that follow. What does not come in time is read all the same and kept for the next time; meanwhile nobody waits
for anything, and once it is there `on_readable` says so. A database that is away is tried again until it is back.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import NamedTuple

from pybroker.broker.domain.errors import NotReadYet, StoreUnavailable
from pybroker.store.jdbc.postgres import Connection, DatabaseAway

READ_SECONDS = 0.2
"""How long the event loop waits for a page."""
AHEAD_BYTES_MAX = 8 << 20
"""Of bodies that nobody has asked for yet."""
AHEAD_REACH = 4
"""Ids are given over all destinations: so many times a page of them are looked through for the next page."""
RETRY_SECONDS = 0.2

MESSAGES = "SELECT id, msg FROM activemq_msgs WHERE id = ANY(%s)"
_AHEAD = (
    "SELECT id, msg FROM activemq_msgs WHERE id > %s AND id <= %s AND container = %s AND xid IS NULL"
    " ORDER BY id LIMIT %s"
)

logger = logging.getLogger(__name__)


class _Order(NamedTuple):
    """What to read: these ids, then so many messages of a container behind an id."""

    sequences: list[int]
    container: str = ""
    after: int = 0
    ahead: int = 0


class BodyReader:
    """Bodies by sequence id. Its thread begins with the first question.

    Args:
        connect: opens a connection.
        post: runs a callback on the event loop.
        on_readable: called there once what was not read in time is there.
        bodies: SQL that returns them, with their ids, for a list of ids.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        post: Callable[[Callable[[], None]], object],
        on_readable: Callable[[], None],
        bodies: str = MESSAGES,
    ) -> None:
        self._connect = connect
        self._post = post
        self._on_readable = on_readable
        self._sql = bodies
        self._connection: Connection | None = None
        self._inbox: SimpleQueue[_Order | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()
        self._changed = threading.Condition()
        # What follows is looked at with `_changed` held.
        self._bodies: dict[int, bytes] = {}
        self._byte_count = 0
        self._under_way: set[int] = set()
        self._asked: set[int] = set()
        self._ends: dict[str, int] = {}
        self._is_looking_ahead = False
        self._is_missed = False
        self._error: StoreUnavailable | None = None

    def read(self, sequences: list[int], container: str = "", *, seconds: float = READ_SECONDS) -> dict[int, bytes]:
        """Return bodies; those that are not in the table are left out.

        Args:
            sequences: which, at least one.
            container: the destination, if more of it is likely to be wanted.
            seconds: how long to wait.

        Raises:
            NotReadYet: they have not come in time: ask again.
            StoreUnavailable: they cannot be read.
        """
        with self._changed:
            missing = {each for each in sequences if each not in self._bodies}
            if new := missing - self._under_way:
                self._under_way |= new
                self._send(_Order(sorted(new)))
            if container and not self._is_looking_ahead and self._byte_count < AHEAD_BYTES_MAX:
                self._look_ahead(container, max(sequences), len(sequences))
            self._asked = set(sequences)
            try:
                self._wait_for(missing, 0.0 if self._is_missed else seconds)
            finally:
                self._asked = set()
            found = {each: self._bodies.pop(each) for each in sequences if each in self._bodies}
            self._byte_count -= sum(map(len, found.values()))
            return found

    def close(self, seconds: float) -> None:
        """End the thread, whatever it waits for; wait for its end for so long. Harmless when repeated."""
        self._ending.set()
        self._inbox.put(None)
        connection = self._connection
        if connection is not None:
            connection.interrupt()
        if self._thread is not None:
            self._thread.join(seconds)

    def _send(self, order: _Order) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="database-reader", daemon=True)
            self._thread.start()
        self._inbox.put(order)

    def _look_ahead(self, container: str, last: int, count: int) -> None:
        """Order the next page, behind the one that was ordered last if that is near."""
        end = self._ends.get(container, 0)
        after = end if last < end <= last + 2 * AHEAD_REACH * count else last
        self._is_looking_ahead = True
        self._send(_Order([], container, after, count))

    def _wait_for(self, missing: set[int], seconds: float) -> None:
        if not self._changed.wait_for(lambda: self._error is not None or not missing & self._under_way, seconds):
            self._is_missed = True
            raise NotReadYet("the database has not answered yet")
        if self._error is not None and missing:
            error, self._error = self._error, None
            raise error

    # ------------------------------------------------------------ the thread's side

    def _run(self) -> None:
        try:
            while (order := self._inbox.get()) is not None and not self._ending.is_set():
                try:
                    self._done(order, self._patiently(order), None)
                except StoreUnavailable as error:
                    self._done(order, [], error)
                except Exception as error:  # a bug; who asked must not wait for ever
                    logger.exception("reading failed unexpectedly")
                    self._done(order, [], StoreUnavailable(f"messages cannot be read: {error!r}"))
        finally:
            if self._connection is not None:
                self._connection.close()

    def _patiently(self, order: _Order) -> Sequence[tuple[int, bytes]]:
        """Read, and while the database is away, try again: nothing is at stake in reading twice."""
        is_told = False
        while True:
            try:
                return self._rows(order)
            except DatabaseAway as error:
                if self._ending.is_set():
                    raise
                if is_told:
                    self._ending.wait(RETRY_SECONDS)
                else:
                    logger.warning("messages cannot be read, trying again: %s", error)
                    is_told = True

    def _rows(self, order: _Order) -> Sequence[tuple[int, bytes]]:
        if self._connection is None or self._connection.is_closed:
            self._connection = self._connect()
        if order.sequences:
            return self._connection.rows(self._sql, (order.sequences,))
        reach = order.after + AHEAD_REACH * order.ahead
        return self._connection.rows(_AHEAD, (order.after, reach, order.container, order.ahead))

    def _done(self, order: _Order, rows: Sequence[tuple[int, bytes]], error: StoreUnavailable | None) -> None:
        with self._changed:
            if order.container:
                self._is_looking_ahead = False
                is_whole = len(rows) == order.ahead
                self._ends[order.container] = rows[-1][0] if is_whole else order.after + AHEAD_REACH * order.ahead
            else:
                self._error = error
                self._under_way.difference_update(order.sequences)
            for sequence, body in rows:
                if sequence not in self._bodies:
                    self._bodies[sequence] = bytes(body)
                    self._byte_count += len(body)
            self._make_room({sequence for sequence, _ in rows} | self._asked)
            is_awaited = self._is_missed and not self._under_way
            self._is_missed = self._is_missed and not is_awaited
            self._changed.notify_all()
        if is_awaited and not self._ending.is_set():
            self._post(self._on_readable)

    def _make_room(self, keep: set[int]) -> None:
        """Let go of what was read longest ago, but for what somebody waits for: it would seem not to be there."""
        for sequence in list(self._bodies) if self._byte_count > AHEAD_BYTES_MAX else ():
            if self._byte_count > AHEAD_BYTES_MAX and sequence not in keep:
                self._byte_count -= len(self._bodies.pop(sequence))
