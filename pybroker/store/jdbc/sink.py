"""The sink of a `GroupCommit` for a database: commits each batch as a transaction, on a separate connection.

A commit that fails because the database is away, or without an answer, is not the end: for a set grace the thread tries
again, while all clients wait. On a new connection it shuts out what it sent before (see `fence`), looks if that took
effect, and repeats it if not. The lock's fence is checked before each try, since a new master need not be one of ours.
After the grace, or another error, the writer stops. A full disk has no such bound: the batch waits until there is
space; until then `is_full` is True.

```text
              COMMIT fails
  WRITING ------------------> AWAY --- grace is over, other error ---> STOPPED
     ^                         | |
     |   was done, or repeated | | try: lock's fence, connect, shut out, look, repeat
     `-------------------------´ `-<-´
```
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from pybroker.broker.domain.errors import DatabaseUnavailable
from pybroker.store.group_commit import CommitPolicy
from pybroker.store.jdbc.fence import Fence
from pybroker.store.jdbc.postgres import Copy, DatabaseConnection, DatabaseFull, statement_seconds
from pybroker.store.runtime import StoreRuntime

RETRY_SECONDS = 0.1
"""Seconds between two attempts to commit."""
FULL_RETRY_SECONDS = 0.5
"""Seconds between two checks for space on a full disk."""

COMMIT_POLICY = CommitPolicy(noun="store", writer="database writer", gather_share=1.0, fences_in_thread=True)
"""A commit costs the server a sync, however many messages it has. So a batch waits for the producers that were just
answered, as long as the last commit took; where they do not come, the next batch waits for no more than came."""

logger = logging.getLogger(__name__)


class Batch(Protocol):
    """Changes that are committed together.

    Attributes:
        byte_count: how much that is.
        is_long: it may take the database as long as it takes.
    """

    byte_count: int
    is_long: bool


B = TypeVar("B", bound=Batch)


@dataclass(frozen=True)
class Tables(Generic[B]):
    """Translates batches to SQL.

    Attributes:
        render: turns a batch into messages to the server, the fence's check among them, see `statements`.
        is_done: returns True if a batch has taken effect already, or need not be known to have; see `statements`.
    """

    render: Callable[[DatabaseConnection, bytes, B], Sequence[bytes | Copy]]
    is_done: Callable[[DatabaseConnection, B], bool]


class DatabaseSink(Generic[B]):
    """Implements `Sink` on a database.

    Args:
        connection: for the thread alone from its beginning on.
        connect: opens another connection, within so many seconds if it can.
        fence: of this writer.
        tables: what batches are in SQL.
        runtime: clock, threads and the lock's fence, which is checked after each commit.
        grace: how long a database may be away, in seconds.
    """

    def __init__(
        self,
        connection: DatabaseConnection,
        connect: Callable[[float], DatabaseConnection],
        fence: Fence,
        tables: Tables[B],
        runtime: StoreRuntime,
        *,
        grace: float = 0.0,
    ) -> None:
        self.is_full = False
        """True while the server's disk is full and a batch waits for space."""
        self._connection = connection
        self._connect = connect
        self._fence = fence
        self._tables = tables
        self._runtime = runtime
        self._grace = grace
        self._is_closing = False
        self._interrupted = runtime.event()

    def begin(self) -> None:
        """Nothing comes before the first batch."""

    def write(self, batch: B) -> float:
        """Commit a batch and ask the lock's fence; return how many seconds that took.

        Raises:
            StoreUnavailable: it failed, or its outcome is unknown.
            LockNotHeld: a fence is closed.
        """
        begun = self._runtime.monotonic()
        self._get_through(batch)
        return self._runtime.monotonic() - begun

    def fence(self) -> None:
        """Ask the database's fence and the lock's.

        Raises:
            StoreUnavailable: the database does not answer.
            LockNotHeld: a fence is closed.
        """
        self._get_through(None)

    def rest(self) -> float | None:
        """Nothing is due between two batches."""
        return None

    def sync(self) -> None:
        """Do nothing: committed batches are durable."""

    def hurry(self) -> None:
        """Wait no longer for space than for an unreachable database."""
        self._is_closing = True

    def interrupt(self) -> None:
        """Cut the connection."""
        self._interrupted.set()
        self._connection.interrupt()

    def explain(self, error: Exception) -> Exception:
        """Return an error unchanged: its text is sufficient."""
        return error

    def close(self, *, in_order: bool) -> None:
        """Close the connection; nothing is under way on it."""
        self._connection.close()

    def _get_through(self, batch: B | None) -> None:
        """Commit a batch, or check the fence, retrying within the grace period."""
        try:
            self._execute(batch)
        except DatabaseUnavailable as error:
            self._get_on(batch, error)
        self._runtime.fence()

    def _execute(self, batch: B | None) -> None:
        if batch is None:
            self._connection.execute(self._fence.look)
            return
        seconds = None if batch.is_long else statement_seconds(batch.byte_count)
        for message in self._tables.render(self._connection, self._fence.check, batch):
            self._connection.execute(message, seconds=seconds)

    def _get_on(self, batch: B | None, error: DatabaseUnavailable) -> None:
        """Find out what became of a batch, and have it committed, within the grace."""
        begun = self._runtime.monotonic()
        deadline = begun + self._grace
        self._say_why(error)
        while (self.is_full and not self._is_closing) or self._runtime.monotonic() < deadline:
            if self._interrupted.wait(FULL_RETRY_SECONDS if self.is_full else RETRY_SECONDS):
                break
            try:
                self._runtime.fence()
                self._try_again(batch, deadline - self._runtime.monotonic())
            except DatabaseUnavailable as again:
                if type(again) is not type(error):
                    self._say_why(again)
                    deadline = self._runtime.monotonic() + self._grace
                error = again
            else:
                self.is_full = False
                logger.info("the database takes what is written again, after %.1f s", self._runtime.monotonic() - begun)
                return
        raise error

    def _say_why(self, error: DatabaseUnavailable) -> None:
        self.is_full = isinstance(error, DatabaseFull)
        if self.is_full:
            logger.error("new messages are refused until there is space: %s", error)
        elif self._grace:
            logger.warning("nothing is confirmed for up to %g s while this is tried again: %s", self._grace, error)

    def _try_again(self, batch: B | None, seconds: float) -> None:
        """Commit a batch, unless it turns out to be committed."""
        if self._connection.is_closed:
            self._connection = self._connect(seconds)
            if self._interrupted.is_set():
                raise DatabaseUnavailable(self._connection.name, "the store was given up", hint="")
            try:
                self._fence.shut_out(self._connection, seconds=max(seconds, RETRY_SECONDS))
                is_done = batch is not None and self._tables.is_done(self._connection, batch)
            except BaseException:
                self._connection.close()  # else the next try would not look
                raise
            if is_done:
                return
        elif self._connection.is_in_transaction:
            self._connection.execute("ROLLBACK")  # of a batch in several messages, whose last ones were not sent
        self._execute(batch)
