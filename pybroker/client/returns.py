"""Messages that the application gives back: they return to their queue, for any consumer.

OpenWire and STOMP have no request for that. There are three ways, and the first that is possible is used:

```text
 way                                            possible if                              place    other messages
 release                                        pybroker, over OpenWire                  kept     stay
 reopen the consumer                            the application has no other one of it   kept     prefetched ones return
 acknowledge, and send a copy, in a transaction always                                   last     stay
```

After a break the message is in its queue in any case: the next broker redelivers it, or has its copy.

Source: OpenWire v12, `MessageAck`, `RemoveInfo.lastDeliveredSequenceId`.
"""

from collections.abc import Iterator, MutableMapping
from dataclasses import replace
from typing import Any

from pybroker.client.consumers import ConsumerState
from pybroker.client.conversation import Release, RemoveConsumer
from pybroker.client.messages import Message
from pybroker.client.pending import PendingResult
from pybroker.client.requests import Requests
from pybroker.client.transactions import Transactions


class Returns:
    """Gives messages of one connection back. Not thread-safe."""

    def __init__(
        self,
        requests: Requests,
        transactions: Transactions,
        consumers: MutableMapping[int, ConsumerState],
        numbers: Iterator[int],
    ) -> None:
        """Create it.

        Args:
            requests: the connection's requests.
            transactions: the connection's transactions.
            consumers: the connection's open consumers, by number.
            numbers: the numbers of new consumers.
        """
        self._requests = requests
        self._transactions = transactions
        self._consumers = consumers
        self._numbers = numbers

    def give_back(
        self, consumer: ConsumerState, message: Message, *, is_seen: bool, can_release: bool
    ) -> PendingResult[None]:
        """Give a message back; when the result is there, the broker has it in its queue.

        Args:
            consumer: the consumer of the message.
            message: the message.
            is_seen: the application has received it: this counts as a delivery, of which a broker may allow a number.
            can_release: as `Conversation.can_release` of the present broker.

        Raises:
            ClientError: as `ConsumerState.check_can_give_back`.
            UnreadableMessage, UnsendableMessage, FrameTooLarge: the message has to be copied, and cannot be.
        """
        consumer.check_can_give_back(message)
        if message.receipt is None or consumer.error is not None:  # the broker redelivers it anyway
            consumer.give_back(message)
            done: PendingResult[None] = PendingResult()
            done.complete()
            return done
        if can_release:
            consumer.give_back(message)
            request = Release(consumer=consumer.subscribe.consumer, message=message, is_seen=is_seen)
            return self._requests.submit(request)
        if consumer.has_only(message) and not consumer.subscribe.exclusive:
            return self._reopen(consumer, message, is_seen=is_seen)
        return self._transactions.replace_by_copy(consumer, message, _copy(message, is_seen=is_seen))

    def _reopen(self, consumer: ConsumerState, message: Message, *, is_seen: bool) -> PendingResult[None]:
        """Close a consumer at the broker, which returns its messages to the queue, and open it again as another one."""
        former = consumer.subscribe
        consumer.give_back(message)
        self._requests.complete(consumer.subscribe_result.number)
        last = message if is_seen else None
        removed = self._requests.submit(RemoveConsumer(consumer=former.consumer, last=last))
        consumer.reopen(replace(former, consumer=next(self._numbers)))
        del self._consumers[former.consumer]
        self._consumers[consumer.subscribe.consumer] = consumer
        consumer.subscribe_result = self._requests.submit(consumer.subscribe)
        return removed


def _copy(message: Message, *, is_seen: bool) -> dict[str, Any]:
    """Return the attributes of a copy, but for destination and body.

    Raises:
        UnreadableMessage: the properties are damaged.
    """
    return {
        "properties": {name: value for name, value in message.properties.items() if name not in _SCHEDULING},
        "persistent": message.persistent,
        "priority": message.priority,
        "timestamp": message.timestamp,
        "expiration": message.expiration,
        "reply_to": message.reply_to,
        "correlation_id": message.correlation_id,
        "type": message.type,
        "group_id": message.group_id,
        "group_sequence": message.group_sequence,
        "kind": message.kind,
        "redelivery_count": message.redelivery_count + is_seen,
    }


_SCHEDULING = ("AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_REPEAT", "AMQ_SCHEDULED_CRON")
"""Properties that would delay the copy again."""
