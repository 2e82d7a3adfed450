"""Advisories about the demand for composite and virtual destinations, which bridges of other brokers wait for.

```text
composite topic IN --> queue OUT                         a consumer of OUT
ActiveMQ.Advisory.VirtualDestination.Consumer.Topic.IN   its ConsumerInfo, with the destination topic://IN; RemoveInfo
```

A broker whose bridge subscribes to these forwards messages for `IN`, which this broker then forwards to `OUT`. The ids
are those of the consumers, as in their own advisories. The selector of a queue's consumer is left out: what it does not
want has to wait in the queue for others.

With `useVirtualDestSubsOnCreation` a queue is demand as long as it exists, with an id of its own for the consumer.

Source: ActiveMQ 5.17, `AdvisoryBroker`, `DestinationFilterVirtualDestinationMatcher`. ActiveMQ looks at the targets of
a composite alone, not at the targets of its targets.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pybroker.broker.core.advisory import Advisories, Advisory, consumer_id, consumer_info
from pybroker.broker.core.virtual import HOPS_MAX, CompositeDestination, Definition, VirtualTopic
from pybroker.broker.domain.admin import Admin, ConsumerView
from pybroker.broker.domain.destination import (
    ADVISORY_PREFIX,
    Destination,
    DestinationType,
    is_advisory,
    matches,
    patterns_overlap,
    topic,
)
from pybroker.broker.domain.observer import Observer
from pybroker.broker.domain.openwire.commands import (
    ConsumerId,
    ConsumerInfo,
    DataStructure,
    RemoveInfo,
    RemoveSubscriptionInfo,
)
from pybroker.broker.domain.openwire.values import Value
from pybroker.broker.domain.subscription import DurableSubscription

_PREFIX = "VirtualDestination.Consumer."
_PREFETCH = 1000
"""ActiveMQ's for queues. It has no effect: a bridge has its own."""


class VirtualDemand:
    """Finds the composite and virtual destinations whose messages reach a destination."""

    def __init__(self, definitions: Iterable[Definition]) -> None:
        self._topics: list[VirtualTopic] = []
        self._composites: list[CompositeDestination] = []
        for each in definitions:
            if isinstance(each, VirtualTopic):
                if not each.local:  # what comes over a bridge would not reach its queues
                    self._topics.append(each)
            elif isinstance(each, CompositeDestination):
                self._composites.append(each)

    def leading_to(self, destinations: Iterable[Destination]) -> list[Destination]:
        """Return the destinations, or patterns, that forward to one of these, also over others; each once."""
        found: dict[Destination, None] = {}
        latest = [each for each in destinations if not each.is_temporary]
        for _ in range(HOPS_MAX):
            latest = [each for target in latest for each in self._one_step(target) if each not in found]
            if not latest:
                break
            found.update(dict.fromkeys(latest))
        return list(found)

    def _one_step(self, target: Destination) -> Iterator[Destination]:
        for composite in self._composites:
            if any(_overlap(each.destination, target) for each in composite.forward_to):
                yield composite.destination
        if target.type is DestinationType.QUEUE:
            for each in self._topics:
                name = each.topics_of(target.name)
                if name is not None and patterns_overlap(name, each.name):
                    yield topic(name)


