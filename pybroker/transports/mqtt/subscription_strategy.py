"""The subscription strategy of an MQTT listener: as what the core has topics, and subscriptions that last.

```text
mqtt-default-subscriptions          MQTT                      core
publish a/b                                                   topic a.b
subscribe t/+, not lasting                                    topic consumer of t.*
subscribe t/+, lasting              QoS 1                     durable subscription AT_LEAST_ONCE:t/+ to t.*

mqtt-virtual-topic-subscriptions
publish a/b                                                   topic VirtualTopic.a.b
subscribe t/+, not lasting                                    topic consumer of VirtualTopic.t.*
subscribe t/+, lasting              QoS 1                     queue Consumer.<client id>:AT_LEAST_ONCE.VirtualTopic.t.*
```

A subscription lasts if its session outlives the connection and its QoS is 1 or 2. With virtual topics, a name that
begins with `VirtualTopic/` gets no further prefix, and a lasting subscription to one is a durable subscription.

ActiveMQ makes a queue of every other lasting subscription. That of a client id with `/`, `+` or `#` never gets a
message there, as its name does not match `Consumer.*.VirtualTopic.>`, and a `,` or `?` has a meaning of its own. Such
clients have durable subscriptions here; so have subscriptions that leave out the client's own messages, which only
topics can do.

Source: ActiveMQ 5.17, `MQTTDefaultSubscriptionStrategy` and `MQTTVirtualTopicSubscriptionStrategy`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from pybroker.broker.domain.destination import Destination, is_reserved, queue, topic
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.mqtt.packets import FilterSubscription
from pybroker.broker.domain.mqtt.topics import SHARE, InvalidTopic, jms_name, mqtt_name
from pybroker.broker.domain.openwire.message import view
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.transports.mqtt.names import SubscriptionName, qos_name

DEFAULT_SUBSCRIPTIONS: Final = "mqtt-default-subscriptions"
VIRTUAL_TOPIC_SUBSCRIPTIONS: Final = "mqtt-virtual-topic-subscriptions"

_VIRTUAL: Final = "VirtualTopic."
_CONSUMER: Final = "Consumer."
_NOT_IN_QUEUES: Final = frozenset("/+#,?")
"""Characters of client ids with which a queue would not be one of a virtual topic."""


class SubscriptionQueues(Protocol):
    """The queues and virtual topics of the core."""

    def matching(self, pattern: Destination) -> Sequence[Destination]:
        """Return the existing queues that match a pattern."""
        ...

    def delete(self, queue: Destination) -> None:
        """Delete a queue with its messages; do nothing if it does not exist.

        Raises:
            RequestError: it has a consumer.
        """
        ...

    def recall(
        self, topic: Destination, deliver: Callable[[Message], None], has_room: Callable[[], bool]
    ) -> "RecallsPort":
        """Pass on what a topic, or those that match a pattern, keep for retroactive consumers.

        Args:
            topic: the topic or pattern.
            deliver: gets each message, now or later.
            has_room: returns True while more are taken; `proceed` follows when that becomes so.
        """
        ...


class RecallsPort(Protocol):
    """Messages of topics that are being passed to a subscriber."""

    def __bool__(self) -> bool:
        """Return True while there are some for which there was no room yet."""
        ...

    def proceed(self) -> None:
        """Pass on what there is room for."""
        ...

    def close(self) -> None:
        """Drop what is left."""
        ...


class LastingQueue(NamedTuple):
    """A queue in place of a durable subscription.

    Attributes:
        queue: the queue.
        name: its QoS and topic filter.
    """

    queue: Destination
    name: SubscriptionName


class SubscriptionStrategy:
    """The default one: topics have the names that clients use, and all lasting subscriptions are durable ones."""

    def topic_of(self, text: str) -> Destination:
        """Return the JMS topic, or the pattern of topics, for a valid topic name or filter."""
        return topic(jms_name(text))

    def queue_of(self, client_id: str, options: FilterSubscription) -> Destination | None:
        """Return the queue for a lasting subscription; None: it is a durable one."""
        return None

    def queues_of(self, client_id: str) -> Iterator[LastingQueue]:
        """Yield the existing queues of a client's lasting subscriptions."""
        return iter(())

    def delete(self, queue: Destination) -> None:
        """Delete the queue of a lasting subscription.

        Raises:
            RequestError: it has a consumer.
        """

    def recall(self, text: str, deliver: Callable[[Message], None], has_room: Callable[[], bool]) -> RecallsPort | None:
        """Pass on the retained messages of the topics that a topic filter matches, for a queue's subscriber.

        Returns:
            None if no subscriber consumes from a queue. For the rest see `SubscriptionQueues.recall`.
        """
        return None

    def continues(self, info: DurableSubscription, text: str) -> bool:
        """Return True if a durable subscription is what this strategy makes of a topic filter."""
        return True

    def topic_name(self, source: Destination) -> str:
        """Return the topic name of a message that was sent to `source`.

        Raises:
            InvalidTopic: it was sent to no topic.
        """
        return mqtt_name(source.name)

    def source_of(self, message: Message) -> Destination:
        """Return the destination that a message was sent to.

        Raises:
            MalformedOpenWire: the message does not decode.
        """
        return message.destination

    def is_reserved(self, message: Message) -> bool:
        """Return True for a message of a topic that filters with a wildcard as first level do not match.

        Raises:
            MalformedOpenWire: the message does not decode.
        """
        return is_reserved(message.destination)


