"""What an OpenWire client does once it is connected: sessions, producers, consumers, sends, acks, transactions.

Every command that asks for a response gets exactly one: when what it changed is on disk, or as an exception. A failure
of one that does not ask is reported as a ConnectionError, and dooms its transaction. Commands are obeyed in the order
of their arrival; responses need not keep it. Source: OpenWire, "Conversation basics"; ActiveMQ 5.17,
`TransportConnection`.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from pybroker.broker.domain.big_endian import INT
from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import Destination, checked, parts, parts_to_consume
from pybroker.broker.domain.errors import InvalidDestination, RequestError, ResourceLimit, UnknownTransaction
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.commands import (
    AckType,
    ActiveMQMessage,
    BaseCommand,
    ConnectionId,
    ConsumerControl,
    ConsumerInfo,
    DataArrayResponse,
    DestinationInfo,
    DestinationOperation,
    IntegerResponse,
    MessageAck,
    MessagePull,
    ProducerAck,
    ProducerInfo,
    RemoveInfo,
    RemoveSubscriptionInfo,
    Response,
    SessionId,
    SessionInfo,
    TransactionInfo,
    TransactionType,
)
from pybroker.broker.domain.openwire.ids import ConsumerId, ProducerId
from pybroker.broker.domain.openwire.layout import HEAD
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.marshal.transcode import stored
from pybroker.broker.domain.openwire.routing import routing
from pybroker.broker.domain.ports import ConnectionPort
from pybroker.broker.domain.subscription import (
    BROWSER_PREFETCH,
    DURABLE_PREFETCH,
    QUEUE_PREFETCH,
    TOPIC_PREFETCH,
    ConsumerRequest,
)
from pybroker.broker.domain.transaction import TransactionId, XATransactionId
from pybroker.transports.openwire.arrivals import (
    Acknowledgement,
    Acknowledgements,
    Arrival,
    Arrivals,
)
from pybroker.transports.openwire.consumers import OpenWireConsumer
from pybroker.transports.openwire.faults import Unaddressed, Unmatched, WrongState
from pybroker.transports.openwire.peer import Peer
from pybroker.transports.openwire.restored import REASON, Restored

_log = logging.getLogger(__name__)

_head_at: Final = HEAD.unpack_from

_ENDING: Final = frozenset(
    (
        TransactionType.PREPARE,
        TransactionType.COMMIT_ONE_PHASE,
        TransactionType.COMMIT_TWO_PHASE,
        TransactionType.ROLLBACK,
        TransactionType.FORGET,
    )
)
"""What answers whether a transaction went well."""

OBJECTS_MAX: Final = 50_000
"""Sessions, producers and consumers of one connection."""

_NEVER: Final = float("inf")

XA_OK, XA_RDONLY = 0, 3

_SETTLING: Final = frozenset((AckType.STANDARD, AckType.INDIVIDUAL))
"""Acknowledgements that a transaction cannot do without."""

IMPLICIT_SESSION: Final = -1
"""A connection's own session, which nobody opens."""

_CLIENT_DEFAULTS: Final = {
    "browser": frozenset((BROWSER_PREFETCH,)),
    "queue": frozenset((QUEUE_PREFETCH,)),
    "durable": frozenset((DURABLE_PREFETCH, QUEUE_PREFETCH)),
    "topic": frozenset((TOPIC_PREFETCH,)),
}
"""A prefetch that nobody chose, which a policy may replace."""


class OpenWireProducer:
    """A producer.

    Attributes:
        window: True when it wants to know of each message that was accepted without a response.
        last_sequence: what is not above it was stored before, and is sent again after a failover; -1 for no such check.
        last_scheduled: the same of scheduled messages, which are in a store of their own.
    """

    __slots__ = ("_ack", "last_scheduled", "last_sequence", "window")

    def __init__(self, info: ProducerInfo, peer: Peer, last_sequence: int, last_scheduled: int) -> None:
        self.last_sequence = last_sequence
        self.last_scheduled = last_scheduled
        self.window = info.window_size > 0 and peer.wire.version >= ProducerAck.SINCE
        # The size is the last thing in the frame, whatever the encoding.
        ack = ProducerAck(producer_id=info.producer_id)
        self._ack = peer.wire.encode_frame(ack)[:-4] if self.window else b""

    def ack(self, size: int) -> bytes:
        """Return the frame that opens its window by so many bytes."""
        return self._ack + INT.pack(size)


