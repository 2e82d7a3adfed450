"""All durable subscriptions, and the topics that each of them covers.

The store keeps one record per subscription and topic, appended when the subscription begins to cover the topic. A
subscription to a wildcard that covers no topic yet has one record, under the name of the wildcard.

A subscription can continue another one under a new name, since KahaDB's key has the name. The new one begins as a
retroactive one does: the store gives it all that the topic still has, of which it acknowledges at once what was not in
the backlog of the former one. That is deleted last. After a crash in between there may be both, each with the backlog.

A new topic may have to be covered by very many subscriptions. They do so in pieces, and who sends to the topic waits
for that (`covering`): so the store has no message of it before all records of those who are to get it. After a crash
between two pieces the recovery has the others cover it. A subscription that ends leaves its topics in pieces too.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from pybroker.broker.core.consumer import BrokerConsumer, Owner
from pybroker.broker.core.deadletter import DeadLetters
from pybroker.broker.core.durable import CoveredTopic, Durable, on_topic
from pybroker.broker.core.matcher import Matcher, matcher
from pybroker.broker.core.object_memory import (
    CHARACTER_BYTES,
    DURABLE_BYTES,
    DURABLE_MATCH_BYTES,
    ObjectAccount,
    ObjectMemory,
    size_of_levels,
)
from pybroker.broker.core.observers import Observers
from pybroker.broker.core.piecewise import PiecewiseWorker, Steps, carry_out
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.core.retained_history import is_retained_copy
from pybroker.broker.core.rights import Right, Rights
from pybroker.broker.core.selector.portability import is_refused_by_activemq
from pybroker.broker.core.topic import Topic
from pybroker.broker.core.transaction import CommitsInProgress
from pybroker.broker.domain.destination import Destination, is_advisory
from pybroker.broker.domain.destination_map import NameMap, PatternMap
from pybroker.broker.domain.errors import InvalidClientId, InvalidDestination, SubscriptionInUse
from pybroker.broker.domain.ports import Clock, MessageStore, RemovalReason
from pybroker.broker.domain.security import User
from pybroker.broker.domain.subscription import DurableSubscription

_COVER_COST: Final = 4
"""The cost of covering one topic, in operations of `piecewise`."""

_FEW: Final = 32
"""Subscriptions that cover a new topic at once, and topics that one leaves at once: about half a millisecond."""

_NO_STEPS: Final[Steps] = iter(())

_log = logging.getLogger(__name__)


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
        worker: carries out what no client waits for.
        observers: are notified of the end of a subscription.
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
        worker: PiecewiseWorker,
        observers: Observers,
    ) -> None:
        self._by_key: dict[str, Durable] = {}
        self._by_client: dict[str, dict[str, Durable]] = {}
        """The same by client id."""
        self._by_destination: PatternMap[Durable] = PatternMap()
        self._beginning: set[str] = set()
        """The keys of subscriptions that do not cover all existing topics yet."""
        self._ending: dict[str, Steps] = {}
        """By key, the steps by which subscriptions leave their topics that have ended."""
        self._uncovered: dict[CoveredTopic, Steps] = {}
        """New topics, with the steps by which they are covered."""
        self._has_warned = False
        """A selector that ActiveMQ refuses was logged: clients may make such subscriptions again and again."""
        self._match_counts: dict[str, int] = {}
        """By key, the number of topics for which a subscription to a wildcard is counted."""
        self._topics = topics
        self._store = store
        self._dead_letters = dead_letters
        self._clock = clock
        self._policy = policy
        self._objects = objects
        self._commits = commits
        self._worker = worker
        self._observers = observers

    def __getitem__(self, key: str) -> Durable:
        return self._by_key[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self._by_key)

    # ------------------------------------------------------------ clients

    def check_user(self, client_id: str, user: User, rights: Rights | None) -> None:
        """Check that a client id does not belong to another user, whose durable subscriptions have it.

        A user that may administer all topics of these subscriptions may use the client id of another user.

        Raises:
            InvalidClientId: it does.
        """
        durables = self._by_client.get(client_id)
        if durables is None or not user.is_certain:
            return
        infos = [durable.info for durable in durables.values()]
        own = user.name if user.is_verified else None
        others = [info.subscribed_destination for info in infos if info.user not in (None, own)]
        if others and (rights is None or not rights.allow(Right.REMOVE, others)):
            raise InvalidClientId(f"The client id {client_id} belongs to another user")

    def activate(self, info: DurableSubscription, consumer: BrokerConsumer) -> None:
        """Attach a consumer to its subscription, which is created if it is new, and replaced if its terms have changed.

        Raises:
            AccessDenied: it has messages of a topic that the consumer's user may not read.
            SubscriptionInUse: it is active.
            ResourceLimit: it is new, and there are too many.
        """
        creator, rights = consumer.connection.objects, consumer.connection.rights
        durable = self._find(info.client_id, info.name)
        former = None if durable is not None else self._continued(info, consumer)
        if durable is not None:
            self.check_reader(durable, consumer.connection)
        if durable is not None and durable.is_same(info):
            self._store.require_fence()  # nothing is appended, and the next master may have deleted it
            durable.reader, durable.is_recovered = rights, False
            durable.attach(consumer)
            if info.user is not None and durable.info.user is None:
                durable.info = info
                consumer.connection.work_off(self._record_user(durable))
            if rights is not None and info.subscribed_destination.is_pattern:
                consumer.connection.work_off(self._extend(durable))
            return
        matches = self._count_matches(info)
        growth = DURABLE_MATCH_BYTES * (matches - self._match_counts.get(info.key, 0))
        if durable is None or growth > 0:  # one that is replaced may have other terms, of about the same size
            size = growth + (_size(info) if durable is None else 0)
            self._objects.check_lasting(size, creator, f"The subscription {info.name}")
        if durable is not None:
            self._drop(durable)
        leaving = self._ending.get(info.key, _NO_STEPS)
        durable = self.add(info, matcher(info.selector), creator)
        self._warn_of_selector(info)
        durable.reader, durable.is_recovered = rights, False
        self._count(durable, matches)
        self._beginning.add(info.key)
        if former is None:
            steps = self._begin(durable, consumer)
        else:
            self._beginning.add(former.info.key)
            steps = self._continue(former, durable, consumer)
        consumer.connection.work_off(chain(leaving, steps))

    def _continued(self, info: DurableSubscription, consumer: BrokerConsumer) -> Durable | None:
        """Return the subscription whose backlog a new one takes over; None without one of the same terms.

        Raises:
            AccessDenied: it has messages of a topic that the consumer's user may not read.
            SubscriptionInUse: it is active.
        """
        name = consumer.request.continues
        former = None if name is None else self._find(info.client_id, name)
        if former is None or not former.is_same(info):
            return None
        self.check_reader(former, consumer.connection)
        active = former.consumer
        if active is None or not active.closed or active.connection is not consumer.connection:
            self.check_inactive(former.info)
        # Else that consumer is closing in pieces, before what this connection begins now.
        return former

    def _warn_of_selector(self, info: DurableSubscription) -> None:
        """Log the first new subscription with which an ActiveMQ, as this broker's standby say, would not start."""
        if self._has_warned or not info.selector or not is_refused_by_activemq(info.selector):
            return
        self._has_warned = True
        _log.warning(
            "the durable subscription %s:%s has a selector that ActiveMQ refuses: an ActiveMQ does not start on this "
            "store until it is deleted, or its client has another selector; `pybroker handback` lists all of them, and "
            "no other one is logged",
            info.client_id,
            info.name,
        )

    def of_client(self, client_id: str) -> Sequence[DurableSubscription]:
        """Return the subscriptions of a client, each once, as they were subscribed."""
        self._store.require_fence()  # the next master may have others
        return [durable.info for durable in self._by_client.get(client_id, {}).values()]

    def check_reader(self, durable: Durable, owner: Owner) -> None:
        """Check that a connection's user may read what a subscription has collected, maybe for another user.

        Raises:
            AccessDenied: the user may not.
        """
        if owner.rights is None:
            return
        owner.require_durable(durable.info.subscribed_destination)
        for topic in durable.topics:
            if topic.destination not in durable.unvouched:
                owner.require(Right.READ, topic.destination)

    def check_inactive(self, info: DurableSubscription) -> None:
        """Check that a subscription may be activated.

        Raises:
            SubscriptionInUse: it is active.
        """
        durable = self._find(info.client_id, info.name)
        if durable is not None and self._is_in_use(durable):
            raise SubscriptionInUse(
                f"Durable consumer is in use for client: {info.client_id} and subscriptionName: {info.name}"
            )

    def unsubscribe(self, client_id: str, name: str, worker: PiecewiseWorker | None = None) -> None:
        """Delete a subscription.

        Args:
            client_id: its client.
            name: its name.
            worker: has it leave its topics if they are many; None: no client waits for that.

        Raises:
            InvalidDestination: there is none of that name.
            SubscriptionInUse: it is active.
        """
        durable = self._find(client_id, name)
        if durable is None:
            raise InvalidDestination(
                f"No durable subscription exists for clientID: {client_id} and subscriptionName: {name}"
            )
        if self._is_in_use(durable):
            raise SubscriptionInUse("Durable consumer is in use")
        self._drop(durable)
        leaving = self._ending[durable.info.key]
        if len(durable.topics) <= _FEW:
            carry_out(leaving)
        else:
            (worker or self._worker).work_off(leaving)
        self._observers.announce(lambda observer: observer.durable_removed(durable.info))

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
        durable.is_recovered = creator is None
        self._by_client.setdefault(info.client_id, {})[info.name] = durable
        self._by_destination.add(info.subscribed_destination, durable)
        self._objects.add_lasting(info.key, _size(info), creator)
        return durable

    def cover(self, durable: Durable) -> None:
        """Have a recovered subscription cover all existing topics that match it, here and in the store."""
        for topic in self._topics.covered_by(durable.info.subscribed_destination):
            self._cover(durable, topic)

    def topic_added(self, topic: Topic) -> None:
        """Have all subscriptions that match a new topic cover it, at once if they are few; see `covering`."""
        count = 0 if is_advisory(topic.destination) else self._by_destination.count(topic.destination)
        if count > _FEW:
            topic.is_covered = False
            steps = self._uncovered[topic] = self._covering(topic)
            self._worker.work_off(steps)
        elif count:
            for durable in self._by_destination.covering(topic.destination):
                self._cover(durable, topic)

    @property
    def is_covering(self) -> bool:
        """True while there are new topics that are not covered yet by all subscriptions that match."""
        return bool(self._uncovered)

    def covering(self, target: object) -> Steps:
        """Return the steps that are left until a message may be sent to a target, as it may be a new topic."""
        return self._uncovered.get(target, _NO_STEPS) if isinstance(target, CoveredTopic) else _NO_STEPS

    def _covering(self, topic: Topic) -> Steps:
        """Have all subscriptions that match a new topic cover it."""
        try:
            for durable in self._by_destination.covering(topic.destination):
                if not durable.is_closed:
                    self._cover(durable, topic)
                yield _COVER_COST
        finally:
            topic.is_covered = True
            del self._uncovered[topic]

    def join(self, durable: Durable, topic: Topic) -> None:
        """Have a subscription cover a topic, for which the store has a record."""
        durable.join(topic)
        if durable.info.subscribed_destination.is_pattern:
            self._count(durable, len(durable.topics))

    def size_of_matches(self, topic: Destination) -> int:
        """Return the bytes of the subscriptions to wildcards for a new topic, and for those not covered yet."""
        if not topic.is_topic:
            return 0
        names = [topic, *[each.destination for each in self._uncovered]]
        return DURABLE_MATCH_BYTES * sum([self._by_destination.count(name) for name in names])

    # ------------------------------------------------------------ private

    def _counted_size(self, durable: Durable) -> int:
        """Return the bytes for which a subscription is counted."""
        return _size(durable.info) + DURABLE_MATCH_BYTES * self._match_counts.get(durable.info.key, 0)

    def _count(self, durable: Durable, matches: int) -> None:
        """Count the topics of a subscription to a wildcard, at its begin or as they come."""
        key = durable.info.key
        more = matches - self._match_counts.get(key, 0)
        if more > 0:
            self._match_counts[key] = matches
            self._objects.enlarge_lasting(key, DURABLE_MATCH_BYTES * more)

    def _count_matches(self, info: DurableSubscription) -> int:
        pattern = info.subscribed_destination
        return len(self._topics.covered_by(pattern)) if pattern.is_pattern else 0

    def _is_in_use(self, durable: Durable) -> bool:
        return durable.consumer is not None or durable.info.key in self._beginning

    def _extend(self, durable: Durable) -> Steps:
        """Have a subscription cover the topics that its user may read, and could not before."""
        for topic in self._topics.covered_by(durable.info.subscribed_destination):
            if durable.is_closed:
                return
            if not durable.is_on(topic.destination):
                yield from self._settling(topic)
                if self._exists(topic) and not durable.is_closed:
                    self._cover(durable, topic)
                yield _COVER_COST

    def _record_user(self, durable: Durable) -> Steps:
        """Store the user of a subscription that had none."""
        for topic in list(durable.topics):
            if durable.is_closed:
                return
            if durable.is_on(topic.destination):
                self._store.subscribe(on_topic(durable.info, topic.destination))
                yield _COVER_COST
        if not durable.topics:
            self._store.subscribe(durable.info)

    def _continue(self, former: Durable, durable: Durable, consumer: BrokerConsumer) -> Steps:
        """Begin a new subscription with the backlog of a former one, and delete that."""
        try:
            yield from self._begin(durable, consumer, former)
        finally:
            self._beginning.discard(former.info.key)
        self._drop(former)
        yield from self._ending[former.info.key]

    def _begin(self, durable: Durable, consumer: BrokerConsumer, former: Durable | None = None) -> Steps:
        """Begin a new subscription: cover the existing topics, also if the consumer closes meanwhile, and attach it."""
        info = durable.info
        try:
            retroactive = consumer.request.retroactive and not consumer.request.history_only
            for topic in self._topics.covered_by(info.subscribed_destination):
                yield from self._settling(topic, retroactive=retroactive or former is not None)
                if self._exists(topic):
                    if former is None:
                        recalls = self._cover(durable, topic, retroactive=retroactive)
                    else:
                        recalls = self._cover(durable, topic, retroactive=True, former=former)
                    if recalls and topic.is_retroactive_for(consumer):
                        durable.recall(topic)
                yield _COVER_COST
            if not durable.topics:
                self._store.subscribe(info)
        finally:
            self._beginning.discard(info.key)
        if not consumer.closed:
            durable.attach(consumer, is_new=True)
            if consumer.started:
                consumer.dispatch()

    def _settling(self, topic: Topic, *, retroactive: bool = False) -> Steps:
        """Carry out what was committed before: a new subscription gets none of it, or all if it is retroactive."""
        is_settled = False
        while not is_settled:
            is_settled = True
            for step in chain(
                self._commits.finishing(topic.gate),
                self._store.settling(topic.destination) if retroactive else _NO_STEPS,
            ):
                is_settled = False
                yield step

    def _exists(self, topic: Topic) -> bool:
        """Return True unless a topic was deleted meanwhile."""
        return topic in self._topics.covered_by(topic.destination)

    def _cover(
        self, durable: Durable, topic: Topic, *, retroactive: bool = False, former: Durable | None = None
    ) -> bool:
        """Have a subscription cover a topic, and get the backlog of a former one.

        Returns:
            True if it begins to, and gets no stored messages of it but those of the former one.
        """
        destination = topic.destination
        if durable.is_on(destination) or is_advisory(destination):  # advisories are not kept for absent clients
            return False
        if durable.reader is not None and not durable.reader.may_read(destination):
            return False
        if durable.is_recovered:
            durable.unvouched.add(destination)
        stored = self._store.subscribe(on_topic(durable.info, destination), retroactive=retroactive)
        self.join(durable, topic)
        if former is not None:
            self._take_over(former, durable, topic, stored)
            return True
        if stored:
            durable.recover_stored(destination, stored)
        return not stored

    def _take_over(self, former: Durable, durable: Durable, topic: Topic, stored: Sequence[str]) -> None:
        """Give a subscription the backlog that a former one has of a topic, out of all that the store has given it.

        Retained messages that wait are left out: the topic has them for each subscriber that asks.
        """
        destination = topic.destination
        backlog = former.stored_ids(destination)
        for message_id in stored:
            if message_id not in backlog:
                self._store.acknowledge(destination, durable.info.key, message_id, None, RemovalReason.UNMATCHED)
        taken = [message_id for message_id in stored if message_id in backlog]
        if taken:
            durable.recover_stored(destination, taken)
        for message in former.unstored(destination):
            if not is_retained_copy(message):
                durable.append(message)

    def _drop(self, durable: Durable) -> None:
        """Delete a subscription, which has its topics to leave then, by the steps in `_ending`."""
        info = durable.info
        del self._by_key[info.key]
        of_client = self._by_client[info.client_id]
        del of_client[info.name]
        if not of_client:
            del self._by_client[info.client_id]
        self._objects.remove_lasting(info.key, self._counted_size(durable))
        self._match_counts.pop(info.key, None)
        self._by_destination.remove(info.subscribed_destination, durable)
        durable.close()
        self._ending[info.key] = self._leaving(durable)  # no other is under way, or it would be in use

    def _leaving(self, durable: Durable) -> Steps:
        key = durable.info.key
        for topic in durable.topics:
            topic.remove_durable(durable)
            self._store.unsubscribe(topic.destination, key)
            yield _COVER_COST
        if durable.info.subscribed_destination.is_pattern:
            self._store.unsubscribe(durable.info.subscribed_destination, key)
        self._ending.pop(key, None)

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
