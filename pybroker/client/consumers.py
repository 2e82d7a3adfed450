"""The messages of one consumer, on their way from the broker to the application, and their acknowledgements.

```text
 broker ──> WAITING ──receive──> DELIVERED ──ack──> ACKNOWLEDGED ──MessageAck──> unconfirmed ──response──> removed
                ^                    │
                └────── rollback ────┘
```

When the connection breaks, the broker redelivers all unacknowledged messages. The consumer drops its WAITING messages,
because they arrive again in order. It keeps the DELIVERED and ACKNOWLEDGED ones in a `RedeliveryCache`, and does not
deliver them to the application twice. If the application still processes a redelivered message, its acknowledgement
applies to the new delivery. If the application has acknowledged it, the consumer acknowledges the new delivery at once.
So a break causes a duplicate only if the broker gave the message to another client in between.

Source: JMS 1.1, Message Acknowledgment; ActiveMQ 5.17, `RedeliveryPolicy`.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from pybroker.broker.domain.destination import Destination
from pybroker.client.conversation import AckMode, Acknowledge, AddConsumer, Pull, SetPrefetch
from pybroker.client.errors import ClientError, ConnectionClosed
from pybroker.client.messages import DeliveryState, Message
from pybroker.client.pending import Callbacks, PendingResult
from pybroker.client.requests import Requests

ACK_DELAY_SECONDS: Final = 0.1
"""The longest time that the acknowledgement of a processed message waits, to be sent with others."""

ACK_BATCH_MAX: Final = 100
"""The most messages acknowledged together. The limit bounds how many are redelivered after a crash of the client."""

CONFIRM_EVERY: Final = 64
"""One acknowledgement in so many messages requests a response, which confirms all before it and costs a disk sync."""

ANSWER_SECONDS: Final = 1.0
"""Time added to the timeout of a pull, in which the broker may still answer that it has no message."""

REDELIVERY_CACHE_MAX: Final = 10_000
"""The most messages that one connection keeps in its redelivery cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redelivery:
    """The redelivery policy for messages of a transaction that was rolled back. Defaults are ActiveMQ's.

    Attributes:
        maximum: redeliveries before a message goes to the dead letter queue; -1 for no limit.
        initial_delay: seconds before the first redelivery. The consumer delivers no other message until then, which
            keeps the order.
        multiplier: factor from each delay to the next.
        maximum_delay: the longest delay in seconds.
    """

    maximum: int = 6
    initial_delay: float = 1.0
    multiplier: float = 1.0
    maximum_delay: float = 60.0

    def delay(self, redelivery_count: int) -> float:
        """Return the seconds before the redelivery with that count; 1 is the first."""
        if self.multiplier <= 1:
            return self.initial_delay
        # The exponent is bounded, so that the power does not overflow.
        return min(self.initial_delay * self.multiplier ** min(redelivery_count - 1, 64), self.maximum_delay)


@dataclass(frozen=True, slots=True)
class SeenMessage:
    """The cache entry of a message that was acknowledged or rolled back, without its body."""

    delivery_state: DeliveryState
    redelivery_count: int