class OpenWireClient:
    """A connected client.

    Attributes:
        consumers: its consumers by id.
        pulling: those whose pull may have to be answered that nothing came.
        is_out_of_step: since a failover it takes other messages for delivered than were, and knows that a transaction
            failed. Only another reconnection helps: all that it holds goes back, and comes again in one order.
    """

    def __init__(
        self, connection: ConnectionPort, peer: Peer, *, next_sequence: Callable[[], int], reconnected: bool
    ) -> None:
        """Serve a connection that the broker has admitted.

        Args:
            connection: the broker's side of it.
            peer: the client's.
            next_sequence: numbers the messages that come in.
            reconnected: it was connected before, and sends again what it got no answer for.
        """
        self.consumers: dict[ConsumerId, OpenWireConsumer] = {}
        self.pulling: dict[ConsumerId, OpenWireConsumer] = {}
        self._connection = connection
        self._peer = peer
        self._reconnected = reconnected
        self._restored = Restored(reconnected=reconnected)
        self.is_out_of_step = self._has_strayed = False
        self._sessions: set[int] = {IMPLICIT_SESSION}
        self._producers: dict[ProducerId, OpenWireProducer] = {}
        self._next_sequence = next_sequence
        self._arrivals = Arrivals(next_sequence)
        self._acknowledgements = Acknowledgements()
        self._unencodable: list[tuple[OpenWireConsumer, Delivery, str]] = []
        """Deliveries the peer's format has no form for; they are given up when nothing else is under way."""
        self._paused = False
        self._due: list[int] = []
        """Persistent messages that wait for their response until they are on disk."""
        self._handlers: Mapping[type[BaseCommand], Callable[[Any], Response | None]] = {
            SessionInfo: self._add_session,
            ProducerInfo: self._add_producer,
            ConsumerInfo: self._add_consumer,
            DestinationInfo: self._change_destination,
            RemoveInfo: self._remove,
            RemoveSubscriptionInfo: self._unsubscribe,
            TransactionInfo: self._transact,
            ConsumerControl: self._control_consumer,
        }

    def close(self) -> None:
        """Undo everything."""
        self.consumers.clear()
        self.pulling.clear()
        self._connection.close()

    def written(self) -> None:
        """Learn that all that was sent has left the process."""
        self._connection.written()
        if self._unencodable:
            # Emptied first: a rejection opens the window, and the core may deliver the next such message at once.
            unencodable, self._unencodable = self._unencodable, []
            for consumer, delivery, cause in unencodable:
                consumer.give_up(delivery, cause)
        if self._paused:
            self._paused = False
            self._connection.resume()

    def handed_over(self) -> None:
        """Learn that the peer may get all that was sent."""
        self._connection.written()

    def pause(self) -> None:
        """Deliver nothing until `written`: the peer does not read as fast as it is written to."""
        self._paused = True
        self._connection.pause()

    # ------------------------------------------------------------ per message

    def message(self, chunk: bytes, start: int, stop: int) -> None:
        """Take a message in, verbatim."""
        try:
            arrival = self._arrivals.read(chunk, start, stop)
        except Unaddressed as error:
            _, command_id, response_required = _head_at(chunk, start)
            self._refuse(error, command_id if response_required else None, error.transaction)
            return
        _, command_id, response_required = _head_at(chunk, start)
        try:
            self._send(arrival, command_id, response_required)
        except RequestError as error:
            _, _, _, transaction = arrival
            self._refuse(error, command_id if response_required else None, transaction)

    def acknowledge(self, chunk: bytes, start: int, stop: int) -> int:
        """Take an acknowledgement in, and those right behind it that look like it.

        Returns:
            How many frames that were; 0 for one that the codec must read.
        """
        acknowledgements = self._acknowledgements
        message_ids = acknowledgements.usual(chunk, start, stop)
        if message_ids and acknowledgements.consumer_id is not None:
            consumer = self.consumers.get(acknowledgements.consumer_id)
            if consumer is not None:
                try:
                    consumer.acknowledge_each(message_ids)
                except RequestError as error:
                    self._refuse(error, None, None)
            return len(message_ids)
        ack = acknowledgements.read(chunk, start, stop)
        if ack is None:
            return 0
        _, command_id, response_required = _head_at(chunk, start)
        self._acknowledge(ack, command_id if response_required else None)
        return 1

    def end_of_chunk(self) -> None:
        """Have the messages of a chunk answered together, once there is room for them and they are safe."""
        if self._due:
            respond = partial(self._peer.respond, self._due)
            self._due = []
            self._connection.when_accepted(partial(self._connection.when_confirmed, respond))

    def _send(self, arrival: Arrival, command_id: int, response_required: bool) -> None:
        message, producer_id, sequence, transaction = arrival
        producer = self._producers.get(producer_id)
        if producer is None:
            raise WrongState(f"Cannot send message to a producer that has not been registered: {producer_id}")
        if (
            (producer.last_sequence >= sequence or producer.last_scheduled >= sequence)
            and message.persistent
            and transaction is None
            and self._is_stored(producer, message, sequence)
        ):
            _log.info("%s was sent again after a failover: it is stored already", message.message_id)
        else:
            self._connection.send(message, transaction, answered=response_required or producer.window)
            if self._restored.open and transaction is not None:
                self._restored.sent(transaction, producer_id.session_id, command_id)
        if response_required:
            if message.persistent and transaction is None:
                self._due.append(command_id)
            else:
                self._when_accepted(partial(self._peer.respond, (command_id,)))
        elif producer.window:
            self._when_accepted(partial(self._peer.write, producer.ack(message.size)))

    def _is_stored(self, producer: OpenWireProducer, message: Message, sequence: int) -> bool:
        """Tell whether a message that may be sent again is stored, which only the store that would hold it knows."""
        is_scheduled = self._connection.is_scheduled(message)
        return sequence <= (producer.last_scheduled if is_scheduled else producer.last_sequence)

    def _when_accepted(self, callback: Callable[[], None]) -> None:
        self.end_of_chunk()  # what was sent before waits for its own room
        self._connection.when_accepted(callback)

    def _acknowledge(self, ack: Acknowledgement, command_id: int | None) -> None:
        consumer = self.consumers.get(ack.consumer_id)
        try:
            if consumer is not None:
                consumer.acknowledge(ack)
                if ack.transaction is not None and ack.type in _SETTLING:
                    self._restored.acknowledged(ack.transaction)
            elif ack.transaction is not None and ack.type in _SETTLING:
                raise WrongState(f"Consumer {ack.consumer_id} is gone, and what it acknowledged goes to another")
        except RequestError as error:
            self._has_strayed |= self._reconnected and isinstance(error, Unmatched)
            self._refuse(error, command_id, ack.transaction)
        else:
            if command_id is not None:
                self._connection.when_durable(partial(self._peer.respond, (command_id,)))

    # ------------------------------------------------------------ every other command

    def obey(self, command: BaseCommand) -> None:
        """Carry out a command.

        What a client of today sends and this broker has no use for is answered and ignored.
        """
        command_id = command.command_id if command.response_required else None
        if isinstance(command, ActiveMQMessage):
            self._transcode(command)
        elif isinstance(command, MessageAck):
            self._acknowledge(_acknowledgement(command), command_id)
        else:
            self._carry_out(command, command_id)

    def _carry_out(self, command: BaseCommand, command_id: int | None) -> None:
        handler = self._handlers.get(type(command))
        try:
            answer = None if handler is None else handler(command)
        except RequestError as error:
            xa = isinstance(command, TransactionInfo) and _is_xa(command)
            if xa and command_id is not None:
                # Who hears that a branch is unknown forgets it. Until its end is on disk, a crash would bring it back.
                self._connection.when_durable(partial(self._refuse, error, command_id, None, xa=True))
            else:
                self._refuse(error, command_id, None, xa=xa)
            return
        if command_id is None:
            return
        if answer is None:
            self._connection.when_durable(partial(self._peer.respond, (command_id,)))
        else:
            answer.correlation_id = command_id
            self._connection.when_durable(partial(self._peer.send, answer))

    def _transcode(self, command: ActiveMQMessage) -> None:
        """Take a message in from a peer that writes it otherwise than it is stored."""
        message_id, producer_id, transaction = command.message_id, command.producer_id, command.transaction_id
        if message_id is None or producer_id is None:
            raise MalformedOpenWire("a message without producer or id")
        command_id, response_required = command.command_id, command.response_required
        command.message_id = message_id._replace(broker_sequence_id=self._next_sequence())
        try:
            command.destination = _checked(command.destination)
            arrival = routing(stored(command)), producer_id, message_id.producer_sequence_id, transaction
            self._send(arrival, command_id, response_required)
        except RequestError as error:
            self._refuse(error, command_id if response_required else None, transaction)

    def _refuse(
        self, error: RequestError, command_id: int | None, transaction: TransactionId | None, *, xa: bool = False
    ) -> None:
        _log.info("%s: refused: %s", self._connection.connection_id, error)
        if command_id is not None:
            self._peer.refuse(command_id, error, xa=xa)
            return
        if transaction is not None:
            try:
                self._connection.doom(transaction, str(error))
            except UnknownTransaction:
                _log.debug("%s is over already", transaction)
        self._peer.complain(error)

    # ------------------------------------------------------------ sessions, producers, consumers

    def _add_session(self, info: SessionInfo) -> None:
        if info.session_id is None:
            raise WrongState("A session without id")
        self._limit(len(self._sessions))
        self._sessions.add(info.session_id.value)

    def _add_producer(self, info: ProducerInfo) -> None:
        producer_id = info.producer_id
        if producer_id is None:
            raise WrongState("A producer without id")
        self._require_session(producer_id.session_id, producer_id)
        if producer_id in self._producers:
            return
        self._limit(len(self._producers))
        self._connection.add_producer(producer_id, None if info.destination is None else _checked(info.destination))
        last_sequence = last_scheduled = -1
        if self._reconnected:
            last_sequence = self._connection.last_sequence(str(producer_id))
            last_scheduled = self._connection.last_scheduled(str(producer_id))
        self._producers[producer_id] = OpenWireProducer(info, self._peer, last_sequence, last_scheduled)

    def _add_consumer(self, info: ConsumerInfo) -> Response | None:
        consumer_id = info.consumer_id
        if consumer_id is None:
            raise WrongState("A consumer without id")
        self._require_session(consumer_id.session_id, consumer_id)
        if consumer_id in self.consumers:
            return None
        self._limit(len(self.consumers))
        request = _request(info, _checked(info.destination))
        consumer = OpenWireConsumer(info, request, self._connection, self._peer, self._note_unencodable)
        self.consumers[consumer_id] = consumer
        consumer.start()
        return None

    def _note_unencodable(self, consumer: OpenWireConsumer, delivery: Delivery, cause: str) -> None:
        """Tell the client of a message it cannot be sent; it is given up after this, not amid a dispatch."""
        message = delivery.message
        told = f"message {message.message_id} of {message.destination} cannot be sent in this format: {cause}"
        _log.error("%s: %s", consumer.info.consumer_id, told)
        self._unencodable.append((consumer, delivery, told))
        self._peer.complain(RequestError(told))

    def _require_session(self, session_id: int, named: ConsumerId | ProducerId) -> None:
        if session_id not in self._sessions:
            raise WrongState(f"Cannot add {named} to a session that has not been registered: {session_id}")

    def _limit(self, count: int) -> None:
        if count >= OBJECTS_MAX:
            raise ResourceLimit(f"The connection has {OBJECTS_MAX} of them already")

    def _remove(self, info: RemoveInfo) -> None:
        removed = info.object_id
        if isinstance(removed, ConsumerId):
            self._remove_consumer(removed, info.last_delivered_sequence_id)
        elif isinstance(removed, ProducerId):
            self._remove_producer(removed)
        elif isinstance(removed, SessionId):
            self._remove_session(removed.value, info.last_delivered_sequence_id)
        elif isinstance(removed, ConnectionId):
            if removed.value == self._connection.connection_id:
                self._remove_connection(info.last_delivered_sequence_id)
        else:
            raise WrongState(f"A RemoveInfo of {removed}, which is nothing that can be removed")

    def _remove_consumer(self, consumer_id: ConsumerId, last_delivered: int) -> None:
        consumer = self.consumers.pop(consumer_id, None)
        self.pulling.pop(consumer_id, None)
        if consumer is not None:
            consumer.close(last_delivered)

    def _remove_producer(self, producer_id: ProducerId) -> None:
        if self._producers.pop(producer_id, None) is not None:
            self._arrivals.forget()
            self._connection.remove_producer(producer_id)

    def _remove_session(self, session_id: int, last_delivered: int) -> None:
        for consumer_id in [each for each in self.consumers if each.session_id == session_id]:
            self._remove_consumer(consumer_id, last_delivered)
        for producer_id in [each for each in self._producers if each.session_id == session_id]:
            self._remove_producer(producer_id)
        self._sessions.discard(session_id)
        self._sessions.add(IMPLICIT_SESSION)

    def _remove_connection(self, last_delivered: int) -> None:
        """End everything; the client is about to leave, and waits for the answer to this."""
        for consumer_id in list(self.consumers):
            self._remove_consumer(consumer_id, last_delivered)
        self._connection.close()

    def _control_consumer(self, control: ConsumerControl) -> None:
        consumer = None if control.consumer_id is None else self.consumers.get(control.consumer_id)
        if consumer is not None and not control.close:
            consumer.set_prefetch(control.prefetch)

    def pull(self, pull: MessagePull, now: float) -> None:
        """Have a consumer get one message; one that is gone needs none."""
        consumer = None if pull.consumer_id is None else self.consumers.get(pull.consumer_id)
        if consumer is not None and pull.consumer_id is not None:
            consumer.pull(pull.timeout, now)
            if consumer.pull_deadline is not None:
                self.pulling[pull.consumer_id] = consumer

    @property
    def next_deadline(self) -> float:
        """When a pull has to be answered that nothing came; infinite when none is under way."""
        if not self.pulling:
            return _NEVER
        return min((each.pull_deadline for each in self.pulling.values() if each.pull_deadline), default=_NEVER)

    def end_pulls(self, now: float) -> None:
        """Answer the pulls whose time is over."""
        for consumer_id, consumer in list(self.pulling.items()):
            if consumer.pull_deadline is not None and consumer.pull_deadline <= now:
                consumer.end_pull()
            if consumer.pull_deadline is None:
                del self.pulling[consumer_id]

    # ------------------------------------------------------------ destinations, subscriptions, transactions

    def _change_destination(self, info: DestinationInfo) -> None:
        if info.operation_type == DestinationOperation.ADD:
            change = self._connection.add_destination
        elif info.operation_type == DestinationOperation.REMOVE:
            change = self._connection.remove_destination
        else:
            raise RequestError(f"Unknown destination operation {info.operation_type}")
        for part in parts(_checked(info.destination)):
            change(part)

    def _unsubscribe(self, info: RemoveSubscriptionInfo) -> None:
        client_id = info.client_id or self._connection.client_id
        self._connection.unsubscribe(client_id, info.subscription_name or "")

    def _transact(self, info: TransactionInfo) -> Response | None:
        connection = self._connection
        if info.type == TransactionType.RECOVER:
            return DataArrayResponse(data=tuple(connection.in_doubt()))
        transaction = info.transaction_id
        if transaction is None:
            raise WrongState("A TransactionInfo without transaction")
        if info.type in _ENDING:
            self.is_out_of_step = self._has_strayed
        if info.type == TransactionType.BEGIN:
            connection.begin(transaction)
            self._restored.begun(transaction)
        elif info.type == TransactionType.PREPARE:
            return IntegerResponse(result=XA_OK if connection.prepare(_branch(transaction)) else XA_RDONLY)
        elif info.type == TransactionType.COMMIT_ONE_PHASE:
            if self._restored.ended(transaction, info.command_id, self.consumers):
                connection.doom(transaction, REASON)
            connection.commit(transaction)
        elif info.type == TransactionType.COMMIT_TWO_PHASE:
            connection.commit(transaction, prepared=True)
        elif info.type in (TransactionType.ROLLBACK, TransactionType.FORGET):
            self._restored.ended(transaction, info.command_id, ())
            connection.rollback(transaction)
        elif info.type != TransactionType.END:
            raise RequestError(f"Unknown transaction command {info.type}")
        return None