class VirtualTopicStrategy(SubscriptionStrategy):
    """Topics are virtual ones, and lasting subscriptions are queues that other clients can read, too."""

    def __init__(self, queues: SubscriptionQueues) -> None:
        self._queues = queues

    def topic_of(self, text: str) -> Destination:
        """Return the virtual topic, or the pattern of virtual topics, for a valid topic name or filter."""
        name = jms_name(text)
        return topic(name if name.startswith(_VIRTUAL) else _VIRTUAL + name)

    def queue_of(self, client_id: str, options: FilterSubscription) -> Destination | None:
        """Return the queue for a lasting subscription; None: it is a durable one."""
        name = jms_name(options.filter)
        if options.no_local or name.startswith(_VIRTUAL) or not _NOT_IN_QUEUES.isdisjoint(client_id):
            return None
        return queue(_queue_prefix(client_id, options.qos) + name)

    def queues_of(self, client_id: str) -> Iterator[LastingQueue]:
        """Yield the existing queues of a client's lasting subscriptions."""
        if not _NOT_IN_QUEUES.isdisjoint(client_id):
            return
        for qos in (1, 2):
            prefix = _queue_prefix(client_id, qos)
            for each in self._queues.matching(queue(prefix + ">")):
                if len(each.name) > len(prefix):  # the pattern covers the name that ends before the dot, too
                    yield LastingQueue(each, SubscriptionName(qos, mqtt_name(each.name[len(prefix) :])))

    def delete(self, queue: Destination) -> None:
        """Delete the queue of a lasting subscription."""
        self._queues.delete(queue)

    def recall(self, text: str, deliver: Callable[[Message], None], has_room: Callable[[], bool]) -> RecallsPort:
        """Pass on the retained messages of the topics that a topic filter matches, for a queue's subscriber."""
        return self._queues.recall(self.topic_of(text), deliver, has_room)

    def continues(self, info: DurableSubscription, text: str) -> bool:
        """Return True if a durable subscription is what this strategy makes of a topic filter.

        One of the other strategy has another topic; its marks of members of a group are the same.
        """
        return text.startswith(SHARE) or info.subscribed_destination == self.topic_of(text)

    def topic_name(self, source: Destination) -> str:
        """Return the topic name of a message: what follows `VirtualTopic.`, as in ActiveMQ."""
        before, found, name = source.name.partition(_VIRTUAL)
        if source.is_queue and source.is_pattern:
            raise InvalidTopic(f"it was sent to {source}, and to no topic")
        return mqtt_name(name if found else before)

    def source_of(self, message: Message) -> Destination:
        """Return the destination that a message was sent to: for the copy in a queue the original one."""
        if message.destination.is_queue:
            return view(message).original_destination or message.destination
        return message.destination

    def is_reserved(self, message: Message) -> bool:
        """Return True for a message of a topic whose name begins with `$`."""
        return self.source_of(message).name.partition(_VIRTUAL)[2].startswith("$")


DURABLE_SUBSCRIPTIONS: Final = SubscriptionStrategy()


def _queue_prefix(client_id: str, qos: int) -> str:
    return f"{_CONSUMER}{mqtt_name(client_id)}:{qos_name(qos)}.{_VIRTUAL}"
