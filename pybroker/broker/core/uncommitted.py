"""Memory of a transaction's messages before its commit: counted in memory limits, and paged out above the watermark.

```text
  send --> counted --> above the watermark of the queue, or of the broker --> durable --> only the id is in memory
                                                                                               |
  commit --> on disk --> the gate of the destination reads the messages back, a page at a time
```

A message can be paged out only if it was sent to a queue, and if the store holds it before the commit
(`MessageStore.keeps_uncommitted`). A topic's message is stored only while the topic has durable subscriptions, which
may be deleted before the commit while other subscribers stay. A non-persistent message is in memory only. A message
that cannot be paged out is counted until the transaction ends. `check_space` refuses further ones if the transaction
alone has reached the limit, or if the usage has reached twice the limit.

A producer whose transaction holds memory never waits for space: only its own commit, which it sends later, frees it.
"""

from functools import partial
from typing import Protocol

from pybroker.broker.core.gate import Gate, PagedOutMessage
from pybroker.broker.core.paging import BACKLOG_BYTES_MAX
from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.errors import ResourceLimit
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import MessageStore
from pybroker.broker.domain.transaction import TransactionId

_LARGE_BYTES = 64 * 1024
"""Size in bytes above which the decoded fields of a message are dropped, because they hold its body a second time."""


class SendTarget(Protocol):
    """A destination that takes messages."""

    gate: Gate

    @property
    def usage(self) -> Usage:
        """The memory that its messages take."""
        ...

    def stores(self, message: Message) -> bool:
        """Return True if a message must survive a crash."""
        ...

    @property
    def is_kept_now(self) -> bool:
        """True when the store keeps persistent messages; for a topic, only while it has a durable subscription."""
        ...


class UncommittedSend:
    """The send of one message, which its transaction performs at its commit."""

    __slots__ = ("_target", "message")

    def __init__(self, target: SendTarget, message: Message | PagedOutMessage) -> None:
        self._target = target
        self.message = message

    def __call__(self) -> None:
        """Pass the message to the gate of its destination, with the memory that it is counted for."""
        message = self.message
        if isinstance(message, Message):
            self._target.gate.admit_counted(message)
        else:
            self._target.gate.admit_paged_out(message)

    @property
    def gate(self) -> Gate:
        """The gate of its destination."""
        return self._target.gate

    def drop(self) -> None:
        """Drop the message instead: its destination was deleted after the commit."""
        message = self.message
        if isinstance(message, Message):
            self._target.gate.drop_counted(message)

    def page_out(self) -> tuple[Usage, int]:
        """Replace the message by its id; return the usage that counted it, and its size."""
        message = self.message
        self.message = PagedOutMessage(message.destination, message.message_id, message.size)
        return self._target.usage, message.size


class UncommittedMessages:
    """The memory of one transaction's messages; a `PageableBacklog`."""

    __slots__ = ("_held", "_is_paging_out", "_is_prepared", "_pageable", "_pageable_bytes", "_store")

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._held: dict[Usage, int] = {}
        self._pageable: list[UncommittedSend] = []
        self._pageable_bytes = 0
        self._is_paging_out = False
        self._is_prepared = False

    @property
    def holds_memory(self) -> bool:
        """True when a message of the transaction is counted."""
        return any(self._held.values())

    def add(self, target: SendTarget, message: Message, *, is_stored: bool) -> UncommittedSend:
        """Count a message; return the action that sends it at the commit."""
        size, usage = message.size, target.usage
        self._held[usage] = self._held.get(usage, 0) + size
        usage.acquire_uncommitted(size)
        if size > _LARGE_BYTES:
            message.decoded = None
        send = UncommittedSend(target, message)
        if is_stored and message.destination.is_queue:
            if not self._pageable:
                usage.paging.backlogs.add(self)
            self._pageable.append(send)
            self._pageable_bytes += size
            if self._pageable_bytes > min(usage.watermark, BACKLOG_BYTES_MAX):
                self.request_page_out()
        if usage.broker.used > usage.broker.watermark and self._store.supports_paging:
            usage.request_page_out(self._store.when_durable)
        return send

    def check_space(self, usage: Usage, message: Message, transaction: TransactionId) -> None:
        """Check that one more message may be held although memory is full.

        Raises:
            ResourceLimit: the message cannot be paged out, and a limit is reached.
        """
        if message.persistent and message.destination.is_queue and self._store.keeps_uncommitted:
            return
        full = usage.full
        if full is None:
            return
        held = self._held.get(full, 0) if full is not full.broker else sum(self._held.values())
        if held >= full.limit or usage.is_overrun:
            raise ResourceLimit(
                f"Usage Manager Memory Limit reached on {message.destination}: {transaction} holds {held} bytes, which "
                "only its end frees. Commit more often, or raise the limit."
            )

    def mark_prepared(self) -> None:
        """Record that the transaction is prepared: the store now holds its messages, so they can be paged out."""
        self._is_prepared = True
        if self._pageable_bytes > BACKLOG_BYTES_MAX:
            self.request_page_out()

    def request_page_out(self) -> None:
        """Page out the messages that the store holds, as soon as they are on disk."""
        can_page_out = self._store.keeps_uncommitted or (self._is_prepared and self._store.supports_paging)
        if can_page_out and self._pageable and not self._is_paging_out:
            self._is_paging_out = True
            self._store.when_durable(partial(self._page_out, len(self._pageable)))

    def hand_over(self) -> None:
        """Page out no more: the commit passes the messages to the gates, which count them for the broker."""
        for usage, size in self._drop().items():
            usage.pass_to_broker(size)

    def end(self) -> None:
        """Release all memory that is counted; the transaction is rolled back."""
        for usage, size in self._drop().items():
            usage.release_uncommitted(size)

    def _drop(self) -> dict[Usage, int]:
        held, self._held = self._held, {}
        self._pageable = []
        self._pageable_bytes = 0
        for usage in held:
            usage.paging.backlogs.discard(self)
        return held

    def _page_out(self, count: int) -> None:
        self._is_paging_out = False
        sends, self._pageable = self._pageable[:count], self._pageable[count:]
        freed: dict[Usage, int] = {}
        for send in sends:
            usage, size = send.page_out()
            freed[usage] = freed.get(usage, 0) + size
        self._pageable_bytes -= sum(freed.values())
        for usage, size in freed.items():
            self._held[usage] -= size
        if self._pageable_bytes > BACKLOG_BYTES_MAX:
            self.request_page_out()
        for usage, size in freed.items():
            usage.release_uncommitted(size)