def _checked(destination: Destination | None) -> Destination:
    """Return a destination by its bare name; options behind it are for the client."""
    if destination is None:
        raise InvalidDestination("no destination")
    return checked(*destination)


def _is_xa(info: TransactionInfo) -> bool:
    return isinstance(info.transaction_id, XATransactionId) or info.type == TransactionType.RECOVER


def _branch(transaction: TransactionId) -> XATransactionId:
    if isinstance(transaction, XATransactionId):
        return transaction
    raise WrongState(f"{transaction} is local: only XA transactions are prepared")


def _acknowledgement(ack: MessageAck) -> Acknowledgement:
    if ack.consumer_id is None:
        raise MalformedOpenWire("an acknowledgement without consumer id")
    cause = ack.poison_cause
    return Acknowledgement(
        ack.consumer_id,
        ack.transaction_id,
        ack.ack_type,
        None if ack.first_message_id is None else str(ack.first_message_id),
        None if ack.last_message_id is None else str(ack.last_message_id),
        ack.message_count,
        None if cause is None else f"{cause.class_name}: {cause.message}",
    )


def _request(info: ConsumerInfo, destination: Destination) -> ConsumerRequest:
    first, *others = parts_to_consume(destination)
    return ConsumerRequest(
        destination=first,
        composite=tuple(others),
        prefetch=None if info.prefetch_size in _CLIENT_DEFAULTS[_kind(info, first)] else max(info.prefetch_size, 0),
        selector=info.selector,
        subscription_name=info.subscription_name if first.is_topic else None,
        no_local=info.no_local,
        browser=info.browser,
        exclusive=info.exclusive,
        priority=info.priority,
        retroactive=info.retroactive,
        pending_limit=info.maximum_pending_message_limit if info.maximum_pending_message_limit > 0 else None,
        consumer_id=info.consumer_id,
    )


def _kind(info: ConsumerInfo, destination: Destination) -> str:
    if info.browser:
        return "browser"
    if destination.is_queue:
        return "queue"
    return "topic" if info.subscription_name is None else "durable"
