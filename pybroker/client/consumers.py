"""A consumer's messages: from the broker to the application, and their acknowledgements back.

```text
 broker ──> WAITING ──take──> HELD ──ack──> SETTLED ──acknowledgement──> unconfirmed ──answer──> forgotten
                ^               │
                └── rollback ───┘
```

When the connection breaks, the broker gives everything again that it holds unacknowledged. Messages that wait are
dropped, for they come again in their order. What the application has got is kept in `Kept`: when it comes again the
application is not bothered. If it still works on it, its acknowledgement will be for the new delivery; if it is done,
the delivery is acknowledged at once. So a break shows in a duplicate only if another client got the message meanwhile.

Source: JMS 1.1, Message Acknowledgment; ActiveMQ 5.17, `RedeliveryPolicy`.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pybroker.broker.domain.destination import Destination
from pybroker.client.conversation import AckMode, Acknowledge, Pull, Subscribe
from pybroker.client.errors import ClientError, ConnectionClosed
from pybroker.client.messages import Message, Standing
from pybroker.client.requests import Requests
from pybroker.client.tickets import Bell, Ticket

ACK_DELAY_SECONDS: Final = 0.1
"""How long a processed message may wait for others to be acknowledged with it."""

RUN_MAX: Final = 100
"""Messages acknowledged together, so that a client that dies leaves few that come again."""

FENCE_EVERY: Final = 64
"""One acknowledgement in so many messages asks for an answer, which confirms those before it; it costs a disk sync."""

ANSWER_SECONDS: Final = 1.0
"""How much longer than asked a pulled message is waited for, unless the broker says sooner that there is none."""

KEPT_MAX: Final = 10_000
"""Settled messages that are remembered over a break."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redelivery:
    """How a message that was rolled back comes again; defaults are ActiveMQ's. Times in seconds.

    Attributes:
        maximum: how often; then it goes to the dead letter queue. -1 for no limit.
        initial_delay: before the first time; nothing else is given meanwhile, for the order's sake.
        multiplier: what the delay is multiplied by from time to time.
        maximum_delay: the longest delay.
    """

    maximum: int = 6
    initial_delay: float = 1.0
    multiplier: float = 1.0
    maximum_delay: float = 60.0

    def delay(self, redelivery_count: int) -> float:
        """Return how long to wait before that redelivery, 1 for the first."""
        if self.multiplier <= 1:
            return self.initial_delay
        # The exponent is bounded, as numbers are: no delay grows for longer than that.
        return min(self.initial_delay * self.multiplier ** min(redelivery_count - 1, 64), self.maximum_delay)


@dataclass(frozen=True, slots=True)
class SeenMessage:
    """The rest of a message that the application is done with, or has given back: enough to recognise it."""

    standing: Standing
    redelivery_count: int


class Kept:
    """Messages the application has had before a break, which the broker may give again.

    Bodies are kept of those alone that the application still works on.
    """

    def __init__(self) -> None:
        self._messages: dict[tuple[str, Destination, int], tuple[int, Message | SeenMessage]] = {}

    def put(self, consumer: int, message: Message) -> None:
        """Remember one, as it stands now."""
        if len(self._messages) >= KEPT_MAX:
            self._messages.pop(next(iter(self._messages)))
        kept = message if message.standing is Standing.HELD else SeenMessage(message.standing, message.redelivery_count)
        self._messages[_key(consumer, message)] = (consumer, kept)

    def settled(self, message: Message) -> None:
        """Note that the application is done with one that it had before a break."""
        key = _key(message.consumer, message)
        owner, known = self._messages.get(key, (0, None))
        if known is message:
            self._messages[key] = (owner, SeenMessage(Standing.SETTLED, message.redelivery_count))

    def pop(self, consumer: int, message: Message) -> Message | SeenMessage | None:
        """Return the one that has come again, once; what another consumer still works on stays with that one."""
        key = _key(consumer, message)
        owner, known = self._messages.get(key, (consumer, None))
        if known is None or (owner != consumer and known.standing is Standing.HELD):
            return known
        return self._messages.pop(key)[1]

    def has_for(self, consumer: int) -> bool:
        """Check whether something that a consumer was given has not come again."""
        held = (message for owner, message in self._messages.values() if owner == consumer)
        return any(message.standing is not Standing.WAITING for message in held)

    def forget(self, consumer: int) -> None:
        """Forget what a consumer holds that is gone: it may come again, to whom it will."""
        for key, (owner, message) in list(self._messages.items()):
            if owner == consumer and message.standing is not Standing.SETTLED:
                del self._messages[key]


