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

A commit that fails is never retried: when the connection broke, nobody knows whether it took effect. The writer stops,
nobody is called back any more, one failure is reported.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Generic, Protocol, TypeVar

from pybroker.broker.domain.errors import StoreError, StoreUnavailable
from pybroker.store.jdbc.postgres import Connection

Callback = Callable[[], None]
Schedule = Callable[[Callback], object]
"""`loop.call_soon` or `loop.call_soon_threadsafe`."""
Later = Callable[[float, Callback], object]
"""`loop.call_later`."""

IDLE_SECONDS = 0.005
"""How long changes that nobody waits for wait for others to share a commit with."""
IDLE_BYTES_MAX = 256 * 1024
"""Beyond that much they are committed anyway."""
ABANDON_SECONDS = 1.0
"""How long giving up waits for a commit that was cut off. The fence makes a later end of it harmless."""

logger = logging.getLogger(__name__)


class Batch(Protocol):
    """What is committed together, and who waits for it."""

    touched: bool
    byte_count: int
    is_long: bool
    callbacks: list[Callback]


B = TypeVar("B", bound=Batch)


class DatabaseWriter(Generic[B]):
    """Commits what gathers in batches, from one event loop.

    Args:
        connection: for the thread alone from `start` on.
        render: turns a batch into messages to the server, see `statements`.
        take: returns what has gathered, and begins anew.
        peek: returns the batch that gathers now.
        check: the lock's fence, asked after each commit; raises `LockNotHeld`.
        call_soon: runs a callback at the end of the loop's turn.
        post: the same from another thread.
        on_failure: told once, on the loop, why nothing is written or acknowledged any more.
        call_later: runs a callback after so many seconds; None: what nobody waits for is committed at once.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        render: Callable[[B], Sequence[bytes]],
        take: Callable[[], B],
        peek: Callable[[], B],
        check: Callback,
        call_soon: Schedule,
        post: Schedule,
        on_failure: Callable[[Exception], None],
        call_later: Later | None = None,
    ) -> None:
        self._connection = connection
        self._render = render
        self._take = take
        self._open = peek
        self._check = check
        self._call_soon = call_soon
        self._post = post
        self._on_failure = on_failure
        self._call_later = call_later
        self._inbox: SimpleQueue[B | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="database-writer", daemon=True)
        self._failure: Exception | None = None
        self._abandoned = False
        # What follows belongs to the loop.
        self._under_way: list[B] = []
        self._turn_end_scheduled = False
        self._is_idling = False
        self._stopped: StoreError | None = None
        self._has_failed = False

    # ------------------------------------------------------------ the loop's side

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def allow(self) -> None:
        """Make sure that changes may still be made.

        Raises:
            StoreUnavailable: the writer has stopped.
        """
        if self._stopped is not None:
            raise self._stopped

    def wake(self) -> None:
        """Take note that something has changed: it is due at the end of the turn, unless a commit is under way."""
        if not self._turn_end_scheduled and not self._under_way and not self._is_idling:
            self._turn_end_scheduled = True
            self._call_soon(self._turn_ended)

    def when_durable(self, callback: Callback) -> None:
        """Call back when all changes so far are committed; at once when they are. Never after a failure."""
        changes = self._open()
        if changes.touched:
            changes.callbacks.append(callback)
            if self._is_idling and not self._turn_end_scheduled and not self._under_way:  # until now nobody waited
                self._turn_end_scheduled = True
                self._call_soon(self._turn_ended)
        elif self._under_way:
            self._under_way[-1].callbacks.append(callback)
        elif self._stopped is None:
            callback()

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
            self._send()
            self._stopped = StoreUnavailable("the store is closed")
            self._inbox.put(None)
        if self._thread.ident is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def abandon(self) -> None:
        """Stop without committing anything more, as if killed: the connection is cut. Harmless when repeated."""
        self._abandoned = True
        self._stopped = StoreUnavailable("the store was given up")
        self._inbox.put(None)
        self._connection.interrupt()
        if self._thread.ident is not None:
            self._thread.join(ABANDON_SECONDS)

    def _turn_ended(self) -> None:
        """Have this turn's changes committed, unless a commit is under way: then `_written` will."""
        self._turn_end_scheduled = False
        if self._under_way or self._stopped is not None:
            return
        changes = self._open()
        if self._call_later is not None and not changes.callbacks and changes.byte_count <= IDLE_BYTES_MAX:
            if changes.touched and not self._is_idling:
                self._is_idling = True
                self._call_later(IDLE_SECONDS, self._idled)
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
            self._inbox.put(changes)

    def _written(self, changes: B) -> None:
        """Tell those who wait for a batch; then what has arrived meanwhile is due."""
        if self._abandoned:
            return
        self._under_way.remove(changes)
        if self._open().touched and not self._under_way:
            self._is_idling = False
            self.wake()
        self._call(changes.callbacks)

    def _call(self, callbacks: Sequence[Callback]) -> None:
        bug: Exception | None = None
        for callback in callbacks:
            try:
                callback()
            except Exception as error:  # the others still learn that their changes are safe
                logger.exception("a callback failed")
                bug = bug or error
        if bug is not None:
            self._failed(bug)

    def _failed(self, error: Exception) -> None:
        """Stop for good and say why, once."""
        if self._has_failed or self._abandoned:
            return
        self._has_failed = True
        reason = StoreUnavailable(f"the store has stopped: {error}")
        reason.__cause__ = error
        self._stopped = reason
        self._on_failure(error)

    # ------------------------------------------------------------ the thread's side

    def _run(self) -> None:
        """Commit what arrives, in order, until the end or the first failure."""
        try:
            while (changes := self._inbox.get()) is not None and not self._abandoned:
                self.commit(changes)
                self._post(partial(self._written, changes))
        except Exception as error:  # whatever it is, going on would be worse
            self._failure = error
            if not self._abandoned:
                logger.error("the database writer stops: %s", error)
                self._post(partial(self._failed, error))
        finally:
            self._connection.close()

    def commit(self, changes: B) -> None:
        """Commit a batch, and ask the lock's fence. Blocks; for the thread, or before it has begun.

        Raises:
            StoreUnavailable: it failed, or nobody knows.
            LockNotHeld: a fence is closed.
        """
        for message in self._render(changes):
            if changes.is_long:
                self._connection.execute(message, seconds=None)
            else:
                self._connection.execute(message)
        self._check()
