"""Messages of a transaction before its commit: counted in memory limits, and paged out to the store above the mark.

```text
  send --> counted --> more than the mark, or than the broker has room for --> durable --> only the id stays
                                                                                               |
  commit --> on disk --> the gate before the destination reads the messages back, a page at a time
```

Only a queue's message that the store has before the commit can be left to it (`MessageStore.keeps_uncommitted`). A
topic's is stored for durable subscriptions alone, and those may go before the commit while other subscribers stay. A
non-persistent one is in memory only. What cannot be left stays counted until the transaction ends; `check_room` refuses
more of it where the transaction alone has reached the limit, or all together have reached twice the limit.

A producer whose transaction holds memory never waits for room: its commit, which would free it, is behind what waits.
"""

from functools import partial
from typing import Protocol

from pybroker.broker.core.gate import Gate, Unread
from pybroker.broker.core.paging import BACKLOG_BYTES_MAX
from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.errors import ResourceLimit
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import MessageStore
from pybroker.broker.domain.transaction import TransactionId

_LARGE_BYTES = 64 * 1024
"""A message of which not even the decoded fields are kept: they hold its body once more."""


class Target(Protocol):
    """A destination that takes messages."""

    gate: Gate

    @property
    def usage(self) -> Usage:
        """The memory that its messages take."""
        ...

    def stores(self, message: Message) -> bool:
        """Tell whether a message must outlive the process."""
        ...

    @property
    def is_kept_now(self) -> bool:
        """True when the store keeps what must outlive the process; a topic's only while a durable subscription is."""
        ...


class Send:
    """A message on its way to a destination: an action of its transaction's commit."""

    __slots__ = ("_target", "message")

    def __init__(self, target: Target, message: Message | Unread) -> None:
        self._target = target
        self.message = message

    def __call__(self) -> None:
        """Have the destination's gate let it through."""
        message = self.message
        if isinstance(message, Message):
            self._target.gate.admit(message)
        else:
            self._target.gate.admit_unread(message)

    def leave(self) -> tuple[Usage, int]:
        """Keep only what the message is found by; return what that frees, and where."""
        message = self.message
        self.message = Unread(message.destination, message.message_id, message.size)
        return self._target.usage, message.size


class Uncommitted:
    """The memory of one transaction's messages; a `Backlog` of `paging`."""

    __slots__ = ("_held", "_is_leaving", "_is_prepared", "_leavable", "_leavable_bytes", "_store")

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._held: dict[Usage, int] = {}
        self._leavable: list[Send] = []
        self._leavable_bytes = 0
        self._is_leaving = False
        self._is_prepared = False

    @property
    def holds_memory(self) -> bool:
        """True when something is counted."""
        return any(self._held.values())

    def add(self, target: Target, message: Message, *, is_stored: bool) -> Send:
        """Count a message; return what sends it."""
        size, usage = message.size, target.usage
        self._held[usage] = self._held.get(usage, 0) + size
        usage.take(size)
        if size > _LARGE_BYTES:
            message.decoded = None
        send = Send(target, message)
        if is_stored and message.destination.is_queue:
            if not self._leavable:
                usage.paging.backlogs.add(self)
            self._leavable.append(send)
            self._leavable_bytes += size
            if self._leavable_bytes > min(usage.mark, BACKLOG_BYTES_MAX):
                self.leave_to_store()
        if usage.whole.used > usage.whole.mark and self._store.supports_paging:
            usage.leave_to_store(self._store.when_durable)
        return send

    def check_room(self, usage: Usage, message: Message, transaction: TransactionId) -> None:
        """Make sure that one more message may be held, where memory is full.

        Raises:
            ResourceLimit: it may not.
        """
        if message.persistent and message.destination.is_queue and self._store.keeps_uncommitted:
            return
        full = usage.full
        if full is None:
            return
        held = self._held.get(full, 0) if full is not full.whole else sum(self._held.values())
        if held >= full.limit or usage.is_overrun:
            raise ResourceLimit(
                f"Usage Manager Memory Limit reached on {message.destination}: {transaction} holds {held} bytes, which "
                "only its end frees. Commit more often, or raise the limit."
            )

    def prepared(self) -> None:
        """Learn that the store has everything, whatever it keeps before a commit."""
        self._is_prepared = True
        if self._leavable_bytes > BACKLOG_BYTES_MAX:
            self.leave_to_store()

    def leave_to_store(self) -> None:
        """Leave to the store what it has, as soon as that is on disk."""
        can_leave = self._store.keeps_uncommitted or (self._is_prepared and self._store.supports_paging)
        if can_leave and self._leavable and not self._is_leaving:
            self._is_leaving = True
            self._store.when_durable(partial(self._leave, len(self._leavable)))

    def end(self) -> None:
        """Give back what is counted: the transaction is over."""
        held, self._held = self._held, {}
        self._leavable = []
        for usage, size in held.items():
            usage.paging.backlogs.discard(self)
            usage.give(size)

    def _leave(self, count: int) -> None:
        self._is_leaving = False
        sends, self._leavable = self._leavable[:count], self._leavable[count:]
        freed: dict[Usage, int] = {}
        for send in sends:
            usage, size = send.leave()
            freed[usage] = freed.get(usage, 0) + size
        self._leavable_bytes -= sum(freed.values())
        for usage, size in freed.items():
            self._held[usage] -= size
        if self._leavable_bytes > BACKLOG_BYTES_MAX:
            self.leave_to_store()
        for usage, size in freed.items():
            usage.give(size)