def _key(consumer: int, message: Message) -> tuple[str, Destination, int]:
    """A queue's message may come again to any consumer; a topic's belongs to the one subscription."""
    return message.id, message.destination, 0 if message.destination.is_queue else consumer


class ConsumerState:
    """One consumer. Not thread-safe.

    Attributes:
        subscribe: the request that makes it, and makes it again.
        ticket: the answer to that.
        bell: rings when there may be something to take, or it has ended.
        error: why there will be no more messages; None while there may be.
        last: the last message the application has got.
        on_message: gets each message at once, instead of somebody who asks; it counts as processed then.
        settler: what a message's `ack` calls; by default `settle`.
    """

    def __init__(
        self,
        subscribe: Subscribe,
        *,
        requests: Requests,
        kept: Kept,
        redelivery: Redelivery,
        clock: Callable[[], float],
    ) -> None:
        """Begin.

        Args:
            subscribe: see above.
            requests: the connection's.
            kept: the connection's.
            redelivery: how messages come again after a rollback.
            clock: seconds.
        """
        self.subscribe = subscribe
        self.ticket: Ticket[None] = Ticket()
        self.bell = Bell()
        self.error: ClientError | None = None
        self.last: Message | None = None
        self.on_message: Callable[[Message], None] | None = None
        self.settler: Callable[[Message], None] = self.settle
        self._number = subscribe.consumer
        self._kept = kept
        self._redelivery = redelivery
        self._clock = clock
        self._requests = requests
        self._is_pulling = subscribe.prefetch == 0
        self._is_asked = False
        self._run_max = max(1, min(RUN_MAX, subscribe.prefetch // 2))
        self._waiting: deque[Message] = deque()
        self._delivered: deque[Message] = (
            deque()
        )  # by the present broker, unacknowledged, in its order; cumulative only
        self._held: dict[str, Message] = {}  # the same for the other modes, the application has them
        self._handed: deque[Message] = deque()  # client mode: what the application has, in its order
        self._current: Message | None = None
        self._owed = 0
        self._ack_at = self._paused_until = float("inf")
        self._unconfirmed: deque[Message] = deque()
        self._unfenced = 0
        self._fence_every = 1 if self._is_pulling else FENCE_EVERY

    # ------------------------------------------------------------ from the broker

    def arrive(self, message: Message) -> None:
        """Take a message that the broker delivers."""
        self._is_asked = False
        known = self._kept.pop(self._number, message)
        if known is not None:
            message = self._recognised(message, known)
        message.consumer, message.settle = self._number, self.settler
        if self.subscribe.ack.is_cumulative:
            self._delivered.append(message)
        elif message.standing is Standing.HELD:
            self._held[message.id] = message
        if message.standing is Standing.WAITING:
            self._waiting.append(message)
            self._hand_on()
            self.bell.ring()
        elif message.standing is Standing.SETTLED:
            self._settled(message)
        if self._is_pulling and message.standing is not Standing.WAITING:
            self._recall()

    def _recognised(self, message: Message, known: Message | SeenMessage) -> Message:
        """Return the message to go on with, of one that comes and the same as it came before."""
        message.redelivery_count = max(message.redelivery_count, known.redelivery_count)
        if known.standing is Standing.SETTLED:
            message.standing = Standing.SETTLED
        elif isinstance(known, Message) and known.standing is Standing.HELD and known.consumer == self._number:
            known.receipt = message.receipt
            return known
        else:
            message.redelivery_count = max(1, message.redelivery_count)  # the application has seen it: say so
        return message

    def _hand_on(self) -> None:
        if self.on_message is not None and (message := self.take()) is not None:
            self.on_message(message)
            self.finish_current()

    def interrupted(self) -> None:
        """Note that the broker is gone, and what it may not know any more."""
        for message in self._unconfirmed:
            self._kept.put(self._number, message)
        for message in self._delivered or self._held.values():
            if message.standing is not Standing.WAITING:
                self._kept.put(self._number, message)
                message.receipt = None
        for message in self._waiting:
            if message.redelivery_count:
                self._kept.put(self._number, message)  # for the count: the next broker may not know it
        for left in (self._waiting, self._delivered, self._unconfirmed):
            left.clear()
        self._held.clear()
        self._owed = self._unfenced = 0
        self._ack_at = self._paused_until = float("inf")
        if self._is_pulling:
            self.exhausted()

    def restored(self) -> None:
        """Note that the next broker is asked for it."""
        if self._is_pulling:
            self._recall()

    def exhausted(self) -> None:
        """Note that the broker has no message for it, for now."""
        self._is_asked = False
        self.bell.ring()

    # ------------------------------------------------------------ pulling

    def ask(self, seconds: float | None) -> float | None:
        """Have the broker send a message, if it sends none by itself (prefetch 0), and return how long to wait for one.

        Args:
            seconds: how long the application wants to wait; None for as long as it takes.
        """
        if not self._is_pulling or self._waiting or not self._requests.is_open:
            return seconds
        if not self._is_asked or seconds == 0:
            self._pull(seconds)
        return None if seconds is None else seconds + ANSWER_SECONDS

    def withdraw(self) -> None:
        """Have the broker keep the message that was asked for: nobody waits for it any more."""
        if self._is_asked:
            self._pull(0)

    def _pull(self, seconds: float | None) -> None:
        self._is_asked = True
        number, destination = self._number, self.subscribe.destination
        self._requests.tell(Pull(consumer=number, destination=destination, seconds=seconds))

    def _recall(self) -> None:
        """Have again what the last broker gave, so that it can be acknowledged; then what the application waits for."""
        if self._kept.has_for(self._number):
            self._pull(0)
        else:
            self.bell.ring()

    # ------------------------------------------------------------ to the application

    def take(self) -> Message | None:
        """Return the next message; None if there is none now. What was given before counts as processed (auto).

        Raises:
            ClientError: it has ended.
        """
        if self.error is not None:
            raise self.error.with_traceback(None)
        self.finish_current()
        if not self._waiting or self._is_paused():
            self.acknowledge_run()
            return None
        message = self._waiting.popleft()
        message.standing = Standing.HELD
        self.last = message
        if self.subscribe.ack is AckMode.AUTO:
            self._current = message
        elif self.subscribe.ack is AckMode.CLIENT:
            self._handed.append(message)
        if not self.subscribe.ack.is_cumulative:
            self._held[message.id] = message
        return message

    def finish_current(self) -> None:
        """Count the message that the application got last as processed (auto)."""
        current, self._current = self._current, None
        if current is not None:
            self.settle(current)

    def settle(self, message: Message) -> None:
        """Note that the application is done with a message; in client mode with those before it, too.

        Raises:
            ConnectionClosed: the consumer is gone.
        """
        if message.standing is not Standing.HELD:
            return
        if self.error is not None:
            raise ConnectionClosed("the consumer is closed: the message comes again") from self.error
        if self.subscribe.ack is AckMode.TRANSACTED:
            raise ClientError(
                "a message of a transacted consumer is acknowledged by its transaction: transaction.ack()"
            )
        message.standing = Standing.SETTLED
        if self.subscribe.ack is AckMode.CLIENT:
            while (earlier := self._handed.popleft()) is not message:
                earlier.standing = Standing.SETTLED
                if earlier.receipt is None:
                    self._kept.settled(earlier)
        self._settled(message)

    def _settled(self, message: Message) -> None:
        if message.receipt is None:
            self._kept.settled(message)  # of a broker that is gone: it is acknowledged when it comes again
            return
        if not self.subscribe.ack.is_cumulative:
            self._held.pop(message.id, None)
            self._acknowledge([message], individually=True)
            return
        self._owed += 1
        if self.subscribe.ack is AckMode.CLIENT or self._owed >= self._run_max or not self._waiting:
            self.acknowledge_run()
        elif self._ack_at == float("inf"):
            self._ack_at = self._clock() + ACK_DELAY_SECONDS

    def acknowledge_run(self) -> None:
        """Acknowledge what is settled, from the oldest on without a gap."""
        if not self._owed:
            return
        delivered, run = self._delivered, list[Message]()
        while delivered and delivered[0].standing is Standing.SETTLED:
            run.append(delivered.popleft())
        self._owed, self._ack_at = 0, float("inf")
        if run:
            self._acknowledge(run, individually=False)

    def _acknowledge(self, messages: list[Message], *, individually: bool) -> None:
        self._unconfirmed.extend(messages)
        self._unfenced += len(messages)
        is_fence = self._unfenced >= self._fence_every
        request = Acknowledge(consumer=self._number, messages=messages, individually=individually)
        ticket = self._requests.acknowledge(request, answer=is_fence)
        if is_fence and ticket is not None:
            self._unfenced = 0
            confirmed = self._unconfirmed[-1]
            ticket.watch(lambda: self._confirm(confirmed, ticket))

    def _confirm(self, last: Message, ticket: "Ticket[None]") -> None:
        """Forget what the broker knows for certain: it takes requests in their order."""
        if ticket.error is not None or last not in self._unconfirmed:
            return
        while self._unconfirmed.popleft() is not last:
            pass

    # ------------------------------------------------------------ transactions

    def join(self, message: Message, transaction: int) -> None:
        """Acknowledge a message in a transaction.

        Raises:
            ClientError: it is no message of a transacted consumer that the application holds.
        """
        if self.subscribe.ack is not AckMode.TRANSACTED or message.standing is not Standing.HELD:
            raise ClientError('a transaction takes messages of a consumer with ack="transacted", each once')
        message.standing = Standing.SETTLED
        if message.receipt is not None:
            self._held.pop(message.id, None)
            request = Acknowledge(consumer=self._number, messages=[message], individually=True, transaction=transaction)
            self._requests.acknowledge(request, answer=False)

    def redeliver(self, messages: list[Message]) -> None:
        """Give messages again whose transaction was rolled back, the oldest first; the broker does not."""
        again: list[Message] = []
        for message in messages:
            if message.receipt is None or self.error is not None:
                continue  # the broker gives it again
            message.redelivery_count += 1
            if 0 <= self._redelivery.maximum < message.redelivery_count:
                reason = f"Delivery[{message.redelivery_count}] exceeds redelivery policy limit: it was rolled back"
                poison = Acknowledge(consumer=self._number, messages=[message], individually=True, poison=reason)
                self._requests.acknowledge(poison, answer=False)
                continue
            message.standing = Standing.WAITING
            again.append(message)
        self._waiting.extendleft(reversed(again))
        if again:
            delay = max(self._redelivery.delay(message.redelivery_count) for message in again)
            self._paused_until = self._clock() + delay
            self.bell.ring()

    def give_back(self, message: Message) -> None:
        """Give a message again that no transaction has taken."""
        if message.standing is not Standing.HELD or self.error is not None:
            return
        self._held.pop(message.id, None)
        message.standing = Standing.WAITING
        if message.receipt is None:
            self.lost_in_transaction([message])
        else:
            message.redelivery_count += 1
            self._waiting.appendleft(message)
            self.bell.ring()

    def lost_in_transaction(self, messages: list[Message]) -> None:
        """Remember, when a transaction broke off, that the application has seen its messages."""
        for message in messages:
            message.redelivery_count += 1
            message.standing = Standing.WAITING
            self._kept.put(self._number, message)

    # ------------------------------------------------------------ time, and the end

    @property
    def due_at(self) -> float:
        """When `tick` has something to do."""
        return min(self._ack_at, self._paused_until)

    def tick(self, now: float) -> None:
        """Do what is due."""
        if now >= self._ack_at:
            self.acknowledge_run()
        if now >= self._paused_until:
            self._paused_until = float("inf")
            self.bell.ring()

    def _is_paused(self) -> bool:
        return self._paused_until != float("inf") and self._clock() < self._paused_until

    def end(self, error: ClientError) -> None:
        """Give no more messages."""
        if self.error is None:
            self.acknowledge_run()
            self.error = error
            self._kept.forget(self._number)
            for left in (self._waiting, self._delivered, self._handed):
                left.clear()
            self._held.clear()
            self.bell.ring()
