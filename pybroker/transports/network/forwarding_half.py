"""The forwarding half of a bridge: follows the demand of the remote broker, and forwards messages to it.

```text
advisories of the remote broker --> demand table --> consumers of this broker --> messages to the remote broker
                                                     acknowledgements        <-- its answers
```

A bridge has one such half, at the broker with the connector; a duplex bridge has one at both, and each serves the
other's consumer of advisories as well: they go over the bridge as plain messages. The half is given the peer that it
writes to, and is passed what comes back; it reads no frames, and has no timers of its own.

Source: ActiveMQ 5.17, `DemandForwardingBridgeSupport`; network.md 5, 6, 9.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Final

from pybroker.broker.domain.big_endian import INT
from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import (
    BrokerError,
    InvalidDestination,
    InvalidSelector,
    LockError,
    RequestError,
    ResourceLimit,
    StoreError,
    unexpected,
)
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.network.advised import subject_of
from pybroker.broker.domain.network.changes import BeginDemand, DeleteDurable, DemandChange, EndDemand, LocalDemand
from pybroker.broker.domain.network.demand import DemandTable
from pybroker.broker.domain.network.forwarding import ForwardingEncoder
from pybroker.broker.domain.network.hops import may_pass
from pybroker.broker.domain.network.names import advisory_destination, inbound_client_id, outbound_client_id
from pybroker.broker.domain.network.overlap import OverlapFilter
from pybroker.broker.domain.network.permission import Permissions
from pybroker.broker.domain.network.rows import DemandRow
from pybroker.broker.domain.openwire.commands import (
    AckType,
    ActiveMQMessage,
    BaseCommand,
    ConnectionId,
    ConnectionInfo,
    ConsumerId,
    ConsumerInfo,
    DataStructure,
    DestinationInfo,
    DestinationOperation,
    ExceptionResponse,
    KeepAliveInfo,
    MessageAck,
    ProducerId,
    ProducerInfo,
    RemoveInfo,
    RemoveSubscriptionInfo,
    SessionId,
    SessionInfo,
)
from pybroker.broker.domain.openwire.throwables import Throwable
from pybroker.broker.domain.ports import BrokerPort, ConnectionPort
from pybroker.broker.domain.subscription import ConsumerRequest, NetworkSubscription
from pybroker.transports.network.advisory_listeners import INTERPRETED, VERBATIM, AdvisoryListeners
from pybroker.transports.network.compressed_output import CompressedOutput
from pybroker.transports.network.demand_consumer import DemandConsumer
from pybroker.transports.network.forwarding_settings import ForwardingSettings
from pybroker.transports.network.refused_demand import RefusedDemand, may_pass_by
from pybroker.transports.network.remote_text import one_line
from pybroker.transports.openwire.client import FALLEN_BEHIND
from pybroker.transports.openwire.peer import Peer
from pybroker.transports.session import Link

_log = logging.getLogger(__name__)

ENDING_SECONDS: Final = 30.0
"""The limit to the time for which a subscription that ends waits for answers."""

SESSION: Final = 1
"""The one session of each connection of a bridge."""

_PRODUCER: Final = 1
_ADVISORY_CONSUMER: Final = 1

_FINAL: Final = frozenset(
    (
        "java.lang.SecurityException",
        "javax.jms.JMSSecurityException",
        "javax.jms.InvalidDestinationException",
        "org.apache.activemq.broker.region.policy.DestinationDoesNotExistException",
        "org.apache.activemq.DestinationDoesNotExistException",
        "org.apache.activemq.broker.region.DestinationDoesNotExistException",
    )
)
"""Exceptions after which the same message is refused again."""

_OF_THE_BROKER: Final = (StoreError, LockError, OSError)
"""Errors of this broker, which no message causes, and after which it must not go on."""


class ForwardingHalf:
    """The forwarding half of one connection of a bridge.

    Attributes:
        sent_count: messages that were sent to the remote broker.
        forwarded_count: messages that it has confirmed, or that need no answer.
        permissions: decide which destinations it serves.
    """

    def __init__(
        self,
        *,
        broker: BrokerPort,
        link: Link,
        peer: Peer,
        settings: ForwardingSettings,
        next_command_id: Callable[[], int],
        call_soon: Callable[[Callable[[], None]], object],
        on_deadline: Callable[[], None],
        on_error: Callable[[BrokerError], None],
        on_accepted: Callable[[], None] | None = None,
    ) -> None:
        """Connect to this broker; demand begins with `start`.

        Args:
            broker: this broker.
            link: moves the bytes.
            peer: writes commands to the remote broker.
            settings: the half's.
            next_command_id: numbers the commands of the connection.
            call_soon: calls back in a later turn of the event loop.
            on_deadline: called when `deadlines` has changed.
            on_error: called for an error outside of a call of this half, after which it cannot go on.
            on_accepted: called once the remote broker has accepted the login; None: it is not asked.

        Raises:
            RequestError: this broker refuses the connection.
        """
        self.sent_count = self.forwarded_count = 0
        self.permissions = Permissions(settings.connector)
        self._broker = broker
        self._link = link
        self._peer = peer
        self._settings, self._connector = settings, (connector := settings.connector)
        self._next_command_id = next_command_id
        self._call_soon = call_soon
        self._on_deadline, self._on_error, self._on_accepted = on_deadline, on_error, on_accepted
        self._is_over = self._paused = self._is_settling = self._is_announced = False
        self._numbers = count(1)
        self._producer_id = ProducerId(settings.remote_connection_id, SESSION, _PRODUCER)
        self._encoder = ForwardingEncoder(self._producer_id, broker.id)
        self._compressed = self._new_compression()
        self._advisory_consumer_id = ConsumerId(settings.remote_connection_id, SESSION, _ADVISORY_CONSUMER)
        self._advisory_prefetch = connector.advisory_prefetch_size or connector.prefetch_size
        self._advisory_count = 0
        """Advisories since the last acknowledgement."""
        self._listeners = self._new_listeners()
        self._consumers: dict[int, DemandConsumer] = {}
        self._refused_demand = RefusedDemand()
        self._postponed: dict[DemandConsumer, None] = {}
        """Those that pause: a bridge may have thousands of subscriptions, and few that do."""
        self._ending: list[DemandConsumer] = []
        self._leaving: dict[Destination, None] = {}
        """Temporary destinations of the remote broker that were deleted there."""
        self._unanswered: dict[int, tuple[DemandConsumer, Delivery]] = {}
        self._copies: dict[str, list[tuple[DemandConsumer, Delivery]]] = {}
        """Copies of messages whose first one is unanswered, by message id."""
        self._answered: dict[DemandConsumer, None] = {}
        """Those of whose messages answers have come in the present chunk of input."""
        self._unconfirmed: deque[tuple[DemandConsumer, Delivery]] = deque()
        """Messages that need no answer, until they have left the process."""
        self._unforwardable: list[tuple[DemandConsumer, Delivery, str]] = []
        """Messages that cannot be encoded for the remote broker, with the cause, until the present dispatch is over."""
        client_id = inbound_client_id(connector, settings.remote_name, broker.name)
        self._connection: ConnectionPort = broker.connect(settings.local_connection_id, client_id, link, settings.user)
        self._table = self._new_table()
        self._overlap = OverlapFilter(self._table.taking)
        self._remote = settings.peer_at(link.peer)

    def _new_listeners(self) -> AdvisoryListeners:
        return AdvisoryListeners(
            self._settings.remote_id,
            self._connector.consumer_ttl,
            self._new_consumer_id,
            deliver=self._advise,
            on_dropped=partial(self._give_up, FALLEN_BEHIND),
        )

    def _new_table(self) -> DemandTable:
        settings = self._settings
        return DemandTable(
            self._connector,
            self.permissions,
            settings.interests,
            local_broker_id=self._broker.id,
            remote_broker_id=settings.remote_id,
            local_broker_name=self._broker.name,
            remote_broker_name=settings.remote_name,
            local_connection_id=settings.local_connection_id,
            number=partial(next, self._numbers),
            wake=self._wake,
        )

    def _new_compression(self) -> CompressedOutput | None:
        """Return what compresses bodies before they leave; None: they leave as they are."""
        if not self._connector.use_compression:
            return None
        return CompressedOutput(self._link, self._write_encoded, pause=self.pause, on_error=self._on_error)

    def introduce(self) -> None:
        """Connect to the remote broker, and subscribe to its advisories.

        Nothing of it is answered but the producer, if someone waits for it: its answer shows that the remote broker has
        accepted the login. An ActiveMQ does not answer it if the bridge is duplex: see `BridgeSession`.
        """
        connector, connection_id = self._connector, self._settings.remote_connection_id
        user_name, password = connector.remote_login
        self._send(
            ConnectionInfo(
                connection_id=ConnectionId(connection_id),
                client_id=outbound_client_id(connector, self._broker.name),
                user_name=user_name,
                password=password,
                client_master=True,
            )
        )
        self._send(SessionInfo(session_id=SessionId(connection_id, SESSION)))
        producer = ProducerInfo(producer_id=self._producer_id, response_required=self._on_accepted is not None)
        self._send(producer)
        if not connector.static_bridge:
            self._send(
                ConsumerInfo(
                    consumer_id=self._advisory_consumer_id,
                    destination=advisory_destination(connector),
                    prefetch_size=self._advisory_prefetch,
                    dispatch_async=True,
                )
            )

    def _send(self, command: BaseCommand) -> None:
        command.command_id = self._next_command_id()
        self._peer.send(command)

    def start(self) -> None:
        """Begin what needs no demand: stored durable subscriptions, and static destinations; announce the bridge."""
        self._is_announced = True
        self._settings.announce(lambda observer: observer.bridge_started(self._remote))
        for subscription in self._settings.subscriptions(self._connection.client_id):
            self._change(self._table.restored(subscription))
        self._change(self._table.static())

    def close(self) -> None:
        """End; what has no answer returns to its place, in its order.

        Raises:
            BrokerError: the store has failed.
        """
        if self._is_over:
            return
        self._is_over = True
        self._connection.pause()  # or the queues would fill the window again
        try:
            self._acknowledge()
        finally:
            self._close()

    def _close(self) -> None:
        self._unanswered.clear()
        self._copies.clear()
        self._unconfirmed.clear()
        self._unforwardable.clear()
        self._refused_demand.clear()
        if self._compressed is not None:
            self._compressed.close()
        self._postponed.clear()
        self._consumers.clear()
        self._ending.clear()
        self._listeners.clear()
        self._table.close()
        if self._is_announced:
            self._settings.announce(lambda observer: observer.bridge_stopped(self._remote))
            if self._settings.is_created_by_duplex:  # the connector logs the ends of its own bridges
                _log.info("the %s has ended", self)
        self._connection.close()

    # ------------------------------------------------------------ link

    def written(self) -> None:
        """Resume, and acknowledge what needs no answer, as all output has left the process."""
        if self._is_over:
            return
        self._connection.written()
        self._settle()
        if self._paused and not self._is_compressing:
            self._paused = False
            self._connection.resume()
            self._guarded(self._end_idle)

    def handed_over(self) -> None:
        """Count all forwards so far as possibly received."""
        if not self._is_over:
            self._connection.written()

    def pause(self) -> None:
        """Forward nothing until `written`."""
        if not self._is_over:
            self._paused = True
            self._connection.pause()

    def on_timer(self, now: float) -> None:
        """Resume subscriptions, and end them, whose time has come."""
        for consumer in list(self._postponed):
            if consumer.resumes_at is not None and consumer.resumes_at <= now:
                del self._postponed[consumer]
                consumer.resume()
        for number, request in self._refused_demand.due(now):
            self._select(number, request)
        self._end_idle()

    @property
    def deadlines(self) -> list[float]:
        """The times at which `on_timer` has something to do."""
        times = [each.resumes_at for each in self._postponed if each.resumes_at is not None]
        if (next_attempt := self._refused_demand.next_attempt) is not None:
            times.append(next_attempt)
        return times + [each.ends_by for each in self._ending if each.ends_by is not None and not each.is_draining]

    # ------------------------------------------------------------ demand

    def demand_rows(self) -> Iterator[DemandRow]:
        """Return the state of the demand subscriptions."""
        connector = self._connector
        return (each.row(connector.name, self._settings.remote_name, connector.prefetch_size) for each in self.demand)

    @property
    def demand(self) -> Sequence[DemandConsumer]:
        """The demand subscriptions, those that end included."""
        return [*self._consumers.values(), *self._ending]

    def advised(self, message: ActiveMQMessage, destination: Destination | None = None) -> None:
        """Follow the demand of the remote broker, from an advisory, and acknowledge advisories, many at once.

        Args:
            message: the advisory.
            destination: the destination that it was dispatched from; None: that of the message.
        """
        self._follow(subject_of(message))
        self._advisory_count += 1
        if self._advisory_count > self._advisory_prefetch * self._connector.advisory_ack_percentage / 100:
            self._send(
                MessageAck(
                    ack_type=AckType.STANDARD,
                    consumer_id=self._advisory_consumer_id,
                    destination=destination or message.destination,
                    last_message_id=message.message_id,
                    message_count=self._advisory_count,
                )
            )
            self._advisory_count = 0

    def _follow(self, structure: DataStructure | None) -> None:
        match structure:
            case ConsumerInfo() as info:
                self._change(self._table.consumer_added(info))
            case RemoveInfo(object_id=ConsumerId() as consumer_id):
                self._change(self._table.consumer_removed(consumer_id))
            case RemoveSubscriptionInfo(client_id=client_id, subscription_name=str() as name):
                self._change(self._table.subscription_removed(client_id, name))
            case DestinationInfo(destination=Destination() as destination) as info if destination.is_temporary:
                self._temporary_changed(info, destination)
            case _:
                pass

    def compare_subscriptions(self, infos: Iterable[ConsumerInfo | None] | None) -> None:
        """Learn all durable subscriptions of the remote broker."""
        self._change(self._table.remote_subscriptions(each for each in infos or () if each))

    def _wake(self) -> None:
        self._call_soon(self._reconsider)

    def _reconsider(self) -> None:
        if not self._is_over:
            self._guarded(self._change_again)

    def _change_again(self) -> None:
        self._change(self._table.reconsider())

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except BrokerError as error:
            self._on_error(error)

    def _change(self, changes: Iterable[DemandChange]) -> None:
        """Carry out the changes of the demand table."""
        self._acknowledge()
        for change in changes:
            if isinstance(change, BeginDemand):
                self._subscribe(change.demand.number, self._request(change.demand))
            elif isinstance(change, EndDemand):
                self._unsubscribe(change.number, deletes_durable=change.deletes_durable)
            elif isinstance(change, DeleteDurable):
                self._delete_durable(change.subscription_name)
            else:
                self._refused_demand.select(change.number, change.selector)
                consumer = self._consumers.get(change.number)
                if consumer is not None:
                    again = replace(consumer.request, selector=change.selector, consumer_id=self._new_consumer_id())
                    self._select(change.number, again)

    def _select(self, number: int, request: ConsumerRequest) -> None:
        """Begin a subscription before the one that it replaces ends, so that no message of a topic is between them."""
        former = self._consumers.get(number)
        if self._subscribe(number, request) and former is not None:
            self._replaced(former)

    def _new_consumer_id(self) -> ConsumerId:
        return ConsumerId(self._settings.local_connection_id, SESSION, next(self._numbers))

    def _request(self, demand: LocalDemand) -> ConsumerRequest:
        return ConsumerRequest(
            destination=demand.destination,
            prefetch=self._connector.prefetch_size,
            selector=demand.selector,
            subscription_name=demand.subscription_name,
            no_local=demand.no_local,
            exclusive=demand.exclusive,
            priority=demand.priority,
            retroactive=demand.retroactive,
            pending_limit=demand.pending_limit,
            consumer_id=ConsumerId(self._settings.local_connection_id, SESSION, demand.number),
            network=NetworkSubscription(
                remote_broker_id=self._settings.remote_id,
                broker_path=demand.broker_path,
                consumer_path=demand.consumer_path,
                admits=self._admits,
                may_return=self._may_return,
                bridge_filter=self._connector.bridge_filter,
            ),
        )

    def _admits(self, message: Message) -> bool:
        """Return True for a message that may go over the bridge."""
        if message.destination.name.startswith(INTERPRETED) or not self.permissions.admits(message.destination):
            return False
        path = () if message.bridge is None else message.bridge.broker_path
        return may_pass(path, self._settings.remote_id, self._connector.message_ttl)

    def _may_return(self, message: Message) -> bool:
        """Return True for a message of a queue that has been at the remote broker, and else may go there."""
        has_passed = message.bridge is not None and self._settings.remote_id in message.bridge.broker_path
        return has_passed and message.destination.is_queue and self.permissions.admits(message.destination)

    def _subscribe(self, number: int, request: ConsumerRequest) -> bool:
        """Begin a subscription; return False if this broker refuses it."""
        if request.subscription_name is not None:
            self._end_former(request.subscription_name)
        try:
            consumer = self._new_consumer(number, request)
        except RequestError as error:
            self._refused(number, request, error)
            return False
        if self._refused_demand.remove(number):
            _log.info("%s: messages of %s go to %s now", self, request.destination, self._settings.remote_name)
        self._consumers[number] = consumer
        consumer.start()
        return True

    def _new_consumer(self, number: int, request: ConsumerRequest) -> DemandConsumer:
        try:
            return DemandConsumer(number, request, self._connection, self._forward)
        except (InvalidSelector, ResourceLimit) as error:
            if request.selector is None:
                raise
            # ActiveMQ knows more than is valid here. Too many messages are better for its consumers than none.
            consumer = DemandConsumer(number, replace(request, selector=None), self._connection, self._forward)
            _log.warning("%s: messages of %s are not selected: %s", self, request.destination, one_line(str(error)))
            return consumer

    def _refused(self, number: int, request: ConsumerRequest, error: RequestError) -> None:
        """Report a subscription that this broker refuses, and try it again if the reason may pass."""
        remote, is_first = self._settings.remote_name, True
        if may_pass_by(error):
            is_first = self._refused_demand.add(number, request, self._link.time())
            self._on_deadline()
        else:  # it may have been tried again, and has no further attempt
            self._refused_demand.remove(number)
        if is_first:
            _log.warning("%s: no messages of %s go to %s: %s", self, request.destination, remote, error)

    def _end_former(self, subscription_name: str) -> None:
        """Close what still waits for answers under that name, which can have one consumer: they come again, marked."""
        for consumer in [each for each in self._ending if each.request.subscription_name == subscription_name]:
            self._close_ending(consumer)

    def _unsubscribe(self, number: int, *, deletes_durable: bool) -> None:
        self._refused_demand.remove(number)
        consumer = self._consumers.pop(number, None)
        if consumer is not None:
            self._wind_up(consumer, deletes_durable=deletes_durable)

    def _wind_up(self, consumer: DemandConsumer, *, deletes_durable: bool) -> None:
        consumer.end(self._link.time() + ENDING_SECONDS, deletes_durable=deletes_durable)
        self._begin_end(consumer)

    def _replaced(self, consumer: DemandConsumer) -> None:
        """End what another one has replaced: what waits on a queue is that one's, what waits for a topic its own."""
        if consumer.request.is_counted:
            consumer.drain()
            self._begin_end(consumer)
        else:
            self._wind_up(consumer, deletes_durable=False)

    def _begin_end(self, consumer: DemandConsumer) -> None:
        self._ending.append(consumer)
        self._end_idle()
        self._on_deadline()

    def _end_idle(self) -> None:
        """Close the subscriptions that end, and have all their answers."""
        if not self._ending:
            return
        now = self._link.time()
        self._close_idle(now)
        if self._leaving:
            self._remove_leaving()

    def _close_idle(self, now: float) -> None:
        is_paused = self._paused  # then more may wait than is outstanding
        for consumer in [each for each in self._ending if each.is_idle or (each.ends_by or 0.0) <= now]:
            if consumer.is_draining and is_paused:
                continue
            self._close_ending(consumer)

    def _close_ending(self, consumer: DemandConsumer) -> None:
        self._ending.remove(consumer)
        self._postponed.pop(consumer, None)
        consumer.close()
        name = consumer.request.subscription_name
        if consumer.deletes_durable and name is not None:
            self._delete_durable(name)

    def _delete_durable(self, name: str) -> None:
        try:
            self._connection.unsubscribe(self._connection.client_id, name)
        except RequestError as error:
            _log.warning("%s: the durable subscription %s stays: %s", self, name, error)

    # ------------------------------------------------------------ temporary destinations of the remote broker

    def _temporary_changed(self, info: DestinationInfo, destination: Destination) -> None:
        """Have a temporary destination of the remote broker here too, so that clients can send to it.

        Those of clients of this broker come back over a duplex bridge, and are left alone.
        """
        path = [each.value or "" for each in info.broker_path or () if each]
        if not self.permissions.admits(destination) or not may_pass(
            path, self._broker.id, self._connector.consumer_ttl
        ):
            return
        if info.operation_type == DestinationOperation.REMOVE:
            self._leaving[destination] = None
            self._remove_leaving()
            return
        self._leaving.pop(destination, None)
        try:
            self._connection.add_destination(destination, is_adopted=True)
        except InvalidDestination as error:
            _log.debug("%s: %s stays as it is: %s", self, destination, error)
        except RequestError as error:
            _log.warning("%s: %s has %s, but not this broker: %s", self, self._settings.remote_name, destination, error)

    def _remove_leaving(self) -> None:
        """Delete temporary destinations whose client has deleted them, once all messages to them are answered."""
        used = {each.request.destination for each in (*self._consumers.values(), *self._ending)}
        for destination in [each for each in self._leaving if each not in used]:
            del self._leaving[destination]
            self._connection.remove_adopted(destination)

    # ------------------------------------------------------------ advisories for the remote broker

    def add_listener(self, info: ConsumerInfo) -> None:
        """Serve the remote broker's consumer of advisories; see `AdvisoryListeners.add`."""
        self._listeners.add(self._connection, info)

    def remove_listener(self, consumer_id: ConsumerId) -> None:
        """End what `add_listener` began."""
        self._listeners.remove(consumer_id)

    def acknowledged(self, consumer_id: ConsumerId, message_count: int) -> None:
        """Make space in the window of advisories: the remote broker has read so many."""
        self._listeners.acknowledged(consumer_id, message_count)

    def _advise(self, delivery: Delivery) -> None:
        try:
            self._write(None, delivery, self._next_command_id(), is_answered=False)
        except _OF_THE_BROKER:
            raise
        except Exception as error:
            self._not_advised(error)

    def _not_advised(self, error: Exception) -> None:
        """End the bridge: the remote broker's demand table would stay wrong, and the next one is new."""
        _log.error("%s: an advisory cannot be sent: %s", self, error, exc_info=unexpected(error))
        self._call_soon(partial(self._give_up, f"an advisory cannot be sent: {error}"))

    def _give_up(self, cause: str) -> None:
        if not self._is_over:
            self._on_error(RequestError(cause))

    # ------------------------------------------------------------ messages

    def _forward(self, consumer: DemandConsumer, delivery: Delivery) -> None:
        """Send a message, during a dispatch of this broker: nothing may be acknowledged before its end."""
        message = delivery.message
        if not self._overlap.is_first(consumer.number, message.destination, message.message_id):
            copies = self._copies.get(message.message_id)
            if copies is None:
                self._settle_later(consumer, delivery)
            else:  # if the bridge is lost before the answer, a durable subscription still has its own
                copies.append((consumer, delivery))
            return
        is_answered = message.persistent or self._connector.always_sync_send
        command_id = self._next_command_id()
        try:
            self._write(consumer, delivery, command_id, is_answered=is_answered)
        except _OF_THE_BROKER:
            raise
        except Exception as error:  # of any kind, it concerns this message: the link only queues bytes
            self._unsendable(consumer, delivery, error)
            return
        self.sent_count += 1
        if is_answered:
            self._unanswered[command_id] = (consumer, delivery)
            if self._overlap.expects(message.message_id):
                self._copies.setdefault(message.message_id, [])
        else:
            self.forwarded_count += 1
            self._settle_later(consumer, delivery)

    def _unsendable(self, consumer: DemandConsumer, delivery: Delivery, error: Exception) -> None:
        message_id = delivery.message.message_id
        _log.error("%s: %s cannot be sent: %s", self, message_id, error, exc_info=unexpected(error))
        self._overlap.forget(message_id)
        self._unforwardable.append((consumer, delivery, one_line(f"it cannot be sent: {error}")))
        self._settle_soon()

    def _not_sent(self, consumer: DemandConsumer, delivery: Delivery, command_id: int, error: Exception) -> None:
        """Give up a message that counts as sent, and cannot be, now that its body is compressed."""
        self.sent_count -= 1
        if self._unanswered.pop(command_id, None) is None:
            self.forwarded_count -= 1
            self._unconfirmed.remove((consumer, delivery))
        for copying, copy in ((consumer, delivery), *self._copies_of(delivery)):
            self._unsendable(copying, copy, error)
        self._send(KeepAliveInfo())  # what ends the pause, `written`, follows output alone

    def _write(
        self, consumer: DemandConsumer | None, delivery: Delivery, command_id: int, *, is_answered: bool
    ) -> None:
        """Encode and send a message of a subscription, or an advisory, without one."""
        data = self._encoder.encode(
            delivery.message,
            redelivery_count=delivery.redelivery_count,
            command_id=command_id,
            response_required=is_answered,
        )
        if self._compressed is None:
            self._write_encoded(data)
        elif consumer is None:
            self._compressed.send(data, self._not_advised)
        else:
            self._compressed.send(data, partial(self._not_sent, consumer, delivery, command_id))

    @property
    def _is_compressing(self) -> bool:
        """True while messages have not been written, as a large body is compressed."""
        return self._compressed is not None and self._compressed.is_waiting

    def _write_encoded(self, data: bytes) -> None:
        if self._peer.is_verbatim:
            self._link.write(INT.pack(len(data)))
            self._link.write(data)
        else:
            self._peer.send(VERBATIM.decode(data))

    def _settle_later(self, consumer: DemandConsumer, delivery: Delivery) -> None:
        self._unconfirmed.append((consumer, delivery))
        self._settle_soon()

    def _settle_soon(self) -> None:
        if not self._is_settling:
            self._is_settling = True
            self._call_soon(self._settle)

    def _settle(self) -> None:
        """Acknowledge what the remote broker does not answer, and give up what cannot be sent to it."""
        self._is_settling = False
        unforwardable, self._unforwardable = self._unforwardable, []
        for consumer, delivery, cause in unforwardable:
            if not self._is_over:
                self._announce_failure(delivery.message, cause)
                self._guarded(partial(consumer.refused, delivery, f"{self._settings.remote_name}: {cause}"))
        if self._is_compressing:  # `written` follows
            return
        settled, self._unconfirmed = self._unconfirmed, deque()
        if not self._is_over:
            for consumer, delivery in settled:
                self._accepted(consumer, delivery)
            self._guarded(self.end_of_chunk)

    def answered(self, command_id: int) -> None:
        """Count a message as received, and the login as accepted; `end_of_chunk` acknowledges the message."""
        if self._on_accepted is not None:
            self.accepted()
        found = self._unanswered.pop(command_id, None)
        if found is not None:
            consumer, delivery = found
            self.forwarded_count += 1
            self._accepted(consumer, delivery)
            for copying, copy in self._copies_of(delivery):
                self._accepted(copying, copy)

    def _accepted(self, consumer: DemandConsumer, delivery: Delivery) -> None:
        self._answered[consumer] = None
        consumer.accepted(delivery)

    def end_of_chunk(self) -> None:
        """Acknowledge the answered messages together, and end subscriptions that waited. May raise `BrokerError`."""
        if self._answered:
            self._acknowledge()
            self._end_idle()

    def _acknowledge(self) -> None:
        answered, self._answered = self._answered, {}
        for consumer in answered:
            consumer.acknowledge()

    @property
    def awaits_acceptance(self) -> bool:
        """True until the remote broker has accepted the login."""
        return self._on_accepted is not None

    def accepted(self) -> None:
        """Report once that the remote broker has accepted the login."""
        on_accepted, self._on_accepted = self._on_accepted, None
        if on_accepted is not None:
            on_accepted()

    def refused(self, response: ExceptionResponse) -> None:
        """Give up a message that will be refused again; otherwise let its subscription pause, and no other."""
        self._acknowledge()
        found = self._unanswered.pop(response.correlation_id, None)
        if found is None:
            return
        consumer, delivery = found
        cause, remote = cause_of(response.exception), self._settings.remote_name
        is_final = response.exception is not None and response.exception.class_name in _FINAL
        if is_final or consumer.resumes_at is None:  # of those on their way when the pause begins, one is enough
            _log.warning("%s: %s refuses %s: %s", self, remote, delivery.message.message_id, cause)
        self._announce_failure(delivery.message, cause)
        for refused, each in ((consumer, delivery), *self._copies_of(delivery)):
            if is_final:
                refused.refused(each, f"{remote} refuses it: {cause}")
            else:
                refused.postponed(each, self._link.time())
                self._postponed[refused] = None
        if not is_final:
            self._on_deadline()
        self._end_idle()

    def _announce_failure(self, message: Message, cause: str) -> None:
        if self._connector.advisory_for_failed_forward:
            self._settings.announce(lambda observer: observer.forward_failed(message, cause))

    def _copies_of(self, delivery: Delivery) -> Sequence[tuple[DemandConsumer, Delivery]]:
        """Remove the further copies of a message that has its answer, and return them."""
        return self._copies.pop(delivery.message.message_id, ()) if self._copies else ()

    def __str__(self) -> str:
        """Return the name of the bridge, for logs."""
        return self._settings.label


def cause_of(exception: Throwable | None) -> str:
    """Return the words of an exception of the remote broker."""
    if exception is None:
        return "no reason was given"
    return one_line(exception.message or exception.class_name or "no reason was given")
