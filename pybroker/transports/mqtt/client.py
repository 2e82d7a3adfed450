"""Carries out the packets of a connected MQTT client: PUBLISH, SUBSCRIBE, UNSUBSCRIBE, and acknowledgements."""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import Destination, topic
from pybroker.broker.domain.errors import BrokerError, InvalidDestination, RequestError, ResourceLimit
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.mqtt.codec import encode_acknowledgement, encode_suback, encode_unsuback
from pybroker.broker.domain.mqtt.errors import MqttProtocolError
from pybroker.broker.domain.mqtt.packets import (
    LEVEL_5,
    AcknowledgementPacket,
    FilterSubscription,
    MqttLimits,
    PacketType,
    PublishPacket,
    RetainHandling,
    SubscribePacket,
    UnsubscribePacket,
    Will,
)
from pybroker.broker.domain.mqtt.reason_codes import ReasonCode
from pybroker.broker.domain.mqtt.topics import (
    SHARE,
    InvalidTopic,
    check_filter,
    jms_name,
    matches_every_first_level,
    shared,
)
from pybroker.broker.domain.ports import ConnectionPort
from pybroker.broker.domain.security import AccessDenied, User
from pybroker.broker.domain.space import DeferredSendsPort, SpaceAwaited
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.transports.mqtt import names
from pybroker.transports.mqtt.mapping import PublishReader
from pybroker.transports.mqtt.outgoing import OutgoingDeliveries
from pybroker.transports.mqtt.packet_ids import PacketIds
from pybroker.transports.mqtt.session_state import KeptSubscription, SessionState
from pybroker.transports.mqtt.shared_subscriptions import QOS_MAX, GroupMember, SharedSubscriptions
from pybroker.transports.mqtt.subscription_strategy import SubscriptionStrategy
from pybroker.transports.mqtt.subscriptions import MqttSubscription, QueueSubscription
from pybroker.transports.mqtt.topic_aliases import ALIASES_MAX
from pybroker.transports.mqtt.turns import PIECE, Countdown, in_turns
from pybroker.transports.session import Link

_log = logging.getLogger(__name__)

TRACKED_BYTES: Final = 400
"""The memory of a delivery with QoS 1 or 2 that waits for its acknowledgement, if the core only counts it."""

COUNTED_WINDOW: Final = 300
"""Most unacknowledged deliveries with QoS 1 and 2 of a subscription that is not durable, so that a full window stays
within the memory that is guaranteed to each connection."""

_GRANTED: Final = (ReasonCode.SUCCESS, ReasonCode.GRANTED_QOS_1, ReasonCode.GRANTED_QOS_2)


class SharedMembership(MqttSubscription):
    """A shared subscription of a connection: it is a member of a group.

    Attributes:
        member: what the group knows of it.
        marker: the durable subscription by which its session stays a member; None if that ends with the connection.
    """

    __slots__ = ("_groups", "marker", "member")

    def __init__(
        self,
        options: FilterSubscription,
        identifier: int | None,
        groups: SharedSubscriptions,
        outgoing: OutgoingDeliveries,
        give_up: Callable[[BrokerError], None],
    ) -> None:
        request = ConsumerRequest(
            destination=topic(jms_name(options.filter)),
            subscription_name=names.subscription_name(QOS_MAX, options.filter),
            leaves_out_reserved=matches_every_first_level(shared(options.filter).filter),
        )
        super().__init__(options, identifier, request)
        self.is_remembered = False  # another member may get what this one has not acknowledged
        self.durable_name = None
        self.marker: MqttSubscription | None = None
        self.member = GroupMember(self, outgoing, give_up)
        self._groups = groups

    def start(self) -> None:
        """Begin the deliveries of the group, unless the client has unsubscribed already."""
        if not self.is_closed:
            self._groups.start(self.filter, self.member)
            if self.marker is not None:
                self.marker.start()

    def recall(self) -> None:
        """Do nothing: retained messages are not for groups."""

    def close(self) -> None:
        """Leave the connected members; others get what is unacknowledged."""
        self.detach()
        if self.marker is not None:
            self.marker.close()

    def detach(self) -> None:
        """Leave the connected members; others get what is unacknowledged."""
        self._groups.disconnect(self.filter, self.member)
        self.is_closed = True


