"""All durable subscriptions, and the topics that each of them covers.

The store keeps one record per subscription and topic, appended when the subscription begins to cover the topic. A
subscription to a wildcard that covers no topic yet has one record, under the name of the wildcard.
"""

from collections.abc import Callable, Iterator, Mapping

from pybroker.broker.core.consumer import BrokerConsumer, Matcher, matcher
from pybroker.broker.core.deadletter import DeadLetters
from pybroker.broker.core.destination_map import NameMap, PatternMap
from pybroker.broker.core.durable import Durable, on_topic
from pybroker.broker.core.object_memory import (
    CHARACTER_BYTES,
    DURABLE_BYTES,
    ObjectAccount,
    ObjectMemory,
    size_of_levels,
)
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.core.topic import Topic
from pybroker.broker.core.transaction import CommitsInProgress
from pybroker.broker.domain.destination import Destination, is_advisory
from pybroker.broker.domain.errors import InvalidDestination, SubscriptionInUse
from pybroker.broker.domain.ports import Clock, MessageStore
from pybroker.broker.domain.subscription import DurableSubscription


class Durables(Mapping[str, Durable]):
    """The durable subscriptions of one broker, by their keys in the store.

    Args:
        topics: all topics by name, a live view; `topic_added` is called for each new one.
        store: keeps the subscriptions.
        dead_letters: gets messages that expire, or cannot be delivered.
        clock: milliseconds since the epoch.
        policy: returns the policy of a topic, or of a pattern of topics.
        objects: the memory of what clients create.
        commits: the commits of which operations are left to carry out.
    """

    def __init__(
        self,
        topics: NameMap[Topic],
        *,
        store: MessageStore,
        dead_letters: DeadLetters,
        clock: Clock,
        policy: Callable[[Destination], DestinationPolicy],
        objects: ObjectMemory,
        commits: CommitsInProgress,
    ) -> None:
        self._by_key: dict[str, Durable] = {}
        self._by_destination: PatternMap[Durable] = PatternMap()
        self._topics = topics
        self._store = store
        self._dead_letters = dead_letters
        self._clock = clock
        self._policy = policy
        self._objects = objects
        self._commits = commits

    def __getitem__(self, key: str) -> Durable:
        return self._by_key[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self._by_key)

    # ------------------------------------------------------------ clients

    def activate(self, info: DurableSubscription, consumer: BrokerConsumer) -> None:
        """Attach a consumer to its subscription, which is created if it is new, and replaced if its terms have changed.

        Raises:
            SubscriptionInUse: it is active.
            ResourceLimit: it is new, and there are too many.
        """
        creator = consumer.connection.objects
        durable = self._find(info.client_id, info.name)
        if durable is None:
            self._objects.check_lasting(_size(info), creator, f"The subscription {info.name}")
        elif not durable.is_same(info):
            self._drop(durable)
            durable = None
        if durable is None:
            durable = self.add(info, matcher(info.selector), creator)
            self.cover(durable, retroactive=consumer.request.retroactive)
            if not durable.topics:
                self._store.subscribe(info)
        else:
            self._store.require_fence()  # nothing is appended, and the next master may have deleted it
        durable.attach(consumer)

    def check_inactive(self, info: DurableSubscription) -> None:
        """Check that a subscription may be activated.

        Raises:
            SubscriptionInUse: it is active.
        """
        durable = self._find(info.client_id, info.name)
        if durable is not None and durable.consumer is not None:
            raise SubscriptionInUse(
                f"Durable consumer is in use for client: {info.client_id} and subscriptionName: {info.name}"
            )

    def unsubscribe(self, client_id: str, name: str) -> None:
        """Delete a subscription.

        Raises:
            InvalidDestination: there is none of that name.
            SubscriptionInUse: it is active.
        """
        durable = self._find(client_id, name)
        if durable is None:
            raise InvalidDestination(
                f"No durable subscription exists for clientID: {client_id} and subscriptionName: {name}"
            )
        if durable.consumer is not None:
            raise SubscriptionInUse("Durable consumer is in use")
        self._drop(durable)

    # ------------------------------------------------------------ topics

    def add(self, info: DurableSubscription, matches: Matcher | None, creator: ObjectAccount | None = None) -> Durable:
        """Add a subscription that covers no topic yet.

        Args:
            info: the subscription.
            matches: its compiled selector.
            creator: the connection that creates it; None: it is recovered.
        """
        durable = self._by_key[info.key] = Durable(
            info,
            matches,
            store=self._store,
            dead_letters=self._dead_letters,
            clock=self._clock,
            policy=self._policy(info.subscribed_destination),
        )
        self._by_destination.add(info.subscribed_destination, durable)
        self._objects.add_lasting(info.key, _size(info), creator)
        return durable

    def cover(self, durable: Durable, *, retroactive: bool = False) -> None:
        """Have a subscription cover all existing topics that match it, here and in the store.

        As in ActiveMQ, a new retroactive subscription gets the messages that these topics still store for others.
        """
        for topic in self._topics.covered_by(durable.info.subscribed_destination):
            self._cover(durable, topic, retroactive=retroactive)

    def topic_added(self, topic: Topic) -> None:
        """Have all subscriptions that match a new topic cover it."""
        for durable in self._by_destination.covering(topic.destination):
            self._cover(durable, topic)

    # ------------------------------------------------------------ private

    def _cover(self, durable: Durable, topic: Topic, *, retroactive: bool = False) -> None:
        destination = topic.destination
        if not durable.is_on(destination) and not is_advisory(
            destination
        ):  # advisories are not kept for absent clients
            self._commits.carry_out(topic.gate)  # what was committed before belongs to no new subscription
            stored = self._store.subscribe(on_topic(durable.info, destination), retroactive=retroactive)
            durable.join(topic)
            if stored:
                durable.recover_stored(destination, stored)

    def _drop(self, durable: Durable) -> None:
        info = durable.info
        del self._by_key[info.key]
        self._objects.remove_lasting(info.key, _size(info))
        self._by_destination.remove(info.subscribed_destination, durable)
        durable.close()
        for topic in durable.topics:
            self._store.unsubscribe(topic.destination, info.key)
        if info.subscribed_destination.is_pattern:
            self._store.unsubscribe(info.subscribed_destination, info.key)

    def _find(self, client_id: str, name: str) -> Durable | None:
        """Return a subscription.

        Raises:
            SubscriptionInUse: KahaDB's key, `<client id>:<name>`, is that of another client's subscription.
        """
        durable = self._by_key.get(f"{client_id}:{name}")
        if durable is not None and durable.info.client_id != client_id:
            raise SubscriptionInUse(
                f"the store cannot distinguish {client_id}:{name} from subscription {durable.info.name} of client "
                f"{durable.info.client_id}: choose a name without a colon"
            )
        return durable


def _size(info: DurableSubscription) -> int:
    characters = len(info.key) + len(info.selector or "")
    return DURABLE_BYTES + CHARACTER_BYTES * characters + size_of_levels(info.subscribed_destination)
