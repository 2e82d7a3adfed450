"""Subscribes consumers: finds or creates the destinations of a request, and attaches the consumer to them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from pybroker.broker.core.advisory import PENDING_MAX, Advisories
from pybroker.broker.core.browser import BrowserSnapshot
from pybroker.broker.core.consumer import BrokerConsumer, Owner
from pybroker.broker.core.counting_consumer import CountingConsumer
from pybroker.broker.core.destinations import Destinations, check_name
from pybroker.broker.core.durable import Durable
from pybroker.broker.core.network_consumer import NetworkConsumer
from pybroker.broker.core.piecewise import Steps
from pybroker.broker.core.queue import Queue
from pybroker.broker.core.rights import Right
from pybroker.broker.core.runtime import CoreRuntime
from pybroker.broker.core.topic import TopicSubscription
from pybroker.broker.domain.destination import NAME_MAX, Destination, DestinationType, is_advisory
from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.errors import InvalidDestination, RequestError
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import Deliver
from pybroker.broker.domain.subscription import ConsumerRequest, DurableSubscription

_FEW_QUEUES: Final = 100
"""A consumer is attached to so many queues at once: a fraction of a millisecond."""


class Subscribing:
    """Attaches consumers to the destinations of one broker."""

    def __init__(self, runtime: CoreRuntime, destinations: Destinations, advisories: Advisories) -> None:
        self._runtime = runtime
        self._destinations = destinations
        self._advisories = advisories
        policies = runtime.policies
        self._watches_discarded = policies.any(lambda policy: policy.advisory_for_discarding_messages)
        self._watches_slow = policies.any(lambda policy: policy.advisory_for_slow_consumers)

    def subscribe(
        self, owner: Owner, request: ConsumerRequest, deliver: Deliver, browsed: Callable[[], None] | None
    ) -> BrokerConsumer:
        """Add a consumer to the destinations of its request; see `ConnectionPort`."""
        EFFORT.is_large = True  # a wildcard may cover tens of thousands of destinations
        destination = request.destination
        self._destinations.creator = owner
        for each in request.destinations:
            check_name(each)
            if each.is_temporary and (each.is_pattern or self._destinations.owner(each) is not owner):
                raise InvalidDestination(f"Cannot consume from {each}: it belongs to another connection, or is gone")
            if each.is_queue is not destination.is_queue:
                raise InvalidDestination(f"Cannot consume from queues and topics at once: {destination} and {each}")
        owner.require(Right.READ, *request.destinations)
        if request.browser:
            consumer = self._browse(owner, request, deliver, browsed or _nothing)
        elif request.subscription_name is not None:
            consumer = self._subscribe_durable(owner, request, deliver, request.subscription_name)
        elif destination.is_queue:
            consumer = self._subscribe_queue(owner, request, deliver)
        else:
            consumer = self._subscribe_topic(owner, request, deliver)
        if not request.is_counted:
            self._runtime.usage.delivered.add(consumer)
        self._runtime.observers.announce(lambda observer: observer.consumer_added(consumer))
        return consumer

    def recall(self, consumer: BrokerConsumer) -> None:
        """Deliver the history of its topics to a consumer that has subscribed before."""
        request, there = replace(consumer.request, retroactive=True), self._destinations
        topics = there.recalled_by(request, consumer.connection)
        for source in consumer.sources:
            if isinstance(source, TopicSubscription | Durable):
                for topic in topics:
                    source.recall(topic)
        if consumer.started:
            consumer.dispatch()

    def forget(self, consumer: BrokerConsumer) -> None:
        """Remove a closed consumer from the consumers of patterns, and the advisory topics that only it listened to."""
        EFFORT.is_large = True  # as above
        self._runtime.usage.delivered.discard(consumer)
        for destination in consumer.request.destinations:
            self._destinations.queue_patterns.remove(destination, consumer)
        for source in consumer.sources:
            if isinstance(source, TopicSubscription):
                self._destinations.subscription_index.discard(consumer.request, source, consumer.connection.rights)
                for topic in self._destinations.advisory_topics_of(consumer.request):
                    if not topic.is_in_use:
                        self._destinations.drop(topic.destination)
        self._runtime.observers.announce(lambda observer: observer.consumer_removed(consumer))

    # ------------------------------------------------------------ private

    def _browse(
        self, owner: Owner, request: ConsumerRequest, deliver: Deliver, browsed: Callable[[], None]
    ) -> BrokerConsumer:
        if not request.destination.is_queue:
            raise RequestError(f"Only queues can be browsed, and {request.destination} is a topic")
        policy = self._runtime.policy(request.destination)
        consumer = CountingConsumer(owner, request, deliver, prefetch=_prefetch(request, policy.queue_browser_prefetch))
        queues = self._destinations.queues_of(request, owner)
        owner.objects.acquire_matches(len(queues))
        consumer.match_count = len(queues)
        BrowserSnapshot(queues, consumer, browsed, policy.max_browse_page_size)
        return consumer

    def _subscribe_queue(self, owner: Owner, request: ConsumerRequest, deliver: Deliver) -> BrokerConsumer:
        consumer = _class_for(request)(
            owner,
            request,
            deliver,
            prefetch=_prefetch(request, self._runtime.policy(request.destination).queue_prefetch),
        )
        if isinstance(consumer, NetworkConsumer):
            consumer.on_returned = self._runtime.bridged.forget
        has_patterns = self._create(request, owner)
        queues = self._destinations.queues_of(request, owner)
        if has_patterns:
            owner.objects.acquire_matches(len(queues))
            consumer.match_count = len(queues)
            for destination in request.destinations:
                self._destinations.queue_patterns.add(destination, consumer)
        if len(queues) <= _FEW_QUEUES:
            for queue in queues:
                queue.attach(consumer)
        else:
            owner.work_off(self._attaching(owner, consumer, queues))
        return consumer

    def _attaching(self, owner: Owner, consumer: BrokerConsumer, queues: Sequence[Queue]) -> Steps:
        """Attach a consumer to the queues of a wildcard that exist, without those that are deleted meanwhile."""
        existing = self._destinations.queues
        for queue in queues:
            if consumer.closed or owner.closed:
                return
            if existing.get(queue.destination) is queue:
                queue.attach(consumer)
                if consumer.started:
                    queue.dispatch(consumer)
            yield 1

    def _subscribe_topic(self, owner: Owner, request: ConsumerRequest, deliver: Deliver) -> BrokerConsumer:
        runtime = self._runtime
        policy = runtime.policy(request.destination)
        consumer = CountingConsumer(owner, request, deliver, prefetch=_prefetch(request, policy.topic_prefetch))
        if is_advisory(request.destination):
            policy = replace(policy, pending_message_limit=PENDING_MAX, pending_message_limit_multiplier=None)
        is_watched = self._watches_discarded or request.on_dropped is not None
        subscription = TopicSubscription(
            consumer,
            dead_letters=runtime.dead_letters,
            clock=runtime.clock,
            policy=policy,
            paging=runtime.usage.paging,
            discarded=self._announce_discarded if is_watched else None,
            slow=self._announce_slow if self._watches_slow else None,
        )
        there = self._destinations
        if self._create(request, owner):
            subscription.join_wildcard(there.topics, runtime.usage.limit)
            for topic in there.recalled_by(request, owner):
                subscription.recall(topic)
            there.subscription_index.add(request, subscription, owner.rights)
        else:
            for topic in there.topics_of(request):
                subscription.join(topic)
        self._advisories.publish_existing(consumer, subscription)
        return consumer

    def _announce_discarded(self, subscription: TopicSubscription, message: Message) -> None:
        on_dropped = subscription.consumer.request.on_dropped
        if on_dropped is not None and subscription.dropped == 1 and not self._runtime.usage.paging.defer(on_dropped):
            on_dropped()
        if self._runtime.policy(message.destination).advisory_for_discarding_messages:
            consumer, count = subscription.consumer, subscription.dropped
            self._runtime.observers.announce(lambda observer: observer.message_discarded(consumer, message, count))

    def _announce_slow(self, subscription: TopicSubscription, topic: Destination) -> None:
        if self._runtime.policy(topic).advisory_for_slow_consumers:
            consumer = subscription.consumer
            self._runtime.observers.announce(lambda observer: observer.consumer_slow(consumer, topic))

    def _create(self, request: ConsumerRequest, owner: Owner) -> bool:
        """Create the destinations that a consumer names; return True if there are patterns among them.

        The queue of a pattern (`Router.creates_queue`) is created if the user may; the pattern is good without it.
        """
        if request.is_literal:
            owner.require_literal(request.destination)
            self._destinations.target(request.destination)
            return False
        patterns = False
        for destination in request.destinations:
            if destination.is_pattern and not (
                self._destinations.router.creates_queue(destination)
                and owner.may_read(destination)
                and owner.allows(Right.CREATE, destination)
            ):
                patterns = True
            else:
                patterns |= destination.is_pattern
                # Advisory topics have no limit of their own: each is removed with its last listener.
                is_listener = destination.type is DestinationType.TOPIC and is_advisory(destination)
                create = self._destinations.ensure if is_listener else self._destinations.target
                create(destination)
        return patterns

    def _subscribe_durable(self, owner: Owner, request: ConsumerRequest, deliver: Deliver, name: str) -> BrokerConsumer:
        destination = request.destination
        if destination.is_temporary:
            raise InvalidDestination("A durable subscription cannot be created for a temporary topic.")
        if is_advisory(destination):
            raise InvalidDestination("Cannot create a durable subscription for an advisory Topic")
        if not destination.is_topic:
            raise InvalidDestination("Invalid Subscription: cannot durably subscribe to a Queue destination!")
        if len(name) > NAME_MAX:
            raise RequestError(f"A subscription name of {len(name)} characters, where {NAME_MAX} are allowed")
        info = DurableSubscription(
            client_id=owner.client_id,
            name=name,
            destination=destination,
            subscribed_destination=destination,
            selector=request.selector,
            no_local=request.no_local,
            user=owner.user.name if owner.user.is_verified else None,
        )
        owner.require_durable(destination)
        self._destinations.durables.check_inactive(info)
        # Created first: an invalid selector must be found before the new subscription replaces an old one.
        consumer = _class_for(request)(
            owner,
            request,
            deliver,
            prefetch=_prefetch(request, self._runtime.policy(destination).durable_topic_prefetch),
        )
        if not destination.is_pattern:
            self._destinations.target(destination)
        self._destinations.durables.activate(info, consumer)
        return consumer


def _class_for(request: ConsumerRequest) -> type[BrokerConsumer]:
    return BrokerConsumer if request.network is None else NetworkConsumer


def _prefetch(request: ConsumerRequest, default: int) -> int:
    prefetch = default if request.prefetch is None else request.prefetch
    return prefetch if request.window_max is None else min(prefetch, request.window_max)


def _nothing() -> None:
    """Do nothing; the default for a browser's `browsed`."""
