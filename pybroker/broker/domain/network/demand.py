"""The demand table of one bridge: which subscriptions its broker needs for the consumers of the remote broker.

It is fed with the advisories of the remote broker, and returns what changes. Nothing survives the connection: the next
one has a new table. Demand differs from ActiveMQ 5.17 where that loses messages, repeats them, or lets them pile up:

- the selector of merged consumers is not dropped: messages that none of them selects stay. Durable subscriptions have
  none, since another selector would delete their backlog;
- a durable consumer is not merged into a subscription that is not durable;
- a composite consumer has one subscription for each part, which other consumers can share;
- the durable subscription of an earlier connection is deleted only if the remote broker has listed its subscribers.
  Consumers that are not durable, for which it is with `forced_durable`, are in no list: then it ends with them alone;
- a suppressed way to a consumer is used when the other one ends; see `interests`.

Source: ActiveMQ 5.17, `DemandForwardingBridgeSupport`, `ConduitBridge`, `DurableConduitBridge`.
"""

from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import replace
from typing import Final, TypeAlias

from pybroker.broker.domain.destination import Destination, DestinationType, covers, parts
from pybroker.broker.domain.destination_map import PatternMap
from pybroker.broker.domain.errors import InvalidDestination
from pybroker.broker.domain.network.changes import (
    BeginDemand,
    DeleteDurable,
    DemandChange,
    EndDemand,
    LocalDemand,
    SelectDemand,
)
from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.network.hops import may_pass
from pybroker.broker.domain.network.interests import Claim, Interests
from pybroker.broker.domain.network.names import DURABLE_PREFIX, durable_name, inbound_client_id
from pybroker.broker.domain.network.permission import Permissions
from pybroker.broker.domain.network.suppressed import SuppressedCandidates
from pybroker.broker.domain.openwire.commands import ConsumerInfo
from pybroker.broker.domain.openwire.ids import ConsumerId
from pybroker.broker.domain.subscription import DurableSubscription

SELECTORS_MAX: Final = 64
"""Different selectors of consumers that share a subscription; with more, it takes every message. Each is tried for each
message, and the remote broker drops or keeps what is too much."""

GONE_MAX: Final = 1000
"""The latest ended consumers of a subscription whose other ways are not used: news of their ends is about to come."""

_PRIORITY_MIN: Final = -128


_DURABLE_CLAIM: Final = 128
"""Above all priorities: the backlog of a durable subscription has no other way."""

_ConsumerKey: TypeAlias = tuple[ConsumerId, Destination]
_DurableKey: TypeAlias = tuple[str | None, str]
"""Client id and name."""


class _Candidate:
    """A consumer of the remote broker, for one part of its destination."""

    __slots__ = ("consumer_id", "destination", "ids", "info", "is_forced", "path")

    def __init__(
        self,
        info: ConsumerInfo,
        consumer_id: ConsumerId,
        destination: Destination,
        path: tuple[str, ...],
        *,
        is_forced: bool,
    ) -> None:
        """Keep what an advisory says; `is_forced`: its demand is durable, though the consumer is not."""
        self.info = info
        self.is_forced = is_forced
        self.consumer_id = consumer_id
        self.destination = destination
        self.path = path
        self.ids = frozenset(each for each in info.network_consumer_path or () if each) | {consumer_id}

    @property
    def key(self) -> _ConsumerKey:
        """Its id and destination: a composite consumer has several candidates."""
        return self.consumer_id, self.destination

    @property
    def durable_key(self) -> _DurableKey | None:
        """Client id and name of a durable subscription; None for another consumer."""
        name = self.info.subscription_name
        return None if name is None else (self.info.client_id, name)