class RedeliveryCache:
    """Messages that the application received before a break, and that a broker may redeliver.

    The cache keeps the bodies of DELIVERED messages only.
    """

    def __init__(self) -> None:
        self._messages: dict[tuple[str, Destination, int], tuple[int, Message | SeenMessage]] = {}

    def put(self, consumer: int, message: Message) -> None:
        """Add a message with its present delivery state; above the limit, remove the oldest entry."""
        if len(self._messages) >= REDELIVERY_CACHE_MAX:
            self._messages.pop(next(iter(self._messages)))
        cached = (
            message
            if message.delivery_state is DeliveryState.DELIVERED
            else SeenMessage(message.delivery_state, message.redelivery_count)
        )
        self._messages[_key(consumer, message)] = (consumer, cached)

    def mark_acknowledged(self, message: Message) -> None:
        """Record that the application acknowledged a message that it received before a break."""
        key = _key(message.consumer, message)
        owner, known = self._messages.get(key, (0, None))
        if known is message:
            self._messages[key] = (owner, SeenMessage(DeliveryState.ACKNOWLEDGED, message.redelivery_count))

    def pop(self, consumer: int, message: Message) -> Message | SeenMessage | None:
        """Remove and return the entry of a redelivered message; None if there is none.

        The entry stays if another consumer's application still processes the message.
        """
        key = _key(consumer, message)
        owner, known = self._messages.get(key, (consumer, None))
        if known is None or (owner != consumer and known.delivery_state is DeliveryState.DELIVERED):
            return known
        return self._messages.pop(key)[1]

    def awaits_redelivery(self, consumer: int) -> bool:
        """Return True if a consumer has received a message that was not redelivered yet."""
        received = (message for owner, message in self._messages.values() if owner == consumer)
        return any(message.delivery_state is not DeliveryState.WAITING for message in received)

    def has_delivered(self, consumer: int) -> bool:
        """Return True if the application still processes a message of a consumer that was not redelivered yet."""
        return any(
            owner == consumer and message.delivery_state is DeliveryState.DELIVERED
            for owner, message in self._messages.values()
        )

    def discard(self, consumer: int) -> None:
        """Remove the unacknowledged messages of a closed consumer: the broker may deliver them to any consumer."""
        for key, (owner, message) in list(self._messages.items()):
            if owner == consumer and message.delivery_state is not DeliveryState.ACKNOWLEDGED:
                del self._messages[key]


def _key(consumer: int, message: Message) -> tuple[str, Destination, int]:
    """Return the key of a message: a queue's may be redelivered to any consumer, a topic's to its subscription only."""
    return message.id, message.destination, 0 if message.destination.is_queue else consumer


