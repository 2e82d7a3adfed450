"""The destinations of one broker: creates, finds and removes queues and topics, and keeps their owners."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Final, TypeVar

from pybroker.broker.core.consumer import BrokerConsumer, Owner
from pybroker.broker.core.deadletter import DEAD_LETTER_QUEUE
from pybroker.broker.core.durables import Durables
from pybroker.broker.core.gate import Gate
from pybroker.broker.core.object_memory import ObjectAccount, size_of_destination
from pybroker.broker.core.piecewise import PiecewiseWorker, carry_out
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.core.queue import Queue
from pybroker.broker.core.rights import Right
from pybroker.broker.core.runtime import CoreRuntime
from pybroker.broker.core.scheduling_queue import SCHEDULING_QUEUE
from pybroker.broker.core.subscription_groups import SubscriptionIndex
from pybroker.broker.core.topic import Topic
from pybroker.broker.core.transaction import CommitsInProgress
from pybroker.broker.core.usage import Usage
from pybroker.broker.core.virtual import Definition, Router
from pybroker.broker.core.watched import WatchedQueue, WatchedTopic, is_watched
from pybroker.broker.domain.destination import NAME_MAX, Destination, creator_of, is_advisory, is_reserved
from pybroker.broker.domain.destination_map import NameMap, PatternMap
from pybroker.broker.domain.errors import DestinationDoesNotExist, DestinationInUse, InvalidDestination, ResourceLimit
from pybroker.broker.domain.message import BodilessMessage, Message
from pybroker.broker.domain.openwire.message import outline
from pybroker.broker.domain.reserved_queues import RESERVED_QUEUES
from pybroker.broker.domain.subscription import ConsumerRequest

_Kind = TypeVar("_Kind", Queue, Topic)


_ADVISORY_MAX: Final = NAME_MAX + 64
"""The characters of an advisory topic's name, which ends with the name of the destination that it is about."""


def _nothing(percent: int) -> None:
    """Do nothing; the default of `Destinations.free_space`."""


def check_name(destination: Destination) -> None:
    """Check the length of a name that a client has chosen.

    Raises:
        InvalidDestination: it is too long.
    """
    count = len(destination.name)
    if count > NAME_MAX and (count > _ADVISORY_MAX or not is_advisory(destination)):
        raise InvalidDestination(
            f"A name of {count} characters, where {NAME_MAX} are allowed: {destination.name[:50]}…"
        )