class MqttClient:
    """A connected client.

    Attributes:
        outgoing: the deliveries to it.
    """

    def __init__(
        self,
        *,
        connection: ConnectionPort,
        level: int,
        state: SessionState,
        is_durable: bool,
        limits: MqttLimits,
        groups: SharedSubscriptions,
        strategy: SubscriptionStrategy,
        user: User,
        give_up: Callable[[BrokerError], None],
        reader: PublishReader,
        outgoing: OutgoingDeliveries,
        write: Callable[[bytes], None],
        record: Callable[[], None],
        link: Link,
    ) -> None:
        """Create a client without subscriptions.

        Args:
            connection: the core's.
            level: the protocol level.
            state: the session's state.
            is_durable: the session outlives the connection.
            limits: to what the peer may have.
            groups: the groups of shared subscriptions.
            strategy: as what the core has topics and subscriptions.
            user: who the client is.
            give_up: closes the connection with an error.
            reader: converts PUBLISH packets.
            outgoing: the deliveries to it.
            write: sends packets.
            record: appends the session's record, after its subscriptions have changed.
            link: has its input, which waits while a packet is carried out in several turns.
        """
        self._link = link
        self._is_closed = False
        self._deferred: DeferredSendsPort | None = None
        self._connection = connection
        self._persistency = connection.persistency
        self._level = level
        self._state = state
        self._is_durable = is_durable
        self._limits = limits
        self._groups = groups
        self._strategy = strategy
        self._user = user
        self._give_up = give_up
        self._reader = reader
        self.outgoing = outgoing
        self._write = write
        self._record = record
        self._subscriptions: dict[str, MqttSubscription] = {}
        self._aliases: dict[int, str] = {}
        self._answers: deque[_Answer] = deque()
        """The answers to PUBLISH packets that were not written."""
        self._unanswered = 0
        """The PUBLISH packets with QoS 1 whose PUBACK was not sent."""
        self._unreleased = PacketIds()
        """The packet identifiers of this connection's PUBLISH packets with QoS 2 that the client has not released."""

    # ------------------------------------------------------------ PUBLISH

    def publish(self, packet: PublishPacket) -> None:
        """Send the message of a PUBLISH, and answer once it is durable, or consumed.

        Raises:
            MqttProtocolError: it violates the protocol, or is refused and MQTT 3.1.1 has no answer for that.
        """
        topic_name = packet.topic
        if self._level >= LEVEL_5:
            topic_name = self._topic_name(packet)  # a repeated packet may define a topic alias, too
            if packet.qos:
                self._check_quota(packet)
        if packet.qos == 2 and packet.packet_id in self._state.received:
            self._unreleased.add(packet.packet_id)
            self._answer(packet, self._connection.when_confirmed)
            return
        try:
            message = self._reader.read(packet, topic_name)
            if self._deferred is not None:
                self._defer(self._deferred, packet, message, None)
                return
            try:
                self._send(packet, message)
            except SpaceAwaited as error:
                self._deferred = deferred = self._connection.deferred_sends(self._end_deferred)
                self._defer(deferred, packet, message, error)
        except RequestError as error:
            self._refuse(packet, error)

    def _defer(
        self, deferred: DeferredSendsPort, packet: PublishPacket, message: Message, error: SpaceAwaited | None
    ) -> None:
        """Have a message wait for space, behind the others of this client."""
        deferred.add(partial(self._send, packet, message), partial(self._refuse_later, packet), message.size, error)

    def _end_deferred(self) -> None:
        self._deferred = None

    def _refuse_later(self, packet: PublishPacket, error: RequestError) -> None:
        try:
            self._refuse(packet, error)
        except MqttProtocolError as violation:
            self._give_up(violation)

    def finish_deferred(self) -> None:
        """Send or refuse the messages that wait for space, as the client leaves."""
        if self._deferred is not None:
            self._deferred.finish()

    def _send(self, packet: PublishPacket, message: Message) -> None:
        """Send a message, and answer its PUBLISH when the broker has it for certain."""
        connection = self._connection
        connection.send(message, answered=packet.qos > 0 and self._is_within_quota)
        if not packet.qos:
            return
        if packet.qos == 2:
            self._state.received.add(packet.packet_id)
            self._unreleased.add(packet.packet_id)
        else:
            self._unanswered += 1
        if message.persistent if self._persistency is None else self._persistency:
            connection.when_accepted(partial(self._answer, packet, connection.when_confirmed))
        else:
            connection.when_accepted(partial(self._answer, packet, None))

    def _answer(self, packet: PublishPacket, when: Callable[[Callable[[], None]], None] | None) -> None:
        """Write PUBACK or PUBREC, now or when the broker has the message for certain."""
        kind = PacketType.PUBACK if packet.qos == 1 else PacketType.PUBREC
        self._send_answer(encode_acknowledgement(self._level, kind, packet.packet_id), when, count=2 - packet.qos)

    def _send_answer(self, answer: bytes, when: Callable[[Callable[[], None]], None] | None, *, count: int) -> None:
        """Write an answer to PUBLISH, behind those to earlier packets (MQTT 5.0, 4.6 "Message ordering").

        What the store confirms may come in another order: a message that no subscriber gets is confirmed without a
        write, one that is retained with one.

        Args:
            answer: the packet.
            when: calls back when it is due; None: it is due now.
            count: of packets with QoS 1 that it answers: 1 or 0.
        """
        self._answers.append(pending := _Answer(answer, count))
        if when is None:
            self._answer_due(pending)
        else:
            when(partial(self._answer_due, pending))

    def _answer_due(self, pending: "_Answer") -> None:
        pending.is_due = True
        answers = self._answers
        while answers and answers[0].is_due:
            first = answers.popleft()
            self._unanswered -= first.count
            self._write(first.packet)

    def _check_quota(self, packet: PublishPacket) -> None:
        """Check that the client waits for answers when it has as many unanswered packets as the broker has allowed.

        A packet with QoS 1 is answered by PUBACK, one with QoS 2 by PUBCOMP (MQTT 5.0, 4.9 "Flow Control").

        Raises:
            MqttProtocolError: it has more.
        """
        if not self._is_within_quota and packet.packet_id not in self._unreleased:
            raise MqttProtocolError(
                f"More than {self._limits.receive_maximum} PUBLISH packets with QoS 1 and 2 are unanswered",
                ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
            )

    @property
    def _is_within_quota(self) -> bool:
        """True if the client may have one more unanswered PUBLISH.

        Before MQTT 5 a client is not bound to that. While there is no space, answers are withheld; one that sends on
        all the same is not read any more, as if it had asked for no answers.
        """
        return self._unanswered + len(self._unreleased) < self._limits.receive_maximum

    def _refuse(self, packet: PublishPacket, error: RequestError) -> None:
        """Answer a PUBLISH that is refused. Before MQTT 5 there is no such answer, and the connection ends."""
        reason = reason_of(error)
        if self._level < LEVEL_5 or (not packet.qos and isinstance(error, InvalidTopic)):
            raise MqttProtocolError(f"PUBLISH refused: {error}", reason)
        if not isinstance(error, AccessDenied):  # which has a line in the audit log
            _log.info("%s: PUBLISH refused: %s", self._connection.connection_id, error)
        if packet.qos:
            kind = PacketType.PUBACK if packet.qos == 1 else PacketType.PUBREC
            answer = encode_acknowledgement(self._level, kind, packet.packet_id, reason)
            self._send_answer(answer, self._connection.when_confirmed, count=0)

    def _topic_name(self, packet: PublishPacket) -> str:
        """Return the topic name of a PUBLISH of MQTT 5, which may have a topic alias instead, or define one."""
        alias = packet.properties.topic_alias
        if alias is None:
            if not packet.topic:
                raise MqttProtocolError("PUBLISH has neither a topic name nor a topic alias")
            return packet.topic
        if not 0 < alias <= ALIASES_MAX:
            raise MqttProtocolError(
                f"The topic alias {alias}: 1 to {ALIASES_MAX} are possible", ReasonCode.TOPIC_ALIAS_INVALID
            )
        if packet.topic:
            self._aliases[alias] = packet.topic
            return packet.topic
        known = self._aliases.get(alias)
        if known is None:
            raise MqttProtocolError(f"The topic alias {alias} stands for no topic name")
        return known

    def release(self, packet: AcknowledgementPacket) -> None:
        """Answer PUBREL: its packet identifier may be used for another message."""
        known = packet.packet_id in self._state.received
        self._state.received.discard(packet.packet_id)
        self._unreleased.discard(packet.packet_id)
        reason = ReasonCode.SUCCESS if known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
        self._write(encode_acknowledgement(self._level, PacketType.PUBCOMP, packet.packet_id, reason))

    def publish_will(self, will: Will) -> None:
        """Send the will of the client, which is lost. A refusal is logged: there is no client to answer."""
        try:
            self._connection.send(self._reader.read(will, will.topic))
        except RequestError as error:
            _log.warning("%s: its will is refused: %s", self._connection.connection_id, error)

    # ------------------------------------------------------------ SUBSCRIBE, UNSUBSCRIBE

    def subscribe(self, packet: SubscribePacket) -> None:
        """Add subscriptions, and answer once they are durable; their deliveries begin then.

        Raises:
            MqttProtocolError: a topic filter is not valid, in MQTT 3.1.1; or the options are not, in MQTT 5.
        """
        for each in packet.subscriptions:
            if self._level < LEVEL_5:
                _check(each.filter)
            elif each.no_local and self._is_shared(each.filter):
                raise MqttProtocolError("A shared subscription cannot leave out the client's own messages")
        identifier = next(iter(packet.properties.subscription_ids), None)
        begun: list[Callable[[], None]] = []
        reasons: list[ReasonCode] = []
        acts = (partial(self._grant, each, identifier, begun, reasons) for each in packet.subscriptions)
        self._before_input(acts, len(packet.subscriptions), partial(self._answer_subscribe, packet, reasons, begun))

    def _in_turns(self, acts: Iterator[Callable[[], None]], done: Callable[[], None]) -> None:
        in_turns(self._connection, acts, done, self._give_up)

    def _before_input(self, acts: Iterator[Callable[[], None]], count: int, done: Callable[[], None]) -> None:
        """Carry out the acts of a packet, some in each turn, before the packets behind it."""
        if count < PIECE:
            self._in_turns(acts, done)
        else:
            self._link.hold_input()
            self._in_turns(acts, partial(self._end_hold, done))

    def _end_hold(self, done: Callable[[], None]) -> None:
        if not self._is_closed:
            done()
            self._link.release_input()

    def _grant(
        self,
        options: FilterSubscription,
        identifier: int | None,
        begun: list[Callable[[], None]],
        reasons: list[ReasonCode],
    ) -> None:
        if not self._is_closed:
            reasons.append(self._subscribe(options, identifier, begun))

    def _answer_subscribe(
        self, packet: SubscribePacket, reasons: Sequence[ReasonCode], begun: Sequence[Callable[[], None]]
    ) -> None:
        """Answer once the subscriptions are durable."""
        self._record()
        answer = partial(self._connection.when_durable, partial(self._subscribed, packet.packet_id, reasons, begun))
        groups = [each.filter for each in packet.subscriptions if self._is_shared(each.filter)]
        ready = Countdown(1 + len(groups), answer)  # and no chain of callbacks, which a thousand groups make too deep
        for text in groups:
            self._groups.when_ready(text, ready)
        ready()

    def _subscribed(self, packet_id: int, reasons: Sequence[ReasonCode], begun: Sequence[Callable[[], None]]) -> None:
        if not self._is_closed:
            self._write(encode_suback(self._level, packet_id, reasons))
            self._in_turns(iter(begun), _nothing)

    def _subscribe(
        self, options: FilterSubscription, identifier: int | None, begun: list[Callable[[], None]]
    ) -> ReasonCode:
        """Add one subscription; return its reason code."""
        if self._is_shared(options.filter):
            options = options._replace(qos=min(options.qos, QOS_MAX))
        try:
            self._check_new(options)
            former = self._subscriptions.get(options.filter)
            if former is not None and _has_same_consumer(former, options):
                self._change(former, options, identifier)
                if options.retain_handling is RetainHandling.ALWAYS:
                    begun.append(former.recall)
            else:
                begun.append(self._replace(former, options, identifier).start)
        except RequestError as error:
            if not isinstance(error, AccessDenied):
                _log.info("%s: SUBSCRIBE refused: %s", self._connection.connection_id, error)
            return ReasonCode.TOPIC_FILTER_INVALID if isinstance(error, InvalidTopic) else reason_of(error)
        self._state.subscriptions[options.filter] = KeptSubscription(options, identifier)
        return _GRANTED[options.qos]

    def _replace(
        self, former: MqttSubscription | None, options: FilterSubscription, identifier: int | None
    ) -> MqttSubscription:
        """Add a subscription, in place of one to the same topic filter if there is one.

        A durable one keeps its backlog when its QoS changes, which is in its name (MQTT 5.0, MQTT-3.8.4-4).
        """
        handling = options.retain_handling
        is_new = options.filter not in self._state.subscriptions
        retroactive = handling is RetainHandling.ALWAYS or (handling is RetainHandling.IF_NEW and is_new)
        is_durable = self._is_durable and (options.qos > 0 or self._is_shared(options.filter))
        continued = None
        if former is not None:
            if is_durable and former.options.no_local == options.no_local:
                continued = former.durable_name
            self._end(former, is_continued=continued is not None)
        try:
            return self._add(options, identifier, is_durable=is_durable, retroactive=retroactive, continued=continued)
        except RequestError:
            if continued is not None:
                self._delete(continued)
            raise

    def _is_shared(self, text: str) -> bool:
        return self._level >= LEVEL_5 and text.startswith(SHARE)

    def _check_new(self, options: FilterSubscription) -> None:
        check_filter(options.filter)
        if self._is_shared(options.filter):
            check_filter(shared(options.filter).filter)
        if options.filter not in self._subscriptions and len(self._subscriptions) >= self._limits.subscriptions:
            raise ResourceLimit(f"A session may have {self._limits.subscriptions} subscriptions")
        if self._is_shared(options.filter) and options.filter not in self._subscriptions:
            limit = self._limits.shared_subscriptions
            if self._groups.memberships_of(self._connection.client_id) >= limit:
                raise ResourceLimit(f"A session may have {limit} shared subscriptions: use a wildcard")

    def _change(self, subscription: MqttSubscription, options: FilterSubscription, identifier: int | None) -> None:
        """Continue a subscription to the same topic filter, without a gap."""
        subscription.options = options
        subscription.qos = options.qos
        subscription.identifier = identifier
        subscription.retain_as_published = options.retain_as_published

    def _add(
        self,
        options: FilterSubscription,
        identifier: int | None,
        *,
        is_durable: bool,
        retroactive: bool,
        continued: str | None = None,
    ) -> MqttSubscription:
        """Add a subscription, whose deliveries do not begin yet; it continues the durable one of that name."""
        if self._is_shared(options.filter):
            return self._join(options, identifier, is_durable=is_durable)
        queue = self._strategy.queue_of(self._connection.client_id, options) if is_durable else None
        if queue is not None:
            return self._consume(queue, options, identifier, retroactive=retroactive)
        request = ConsumerRequest(
            destination=self._strategy.topic_of(options.filter),
            subscription_name=names.subscription_name(options.qos, options.filter) if is_durable else None,
            no_local=options.no_local,
            retroactive=retroactive,
            leaves_out_reserved=matches_every_first_level(options.filter),
            tracked_bytes=0 if is_durable or not options.qos else TRACKED_BYTES,
            window_max=None if is_durable or not options.qos else COUNTED_WINDOW,
            history_only=True,
            continues=continued,
        )
        made = MqttSubscription(options, identifier, request)
        made.consumer = self._connection.subscribe(request, partial(_deliver, self.outgoing, made))
        self._subscriptions[options.filter] = made
        return made

    def _consume(
        self, queue: Destination, options: FilterSubscription, identifier: int | None, *, retroactive: bool
    ) -> MqttSubscription:
        """Add a subscription whose messages come from a queue."""
        request = ConsumerRequest(
            destination=queue,
            is_literal=True,
            retroactive=retroactive,
            leaves_out_reserved=matches_every_first_level(options.filter),
        )
        made = QueueSubscription(options, identifier, request, self.outgoing, self._strategy)
        made.consumer = self._connection.subscribe(request, partial(_deliver, self.outgoing, made))
        self._subscriptions[options.filter] = made
        return made

    def _join(self, options: FilterSubscription, identifier: int | None, *, is_durable: bool) -> MqttSubscription:
        """Become a member of a group, whose deliveries to this client begin later."""
        text, connection = options.filter, self._connection
        made = SharedMembership(options, identifier, self._groups, self.outgoing, self._give_up)
        source = self._strategy.topic_of(shared(text).filter)
        self._groups.join(text, source, made.member, connection.client_id, connection.connection_id, self._user)
        if is_durable:
            try:
                made.marker = self._marker(options)
            except RequestError:
                made.close()
                self._groups.leave(text, connection.client_id)
                raise
            made.durable_name = made.marker.durable_name
        self._subscriptions[text] = made
        return made

    def _marker(self, options: FilterSubscription) -> MqttSubscription:
        """Add the durable subscription that marks a session as a member; what others publish to it is dropped."""
        request = ConsumerRequest(
            destination=topic(jms_name(options.filter)),
            subscription_name=names.subscription_name(QOS_MAX, options.filter),
            leaves_out_reserved=True,
        )
        made = MqttSubscription(options, None, request)
        made.consumer = self._connection.subscribe(request, partial(_deliver, self.outgoing, made))
        return made

    def _end(self, subscription: MqttSubscription, *, is_continued: bool = False) -> None:
        """End a subscription, and delete it if it is durable and another one does not continue it."""
        subscription.close()
        self.outgoing.forget(subscription)
        options = subscription.options
        del self._subscriptions[options.filter]
        self._state.forget(options.filter)
        if subscription.durable_name is not None and not is_continued:
            self._delete(subscription.durable_name)
        if isinstance(subscription, QueueSubscription):
            self._delete_queue(subscription.queue)
        if isinstance(subscription, SharedMembership):
            self._groups.leave(options.filter, self._connection.client_id)

    def _delete(self, name: str) -> None:
        """Delete a durable subscription, once its consumer has closed."""
        self._connection.when_carried_out(partial(self._delete_now, name))

    def _delete_now(self, name: str) -> None:
        try:
            self._connection.unsubscribe(self._connection.client_id, name)
        except RequestError as error:
            _log.warning("%s: its subscription %s remains: %s", self._connection.client_id, name, error)

    def _delete_queue(self, queue: Destination) -> None:
        """Delete the queue of a subscription, once its consumer has closed."""
        self._connection.when_carried_out(partial(self._delete_queue_now, queue))

    def _delete_queue_now(self, queue: Destination) -> None:
        try:
            self._strategy.delete(queue)
        except RequestError as error:
            _log.warning("%s: its %s remains: %s", self._connection.client_id, queue, error)

    def _discard(self, queue: Destination) -> None:
        """Delete the queue of a former session, if this user may read it: another one may have had the client id."""
        try:
            consumer = self._connection.subscribe(ConsumerRequest(destination=queue, is_literal=True), _refuse)
        except RequestError as error:
            _log.warning("%s: its %s remains: %s", self._connection.client_id, queue, error)
            return
        consumer.close()
        self._delete_queue(queue)

    def unsubscribe(self, packet: UnsubscribePacket) -> None:
        """End subscriptions, and answer once that is durable."""
        reasons: list[ReasonCode] = []
        acts = (partial(self._unsubscribe, each, reasons) for each in packet.filters)
        self._before_input(acts, len(packet.filters), partial(self._answer_unsubscribe, packet, reasons))

    def _answer_unsubscribe(self, packet: UnsubscribePacket, reasons: Sequence[ReasonCode]) -> None:
        self._record()
        answer = encode_unsuback(self._level, packet.packet_id, reasons)
        self._connection.when_durable(partial(self._write, answer))

    def _unsubscribe(self, text: str, reasons: list[ReasonCode]) -> None:
        if self._is_closed:
            return
        found = self._subscriptions.get(text)
        if found is not None:
            self._end(found)
        reasons.append(ReasonCode.NO_SUBSCRIPTION_EXISTED if found is None else ReasonCode.SUCCESS)

    # ------------------------------------------------------------ the session

    def restore(self, done: Callable[[bool], None], *, has_state: bool) -> None:
        """Continue the session's subscriptions, and call back: with True if there is a session, so far as is known.

        Those with QoS 1 and 2 are durable subscriptions, or queues, maybe made by ActiveMQ or at a former master; names
        that no MQTT client has made are left alone. This is so for a session that ends with this connection, too: its
        backlog is delivered before.

        Args:
            done: called then.
            has_state: the session has a state at this broker.
        """
        kept = dict(self._state.subscriptions)
        for info in self._connection.durable_subscriptions():
            name = names.parse_subscription_name(info.name)
            if name is None or not self._strategy.continues(info, name.filter):
                continue
            if name.filter in kept:
                self._warn_of_another(info.name, kept[name.filter].subscription)
            else:
                self._expect_former_packet_ids(name.qos)
                kept[name.filter] = KeptSubscription(FilterSubscription(name.filter, name.qos, no_local=info.no_local))
        for _, name in self._strategy.queues_of(self._connection.client_id):
            if name.filter not in kept:
                self._expect_former_packet_ids(name.qos)
                kept[name.filter] = KeptSubscription(FilterSubscription(name.filter, name.qos))
        acts = (partial(self._restore, each) for each in kept.values())
        self._in_turns(acts, partial(done, bool(kept) or has_state))

    def _warn_of_another(self, name: str, kept: FilterSubscription) -> None:
        """Log that a topic filter has two durable subscriptions, after a crash while its QoS was changed."""
        if name != names.subscription_name(kept.qos, kept.filter) and not self._is_shared(kept.filter):
            client_id = self._connection.client_id
            _log.warning("%s: its subscription %s remains: it has another one to that filter", client_id, name)

    def _restore(self, kept: KeptSubscription) -> None:
        if self._is_closed:
            return
        options, identifier = kept
        text = options.filter
        try:
            is_durable = options.qos > 0 or self._is_shared(text)
            self._add(options, identifier, is_durable=is_durable, retroactive=False)
        except RequestError as error:
            _log.warning("%s: its subscription to %s ends: %s", self._connection.client_id, text, error)
            self._state.subscriptions.pop(text, None)
        else:
            self._state.subscriptions[text] = KeptSubscription(options, identifier)

    def _expect_former_packet_ids(self, qos: int) -> None:
        """Have identifiers released before use, if a former master may have used them for this subscription."""
        if qos == 2 and not self._state.last_packet_id:  # this broker has sent it nothing
            self._state.packet_id_max = 0

    def delete_session(self) -> None:
        """Delete the lasting subscriptions that MQTT clients have made with this client id."""
        for subscription in self._subscriptions.values():
            subscription.close()
        self._subscriptions = {}
        for info in self._connection.durable_subscriptions():
            if names.parse_subscription_name(info.name) is not None:
                self._delete(info.name)
        for queue, _ in list(self._strategy.queues_of(self._connection.client_id)):
            self._discard(queue)
        self._groups.end_session(self._connection.client_id)

    def start(self) -> None:
        """Begin the deliveries of all subscriptions."""
        self.outgoing.release_remembered()
        self._in_turns(iter([each.start for each in self._subscriptions.values()]), _nothing)

    def close(self) -> None:
        """Close subscriptions and connection; unacknowledged messages go back to the core. Harmless when repeated."""
        self._is_closed = True
        self.outgoing.is_paused = True
        for subscription in self._subscriptions.values():
            subscription.detach()
        self.outgoing.clear()
        self._connection.close()
        self._subscriptions = {}