class _SharedDemand:
    """A demand subscription with the consumers that share it.

    Attributes:
        local: as the bridge knows it.
        claim: the consumers that it serves.
        consumers: those whose end ends it, by id and destination.
        durables: durable subscriptions whose deletion ends it, by client id and name.
        gone: consumers that have ended, the latest ones.
        is_conduit: others may share it.
        was_stored: its durable subscription is older than the connection.
    """

    __slots__ = (
        "_id_counts",
        "_selectors",
        "claim",
        "consumers",
        "durables",
        "gone",
        "is_conduit",
        "local",
        "was_stored",
    )

    def __init__(self, local: LocalDemand, claim: Claim, *, is_conduit: bool, was_stored: bool = False) -> None:
        self.local = local
        self.claim = claim
        self.consumers: dict[_ConsumerKey, _Candidate] = {}
        self.durables: dict[_DurableKey, _Candidate] = {}
        self.gone: dict[ConsumerId, None] = {}
        self.is_conduit = is_conduit
        self.was_stored = was_stored
        self._selectors: dict[str | None, int] = {}
        self._id_counts: dict[ConsumerId, int] = {}
        """How many of its consumers and durable subscriptions have an id."""

    def add(self, candidate: _Candidate) -> None:
        """Add a consumer, once."""
        if candidate.key not in self.consumers:
            self.consumers[candidate.key] = candidate
            self._count(candidate)
            selector = candidate.info.selector or None
            self._selectors[selector] = self._selectors.get(selector, 0) + 1

    def add_durable(self, key: _DurableKey, candidate: _Candidate) -> Set[ConsumerId]:
        """Add a durable subscription, or replace its consumer; return the ids that it then no longer needs."""
        former = self.durables.get(key)
        self.durables[key] = candidate
        self._count(candidate)
        return frozenset() if former is None else self.unused(former)

    def _count(self, candidate: _Candidate) -> None:
        for each in candidate.ids:
            self._id_counts[each] = self._id_counts.get(each, 0) + 1

    def unused(self, candidate: _Candidate) -> Set[ConsumerId]:
        """Return the ids of a removed consumer that no other one has."""
        counts, found = self._id_counts, set[ConsumerId]()
        for each in candidate.ids:
            counts[each] -= 1
            if not counts[each]:
                del counts[each]
                found.add(each)
        return found.difference(self.local.consumer_path)

    def remove(self, key: _ConsumerKey) -> _Candidate:
        """Remove a consumer, and return it; `unused` follows."""
        candidate = self.consumers.pop(key)
        selector = candidate.info.selector or None
        self._selectors[selector] -= 1
        if not self._selectors[selector]:
            del self._selectors[selector]
        self.gone[candidate.consumer_id] = None
        if len(self.gone) > GONE_MAX:
            del self.gone[next(iter(self.gone))]
        return candidate

    @property
    def is_wanted_durable(self) -> bool:
        """True as long as something asks for it that loses messages if its durable subscription ends."""
        return bool(self.durables) or any(each.is_forced for each in self.consumers.values())

    @property
    def is_wanted(self) -> bool:
        """True as long as something asks for it."""
        return bool(self.consumers or self.durables or self.local.is_static)

    @property
    def selectors(self) -> frozenset[str] | None:
        """The selectors of its consumers; None if it takes every message."""
        if self.local.is_static or self.local.subscription_name is not None or None in self._selectors:
            return None
        return frozenset(each for each in self._selectors if each) if len(self._selectors) <= SELECTORS_MAX else None


