"""The queues that MQTT clients have in place of durable subscriptions, and the virtual topics that fill them."""

from collections.abc import Callable, Sequence

from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.core.recalls import Recalls
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import DestinationInUse, SubscriptionInUse
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.mqtt.packets import FilterSubscription
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.transports.mqtt.names import parse_subscription_name, subscription_name
from pybroker.transports.mqtt.subscription_strategy import VirtualTopicStrategy


class VirtualTopicQueues:
    """The queues of one broker, as `SubscriptionQueues`."""

    def __init__(self, broker: BrokerCore) -> None:
        self._broker = broker

    def matching(self, pattern: Destination) -> Sequence[Destination]:
        """Return the existing queues that match a pattern."""
        return self._broker.destinations.matching(pattern)

    def delete(self, queue: Destination) -> None:
        """Delete a queue with its messages, as the broker and not as a user: it is a subscription of the client."""
        self._broker.remove_destination(queue)

    def recall(self, topic: Destination, deliver: Callable[[Message], None], has_room: Callable[[], bool]) -> Recalls:
        """Pass on what a topic, or those that match a pattern, keep for retroactive consumers."""
        there = self._broker.destinations
        recalls = Recalls(deliver, has_room, self._broker.usage.paging)
        for each in there.matching(topic):
            recalls.add(there.topics[each].history)
        return recalls


class LastingSubscriptions:
    """The lasting subscriptions of MQTT sessions in both forms, as `SessionBroker`, under the names of durable ones."""

    def __init__(self, broker: BrokerCore) -> None:
        self._broker = broker
        self._strategy = VirtualTopicStrategy(VirtualTopicQueues(broker))

    def subscriptions_of(self, client_id: str) -> Sequence[DurableSubscription]:
        """Return the durable subscriptions of a client, and its queues."""
        found = list(self._broker.subscriptions_of(client_id))
        for each in self._strategy.queues_of(client_id):
            found.append(
                DurableSubscription(
                    client_id=client_id,
                    name=subscription_name(each.name.qos, each.name.filter),
                    destination=each.queue,
                    subscribed_destination=each.queue,
                )
            )
        return found

    def unsubscribe(self, client_id: str, subscription_name: str) -> None:
        """Delete a durable subscription, or the queue in its place.

        Raises:
            RequestError: there is none of that name; `SubscriptionInUse`: it is active.
        """
        name = parse_subscription_name(subscription_name)
        if name is not None:
            queue = self._strategy.queue_of(client_id, FilterSubscription(name.filter, name.qos))
            if queue is not None and self._broker.destinations.existing(queue) is not None:
                try:
                    self._broker.remove_destination(queue)
                except DestinationInUse as error:
                    raise SubscriptionInUse(f"{queue} has a consumer") from error
                return
        self._broker.unsubscribe(client_id, subscription_name)
