"""Reads bodies ahead in a separate thread, so that the event loop never waits long for a database.

```text
event loop   read 1..200              read 201..400        read 401..600
             | waits, 200 ms at most  | is there           | is there
thread       `-> 1..200, 201..400     `-> 401..600         `-> 601..800
```

A queue is read page by page, by age. So each page requests the next one: messages of the same destination with the ids
that follow. Bodies that do not come in time are kept for the next time; no client waits for them, and `on_readable` is
called once they are there. A database that is away is tried again until it is back.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import NamedTuple

from pybroker.broker.domain.errors import DatabaseUnavailable, LockNotHeld, NotReadYet, StoreUnavailable
from pybroker.store.jdbc.limits import MESSAGE_BYTES_MAX
from pybroker.store.jdbc.postgres import STATEMENT_SECONDS, DatabaseConnection, statement_seconds
from pybroker.store.runtime import StoreRuntime, Worker

READ_SECONDS = 0.2
"""Longest wait of the event loop for a page."""
AHEAD_BYTES_MAX = 8 << 20
"""Limit on bodies read ahead."""
AHEAD_PAGES = 4
"""One read-ahead takes at most this fraction of it: 1/4."""
AHEAD_REACH = 4
"""Ids are given over all destinations: so many times a page of them are looked through for the next page."""
RETRY_SECONDS = 0.2
QUERY_SECONDS_MAX = statement_seconds(2 * MESSAGE_BYTES_MAX)
"""Deadline of one page: the time that the largest message takes as a hexadecimal text."""

READ_ALL = 2**62
"""More bytes than there can be."""


_BODIES = (
    "SELECT id, CASE WHEN before < %s THEN msg END FROM ("
    "SELECT id, msg, place, sum(octet_length(msg)) OVER (ORDER BY place) - octet_length(msg) AS before"
    " FROM unnest(%s::bigint[]) WITH ORDINALITY AS wanted (id, place) JOIN the_table USING (id)"
    ") AS sized ORDER BY place"
)


def bodies_of(table: str) -> str:
    """Return SQL that reads bodies by a list of ids and in its order, until they take so many bytes or more.

    The rows behind come without their body: a row that is missing is one that the table does not have.
    """
    return _BODIES.replace("the_table", table)


MESSAGES = bodies_of("activemq_msgs")
_AHEAD = (
    "SELECT id, CASE WHEN through <= %s THEN msg END FROM ("
    "SELECT id, msg, sum(octet_length(msg)) OVER (ORDER BY id) AS through FROM ("
    "SELECT id, msg FROM activemq_msgs WHERE id > %s AND id <= %s AND container = %s AND xid IS NULL"
    " ORDER BY id LIMIT %s"
    ") AS page) AS sized ORDER BY id"
)

logger = logging.getLogger(__name__)


class _Order(NamedTuple):
    """A read request: these ids, then a number of messages of a container behind an id, up to a number of bytes."""

    sequences: list[int]
    bytes_max: int
    container: str = ""
    after: int = 0
    ahead: int = 0


class JdbcBodyReader:
    """Bodies by sequence id. Its thread begins with the first question.

    Args:
        connect: opens a connection.
        runtime: the world around.
        on_readable: called there once what was not read in time is there.
        bodies: SQL that returns them, with their ids, for a list of ids.
    """

    def __init__(
        self,
        connect: Callable[[], DatabaseConnection],
        runtime: StoreRuntime,
        on_readable: Callable[[], None],
        bodies: str = MESSAGES,
    ) -> None:
        self._connect = connect
        self._runtime = runtime
        self._on_readable = on_readable
        self._sql = bodies
        self._connection: DatabaseConnection | None = None
        self._inbox: SimpleQueue[_Order | None] = SimpleQueue()
        self._thread: Worker | None = None
        self._ending = threading.Event()
        self._changed = threading.Condition()
        # The fields below are guarded by `_changed`.
        self._bodies: dict[int, bytes] = {}
        self._byte_count = 0
        self._absent: set[int] = set()
        """Ids that were looked for, and that the table does not have."""
        self._under_way: set[int] = set()
        self._asked: set[int] = set()
        self._ends: dict[str, int] = {}
        self._is_looking_ahead = False
        self._is_missed = False
        self._error: StoreUnavailable | None = None

    def read(self, sequences: list[int], container: str = "", *, seconds: float = READ_SECONDS) -> dict[int, bytes]:
        """Return all of these bodies; see `read_page`."""
        found, count = self.read_page(sequences, container, bytes_max=READ_ALL, seconds=seconds)
        while count < len(sequences):
            more, looked_at = self.read_page(sequences[count:], container, bytes_max=READ_ALL, seconds=seconds)
            found |= more
            count += looked_at
        return found

    def read_page(
        self, sequences: list[int], container: str = "", *, bytes_max: int, seconds: float = READ_SECONDS
    ) -> tuple[dict[int, bytes], int]:
        """Return bodies until they take so many bytes or more; those that are not in the table are left out.

        Args:
            sequences: which, at least one.
            container: the destination, if more of it is likely to be wanted.
            bytes_max: after how many bytes to stop.
            seconds: how long to wait.

        Returns:
            The bodies, and the number of ids examined.

        Raises:
            NotReadYet: they have not come in time: ask again.
            StoreUnavailable: they cannot be read.
        """
        with self._changed:
            self._asked = set(sequences)
            try:
                while not self._is_known(sequences[0]):
                    if new := [each for each in sequences if not self._is_known(each) and each not in self._under_way]:
                        self._under_way.update(new)
                        self._send(_Order(new, bytes_max))
                    self._wait_for(sequences[0], 0.0 if self._is_missed else seconds)
            finally:
                self._asked = set()
            found, count = self._taken(sequences, bytes_max)
            if container and not self._is_looking_ahead and self._byte_count < AHEAD_BYTES_MAX:
                self._look_ahead(container, max(sequences[:count]), count)
            return found, count

    def _is_known(self, sequence: int) -> bool:
        """Return True if a body is here, or is known not to be in the table."""
        return sequence in self._bodies or sequence in self._absent

    def _taken(self, sequences: list[int], bytes_max: int) -> tuple[dict[int, bytes], int]:
        """Return the bodies read of these ids, from the first on, up to that many bytes; and the number of ids."""
        found: dict[int, bytes] = {}
        count = 0
        for each in sequences:
            if not self._is_known(each) or bytes_max <= 0:
                break
            count += 1
            self._absent.discard(each)
            if (body := self._bodies.pop(each, None)) is not None:
                found[each] = body
                bytes_max -= len(body)
                self._byte_count -= len(body)
        return found, count

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
            self._thread = self._runtime.spawn("database-reader", self._run)
        self._inbox.put(order)

    def _look_ahead(self, container: str, last: int, count: int) -> None:
        """Order the next page, behind the one that was ordered last if that is near."""
        end = self._ends.get(container, 0)
        after = end if last < end <= last + 2 * AHEAD_REACH * count else last
        self._is_looking_ahead = True
        self._send(_Order([], AHEAD_BYTES_MAX // AHEAD_PAGES, container, after, count))

    def _wait_for(self, sequence: int, seconds: float) -> None:
        if not self._changed.wait_for(lambda: self._error is not None or sequence not in self._under_way, seconds):
            self._is_missed = True
            raise NotReadYet("the database has not answered yet")
        if self._error is not None:
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
                except LockNotHeld as error:  # the writer finds out as well, and ends the mastership
                    logger.error("messages cannot be read: %s", error)
                    self._done(order, [], StoreUnavailable(str(error)))
                except Exception as error:  # a bug; the caller must not wait for ever
                    logger.exception("reading failed unexpectedly")
                    self._done(order, [], StoreUnavailable(f"messages cannot be read: {error!r}"))
        finally:
            if self._connection is not None:
                self._connection.close()

    def _patiently(self, order: _Order) -> Sequence[tuple[int, bytes | None]]:
        """Read, and while the database is away, try again: nothing is at stake in reading twice.

        It may be a large message on a slow link that made it late, so each time there is more time.
        """
        is_told = False
        seconds = STATEMENT_SECONDS
        while True:
            try:
                return self._rows(order, seconds)
            except DatabaseUnavailable as error:
                if self._ending.is_set():
                    raise
                seconds = min(2 * seconds, QUERY_SECONDS_MAX)
                if is_told:
                    self._ending.wait(RETRY_SECONDS)
                else:
                    logger.warning("messages cannot be read, trying again: %s", error)
                    is_told = True

    def _rows(self, order: _Order, seconds: float) -> Sequence[tuple[int, bytes | None]]:
        if self._connection is None or self._connection.is_closed:
            self._connection = self._connect()
        if order.sequences:
            return self._connection.rows(self._sql, (order.bytes_max, order.sequences), seconds=seconds)
        reach = order.after + AHEAD_REACH * order.ahead
        values = (order.bytes_max, order.after, reach, order.container, order.ahead)
        return self._connection.rows(_AHEAD, values, seconds=seconds)

    def _done(self, order: _Order, found: Sequence[tuple[int, bytes | None]], error: StoreUnavailable | None) -> None:
        """Record the result of a request; a row without its body is behind the requested bytes."""
        rows = [(sequence, body) for sequence, body in found if body is not None]
        with self._changed:
            if order.container:
                self._is_looking_ahead = False
                is_whole = len(found) == order.ahead or len(rows) < len(found)
                last = rows[-1][0] if rows else order.after
                self._ends[order.container] = last if is_whole else order.after + AHEAD_REACH * order.ahead
            else:
                self._error = error
                self._under_way.difference_update(order.sequences)
                if error is None:
                    self._absent.update(set(order.sequences).difference([sequence for sequence, _ in found]))
            for sequence, body in rows:
                if sequence not in self._bodies:
                    self._bodies[sequence] = bytes(body)
                    self._byte_count += len(body)
            self._make_space({sequence for sequence, _ in rows} | self._asked)
            is_awaited = self._is_missed and not self._under_way
            self._is_missed = self._is_missed and not is_awaited
            self._changed.notify_all()
        if is_awaited and not self._ending.is_set():
            self._runtime.post(self._on_readable)

    def _make_space(self, keep: set[int]) -> None:
        """Drop the bodies read longest ago, except requested ones: they would seem to be missing."""
        for sequence in list(self._bodies) if self._byte_count > AHEAD_BYTES_MAX else ():
            if self._byte_count > AHEAD_BYTES_MAX and sequence not in keep:
                self._byte_count -= len(self._bodies.pop(sequence))