class DemandTable:
    """The demand subscriptions of one bridge, for one connection."""

    def __init__(
        self,
        connector: NetworkConnector,
        permissions: Permissions,
        interests: Interests,
        *,
        local_broker_id: str,
        remote_broker_id: str,
        local_broker_name: str,
        remote_broker_name: str,
        local_connection_id: str,
        number: Callable[[], int],
        wake: Callable[[], None],
    ) -> None:
        """Begin without any demand.

        Args:
            connector: the bridge's connector.
            permissions: those of the connector.
            interests: shared by all bridges of the broker.
            local_broker_id: id of the broker that has the messages.
            remote_broker_id: id of the broker that has the consumers.
            local_broker_name: name of the former, part of the names of durable subscriptions.
            remote_broker_name: name of the latter.
            local_connection_id: id of the connection whose consumers the subscriptions are.
            number: returns the next number of a consumer there; ids that only stand for a consumer have some too.
            wake: called when a change at another bridge makes `reconsider` necessary. It must not call the table.
        """
        self._connector = connector
        self._permissions = permissions
        self._interests = interests
        self._local_id = local_broker_id
        self._remote_id = remote_broker_id
        self._local_name = local_broker_name
        self._client_id = inbound_client_id(connector, remote_broker_name, local_broker_name)
        self._connection_id = local_connection_id
        self._number = number
        self._wake = wake
        self._subscriptions: dict[int, _SharedDemand] = {}
        self._patterns: PatternMap[_SharedDemand] = PatternMap()
        self._concrete: dict[Destination, dict[int, _SharedDemand]] = {}
        self._places: dict[ConsumerId, set[tuple[int, Destination]]] = {}
        self._waiting: SuppressedCandidates[_Candidate] = SuppressedCandidates()
        self._displaced: dict[Claim, None] = {}
        self._by_claim: dict[Claim, _SharedDemand] = {}
        self._by_name: dict[str, dict[int, int]] = {}
        """By the name of a durable subscription, how many of that name each demand subscription serves."""
        self._offline: dict[_DurableKey, _Candidate] = {}
        self._stored: dict[str, Destination] = {}
        self._has_list = False
        self._is_due = False
        interests.join(self)

    # ------------------------------------------------------------ at start

    def static(self) -> list[DemandChange]:
        """Begin the subscriptions of the statically included destinations; call it once, at start."""
        changes: list[DemandChange] = []
        for each in self._connector.statically_included:
            for part in parts(each):
                if self._permissions.admits(part):
                    changes += self._begin_own(part, is_static=True)
        return changes

    def restored(self, subscription: DurableSubscription) -> list[DemandChange]:
        """Continue a durable subscription of an earlier connection of this bridge.

        Call it for all stored subscriptions at start, before any demand; those of others are left alone. With
        `dynamic_only` it begins later, with demand.
        """
        name, destination = subscription.name, subscription.subscribed_destination
        is_ours = subscription.client_id == self._client_id and name == durable_name(self._local_name, destination)
        if not is_ours or name in self._stored or not self._connector.conduit_subscriptions:
            return []
        if not self._permissions.admits(destination):
            return []
        self._stored[name] = destination
        if self._connector.dynamic_only:
            return []
        return self._begin_own(destination, subscription_name=name)

    def remote_subscriptions(self, infos: Iterable[ConsumerInfo]) -> list[DemandChange]:
        """Learn all durable subscriptions of the remote broker, from its BrokerSubscriptionInfo.

        Those that are offline are demand too, unless `dynamic_only` or without conduit. Durable subscriptions of
        earlier connections that none of them needs are deleted, if demand comes from one hop away: a pybroker does not
        list those that its own bridges have, behind which are the subscribers of others. None are deleted with
        `use_virtual_dest_subs`, as a list does not name the virtual topics behind which a subscription is.
        """
        if not self._connector.conduit_subscriptions:
            return []
        self._has_list = self._connector.consumer_ttl == 1 and not self._connector.use_virtual_dest_subs
        changes: list[DemandChange] = []
        for candidate in (each for info in infos for each in self._candidates(info)):
            key = candidate.durable_key
            if key is not None and self._connector.dynamic_only:
                self._offline[key] = candidate
                self._merge(candidate)
            elif key is not None:
                changes += self._add(candidate)
        for subscription in list(self._subscriptions.values()):
            is_unwanted = subscription.was_stored and not subscription.is_wanted_durable
            if self._has_list and is_unwanted and not self._is_forced(subscription.local.destination):
                changes += self._end_durable(subscription)
        if self._has_list:
            changes += self._delete_unwanted()
        return self._complete(changes)

    # ------------------------------------------------------------ advisories

    def consumer_added(self, info: ConsumerInfo) -> list[DemandChange]:
        """Add a consumer of the remote broker, or one whose demand reaches it, from its Consumer advisory."""
        changes: list[DemandChange] = []
        for candidate in self._candidates(info):
            changes += self._add(candidate)
        return self._complete(changes)

    def consumer_removed(self, consumer_id: ConsumerId) -> list[DemandChange]:
        """Remove a consumer. What shares its subscription keeps that; durable demand stays. Unknown ids are ignored."""
        for waiting in self._waiting.with_id(consumer_id):
            if waiting.consumer_id == consumer_id and not self._outlives_its_consumer(waiting):
                self._waiting.remove(waiting)
        changes: list[DemandChange] = []
        places = self._places.pop(consumer_id, set())
        for number, destination in places:
            subscription = self._subscriptions[number]
            candidate = subscription.remove((consumer_id, destination))
            self._interests.narrow(subscription.claim, subscription.unused(candidate))
            if candidate.durable_key is not None:
                self._offline[candidate.durable_key] = candidate
        for subscription in [self._subscriptions[each] for each in sorted({number for number, _ in places})]:
            if self._is_kept(subscription):
                changes += self._select(subscription)
            elif subscription.local.subscription_name is not None and self._connector.conduit_subscriptions:
                changes += self._end_durable(subscription)
            else:
                changes += self._end(subscription)
        return self._complete(changes)

    def subscription_removed(self, client_id: str | None, name: str) -> list[DemandChange]:
        """Remove a durable subscription that its client, or another bridge, has deleted at the remote broker."""
        key = (client_id, name)
        for waiting in [each for each in self._waiting if each.durable_key == key]:
            self._waiting.remove(waiting)
        offline = _named(self._offline, key)
        changes: list[DemandChange] = []
        if offline is not None:
            del self._offline[offline]
            if not self._connector.conduit_subscriptions and not self._is_named(name):
                changes.append(DeleteDurable(name))
        for number in sorted(self._by_name.get(name, ())):
            subscription = self._subscriptions[number]
            found = _named(subscription.durables, key)
            if found is not None:
                removed = subscription.durables.pop(found)
                self._forget_named(number, name)
                self._interests.narrow(subscription.claim, subscription.unused(removed))
                if not subscription.is_wanted_durable and (self._has_list or not subscription.was_stored):
                    changes += self._end_durable(subscription)
        if self._has_list:
            changes += self._delete_unwanted()
        return self._complete(changes)

    # ------------------------------------------------------------ other bridges

    def reconsider(self) -> list[DemandChange]:
        """Return the changes that follow from those at other bridges; call it after `wake`."""
        return self._complete([])

    def close(self) -> None:
        """Give up all claims, because the connection is lost; the table is not used any more."""
        self._interests.leave(self)

    def on_displaced(self, claim: Claim, *, wakes: bool) -> None:
        """See `ClaimOwner`."""
        self._displaced[claim] = None
        self._make_due(wakes=wakes)

    def on_narrowed(self, ids: Set[ConsumerId]) -> None:
        """See `ClaimOwner`."""
        self._waiting.narrowed(ids)

    def on_release(self, ids: Set[ConsumerId], gone: Set[ConsumerId], *, wakes: bool) -> None:
        """See `ClaimOwner`."""
        if self._waiting.freed(ids, gone):
            self._make_due(wakes=wakes)

    def _make_due(self, *, wakes: bool) -> None:
        if wakes and not self._is_due:
            self._wake()
        self._is_due = True

    # ------------------------------------------------------------ for messages

    def taking(self, destination: Destination) -> tuple[int, ...]:
        """Return the numbers of the subscriptions that cover the destination of a message, the first one first."""
        return tuple(sorted(each.local.number for each in self._covering(destination)))

    # ------------------------------------------------------------ from a consumer to a subscription

    def _candidates(self, info: ConsumerInfo) -> list[_Candidate]:
        consumer_id, destination = info.consumer_id, info.destination
        path = _broker_ids(info)
        if info.browser or consumer_id is None or destination is None:
            return []
        if not may_pass(path, self._local_id, self._connector.consumer_ttl):
            return []
        try:
            listed = parts(destination)
        except InvalidDestination:  # the remote broker has accepted a name that no message can have
            return []
        return [
            _Candidate(
                info,
                consumer_id,
                part,
                (*path, self._remote_id),
                is_forced=info.subscription_name is None and self._is_forced(part),
            )
            for part in listed
            if self._permissions.admits(part)
        ]

    def _add(self, candidate: _Candidate) -> list[DemandChange]:
        if any(each == candidate.destination for _, each in self._places.get(candidate.consumer_id, ())):
            return []  # an advisory that comes twice, replayed and live
        merged = self._merge(candidate)
        if merged is not None:
            return merged
        is_contested = self._suppresses(candidate)
        if is_contested and not self._interests.is_free(
            candidate.destination, candidate.ids, self._priority(candidate)
        ):
            self._waiting.add(candidate)
            return []
        return self._begin(candidate, displaces=is_contested)

    def _merge(self, candidate: _Candidate) -> list[DemandChange] | None:
        """Let all subscriptions that cover a candidate serve it too; None if there are none."""
        if not self._connector.conduit_subscriptions:
            return None
        found = [each for each in self._covering(candidate.destination) if self._can_share(each, candidate)]
        if not found:
            return None
        changes: list[DemandChange] = []
        for subscription in found:
            self._serve(subscription, candidate)
            self._interests.extend(subscription.claim, candidate.ids)
            changes += self._select(subscription)
        return changes

    def _serve(self, subscription: _SharedDemand, candidate: _Candidate) -> None:
        """Let a subscription serve a candidate: until its consumer ends, or its durable subscription is deleted."""
        key = candidate.durable_key
        if key is not None and self._outlives_its_consumer(candidate):
            self._interests.narrow(subscription.claim, self._add_durable(subscription, key, candidate))
        else:
            subscription.add(candidate)
            place = (subscription.local.number, candidate.destination)
            self._places.setdefault(candidate.consumer_id, set()).add(place)

    def _add_durable(self, subscription: _SharedDemand, key: _DurableKey, candidate: _Candidate) -> Set[ConsumerId]:
        if key not in subscription.durables:
            counts = self._by_name.setdefault(key[1], {})
            counts[subscription.local.number] = counts.get(subscription.local.number, 0) + 1
        return subscription.add_durable(key, candidate)

    def _forget_named(self, number: int, name: str) -> None:
        counts = self._by_name[name]
        counts[number] -= 1
        if not counts[number]:
            del counts[number]
        if not counts:
            del self._by_name[name]

    def _outlives_its_consumer(self, candidate: _Candidate) -> bool:
        return candidate.durable_key is not None and self._connector.conduit_subscriptions

    def _covering(self, destination: Destination) -> Iterator[_SharedDemand]:
        """Yield the subscriptions that take all messages for a destination, or pattern."""
        yield from self._concrete.get(destination, {}).values()
        yield from self._patterns.covering_pattern(destination)

    def _can_share(self, subscription: _SharedDemand, candidate: _Candidate) -> bool:
        local = subscription.local
        if (candidate.durable_key is not None or candidate.is_forced) and local.subscription_name is None:
            return False  # its messages would not wait for it while the bridge is down
        if local.destination.is_topic:
            return True
        if candidate.info.network_subscription and not self._connector.conduit_network_queue_subscriptions:
            return False
        if not subscription.is_conduit:
            return False
        selectors = subscription.selectors
        # Messages that only one of the two selects for its own queue would be forwarded from all queues of the pattern.
        return selectors is None or local.destination == candidate.destination or candidate.info.selector in selectors

    def _suppresses(self, candidate: _Candidate) -> bool:
        if self._subscription_name(candidate) in self._stored:
            return False  # its backlog has no other way
        if candidate.destination.is_queue:
            return self._connector.suppress_duplicate_queue_subscriptions
        return self._connector.suppress_duplicate_topic_subscriptions

    def _begin(self, candidate: _Candidate, *, displaces: bool) -> list[DemandChange]:
        info, is_conduit = candidate.info, self._connector.conduit_subscriptions
        name = self._subscription_name(candidate)
        if name is not None and is_conduit:
            self._number()  # ActiveMQ's id for a consumer that outlives the remote one
        local = LocalDemand(
            number=self._number(),
            destination=candidate.destination,
            selector=None if name is not None and is_conduit else info.selector or None,
            priority=self._priority(candidate),
            exclusive=info.exclusive,
            no_local=info.no_local,
            retroactive=info.retroactive,
            pending_limit=info.maximum_pending_message_limit or None,
            client_id=info.client_id,
            subscription_name=name,
            broker_path=candidate.path,
            consumer_path=(*(each for each in info.network_consumer_path or () if each), candidate.consumer_id),
        )
        claim_priority = local.priority if name is None else _DURABLE_CLAIM
        claim = Claim(self, candidate.destination, candidate.ids, claim_priority)
        subscription = _SharedDemand(
            local, claim, is_conduit=not info.network_subscription, was_stored=name in self._stored
        )
        self._serve(subscription, candidate)
        if is_conduit and name is not None:
            for key, each in self._offline.items():
                if _is_covered(candidate.destination, each):
                    self._add_durable(subscription, key, each)
        return self._enter(subscription, displaces=displaces)

    def _begin_own(
        self, destination: Destination, *, subscription_name: str | None = None, is_static: bool = False
    ) -> list[DemandChange]:
        """Begin a subscription that no consumer has asked for; an id of its own stands for one."""
        own_id = ConsumerId(self._connection_id, 1, self._number())
        if subscription_name is not None:
            self._number()
        local = LocalDemand(
            number=self._number(),
            destination=destination,
            priority=self._priority(None),
            subscription_name=subscription_name,
            broker_path=(self._remote_id,),
            consumer_path=(own_id,),
            is_static=is_static,
        )
        was_stored = subscription_name is not None
        claim = Claim(self, destination, (own_id,), _DURABLE_CLAIM if was_stored else local.priority)
        return self._enter(_SharedDemand(local, claim, is_conduit=True, was_stored=was_stored), displaces=False)

    def _enter(self, subscription: _SharedDemand, *, displaces: bool) -> list[DemandChange]:
        local = subscription.local
        self._subscriptions[local.number] = subscription
        if local.destination.is_pattern:
            self._patterns.add(local.destination, subscription)
        else:
            self._concrete.setdefault(local.destination, {})[local.number] = subscription
        self._by_claim[subscription.claim] = subscription
        self._interests.claim(subscription.claim, displaces=displaces)
        return [BeginDemand(local)]

    def _priority(self, candidate: _Candidate | None) -> int:
        if not self._connector.decrease_network_consumer_priority:
            return candidate.info.priority if candidate else 0
        hops = len(candidate.path) if candidate else 1
        base = self._connector.consumer_priority_base
        return max(_PRIORITY_MIN, base if hops == 1 else base - (hops + 1))

    def _is_forced(self, destination: Destination) -> bool:
        """Return True if consumers of a topic are durable demand, whether they are durable or not."""
        return (
            self._connector.conduit_subscriptions
            and destination.type is DestinationType.TOPIC
            and any(covers(each.name, destination.name) for each in self._connector.forced_durable)
        )

    def _subscription_name(self, candidate: _Candidate) -> str | None:
        if not candidate.is_forced and (
            candidate.info.subscription_name is None or not self._connector.conduit_subscriptions
        ):
            return candidate.info.subscription_name
        return durable_name(self._local_name, candidate.destination)

    # ------------------------------------------------------------ changes and ends

    def _select(self, subscription: _SharedDemand) -> list[DemandChange]:
        local = subscription.local
        if local.is_static or local.subscription_name is not None or not self._connector.conduit_subscriptions:
            return []
        selector = _any_of(subscription.selectors)
        if selector == local.selector:
            return []
        subscription.local = replace(local, selector=selector)
        return [SelectDemand(local.number, selector)]

    def _is_kept(self, subscription: _SharedDemand) -> bool:
        return subscription.is_wanted or (subscription.was_stored and not self._has_list)

    def _end(self, subscription: _SharedDemand, *, deletes_durable: bool = False) -> list[DemandChange]:
        number, destination = subscription.local.number, subscription.local.destination
        del self._subscriptions[number]
        del self._by_claim[subscription.claim]
        self._patterns.remove(destination, subscription)
        concrete = self._concrete.get(destination, {})
        concrete.pop(number, None)
        if not concrete:
            self._concrete.pop(destination, None)
        for _, name in subscription.durables:
            self._forget_named(number, name)
        for consumer_id, wanted in subscription.consumers:
            self._places[consumer_id].discard((number, wanted))
        self._interests.release(subscription.claim, subscription.gone.keys())
        return [EndDemand(number, deletes_durable)]

    def _end_durable(self, subscription: _SharedDemand) -> list[DemandChange]:
        """Delete a durable subscription; consumers that shared it get another one."""
        self._stored.pop(subscription.local.subscription_name or "", None)
        changes = self._end(subscription, deletes_durable=True)
        for each in subscription.consumers.values():
            changes += self._add(each)
        return changes

    def _delete_unwanted(self) -> list[DemandChange]:
        """Delete the stored durable subscriptions that have no consumer here, and no subscriber there."""
        if not self._stored:
            return []
        active = {each.local.subscription_name for each in self._subscriptions.values()}
        unwanted = [
            name
            for name, destination in self._stored.items()
            if name not in active
            and not self._is_forced(destination)
            and not any(_is_covered(destination, each) for each in self._offline.values())
        ]
        for name in unwanted:
            del self._stored[name]
        return [DeleteDurable(name) for name in unwanted]

    def _is_named(self, name: str) -> bool:
        is_active = any(each.local.subscription_name == name for each in self._subscriptions.values())
        return is_active or any(each[1] == name for each in self._offline)

    def _complete(self, changes: list[DemandChange]) -> list[DemandChange]:
        """Add the changes that follow: displaced subscriptions end, and candidates that waited begin."""
        while self._is_due:
            self._is_due = False
            displaced, self._displaced = self._displaced, {}
            candidates: list[_Candidate] = []
            for subscription in [self._by_claim[each] for each in displaced if each in self._by_claim]:
                candidates += subscription.consumers.values()
                candidates += subscription.durables.values()
                changes += self._end(subscription)
            for candidate in (*self._waiting.take(), *candidates):
                changes += self._add(candidate)
        return changes


def _broker_ids(info: ConsumerInfo) -> tuple[str, ...]:
    return tuple(each.value for each in info.broker_path or () if each is not None and each.value is not None)


def _is_covered(destination: Destination, candidate: _Candidate) -> bool:
    theirs = candidate.destination
    return destination.type is theirs.type and covers(destination.name, theirs.name)


def _named(durables: dict[_DurableKey, _Candidate], key: _DurableKey) -> _DurableKey | None:
    """Return the key of a deleted durable subscription.

    That of a bridge is announced with the client id of the original consumer, and deleted with the bridge's: the name
    decides if one subscription has it.
    """
    if key in durables:
        return key
    same = [each for each in durables if each[1] == key[1]] if key[1].startswith(DURABLE_PREFIX) else []
    return same[0] if len(same) == 1 else None


def _any_of(selectors: frozenset[str] | None) -> str | None:
    if selectors is None:
        return None
    ordered = sorted(selectors)
    return ordered[0] if len(ordered) == 1 else " OR ".join(f"({each})" for each in ordered)
