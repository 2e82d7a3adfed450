"""From a transaction to the scheduler: what a transaction schedules is stored with it, and becomes a job afterwards.

```text
sent in a transaction --> message store, in `COMMITTED` --> commit on disk --> job on disk --> gone from `COMMITTED`
```

The job store knows no transactions. Were a message of one to become a job at the commit and be nowhere before, a crash
between the two would lose it, and so would any crash while an XA transaction is prepared, though the rest of the
transaction counts. In the message store it has the fate of the rest. After a crash the next master hands it over, and
counts its time from then. One that dies between the last two steps may have it scheduled twice, never not at all.

No client comes near that queue. An ActiveMQ that takes over keeps what is in it, as a master without a scheduler does.
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
from pybroker.broker.domain.openwire.message import to_message, view
from pybroker.broker.domain.ports import MessageStore

COMMITTED: Final = queue("PYBROKER.Scheduled")
"""Where messages lie that a transaction schedules, each with its own destination as the original one."""

_log = logging.getLogger(__name__)


class Handover:
    """Between a broker's transactions and its scheduler; a transaction's `Target`."""

    def __init__(self, store: MessageStore, usage: Usage, bury: Callable[[Message, str], None]) -> None:
        """Begin without a scheduler; `bury` makes a dead letter of what cannot be scheduled."""
        self.usage = usage
        """The whole broker's: what is scheduled lies on no destination yet."""
        self.gate = Gate(self.send, store, usage.paging)
        self._bury = bury
        self._store = store
        self._scheduler: Scheduler | None = None
        self._jobs: JobStore | None = None
        self._left: deque[str] = deque()
        self._is_going_on = False
        """The next page follows once the jobs of the last are on disk."""

    def recover(self, message_ids: Iterable[str]) -> None:
        """Note what earlier masters committed and did not hand over."""
        self._left.extend(message_ids)

    def open(self, scheduler: Scheduler, jobs: JobStore) -> None:
        """Hand over from now on, first what is left from earlier masters."""
        self._scheduler = scheduler
        self._jobs = jobs
        self.go_on()

    def go_on(self) -> None:
        """Hand over what earlier masters left, a page after the other, each in a turn of the event loop of its own.

        Called every now and then as well, for the store may not answer.
        """
        if self._scheduler is None or self._jobs is None or self._is_going_on or not self._left:
            return
        count = len(self._left)
        try:
            self._hand_over_page()
        except StoreUnavailable as error:
            _log.log(severity(error), "%d committed messages are scheduled later: %s", len(self._left), error)
            self.usage.paging.waiting[self.go_on] = None
        if len(self._left) < count:
            self._is_going_on = True
            self._jobs.when_durable(self._page_is_safe)

    def _hand_over_page(self) -> None:
        page = list(islice(self._left, PAGE_MAX))
        messages, looked_at = self._store.read_page(COMMITTED, page, PAGE_BYTES_MAX)
        found = {message.message_id: message for message in messages}
        for message_id in page[:looked_at]:
            if (message := found.get(message_id)) is not None:
                self.send(message)
            self._left.popleft()

    def _page_is_safe(self) -> None:
        self._is_going_on = False
        if not self.usage.paging.soon(self.go_on):
            self.go_on()

    @property
    def is_kept_now(self) -> bool:
        """True: what is handed over is stored."""
        return True

    def stores(self, message: Message) -> bool:
        """Tell whether a message must outlive the process."""
        return message.persistent

    def send(self, message: Message) -> None:
        """Make a job of a message that is committed; one of which none can be made becomes a dead letter."""
        if self._scheduler is None or self._jobs is None:
            _log.warning("%s is committed, and waits for a master with a scheduler", message.message_id)
            return
        try:
            self._scheduler.schedule(_taken_up(message))
        except StoreUnavailable as error:  # of a read: a store that can write no more has said so itself
            if message.persistent:
                _log.log(severity(error), "%s is committed, and scheduled later: %s", message.message_id, error)
                self._left.append(message.message_id)
            else:
                _log.error("%s is dropped, it cannot be scheduled and is not stored: %s", message.message_id, error)
        except Exception as error:
            if isinstance(error, FATAL):
                raise
            _log.error("%s is committed and cannot be scheduled: %s", message.message_id, error)
            self._bury(message, f"scheduling failed: {error}")
            self._remove(message, self._store.when_durable)
        else:
            self._remove(message, self._jobs.when_durable)

    def _remove(self, message: Message, when_safe: Callable[[Callable[[], None]], None]) -> None:
        """Remove a message from `COMMITTED` once what was made of it is on disk."""
        if message.persistent:
            when_safe(partial(self._store.remove, COMMITTED, message.message_id, consumed_by=None))


def put_aside(message: Message) -> Message:
    """Return a message as it is sent to a `Handover`, for it to be scheduled at its transaction's commit."""
    fields = view(message)
    return to_message(replace(fields, destination=COMMITTED, original_destination=fields.destination))


def _taken_up(message: Message) -> Message:
    """Return the message that was put aside.

    Raises:
        MalformedOpenWire: it does not decode.
        ClientError: it was not put aside, but sent there by an ActiveMQ's client.
    """
    fields = view(message)
    return to_message(replace(fields, destination=fields.original_destination, original_destination=None))
