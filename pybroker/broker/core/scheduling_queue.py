"""The transactional scheduling queue: stores a scheduled message with its transaction until the commit makes it a job.

```text
sent in a transaction --> stored on `SCHEDULING_QUEUE` --> commit on disk --> job on disk --> removed from the queue
```

The job store has no transactions. If a scheduled message were stored only when the commit makes it a job, a crash
between commit and job would lose it, and so would a crash while an XA transaction is prepared. On this queue, in the
message store, it is committed or rolled back with the rest of its transaction. After a crash the new master schedules
the messages that it finds there; their delays begin then. A crash between the last two steps may have a message
scheduled twice, but never lost; what the job of the second sends is marked then (`RESENT`).

Clients can neither send to this queue nor consume from it. An ActiveMQ that takes over the store keeps its messages.
So does a master without a scheduler.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

from pybroker.broker.core.containment import FATAL
from pybroker.broker.core.gate import Gate
from pybroker.broker.core.paging import PAGE_BYTES_MAX, PAGE_MAX, severity
from pybroker.broker.core.scheduler import Scheduler
from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.jobs import JobStore
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.message import outline, to_message
from pybroker.broker.domain.ports import MessageStore, RemovalReason

SCHEDULING_QUEUE: Final = queue("PYBROKER.Scheduled")
"""The queue. Each message on it has, as its original destination, the one it was sent to."""

_log = logging.getLogger(__name__)


class SchedulingQueue:
    """Schedules the messages of committed transactions; a `SendTarget` of transactions."""

    def __init__(self, store: MessageStore, usage: Usage, dead_letter: Callable[[Message, str], None]) -> None:
        """Begin without a scheduler; `dead_letter` gets each message that cannot be scheduled, with the cause."""
        self.usage = usage
        """The memory usage of the whole broker: a message that is not yet scheduled is on no destination."""
        self.gate = Gate(self.send, store, usage)
        self._dead_letter = dead_letter
        self._store = store
        self._scheduler: Scheduler | None = None
        self._jobs: JobStore | None = None
        self._remaining: deque[str] = deque()
        self.after_crash = False
        """True if the former master crashed, and may have sent what it had scheduled."""
        self._is_resuming = False
        """True until the jobs of the last page are on disk; the next page is read then."""

    def recover(self, message_ids: Iterable[str]) -> None:
        """Add the ids of messages that former masters committed, and did not schedule or crashed while they did."""
        self._remaining.extend(message_ids)

    def open(self, scheduler: Scheduler, jobs: JobStore) -> None:
        """Start to schedule, beginning with the messages of former masters."""
        self._scheduler = scheduler
        self._jobs = jobs
        self.resume()

    def resume(self) -> None:
        """Schedule the messages of former masters, one page in each turn of the event loop.

        Also called periodically, to try again after the store could not be read.
        """
        if self._scheduler is None or self._jobs is None or self._is_resuming or not self._remaining:
            return
        count = len(self._remaining)
        try:
            self._hand_over_page()
        except StoreUnavailable as error:
            _log.log(severity(error), "%d committed messages are scheduled later: %s", len(self._remaining), error)
            self.usage.paging.waiting[self.resume] = None
        if len(self._remaining) < count:
            self._is_resuming = True
            self._jobs.when_durable(self._page_is_safe)

    def _hand_over_page(self) -> None:
        page = list(islice(self._remaining, PAGE_MAX))
        messages, looked_at = self._store.read_page(SCHEDULING_QUEUE, page, PAGE_BYTES_MAX)
        found = {message.message_id: message for message in messages}
        for message_id in page[:looked_at]:
            if (message := found.get(message_id)) is not None:
                self._schedule(message, may_have_run=self.after_crash)
            self._remaining.popleft()

    def _page_is_safe(self) -> None:
        self._is_resuming = False
        if not self.usage.paging.defer(self.resume):
            self.resume()

    @property
    def is_kept_now(self) -> bool:
        """True: a persistent message on this queue is always stored."""
        return True

    def stores(self, message: Message) -> bool:
        """Return True if a message must survive a crash."""
        return message.persistent

    def send(self, message: Message) -> None:
        """Schedule a committed message; dead-letter it if it cannot be scheduled."""
        self._schedule(message, may_have_run=False)

    def _schedule(self, message: Message, *, may_have_run: bool) -> None:
        if self._scheduler is None or self._jobs is None:
            _log.warning("%s is committed, and waits for a master with a scheduler", message.message_id)
            return
        try:
            self._scheduler.schedule(_from_scheduling_queue(message), may_have_run=may_have_run)
        except StoreUnavailable as error:  # a read failed; a store whose writes fail reports that itself
            if message.persistent:
                _log.log(severity(error), "%s is committed, and scheduled later: %s", message.message_id, error)
                self._remaining.append(message.message_id)
            else:
                _log.error("%s is dropped, it cannot be scheduled and is not stored: %s", message.message_id, error)
        except Exception as error:
            if isinstance(error, FATAL):
                raise
            _log.error("%s is committed and cannot be scheduled: %s", message.message_id, error)
            self._dead_letter(message, f"scheduling failed: {error}")
            self._remove(message, self._store.when_durable)
        else:
            self._remove(message, self._jobs.when_durable)

    def _remove(self, message: Message, when_safe: Callable[[Callable[[], None]], None]) -> None:
        """Remove a message from the queue once its job, or its dead letter, is on disk."""
        if message.persistent:
            remove, reason = self._store.remove, RemovalReason.DISCARDED
            when_safe(partial(remove, SCHEDULING_QUEUE, message.message_id, reason=reason))


def to_scheduling_queue(message: Message) -> Message:
    """Return a copy of a message that is addressed to the scheduling queue."""
    fields = outline(message)
    return to_message(replace(fields, destination=SCHEDULING_QUEUE, original_destination=fields.destination))


def _from_scheduling_queue(message: Message) -> Message:
    """Return the message as its client sent it.

    Raises:
        MalformedOpenWire: the message does not decode.
        RequestError: it has no original destination, because a client of an ActiveMQ sent it to this queue.
    """
    fields = outline(message)
    return to_message(replace(fields, destination=fields.original_destination, original_destination=None))