class _Answer:
    """An answer to PUBLISH that is not written yet; see `MqttClient._send_answer`."""

    __slots__ = ("count", "is_due", "packet")

    def __init__(self, packet: bytes, count: int) -> None:
        self.packet = packet
        self.count = count
        self.is_due = False


def _deliver(outgoing: OutgoingDeliveries, subscription: MqttSubscription, delivery: Delivery, /) -> None:
    outgoing.deliver(subscription, delivery)


def _nothing() -> None:
    """Do nothing."""


def _refuse(_: Delivery, /) -> None:
    raise AssertionError("a consumer that is not started gets no delivery")


def _check(text: str) -> None:
    """Check a topic filter of MQTT 3.1.1, in which one that is not valid ends the connection."""
    try:
        check_filter(text)
    except InvalidTopic as error:
        raise MqttProtocolError(f"SUBSCRIBE refused: {error}", ReasonCode.TOPIC_FILTER_INVALID) from error


def _has_same_consumer(former: MqttSubscription, options: FilterSubscription) -> bool:
    """Return True if the core's consumer is the same for these options of one topic filter."""
    if isinstance(former, SharedMembership):
        return True
    had, wants = former.options, options
    if had.no_local != wants.no_local:
        return False
    # The names of durable subscriptions and queues have their QoS. A plain one is the same for 1 and 2, and loses
    # nothing that waits.
    is_lasting = former.durable_name is not None or isinstance(former, QueueSubscription)
    return had.qos == wants.qos or (not is_lasting and had.qos > 0 and wants.qos > 0)


def reason_of(error: RequestError) -> ReasonCode:
    """Return the reason code of MQTT 5 for a request that is refused."""
    match error:
        case AccessDenied():
            return ReasonCode.NOT_AUTHORIZED
        case InvalidDestination():
            return ReasonCode.TOPIC_NAME_INVALID
        case ResourceLimit():
            return ReasonCode.QUOTA_EXCEEDED
        case _:
            return ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
