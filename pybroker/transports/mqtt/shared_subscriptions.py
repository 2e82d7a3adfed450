"""Shared subscriptions of MQTT 5: the members of a group receive each message once between them.

```text
$share/<group>/<filter>    the members' topic filter
client id                  $share/<group>/<filter>     of the group's connection in the core
subscription name          AT_LEAST_ONCE:<filter>      of its durable subscription, which has the backlog
```

A group consumes from one durable subscription and passes its deliveries to its members in turn: to those whose window
and connection have space. What a member has not acknowledged when its connection ends goes to the others. While no
member is connected, the backlog waits in the store. It survives a failover, and is deleted with the session of the last
member. A member whose session outlives its connection has a durable subscription under its own client id,
`AT_LEAST_ONCE:$share/<group>/<filter>`, to a topic without publishers: this is how it is a member after a
failover, too, and ActiveMQ tolerates it.

QoS 1 is granted at most. With QoS 2 the standard forbids sending a message to another member once one may have it, also
if that one never returns; then the message would be lost.

A group belongs to the user of its first member, with whose rights it consumes.

Source: MQTT 5.0, 4.8.2 "Shared Subscriptions".
"""

import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple, Protocol

from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import BrokerError, RequestError
from pybroker.broker.domain.mqtt.topics import SHARE, matches_every_first_level, shared
from pybroker.broker.domain.ports import BrokerPort, ConnectionPort, ConsumerPort
from pybroker.broker.domain.security import AccessDenied, User
from pybroker.broker.domain.subscription import ConsumerRequest, DurableSubscription
from pybroker.transports.mqtt import names
from pybroker.transports.mqtt.outgoing import MqttRecipient, OutgoingDeliveries

_log = logging.getLogger(__name__)

QOS_MAX: Final = 1


class SharedBroker(BrokerPort, Protocol):
    """The core, as groups use it."""

    def unsubscribe(self, client_id: str, subscription_name: str) -> None:
        """Delete a durable subscription.

        Raises:
            RequestError: there is none of that name, or it is active.
        """
        ...


class GroupMember(NamedTuple):
    """A connected member of a group.

    Attributes:
        recipient: its subscription.
        outgoing: the deliveries to its client.
        give_up: closes its connection with an error.
    """

    recipient: MqttRecipient
    outgoing: OutgoingDeliveries
    give_up: Callable[[BrokerError], None]


class SharedGroup:
    """The connected members of a group, and what waits for one with space.

    Attributes:
        filter: the topic filter without the share name.
        source: the pattern of topics that it consumes.
        user: with whose rights it consumes.
        connection: its connection in the core.
        consumer: the consumer of its durable subscription.
        members: the connected members.
    """

    def __init__(self, filter_: str, source: Destination, user: User) -> None:
        self.filter = filter_
        self.source = source
        self.user = user
        self.connection: ConnectionPort
        self.consumer: ConsumerPort
        self.members: list[GroupMember] = []
        self._started: deque[GroupMember] = deque()
        """Members whose SUBACK or CONNACK was sent. The one that is next comes first."""
        self._waiting: deque[Delivery] = deque()
        """Deliveries for which no member has space, at most the prefetch of the consumer."""

    def add(self, member: GroupMember) -> None:
        """Add a member, which gets no deliveries yet."""
        member.recipient.consumer = self.consumer
        self.members.append(member)

    def start(self, member: GroupMember) -> None:
        """Begin deliveries to a member; do nothing if they have begun."""
        if member not in self._started:
            self._started.append(member)
            member.outgoing.add_drain(self.drain)
        self.consumer.start()
        self.drain()

    def remove(self, member: GroupMember) -> None:
        """Remove a member; the others get what it has not acknowledged."""
        self.members.remove(member)
        if member in self._started:
            self._started.remove(member)
            member.outgoing.remove_drain(self.drain)
        self._waiting.extendleft(reversed(member.outgoing.take_back(member.recipient)))
        self.drain()

    def deliver(self, delivery: Delivery, /) -> None:
        """Pass a delivery of the core to a member, or have it wait."""
        self._waiting.append(delivery)
        self.drain()

    def drain(self) -> None:
        """Pass on what waits while a member has space."""
        while self._waiting:
            for _ in range(len(self._started)):
                member = self._started[0]
                self._started.rotate(-1)
                if member.outgoing.has_space:
                    break
            else:
                return
            member.outgoing.deliver(member.recipient, self._waiting.popleft())


class _GroupLink:
    """Stands for the link of a group's connection in the core, from which nothing is read."""

    def __init__(self, text: str, close: Callable[[BrokerError], None]) -> None:
        self.peer = f"the members of {text}"
        self._close = close

    def pause_reading(self) -> None:
        """Do nothing: a group sends nothing."""

    def resume_reading(self) -> None:
        """Do nothing."""

    def hold_input(self) -> None:
        """Do nothing."""

    def release_input(self) -> None:
        """Do nothing."""

    def give_up(self, error: BrokerError) -> None:
        """Close the group, as its user has changed, or an operator has decided."""
        self._close(error)