class VirtualAdvisories(Observer):
    """Publishes which composite and virtual destinations have consumers behind them."""

    def __init__(
        self, advisories: Advisories, admin: Admin, demand: VirtualDemand, *, of_consumers: bool, of_queues: bool
    ) -> None:
        """Begin without any.

        Args:
            advisories: publishes them.
            admin: the broker's destinations.
            demand: finds the virtual destinations.
            of_consumers: a consumer is demand (`useVirtualDestSubs`).
            of_queues: a queue is demand, even without consumers (`useVirtualDestSubsOnCreation`).
        """
        self._advisories = advisories
        self._admin = admin
        self._demand = demand
        self._of_consumers = of_consumers
        self._of_queues = of_queues
        self._consumers: dict[ConsumerView, list[Destination]] = {}
        """The virtual destinations that lead to a consumer, if there are any."""

    # ------------------------------------------------------------ events

    def consumer_added(self, consumer: ConsumerView) -> None:
        """Publish that a consumer wants messages of virtual destinations."""
        if not self._of_consumers or is_advisory(consumer.request.destination):
            return
        found = self._demand.leading_to(consumer.request.destinations)
        if found:
            self._consumers[consumer] = found
            for each in found:
                self._publish(each, _info_for(consumer, each))

    def consumer_removed(self, consumer: ConsumerView) -> None:
        """Publish that such a consumer has closed."""
        for each in self._consumers.pop(consumer, ()):
            self._publish(each, RemoveInfo(object_id=consumer_id(consumer)))

    def durable_removed(self, subscription: DurableSubscription) -> None:
        """Publish that a durable subscription was deleted which wanted messages of virtual topics."""
        if self._of_consumers:
            about = RemoveSubscriptionInfo(client_id=subscription.client_id, subscription_name=subscription.name)
            for each in self._demand.leading_to((subscription.subscribed_destination,)):
                self._publish(each, about)

    def destination_added(self, destination: Destination, owner: str | None) -> None:
        """Publish that a queue wants messages of virtual destinations."""
        for each in self._leading_to_queue(destination):
            self._publish(each, self._info_of_queue(destination, each))

    def destination_removed(self, destination: Destination, owner: str | None) -> None:
        """Publish that such a queue was deleted."""
        for each in self._leading_to_queue(destination):
            self._publish(each, RemoveInfo(object_id=self._id_of_queue(destination)))

    # ------------------------------------------------------------ what exists already

    def existing(self, wanted: Sequence[Destination]) -> Iterator[Advisory]:
        """Yield the advisories about the demand that there is, for a new subscriber to these topics, or patterns.

        Most subscribers want others: each connection of a JMS client those about temporary destinations.
        """
        names = [each.name for each in wanted if patterns_overlap(each.name, f"{ADVISORY_PREFIX}{_PREFIX}>")]
        if names:
            yield from self._existing(lambda subject: any(matches(name, ADVISORY_PREFIX + subject) for name in names))

    def _existing(self, wants: Callable[[str], bool]) -> Iterator[Advisory]:
        for consumer, found in [*self._consumers.items()]:
            for each in found:
                if wants(_subject(each)) and consumer in self._consumers:
                    yield _subject(each), _info_for(consumer, each), self._count(each)
        for queue in [*self._admin.destinations()] if self._of_queues else ():
            for each in self._leading_to_queue(queue):
                if wants(_subject(each)) and self._admin.exists(queue):
                    yield _subject(each), self._info_of_queue(queue, each), self._count(each)

    # ------------------------------------------------------------ private

    def _publish(self, destination: Destination, about: DataStructure) -> None:
        if self._advisories.has_listener(_subject(destination)):
            self._advisories.publish(_subject(destination), about, self._count(destination))

    def _count(self, destination: Destination) -> Mapping[str, Value]:
        return {"consumerCount": self._admin.consumer_count(destination)}

    def _leading_to_queue(self, queue: Destination) -> list[Destination]:
        if not self._of_queues or queue.type is not DestinationType.QUEUE:
            return []
        return self._demand.leading_to((queue,))

    def _info_of_queue(self, queue: Destination, destination: Destination) -> ConsumerInfo:
        return ConsumerInfo(consumer_id=self._id_of_queue(queue), destination=destination, prefetch_size=_PREFETCH)

    def _id_of_queue(self, queue: Destination) -> ConsumerId:
        """Return the id that stands for the consumer of a queue: the same at all times, and of this broker alone."""
        return ConsumerId(f"{self._advisories.broker_id}:virtual:{queue.name}", 0, 0)


def _info_for(consumer: ConsumerView, destination: Destination) -> ConsumerInfo:
    """Return the ConsumerInfo of a consumer as if it were one of a virtual destination."""
    info = consumer_info(consumer)
    selector = None if consumer.request.destination.is_queue else info.selector
    return replace(info, destination=destination, selector=selector)


def _subject(destination: Destination) -> str:
    kind = "Queue" if destination.is_queue else "Topic"
    return f"{_PREFIX}{kind}.{destination.name}"


def _overlap(one: Destination, other: Destination) -> bool:
    return one.type is other.type and patterns_overlap(one.name, other.name)
