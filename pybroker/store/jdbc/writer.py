"""Group commit: the event loop gathers changes, one thread with a connection of its own commits them.

```text
event loop   change change change | change change ...      | callbacks of batch 1
             `----- batch 1 -----'`--- batch 2 (open) ----'^
                     | end of the loop's turn              | posted
thread               `-> SQL, COMMIT, fence ---------------'-> batch 2 -> ...
```

Everything of one turn of the loop is one batch. While a batch is being committed, whatever arrives is the next one: the
slower the database and the busier the broker, the larger the batches. One that nobody waits for, of acknowledgements
mostly, is left open for a few milliseconds.

Who was just answered often has the next thing to send, a moment later. To begin the next batch at once would leave it
out, and those who wait would share two batches in turn instead of one. So the next batch waits for as many as there
could be, for a quarter of the time that the last one took.

A commit that fails because the database is away, or without an answer, is not the end: for a set grace the thread tries
to get on, while everybody waits. On a new connection it shuts out what it sent before (see `fence`), looks whether that
took effect, and repeats it if not. The lock's fence is asked before each try, since who might be master meanwhile need
not be one of ours. After the grace, or another error, the writer stops, nobody is called back any more, one failure is
reported. A full disk has no such bound: the batch waits until there is room, and meanwhile `is_full` is True.

```text
              COMMIT fails
  WRITING ------------------> AWAY --- grace is over, other error ---> STOPPED
     ^                         | |
     |   was done, or repeated | | try: lock's fence, connect, shut out, look, repeat
     `-------------------------´ `-<-´
```
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Generic, Protocol, TypeVar

from pybroker.broker.domain.errors import LockError, StoreError, StoreUnavailable
from pybroker.store.jdbc.fence import Fence
from pybroker.store.jdbc.postgres import Connection, Copy, DatabaseAway, DatabaseFull, statement_seconds
from pybroker.store.runtime import Callback, StoreRuntime, Worker

IDLE_SECONDS = 0.005
"""How long changes that nobody waits for wait for others to share a commit with."""
IDLE_BYTES_MAX = 256 * 1024
"""Beyond that much they are committed anyway."""
ABANDON_SECONDS = 1.0
"""How long giving up waits for a commit that was cut off. The fence makes a later end of it harmless."""
GATHER_SHARE, GATHER_SECONDS_MAX = 0.25, 0.002
"""How long a batch waits for those who were just answered: of the time that a commit takes, and at most."""
NEWEST_SHARE = 0.1
"""Of the newest commit in the mean time that one takes."""
RETRY_SECONDS = 0.1
"""Between two tries to get on."""
FULL_RETRY_SECONDS = 0.5
"""Between two looks for room on a full disk."""

logger = logging.getLogger(__name__)


class Batch(Protocol):
    """What is committed together, and who waits for it."""

    touched: bool
    byte_count: int
    is_long: bool
    callbacks: list[Callback]


B = TypeVar("B", bound=Batch)


@dataclass(frozen=True, slots=True)
class _Told:
    """Who is to be told once the fences let pass, since nothing of theirs has to be committed."""

    callbacks: list[Callback]
    is_long: bool = False


class DatabaseWriter(Generic[B]):
    """Commits what gathers in batches, from one event loop.

    Args:
        connection: for the thread alone from `start` on.
        fence: of this writer.
        connect: opens another connection, within so many seconds if it can.
        render: turns a batch into messages to the server that begin with the fence, see `statements`.
        is_done: tells whether a batch has taken effect already, or need not be known to have; see `statements`.
        grace: how long a database may be away, in seconds.
        take: returns what has gathered, and begins anew.
        peek: returns the batch that gathers now.
        runtime: the world around; its fence is the lock's, asked after each commit.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        fence: Fence,
        connect: Callable[[float], Connection],
        render: Callable[[Connection, bytes, B], Sequence[bytes | Copy]],
        is_done: Callable[[Connection, B], bool],
        take: Callable[[], B],
        peek: Callable[[], B],
        runtime: StoreRuntime,
        grace: float = 0.0,
    ) -> None:
        self.is_full = False
        """True while the server's disk is full and a batch waits for room."""
        self._connection = connection
        self._fence = fence
        self._connect = connect
        self._render = render
        self._is_done = is_done
        self._grace = grace
        self._take = take
        self._open = peek
        self._runtime = runtime
        self._inbox: SimpleQueue[B | _Told | None] = SimpleQueue()
        self._thread: Worker | None = None
        self._failure: Exception | None = None
        self._abandoned = threading.Event()
        self._is_closing = False
        # What follows belongs to the loop.
        self._under_way: list[B] = []
        self._turn_end_scheduled = False
        self._is_idling = False
        self._expected_count = 0
        self._sent_at = 0.0
        self._mean_seconds = 0.0
        self._to_tell: list[Callback] = []
        self._is_telling = False
        self._stopped: StoreError | None = None
        self._has_failed = False

    # ------------------------------------------------------------ the loop's side

    def start(self) -> None:
        """Start the thread."""
        self._thread = self._runtime.spawn("database-writer", self._run)

    def allow(self) -> None:
        """Make sure that changes may still be made.

        Raises:
            StoreUnavailable: the writer has stopped.
        """
        if self._stopped is not None:
            raise self._stopped

    def wake(self) -> None:
        """Take note that something has changed: it is due at the end of the turn, unless a commit is under way."""
        is_waiting = self._under_way or self._is_idling or self._expected_count
        if not self._turn_end_scheduled and not is_waiting:
            self._turn_end_scheduled = True
            self._runtime.call_soon(self._turn_ended)

    def when_durable(self, callback: Callback) -> None:
        """Call back when all changes so far are committed; at once when they are. Never after a failure."""
        changes = self._open()
        if changes.touched:
            changes.callbacks.append(callback)
            if self._expected_count:
                if len(changes.callbacks) >= self._expected_count:
                    self._expected_count = 0
                    self.wake()
            elif self._is_idling and not self._turn_end_scheduled and not self._under_way:  # until now nobody waited
                self._turn_end_scheduled = True
                self._runtime.call_soon(self._turn_ended)
        elif self._under_way:
            self._under_way[-1].callbacks.append(callback)
        elif self._is_telling:  # behind those who were first
            self._to_tell.append(callback)
        elif self._stopped is None:
            callback()

    def tell(self, callbacks: Sequence[Callback]) -> None:
        """Call back those who need not wait for a commit, once the fences let pass: the database's and the lock's."""
        self._to_tell += callbacks
        if not self._is_telling and self._stopped is None:
            self._ask()

    @property
    def write_seconds(self) -> float:
        """How long a commit took of late, in seconds; 0 before the first."""
        return self._mean_seconds

    @property
    def unwritten_bytes(self) -> int:
        """How much is not known to be committed."""
        return self._open().byte_count + sum([each.byte_count for each in self._under_way])

    def close(self) -> None:
        """Commit what is left, and end the thread. Blocks. Harmless when repeated.

        Raises:
            StoreError: not everything could be committed.
            LockNotHeld: a fence was closed.
        """
        if self._stopped is None:
            self._is_closing = True
            self._send()
            self._stopped = StoreUnavailable("the store is closed")
            self._inbox.put(None)
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def abandon(self) -> None:
        """Stop without committing anything more, as if killed: the connection is cut. Harmless when repeated."""
        self._abandoned.set()
        self._stopped = StoreUnavailable("the store was given up")
        self._inbox.put(None)
        self._connection.interrupt()
        if self._thread is not None:
            self._thread.join(ABANDON_SECONDS)

    def _turn_ended(self) -> None:
        """Have this turn's changes committed, unless a commit is under way: then `_written` will."""
        self._turn_end_scheduled = False
        if self._under_way or self._stopped is not None:
            return
        changes = self._open()
        call_later = self._runtime.call_later
        if call_later is not None and not changes.callbacks and changes.byte_count <= IDLE_BYTES_MAX:
            if changes.touched and not self._is_idling:
                self._is_idling = True
                call_later(IDLE_SECONDS, self._idled)
        else:
            self._send()

    def _idled(self) -> None:
        self._is_idling = False
        if not self._under_way and self._stopped is None:
            self._send()

    def _send(self) -> None:
        """Pass what has gathered to the thread."""
        if self._open().touched:
            changes = self._take()
            self._under_way.append(changes)
            self._sent_at = self._runtime.monotonic()
            self._inbox.put(changes)

    def _written(self, changes: B) -> None:
        """Tell those who wait for a batch; then what has arrived meanwhile is due."""
        if self._abandoned.is_set():
            return
        self._under_way.remove(changes)
        self._mean_seconds += (self._runtime.monotonic() - self._sent_at - self._mean_seconds) * NEWEST_SHARE
        if not self._under_way:
            self._expect(len(changes.callbacks) + len(self._open().callbacks))
            self._is_idling = False
            if self._open().touched:
                self.wake()
        self._call(changes.callbacks)

    def _ask(self) -> None:
        """Have the thread ask the fences for those who need nothing else."""
        if self._to_tell:
            self._is_telling = True
            self._inbox.put(_Told(self._to_tell))
            self._to_tell = []

    def _told(self, told: _Told) -> None:
        """Tell those whom the fences were asked for; then others are due who have come meanwhile."""
        if not self._abandoned.is_set():
            self._is_telling = False
            self._ask()
            self._call(told.callbacks)

    def _expect(self, count: int) -> None:
        """Have the next batch wait for so many who wait for it, for a short while."""
        call_later = self._runtime.call_later
        if call_later is not None and count > 1 and self._open().byte_count <= IDLE_BYTES_MAX:
            self._expected_count = count
            seconds = min(GATHER_SECONDS_MAX, GATHER_SHARE * (self._runtime.monotonic() - self._sent_at))
            call_later(seconds, self._gathered)

    def _gathered(self) -> None:
        """Wait no longer."""
        if self._expected_count:
            self._expected_count = 0
            if self._open().touched:
                self.wake()

    def _call(self, callbacks: Sequence[Callback]) -> None:
        failure: Exception | None = None
        for callback in callbacks:
            try:
                callback()
            except (StoreError, LockError, OSError) as error:  # the others still learn that their changes are safe
                logger.exception("a callback failed")
                failure = failure or error
            except Exception:  # of what one client asked for, who is not answered; what is written is as good as before
                logger.exception("a callback failed, and the store goes on")
        if failure is not None:
            self._failed(failure)

    def _failed(self, error: Exception) -> None:
        """Stop for good and say why, once."""
        if self._has_failed or self._abandoned.is_set():
            return
        self._has_failed = True
        reason = StoreUnavailable(f"the store has stopped: {error}")
        reason.__cause__ = error
        self._stopped = reason
        self._runtime.on_failure(error)

    # ------------------------------------------------------------ the thread's side

    def _run(self) -> None:
        """Commit what arrives, in order, until the end or the first failure."""
        try:
            while (given := self._inbox.get()) is not None and not self._abandoned.is_set():
                self.commit(given)
                if isinstance(given, _Told):
                    self._runtime.post(partial(self._told, given))
                else:
                    self._runtime.post(partial(self._written, given))
        except Exception as error:  # whatever it is, going on would be worse
            self._failure = error
            if not self._abandoned.is_set():
                logger.error("the database writer stops: %s", error)
                self._runtime.post(partial(self._failed, error))
        finally:
            self._connection.close()

    def commit(self, changes: B | _Told) -> None:
        """Commit a batch, if there is one, and ask the lock's fence. Blocks; for the thread, or before it has begun.

        Raises:
            StoreUnavailable: it failed, or nobody knows.
            LockNotHeld: a fence is closed.
        """
        try:
            self._execute(changes)
        except DatabaseAway as error:
            self._get_on(changes, error)
        self._runtime.fence()

    def _execute(self, changes: B | _Told) -> None:
        if isinstance(changes, _Told):
            self._connection.execute(self._fence.look)
            return
        seconds = None if changes.is_long else statement_seconds(changes.byte_count)
        for message in self._render(self._connection, self._fence.check, changes):
            self._connection.execute(message, seconds=seconds)

    def _get_on(self, changes: B | _Told, error: DatabaseAway) -> None:
        """Find out what became of a batch, and have it committed, within the grace."""
        begun = self._runtime.monotonic()
        deadline = begun + self._grace
        self._say_why(error)
        while (self.is_full and not self._is_closing) or self._runtime.monotonic() < deadline:
            if self._abandoned.wait(FULL_RETRY_SECONDS if self.is_full else RETRY_SECONDS):
                break
            try:
                self._runtime.fence()
                self._try_again(changes, deadline - self._runtime.monotonic())
            except DatabaseAway as again:
                if type(again) is not type(error):
                    self._say_why(again)
                    deadline = self._runtime.monotonic() + self._grace
                error = again
            else:
                self.is_full = False
                logger.info("the database takes what is written again, after %.1f s", self._runtime.monotonic() - begun)
                return
        raise error

    def _say_why(self, error: DatabaseAway) -> None:
        self.is_full = isinstance(error, DatabaseFull)
        if self.is_full:
            logger.error("new messages are refused until there is room: %s", error)
        elif self._grace:
            logger.warning("nothing is confirmed for up to %g s while this is tried again: %s", self._grace, error)

    def _try_again(self, changes: B | _Told, seconds: float) -> None:
        """Commit a batch, unless it turns out to be committed."""
        if self._connection.is_closed:
            self._connection = self._connect(seconds)
            if self._abandoned.is_set():
                raise DatabaseAway("the store was given up")
            try:
                self._fence.shut_out(self._connection, seconds=max(seconds, RETRY_SECONDS))
                is_done = not isinstance(changes, _Told) and self._is_done(self._connection, changes)
            except BaseException:
                self._connection.close()  # else the next try would not look
                raise
            if is_done:
                return
        elif self._connection.is_in_transaction:
            self._connection.execute("ROLLBACK")  # of a batch in several messages, whose last ones were not sent
        self._execute(changes)