class SharedSubscriptions:
    """The groups of one broker, by the topic filter with the share name."""

    def __init__(self, broker: SharedBroker, durables: Callable[[], Iterable[DurableSubscription]]) -> None:
        """Begin without groups.

        Args:
            broker: the core.
            durables: returns all durable subscriptions, to find members after a failover; called once.
        """
        self._broker = broker
        self._durables = durables
        self._groups: dict[str, SharedGroup] = {}
        """Those with connected members."""
        self._sessions: dict[str, set[str]] = {}
        """The client ids of all members by group, also of those without a connection; empty until `_recover`."""
        self._texts: dict[str, set[str]] = {}
        """The same by client id."""
        self._is_recovered = False
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        """Return the number of groups with connected members."""
        return len(self._groups)

    @property
    def membership_count(self) -> int:
        """The number of members of all groups, with those without a connection."""
        return sum([len(sessions) for sessions in self._sessions.values()])

    def memberships_of(self, client_id: str) -> int:
        """Return the number of groups of which a client's session is a member."""
        self._recover()
        return len(self._texts.get(client_id, ()))

    def join(
        self, text: str, source: Destination, member: GroupMember, client_id: str, connection_id: str, user: User
    ) -> None:
        """Add a member to a group, which is created if it has none.

        Args:
            text: the topic filter with the share name.
            source: the pattern of topics for that without it.
            member: the member, which gets its consumer.
            client_id: its client.
            connection_id: its connection's id, with which that of the group begins.
            user: its user.

        Raises:
            RequestError: the group belongs to another user or to listeners with another subscription strategy, or this
                user may not read its topics.
        """
        group = self._groups.get(text)
        if group is None:
            group = self._open(text, source, connection_id, user)
        elif user.is_verified and user.name != group.user.name:
            raise AccessDenied(f"The shared subscription {text} belongs to another user")
        elif source != group.source:
            raise RequestError(f"The members of {text} use a listener with another subscription strategy")
        group.add(member)
        self._recover()
        self._enter(text, client_id)

    def when_ready(self, text: str, callback: Callable[[], None]) -> None:
        """Call back once a group's durable subscription is in the store's hands, before its durability is awaited."""
        group = self._groups.get(text)
        if group is None:
            callback()
        else:
            group.connection.when_carried_out(callback)

    def start(self, text: str, member: GroupMember) -> None:
        """Begin deliveries to a connected member; do nothing if they have begun."""
        group = self._groups.get(text)
        if group is not None:
            group.start(member)

    def disconnect(self, text: str, member: GroupMember) -> None:
        """Remove a member whose connection ends, and whose session may continue."""
        group = self._groups.get(text)
        if group is None or member not in group.members:
            return
        group.remove(member)
        if not group.members:
            del self._groups[text]
            group.connection.close()

    def leave(self, text: str, client_id: str) -> None:
        """End the membership of a session without a connection; the last one ends the group."""
        self._recover()
        sessions, texts = self._sessions.get(text, set()), self._texts.get(client_id, set())
        if client_id not in sessions:
            return
        sessions.discard(client_id)
        texts.discard(text)
        if not texts:
            del self._texts[client_id]
        if sessions:
            return
        del self._sessions[text]
        name = names.subscription_name(QOS_MAX, shared(text).filter)
        try:
            self._broker.unsubscribe(text, name)
        except RequestError as error:
            _log.warning("the shared subscription %s has no members, and remains: %s", text, error)

    def end_session(self, client_id: str) -> None:
        """End all memberships of a session that has ended."""
        self._recover()
        for text in list(self._texts.get(client_id, ())):
            self.leave(text, client_id)

    # ------------------------------------------------------------ private

    def _recover(self) -> None:
        """Find the members whose sessions a former master had, once."""
        if self._is_recovered:
            return
        self._is_recovered = True
        for info in self._durables():
            name = names.parse_subscription_name(info.name)
            if name is not None and name.filter.startswith(SHARE):
                self._enter(name.filter, info.client_id)

    def _enter(self, text: str, client_id: str) -> None:
        self._sessions.setdefault(text, set()).add(client_id)
        self._texts.setdefault(client_id, set()).add(text)

    def _open(self, text: str, source: Destination, connection_id: str, user: User) -> SharedGroup:
        made = SharedGroup(shared(text).filter, source, user)
        link = _GroupLink(text, partial(self._close, text, made))
        connection = self._broker.connect(f"{connection_id}:shared:{next(self._numbers)}", text, link, user)
        request = ConsumerRequest(
            destination=source,
            subscription_name=names.subscription_name(QOS_MAX, made.filter),
            leaves_out_reserved=matches_every_first_level(made.filter),
        )
        try:
            made.consumer = connection.subscribe(request, made.deliver)
        except RequestError:
            connection.close()
            raise
        made.connection = connection
        self._groups[text] = made
        return made

    def _close(self, text: str, group: SharedGroup, error: BrokerError) -> None:
        """Close a group that the core closes: its members have to subscribe again."""
        if self._groups.get(text) is not group:
            return
        for member in list(group.members):
            member.give_up(error)  # which removes it, and with the last one the group