class ConsumerState:
    """The state of one consumer. Not thread-safe.

    Attributes:
        subscribe: the request that opens the consumer on a broker, and restores it on the next one.
        subscribe_result: the result of that request.
        on_change: called when a message may be available, or the consumer has ended.
        error: the reason why the consumer ended; None while it is open.
        last_served: when `ClientState.receive_any` chose this consumer last, as a number that grows; 0 for never.
        is_stopped: what the broker delivers returns to the queue, see `ClientState.stop`.
        on_message: a listener that gets each message at once. When it returns, the message counts as processed.
        on_ack: the function that `Message.ack` calls; by default `acknowledge`.
    """

    def __init__(
        self,
        subscribe: AddConsumer,
        *,
        requests: Requests,
        redelivery_cache: RedeliveryCache,
        redelivery: Redelivery,
        clock: Callable[[], float],
    ) -> None:
        """Create the state; the caller submits the request.

        Args:
            subscribe: the request that opens the consumer.
            requests: the connection's requests.
            redelivery_cache: the connection's cache.
            redelivery: the redelivery policy after a rollback.
            clock: returns seconds of a monotonic clock.
        """
        self.subscribe = subscribe
        self.subscribe_result: PendingResult[None] = PendingResult()
        self.on_change = Callbacks()
        self.error: ClientError | None = None
        self.last_served = 0
        self.is_stopped = False
        self.on_message: Callable[[Message], None] | None = None
        self.on_ack: Callable[[Message], None] = self.acknowledge
        self._number = subscribe.consumer
        self._redelivery_cache = redelivery_cache
        self._redelivery = redelivery
        self._clock = clock
        self._requests = requests
        self._set_window(subscribe.prefetch)
        self._is_pull_pending = self._is_pull_cancelled = False
        self._waiting: deque[Message] = deque()
        # Cumulative modes: messages of the present broker that are not acknowledged to it, in its order.
        self._outstanding: deque[Message] = deque()
        # The other modes: the same by id, without those that wait.
        self._delivered: dict[str, Message] = {}
        # Client mode: messages that the application has and did not acknowledge, in the order it got them.
        self._delivered_in_order: deque[Message] = deque()
        self._current: Message | None = None
        self._last: Message | None = None
        self._unsent_ack_count = 0
        self._ack_at = self._paused_until = float("inf")
        self._unconfirmed: deque[Message] = deque()
        self._since_confirmation = 0

    def _set_window(self, prefetch: int) -> None:
        self._is_pulling = prefetch == 0
        self._ack_batch_max = max(1, min(ACK_BATCH_MAX, prefetch // 2))
        self._confirm_every = 1 if self._is_pulling else CONFIRM_EVERY

    # ------------------------------------------------------------ from the broker

    def dispatch(self, message: Message) -> None:
        """Process a message that the broker delivers."""
        self._is_pull_pending = False
        known = self._redelivery_cache.pop(self._number, message)
        if known is not None:
            message = self._merge_redelivery(message, known)
        message.consumer, message.on_ack = self._number, self.on_ack
        if self.subscribe.ack.is_cumulative:
            self._outstanding.append(message)
        elif message.delivery_state is DeliveryState.DELIVERED:
            self._delivered[message.id] = message
        if message.delivery_state is DeliveryState.WAITING:
            self._waiting.append(message)
            self._call_listener()
            self.on_change.call()
        elif message.delivery_state is DeliveryState.ACKNOWLEDGED:
            self._acknowledged(message)
        if self._is_pulling and message.delivery_state is not DeliveryState.WAITING:
            self._resume_pulling()

    def _merge_redelivery(self, message: Message, known: Message | SeenMessage) -> Message:
        """Merge a redelivered message with its cache entry, and return the one that the application acknowledges."""
        message.redelivery_count = max(message.redelivery_count, known.redelivery_count)
        if known.delivery_state is DeliveryState.ACKNOWLEDGED:
            message.delivery_state = DeliveryState.ACKNOWLEDGED
        elif (
            isinstance(known, Message)
            and known.delivery_state is DeliveryState.DELIVERED
            and known.consumer == self._number
        ):
            known.receipt = message.receipt
            return known
        else:
            message.redelivery_count = max(1, message.redelivery_count)  # mark it: the application has seen it
        return message

    def _call_listener(self) -> None:
        if self.on_message is not None and (message := self.receive_no_wait()) is not None:
            self.on_message(message)
            self.acknowledge_current()

    def interrupted(self) -> None:
        """Handle the loss of the broker: drop what it redelivers, and cache what the application received."""
        for message in self._unconfirmed:
            self._redelivery_cache.put(self._number, message)
        for message in self._outstanding or self._delivered.values():
            if message.delivery_state is not DeliveryState.WAITING:
                self._redelivery_cache.put(self._number, message)
                message.receipt = None
        for message in self._waiting:
            if message.redelivery_count:
                self._redelivery_cache.put(self._number, message)  # keeps the count, which the next broker may not know
        for messages in (self._waiting, self._outstanding, self._unconfirmed):
            messages.clear()
        self._delivered.clear()
        self._unsent_ack_count = self._since_confirmation = 0
        self._ack_at = self._paused_until = float("inf")
        if self._is_pulling:
            self.exhausted()

    def restored(self) -> None:
        """Continue after the consumer was requested on the next broker."""
        if self._is_pulling:
            self._resume_pulling()

    def exhausted(self) -> None:
        """Handle the broker's answer that it has no message for this consumer at present."""
        self._is_pull_pending = False
        self.on_change.call()

    # ------------------------------------------------------------ pulling

    def pull(self, seconds: float | None) -> float | None:
        """Request one message if the prefetch is 0, and return the seconds to wait for it; None for no limit.

        Args:
            seconds: the application's timeout; None for no limit.
        """
        if not self._is_pulling or self._waiting or not self._requests.is_open:
            return seconds
        if not self._is_pull_pending or seconds == 0:
            self._send_pull(seconds)
        return None if seconds is None else seconds + ANSWER_SECONDS

    @property
    def awaits_pull(self) -> bool:
        """True if the broker has not answered a pull yet."""
        return self._is_pull_pending

    def set_prefetch(self, prefetch: int) -> None:
        """Change the prefetch on the present broker and on later ones. Messages that wait already are delivered first.

        Raises:
            UnsendableMessage: the protocol has no form for it.
            ClientError: the consumer has ended.
        """
        if self.error is not None:
            raise self.error.with_traceback(None)
        self._requests.send_once(
            SetPrefetch(consumer=self._number, destination=self.subscribe.destination, prefetch=prefetch),
            self._requests.number(),
        )
        self.subscribe = replace(self.subscribe, prefetch=prefetch)
        self.is_stopped = False
        self._set_window(prefetch)
        self.flush_acknowledgements()
        if self._is_pulling:
            self.on_change.call()  # a thread that waits for a message has to pull it

    def cancel_pull(self) -> None:
        """Cancel a pull, so that the broker keeps the message."""
        if self._is_pull_pending and not self._is_pull_cancelled:
            self._send_pull(0)
            self._is_pull_cancelled = True

    def _send_pull(self, seconds: float | None) -> None:
        self._is_pull_pending, self._is_pull_cancelled = True, False
        number, destination = self._number, self.subscribe.destination
        self._requests.send_once_or_log(Pull(consumer=number, destination=destination, seconds=seconds))

    def _resume_pulling(self) -> None:
        """Pull the messages to be redelivered, which allows their acknowledgement; then let the application pull."""
        if self._redelivery_cache.awaits_redelivery(self._number):
            self._send_pull(0)
        else:
            self.on_change.call()

    # ------------------------------------------------------------ to the application

    @property
    def has_message(self) -> bool:
        """True if `receive_no_wait` returns a message now."""
        return self.error is None and bool(self._waiting) and not self._is_paused()

    def receive_no_wait(self) -> Message | None:
        """Return the next message; None if there is none now. In auto mode this acknowledges the previous one.

        Raises:
            ClientError: the consumer has ended.
        """
        if self.error is not None:
            raise self.error.with_traceback(None)
        self.acknowledge_current()
        if not self._waiting or self._is_paused():
            self.flush_acknowledgements()
            return None
        message = self._waiting.popleft()
        message.delivery_state = DeliveryState.DELIVERED
        if self.subscribe.ack is AckMode.AUTO:
            self._current = message
        elif self.subscribe.ack is AckMode.CLIENT:
            self._delivered_in_order.append(message)
        self._last = message
        if not self.subscribe.ack.is_cumulative:
            self._delivered[message.id] = message
        return message

    def acknowledge_current(self) -> None:
        """Acknowledge the message that the application received last, in auto mode."""
        current, self._current = self._current, None
        if current is not None:
            self.acknowledge(current)

    def acknowledge(self, message: Message) -> None:
        """Acknowledge a message for the application; in client mode, all messages before it as well.

        Raises:
            ConnectionClosed: the consumer is closed.
            ClientError: the consumer is transacted.
        """
        if message.delivery_state is not DeliveryState.DELIVERED:
            return
        if self.error is not None:
            raise ConnectionClosed("the consumer is closed: the message will be redelivered") from self.error
        if self.subscribe.ack is AckMode.TRANSACTED:
            raise ClientError(
                "a message of a transacted consumer is acknowledged by its transaction: transaction.ack()"
            )
        message.delivery_state = DeliveryState.ACKNOWLEDGED
        if self.subscribe.ack is AckMode.CLIENT:
            while (earlier := self._delivered_in_order.popleft()) is not message:
                earlier.delivery_state = DeliveryState.ACKNOWLEDGED
                if earlier.receipt is None:
                    self._redelivery_cache.mark_acknowledged(earlier)
        self._acknowledged(message)

    def reject(self, message: Message, reason: str) -> None:
        """Let the broker move a message to its dead letter queue.

        Raises:
            ConnectionClosed: the consumer is closed.
            ClientError: messages are not acknowledged individually, or this one is acknowledged.
        """
        if self.error is not None:
            raise ConnectionClosed("the consumer is closed: the message will be redelivered") from self.error
        if self.subscribe.ack is not AckMode.INDIVIDUAL or message.delivery_state is not DeliveryState.DELIVERED:
            raise ClientError('a consumer with ack="individual" rejects a message instead of acknowledging it')
        if message.receipt is None:  # the broker that delivered it is lost, and the next one delivers it again
            self.cache_for_redelivery([message])
            return
        message.delivery_state = DeliveryState.ACKNOWLEDGED
        self._delivered.pop(message.id, None)
        poison = Acknowledge(consumer=self._number, messages=[message], individually=True, poison=reason)
        self._requests.acknowledge(poison, answer=False)

    def _acknowledged(self, message: Message) -> None:
        if message.receipt is None:
            # The broker that delivered it is lost. The acknowledgement follows its redelivery.
            self._redelivery_cache.mark_acknowledged(message)
            return
        if not self.subscribe.ack.is_cumulative:
            self._delivered.pop(message.id, None)
            self._send_acknowledgement([message], individually=True)
            return
        self._unsent_ack_count += 1
        if self.subscribe.ack is AckMode.CLIENT or self._unsent_ack_count >= self._ack_batch_max or not self._waiting:
            self.flush_acknowledgements()
        elif self._ack_at == float("inf"):
            self._ack_at = self._clock() + ACK_DELAY_SECONDS

    def flush_acknowledgements(self) -> None:
        """Send one acknowledgement for the oldest messages, up to the first that is not acknowledged."""
        if not self._unsent_ack_count:
            return
        outstanding, batch = self._outstanding, list[Message]()
        while outstanding and outstanding[0].delivery_state is DeliveryState.ACKNOWLEDGED:
            batch.append(outstanding.popleft())
        self._unsent_ack_count, self._ack_at = 0, float("inf")
        if batch:
            self._send_acknowledgement(batch, individually=False)

    def _send_acknowledgement(self, messages: list[Message], *, individually: bool) -> None:
        self._unconfirmed.extend(messages)
        self._since_confirmation += len(messages)
        needs_answer = self._since_confirmation >= self._confirm_every
        request = Acknowledge(consumer=self._number, messages=messages, individually=individually)
        pending = self._requests.acknowledge(request, answer=needs_answer)
        if needs_answer and pending is not None:
            self._since_confirmation = 0
            confirmed = self._unconfirmed[-1]
            pending.add_done_callback(lambda: self._confirm(confirmed, pending))

    def _confirm(self, last: Message, pending: "PendingResult[None]") -> None:
        """Remove confirmed messages: the broker processes requests in order."""
        if pending.error is not None or last not in self._unconfirmed:
            return
        while self._unconfirmed.popleft() is not last:
            pass

    # ------------------------------------------------------------ transactions

    def acknowledge_in_transaction(self, message: Message, transaction: int) -> None:
        """Acknowledge a message in a transaction.

        Raises:
            ClientError: the consumer is not transacted, or the message is already acknowledged or rolled back.
        """
        if self.subscribe.ack is not AckMode.TRANSACTED or message.delivery_state is not DeliveryState.DELIVERED:
            raise ClientError('a transaction acknowledges messages of a consumer with ack="transacted", each once')
        message.delivery_state = DeliveryState.ACKNOWLEDGED
        self.send_in_transaction(message, transaction)

    def send_in_transaction(self, message: Message, transaction: int) -> None:
        """Send the acknowledgement of a message that takes effect with a transaction."""
        if message.receipt is not None:
            self._delivered.pop(message.id, None)
            request = Acknowledge(consumer=self._number, messages=[message], individually=True, transaction=transaction)
            self._requests.acknowledge(request, answer=False)

    def redeliver(self, messages: list[Message]) -> None:
        """Redeliver messages of a rolled back transaction, the oldest first: the broker leaves this to the client."""
        if self.subscribe.ack is not AckMode.TRANSACTED:
            self._restore_delivered(messages)
            return
        again: list[Message] = []
        for message in messages:
            if message.receipt is None or self.error is not None:
                continue  # the broker redelivers it
            message.redelivery_count += 1
            if 0 <= self._redelivery.maximum < message.redelivery_count:
                reason = f"Delivery[{message.redelivery_count}] exceeds redelivery policy limit: it was rolled back"
                poison = Acknowledge(consumer=self._number, messages=[message], individually=True, poison=reason)
                self._requests.acknowledge(poison, answer=False)
                continue
            message.delivery_state = DeliveryState.WAITING
            again.append(message)
        self._waiting.extendleft(reversed(again))
        if again:
            delay = max(self._redelivery.delay(message.redelivery_count) for message in again)
            self._paused_until = self._clock() + delay
            self.on_change.call()

    def _restore_delivered(self, messages: list[Message]) -> None:
        """Handle that the broker refused to have messages given back: the application has them as before."""
        for message in messages:
            if message.receipt is not None and self.error is None:
                message.delivery_state = DeliveryState.DELIVERED
                self._delivered[message.id] = message

    def requeue(self, message: Message) -> None:
        """Put a delivered message back in front of those that wait, because its transaction has ended."""
        if message.delivery_state is not DeliveryState.DELIVERED or self.error is not None:
            return
        self._delivered.pop(message.id, None)
        message.delivery_state = DeliveryState.WAITING
        if message.receipt is None:
            self.cache_for_redelivery([message])
        else:
            message.redelivery_count += 1
            self._waiting.appendleft(message)
            self.on_change.call()

    def cache_for_redelivery(self, messages: list[Message]) -> None:
        """Cache the messages of a failed transaction, so that their redeliveries are marked as such."""
        for message in messages:
            message.redelivery_count += 1
            message.delivery_state = DeliveryState.WAITING
            self._redelivery_cache.put(self._number, message)

    # ------------------------------------------------------------ giving back

    @property
    def last(self) -> Message | None:
        """The last message that the application received and that the broker may deliver again; None for none.

        A broker finds it among the outstanding messages only.
        """
        return self._last if self.subscribe.ack.is_cumulative else next(reversed(self._delivered.values()), None)

    def check_can_stop(self) -> None:
        """Check that the messages of this consumer can be given back.

        Raises:
            ClientError: the consumer does not acknowledge individually, or its destination is no queue.
        """
        if self.subscribe.ack is not AckMode.INDIVIDUAL or not self.subscribe.destination.is_queue:
            raise ClientError('only a consumer of a queue with ack="individual" can be stopped')

    def check_can_give_back(self, message: Message) -> None:
        """Check that the application may give a message back.

        Raises:
            ClientError: the consumer does not acknowledge individually, its destination is no queue, or the message is
                acknowledged or given back already.
        """
        if self.subscribe.ack is not AckMode.INDIVIDUAL:
            raise ClientError('only messages of a consumer with ack="individual" can be given back')
        if not (message.source or message.destination).is_queue:
            raise ClientError(f"only messages of a queue can be given back, not of {message.source}")
        if message.delivery_state is not DeliveryState.DELIVERED:
            raise ClientError(f"the message is acknowledged or given back already: {message.id}")

    def has_only(self, message: Message) -> bool:
        """Return True if the application has no other message of this consumer without an acknowledgement."""
        return [*self._delivered] == [message.id] and not self._redelivery_cache.has_delivered(self._number)

    def give_back(self, message: Message) -> None:
        """Drop a message, because any consumer may get it from now on. Its redelivery to this one is marked."""
        self._delivered.pop(message.id, None)
        if message.receipt is None:  # the next broker redelivers it
            self.cache_for_redelivery([message])
        message.delivery_state = DeliveryState.GIVEN_BACK

    def reopen(self, subscribe: AddConsumer) -> None:
        """Continue as another consumer of the broker, which has got back all messages of the former one."""
        self.subscribe, self._number = subscribe, subscribe.consumer
        for message in self._waiting:
            if message.redelivery_count:
                self._redelivery_cache.put(self._number, message)  # as in `interrupted`
        self._waiting.clear()
        self._is_pull_pending = self._is_pull_cancelled = False
        self.on_change.call()  # a thread that waits may have to pull again

    # ------------------------------------------------------------ time and end

    @property
    def due_at(self) -> float:
        """The time of the next `tick`; infinite for none."""
        return min(self._ack_at, self._paused_until)

    def tick(self, now: float) -> None:
        """Send acknowledgements that are due, and end the pause before a redelivery."""
        if now >= self._ack_at:
            self.flush_acknowledgements()
        if now >= self._paused_until:
            self._paused_until = float("inf")
            self.on_change.call()

    def _is_paused(self) -> bool:
        return self._paused_until != float("inf") and self._clock() < self._paused_until

    def end(self, error: ClientError) -> None:
        """End the consumer: send its acknowledgements and drop its messages."""
        if self.error is None:
            self.flush_acknowledgements()
            self.error = error
            self._redelivery_cache.discard(self._number)
            for messages in (self._waiting, self._outstanding, self._delivered_in_order):
                messages.clear()
            self._delivered.clear()
            self.on_change.call()