class Destinations:
    """All queues and topics.

    Attributes:
        queues: all queues.
        topics: all topics.
        durables: the durable subscriptions to the topics.
        commits: the commits of which operations are left to carry out.
        plain: destinations whose messages are not forwarded. Most are plain, and are found here by one look-up.
        router: routes the messages of all other destinations.
        queue_patterns: consumers of patterns, which are attached to new queues that match.
        subscription_index: the subscriptions of consumers of patterns of topics.
        free_space: called before a client creates a destination, with the percentage of the space for destinations
            that is in use.
        creator: the connection for which destinations are created now; None: the broker itself.
        configured: the destinations that the settings name.
    """

    def __init__(
        self, runtime: CoreRuntime, definitions: Iterable[Definition], destinations_max: int, worker: PiecewiseWorker
    ) -> None:
        """Create the maps without destinations.

        Args:
            runtime: what all parts of the core share.
            definitions: of virtual destinations.
            destinations_max: so many may be created by clients.
            worker: carries out what no client waits for.
        """
        self.queues: Final[dict[Destination, Queue]] = {}
        self.topics: Final[dict[Destination, Topic]] = {}
        self.plain: Final[dict[Destination, Queue | Topic]] = {}
        self.router: Final[Router[Queue | Topic]] = Router(
            definitions, self.queues, self.target, self._forward_target, declare=runtime.store.declare
        )
        self.commits: Final = CommitsInProgress()
        self._queue_names: Final[NameMap[Queue]] = NameMap()
        self._topic_names: Final[NameMap[Topic]] = NameMap()
        self._advisory_names: Final[NameMap[Topic]] = NameMap()
        self._retroactive_names: Final[NameMap[Topic]] = NameMap()
        self.durables: Final = Durables(
            self._topic_names,
            store=runtime.store,
            dead_letters=runtime.dead_letters,
            clock=runtime.clock,
            policy=runtime.policy,
            objects=runtime.objects,
            commits=self.commits,
            worker=worker,
            observers=runtime.observers,
        )
        self.queue_patterns: Final[PatternMap[BrokerConsumer]] = PatternMap()
        self.subscription_index: Final = SubscriptionIndex()
        self.free_space: Callable[[int], None] = _nothing
        self._runtime = runtime
        self._destinations_max = destinations_max
        self._owners: dict[Destination, Owner] = {}
        self.creator: Owner | None = None
        self.configured: frozenset[Destination] = frozenset()

    def __len__(self) -> int:
        return len(self.queues) + len(self.topics)

    def __iter__(self) -> Iterator[Destination]:
        return chain(self.queues, self.topics)

    # ------------------------------------------------------------ questions

    def existing(self, destination: Destination) -> Queue | Topic | None:
        """Return a destination, None if it does not exist."""
        return (self.queues if destination.is_queue else self.topics).get(destination)

    def matching(self, pattern: Destination) -> list[Destination]:
        """Return the existing queues, or topics, that a name or wildcard matches."""
        names: NameMap[Queue] | NameMap[Topic] = self._queue_names if pattern.is_queue else self._topic_names
        return [each.destination for each in names.covered_by(pattern)]

    def first_timestamp(self, destination: Destination) -> int | None:
        """Return when the broker got the first message of a queue, in milliseconds since the epoch.

        Of an OpenWire client's message that is not recorded, and it is when the client says that it has sent it.
        None is returned if it has none, or if that one was delivered and is not in memory any more.
        """
        queue = self.queues.get(destination)
        first = None if queue is None else queue.first()
        if first is None or isinstance(first, BodilessMessage):
            return None
        fields = outline(first)
        return fields.broker_in_time or fields.timestamp

    def queues_of(self, request: ConsumerRequest, reader: Owner) -> list[Queue]:
        """Return the existing queues that match a consumer's request, and that the reader may read."""
        return _readable(_matching(request, self.queues, self._queue_names), reader)

    def topics_of(self, request: ConsumerRequest) -> list[Topic]:
        """Return the existing topics that match a consumer's request."""
        return _matching(request, self.topics, self._topic_names)

    def advisory_topics_of(self, request: ConsumerRequest) -> list[Topic]:
        """Return the existing advisory topics that match a consumer's request."""
        found = {each: None for name in request.destinations for each in self._advisory_names.covered_by(name)}
        return list(found)

    def recalled_by(self, request: ConsumerRequest, reader: Owner) -> list[Topic]:
        """Return the existing topics whose history a consumer of a pattern gets, and that the reader may read."""
        names = self._topic_names if request.retroactive else self._retroactive_names
        found = _readable(_matching(request, self.topics, names), reader)
        return [each for each in found if not is_reserved(each.destination)] if request.leaves_out_reserved else found

    @property
    def temporaries(self) -> Iterable[Destination]:
        """The temporary destinations of clients."""
        return self._owners

    def owner(self, destination: Destination) -> Owner | None:
        """Return the owner of a temporary destination; None for a permanent one."""
        return self._owners.get(destination)

    # ------------------------------------------------------------ making

    def target(self, destination: Destination) -> Queue | Topic:
        """Return a destination for a client, creating it if it does not exist.

        Raises:
            InvalidDestination: it is a temporary destination that does not exist, or reserved for the broker.
            AccessDenied: the user of the client may not create it.
            ResourceLimit: there are too many destinations, or they take too much memory.
        """
        existing = self.existing(destination)
        if existing is not None:
            return existing
        if self.creator is not None and not destination.is_temporary:  # whose owner has created it
            self.creator.require(Right.CREATE, destination)
        return self._forward_target(destination)

    def _forward_target(self, destination: Destination) -> Queue | Topic:
        """Return a destination to which the broker's settings forward messages; every sender may create it."""
        existing = self.existing(destination)
        if existing is not None:
            return existing
        self._admit(destination)
        created = self.ensure(destination)
        if not _is_lasting(destination) and not destination.is_temporary:  # no listener counts for this advisory topic
            self._runtime.objects.add_lasting(destination, size_of_destination(destination), self._account)
        return created

    def ensure(self, destination: Destination) -> Queue | Topic:
        """Return a destination, creating it if it does not exist, without checks of name, owner or limits."""
        return self.queue(destination) if destination.is_queue else self.topic(destination)

    def ensure_configured(self) -> None:
        """Create the destinations that the settings name, as long as there is no client and nothing is recovered."""
        for destination in sorted(self.configured):
            self.ensure(destination)

    def queue(self, destination: Destination) -> Queue:
        """Return a queue, creating it if it does not exist."""
        if (queue := self.queues.get(destination)) is None:
            runtime = self._runtime
            policy = runtime.policy(destination)
            queue = self.queues[destination] = self._new_queue(destination, policy)
            self._count(destination)
            self._queue_names.add(destination, queue)
            for consumer in self.queue_patterns.covering(destination):
                if not consumer.connection.may_read(destination):
                    continue
                queue.attach(consumer)
                consumer.match_count += 1
                consumer.connection.objects.add_matches(1)
            self.router.queue_added(destination)
            owner = self._owner_id(destination)
            runtime.observers.announce(lambda observer: observer.destination_added(destination, owner))
        return queue

    def topic(self, destination: Destination) -> Topic:
        """Return a topic, creating it if it does not exist."""
        if (topic := self.topics.get(destination)) is None:
            runtime = self._runtime
            policy = runtime.policy(destination)
            topic = self.topics[destination] = self._new_topic(destination, policy)
            self._count(destination)
            self._topic_names.add(destination, topic)
            if is_advisory(destination):
                self._advisory_names.add(destination, topic)
            if policy.always_retroactive:
                self._retroactive_names.add(destination, topic)
            self.durables.topic_added(topic)
            owner = self._owner_id(destination)
            runtime.observers.announce(lambda observer: observer.destination_added(destination, owner))
        return topic

    def own(self, destination: Destination, owner: Owner) -> None:
        """Record a connection as the owner of a temporary destination.

        A bridge may have adopted it while its client was gone, which then takes it back.

        Raises:
            InvalidDestination: it belongs to another connection, or its name is too long or a wildcard.
        """
        check_name(destination)
        if destination.is_pattern:
            raise InvalidDestination(f"{destination} would be a wildcard")
        if self._owners.setdefault(destination, owner) is not owner:
            if creator_of(destination) != owner.connection_id:
                raise InvalidDestination(f"{destination} belongs to another connection")
            self._owners[destination] = owner

    # ------------------------------------------------------------ removing

    def remove(self, destination: Destination) -> None:
        """Delete a destination with its messages; do nothing if it does not exist.

        Raises:
            DestinationInUse: it has a consumer or a durable subscription.
        """
        existing = self.existing(destination)
        if existing is None:
            return
        if existing.is_in_use:
            raise DestinationInUse(f"Destination: {destination} still has an active subscription")
        self.drop(destination)
        if not destination.is_temporary:
            self._runtime.store.remove_destination(destination)

    def remove_inactive(self, destination: Destination) -> None:
        """Remove an inactive destination, which has no messages; see `inactive`."""
        self.drop(destination)
        self._runtime.store.forget_empty(destination)

    def remove_owned(self, destination: Destination, owner: Owner) -> None:
        """Remove a temporary destination of a connection that closed."""
        if self._owners.get(destination) is owner:  # else another client has deleted it
            self.drop(destination)

    def drop(self, destination: Destination) -> None:
        """Remove a destination and its messages from memory, not from the store.

        What commits in progress send to it belongs to these messages, as it does in the store.
        """
        if (existing := self.existing(destination)) is not None:
            self.commits.forgo(existing.gate)
        owner = self._owner_id(destination)
        self._runtime.observers.announce(lambda observer: observer.destination_removed(destination, owner))
        self._owners.pop(destination, None)
        self._runtime.objects.remove_lasting(destination, size_of_destination(destination))
        self.plain.pop(destination, None)
        if (topic := self.topics.pop(destination, None)) is not None:
            for names in (self._topic_names, self._advisory_names, self._retroactive_names):
                names.remove(destination)
            topic.gate.redirect(partial(self._gate_again, destination))
            topic.close()
        if (queue := self.queues.pop(destination, None)) is not None:
            self._queue_names.remove(destination)
            queue.gate.redirect(partial(self._gate_again, destination))
            queue.close()
            self.router.queue_removed(destination)

    # ------------------------------------------------------------ private

    def _new_queue(self, destination: Destination, policy: DestinationPolicy) -> Queue:
        runtime = self._runtime
        store, letters, clock = runtime.store, runtime.dead_letters, runtime.clock
        usage = Usage(policy.memory_limit, runtime.usage)
        if not is_watched(policy):
            return Queue(destination, store=store, dead_letters=letters, clock=clock, policy=policy, usage=usage)
        return WatchedQueue(
            destination,
            store=store,
            dead_letters=letters,
            clock=clock,
            policy=policy,
            usage=usage,
            observers=runtime.observers,
        )

    def _new_topic(self, destination: Destination, policy: DestinationPolicy) -> Topic:
        runtime, index = self._runtime, self.subscription_index
        store, clock, usage = runtime.store, runtime.clock, Usage(policy.memory_limit, runtime.usage)
        if not is_watched(policy) or is_advisory(destination):
            return Topic(
                destination,
                store=store,
                clock=clock,
                policy=policy,
                usage=usage,
                index=index,
                retained=runtime.retained,
            )
        return WatchedTopic(
            destination,
            store=store,
            clock=clock,
            policy=policy,
            usage=usage,
            index=index,
            observers=runtime.observers,
            retained=runtime.retained,
        )

    @property
    def _account(self) -> ObjectAccount | None:
        """The account of the connection for which destinations are created now."""
        return None if self.creator is None else self.creator.objects

    def _owner_id(self, destination: Destination) -> str | None:
        owner = self._owners.get(destination)
        return None if owner is None else owner.connection_id

    def _gate_again(self, destination: Destination) -> Gate | None:
        """Return the gate of a destination that was deleted before the commit of a transaction that sends to it.

        The destination is created again, unless it is temporary: then None is returned.
        """
        if destination.is_temporary and destination not in self._owners:
            return None
        created = self.ensure(destination)
        carry_out(self.durables.covering(created))
        return created.gate

    def _count(self, destination: Destination) -> None:
        if _is_lasting(destination):
            self._runtime.objects.add_lasting(destination, size_of_destination(destination), self._account)

    def _admit(self, destination: Destination) -> None:
        """Check that a client may create a destination. The limits do not apply to the dead letter queue."""
        if destination.is_temporary and destination not in self._owners:
            raise DestinationDoesNotExist(f"The destination {destination} does not exist.")
        if destination == SCHEDULING_QUEUE or destination in RESERVED_QUEUES:
            raise InvalidDestination(f"{destination} is the broker's own")
        if destination == DEAD_LETTER_QUEUE:
            return
        objects = self._runtime.objects
        if destination.is_queue:
            objects.check_matches(len(self.queue_patterns.covering(destination)), str(destination))
        if destination.is_temporary:
            return
        count = objects.destination_count
        self.free_space(100 if objects.is_short else 100 * count // self._destinations_max)
        if count >= self._destinations_max:
            raise ResourceLimit(
                f"{destination} cannot be created: there are {self._destinations_max} destinations already, the limit "
                "destinations_max"
            )
        try:
            size = size_of_destination(destination) + self.durables.size_of_matches(destination)
            objects.check_lasting(size, self._account, str(destination))
        except ResourceLimit:
            self.free_space(100)
            raise


class BrokerSender:
    """Sends dead letters, whose destinations the broker itself creates, maybe while it creates others for a client.

    Args:
        destinations: the destinations of the broker.
        send: sends a message.
    """

    def __init__(self, destinations: Destinations, send: Callable[[Message], object]) -> None:
        self._destinations = destinations
        self._send = send

    def send(self, message: Message) -> None:
        """Send a dead letter."""
        destinations = self._destinations
        creator, destinations.creator = destinations.creator, None
        try:
            self._send(message)
        finally:
            destinations.creator = creator


def _is_lasting(destination: Destination) -> bool:
    """Return True if a destination stays when the connection ends that uses it."""
    return not destination.is_temporary and (destination.is_queue or not is_advisory(destination))


def _readable(found: list[_Kind], reader: Owner) -> list[_Kind]:
    """Return the destinations that a connection's user may read."""
    return found if reader.rights is None else [each for each in found if reader.may_read(each.destination)]


def _matching(request: ConsumerRequest, existing: Mapping[Destination, _Kind], names: NameMap[_Kind]) -> list[_Kind]:
    """Return the existing destinations that match a consumer's request."""
    if not request.composite and (request.is_literal or not request.destination.is_pattern):
        return [existing[request.destination]] if request.destination in existing else []
    found = {kind: None for destination in request.destinations for kind in names.covered_by(destination)}
    return list(found)
