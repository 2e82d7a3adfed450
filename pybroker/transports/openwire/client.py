"""The commands of a connected OpenWire client: sessions, producers, consumers, sends, acks, transactions.

Every command that requires a response gets exactly one: when its changes are on disk, or as an exception. A failure of
any other is reported as a ConnectionError, and dooms its transaction. Commands are carried out in the order of their
arrival; responses may come in another. Source: OpenWire, "Conversation basics"; ActiveMQ 5.17, `TransportConnection`.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from io import BytesIO
from typing import Any, Final

from pybroker.broker.domain.big_endian import INT
from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import Destination, checked, is_advisory, parts, parts_to_consume
from pybroker.broker.domain.errors import (
    BrokerError,
    InvalidDestination,
    RequestError,
    ResourceLimit,
    UnknownTransaction,
    unexpected,
)
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.network.rows import DemandRow
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
from pybroker.broker.domain.openwire.marshal.transcode import stored, stored_in_place
from pybroker.broker.domain.openwire.spotting import PAYLOAD_SIZE_UNCHECKED, check_properties
from pybroker.broker.domain.ports import ConnectionPort
from pybroker.broker.domain.security import AccessDenied
from pybroker.broker.domain.space import DeferredSendsPort, SpaceAwaited
from pybroker.broker.domain.subscription import (
    BROWSER_PREFETCH,
    DURABLE_PREFETCH,
    QUEUE_PREFETCH,
    TOPIC_PREFETCH,
    ConsumerRequest,
)
from pybroker.broker.domain.transaction import LocalTransactionId, TransactionId, XATransactionId
from pybroker.transports.openwire.arrivals import (
    Acknowledgement,
    Acknowledgements,
    Arrival,
    Arrivals,
)
from pybroker.transports.openwire.consumers import OpenWireConsumer
from pybroker.transports.openwire.faults import MissingDestination, UnmatchedAck, WrongState
from pybroker.transports.openwire.incoming import BridgeTraffic
from pybroker.transports.openwire.ownership import ForeignMessageId, require_own
from pybroker.transports.openwire.peer import Peer
from pybroker.transports.openwire.restored import REASON, RestoredTransactions

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
"""The commands whose response is the outcome of a transaction."""

OBJECTS_MAX: Final = 50_000
"""The limit to the sessions, the producers and the consumers of one connection."""

_NEVER: Final = float("inf")

_CLOSING_COST: Final = 10
"""The cost of closing a consumer, in usual operations."""

_RECONNECT_VERSION: Final = 6
"""The first version in which a client says that it was connected before."""

XA_OK, XA_RDONLY = 0, 3

_SETTLING: Final = frozenset((AckType.STANDARD, AckType.INDIVIDUAL))
"""The acknowledgements that a transaction must not lose."""

FALLEN_BEHIND: Final = (
    "the bridge reads too slowly, and advisories about demand were dropped: it must learn demand again"
)
"""The reason for the end of a bridge."""

IMPLICIT_SESSION: Final = -1
"""The session id of objects that belong to the connection itself; no SessionInfo opens it."""

_CLIENT_DEFAULTS: Final = {
    "browser": frozenset((BROWSER_PREFETCH,)),
    "queue": frozenset((QUEUE_PREFETCH,)),
    "durable": frozenset((DURABLE_PREFETCH, QUEUE_PREFETCH)),
    "topic": frozenset((TOPIC_PREFETCH,)),
}
"""The defaults of clients, which a policy may replace."""


class OpenWireProducer:
    """A producer of an OpenWire connection.

    Attributes:
        window: True if each message accepted without a response is answered by a ProducerAck.
        last_sequence: messages up to it are stored already, and repeated after a failover; -1 for no such check.
        last_scheduled: the same for scheduled messages, which have their own store.
        deferred: its sends that wait for space; None: there are none.
    """

    __slots__ = ("_ack", "deferred", "last_scheduled", "last_sequence", "window")

    def __init__(self, info: ProducerInfo, peer: Peer, last_sequence: int, last_scheduled: int) -> None:
        self.last_sequence = last_sequence
        self.last_scheduled = last_scheduled
        self.deferred: DeferredSendsPort | None = None
        self.window = info.window_size > 0 and peer.wire.version >= ProducerAck.SINCE
        # The size is the last field of the frame in every encoding.
        ack = ProducerAck(producer_id=info.producer_id)
        self._ack = peer.wire.encode_frame(ack)[:-4] if self.window else b""

    def ack(self, size: int) -> bytes:
        """Return the ProducerAck that opens its window by so many bytes."""
        return self._ack + INT.pack(size)


class OpenWireClient:
    """A connected OpenWire client.

    Attributes:
        consumers: its consumers by id.
        pulling: those with a pull that may time out.
        is_bridge: see `__init__`.
        bridge_remedy: see `__init__`.
        received_count: messages that it has sent, refused ones too.
        must_reconnect: the client's deliveries differ from the broker's since a failover, and the client knows that a
            transaction failed. After another reconnect all its messages are redelivered in one order.
    """

    def __init__(
        self,
        connection: ConnectionPort,
        peer: Peer,
        *,
        next_sequence: Callable[[], int],
        reconnected: bool,
        is_bridge: bool = False,
        has_login: bool = False,
        bridge_remedy: str = "",
        on_error: Callable[[BrokerError], None] | None = None,
    ) -> None:
        """Serve a connection that the broker has admitted.

        Args:
            connection: the connection in the core.
            peer: the client's end of the connection.
            next_sequence: numbers received messages.
            reconnected: it was connected before, and repeats what got no response.
            is_bridge: it forwards messages, which keep the ids of their producers.
            has_login: its user is certain, so that it may not name one in its messages.
            bridge_remedy: why a client that says it is a bridge is none, and the remedy; empty for others.
            on_error: called for an error after which the client cannot go on, outside of a call of it.
        """
        self.consumers: dict[ConsumerId, OpenWireConsumer] = {}
        self.pulling: dict[ConsumerId, OpenWireConsumer] = {}
        self._connection = connection
        self._peer = peer
        self._may_repeat = reconnected or is_bridge or peer.wire.version < _RECONNECT_VERSION
        self._connection_id = connection.connection_id
        self._persistency = connection.persistency
        self.is_bridge = is_bridge
        self.bridge_remedy = bridge_remedy
        self.received_count = 0
        self._on_error = on_error
        self._reconnected = reconnected
        self._restored = RestoredTransactions(reconnected=reconnected)
        self.must_reconnect = self._saw_unmatched_ack = False
        self._sessions: set[int] = {IMPLICIT_SESSION}
        self._producers: dict[ProducerId, OpenWireProducer] = {}
        self._next_sequence = next_sequence
        self._arrivals = Arrivals(next_sequence, takes_foreign_ids=is_bridge, removes_user=has_login and not is_bridge)
        self._acknowledgements = Acknowledgements()
        self._unencodable: list[tuple[OpenWireConsumer, Delivery, str]] = []
        """Deliveries that cannot be encoded for the peer; rejected after the present dispatch."""
        self._paused = False
        self._due: list[int] = []
        """The command ids of persistent messages that get their response once they are on disk."""
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
        """Remove consumers and connection from the broker."""
        if self.must_reconnect:
            for consumer in self.consumers.values():
                consumer.close_unmatched()
        self.consumers.clear()
        self.pulling.clear()
        self.release_references()
        self._connection.close()

    @property
    def traffic(self) -> BridgeTraffic:
        """Its messages, if it is a bridge."""
        return BridgeTraffic(self.received_count)

    def demand_rows(self) -> Iterable[DemandRow]:
        """Return the demand subscriptions by which this broker consumes for it: none, as it consumes by itself."""
        return ()

    def begin(self) -> None:
        """Do nothing: the answer to its ConnectionInfo has been sent, and a client expects nothing else."""

    def release_references(self) -> None:
        """Break the reference cycles, so that the memory of an ended connection is freed without a garbage collection.

        No command is carried out any more; consumers that are being removed in pieces still are.
        """
        self._unencodable = []
        self._handlers = {}

    def written(self) -> None:
        """React to all output having left the process."""
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
        """Count all output so far as possibly received by the peer."""
        self._connection.written()

    def pause(self) -> None:
        """Pause delivery until `written`, as the peer reads too slowly."""
        self._paused = True
        self._connection.pause()

    # ------------------------------------------------------------ per message

    def message(self, chunk: bytes, start: int, stop: int) -> None:
        """Send a message that arrived in the bytes that the store keeps."""
        try:
            arrival = self._arrivals.read(chunk, start, stop)
        except (MissingDestination, ForeignMessageId) as error:
            _, command_id, response_required = _head_at(chunk, start)
            self._refuse(error, command_id if response_required else None, error.transaction)
            return
        _, command_id, response_required = _head_at(chunk, start)
        try:
            self._send(arrival, command_id, response_required)
        except RequestError as error:
            self._not_sent(error, arrival, command_id, response_required)

    def whole_message(self, frame: BytesIO) -> None:
        """Send a large message as `message` does; its frame is not copied, and belongs to the message from now on."""
        frame.seek(0)
        _, command_id, response_required = _head_at(frame.read(HEAD.size))
        try:
            arrival = self._arrivals.read_whole(frame)
        except (MissingDestination, ForeignMessageId) as error:
            self._refuse(error, command_id if response_required else None, error.transaction)
            return
        try:
            self._send(arrival, command_id, response_required)
        except RequestError as error:
            self._not_sent(error, arrival, command_id, response_required)

    def acknowledge(self, chunk: bytes, start: int, stop: int) -> int:
        """Carry out an acknowledgement, and those right behind it that are alike.

        Returns:
            The number of frames; 0 for a frame that the codec must read.
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

    def answer(self, chunk: bytes, start: int, stop: int) -> bool:
        """Carry out a frame if it is the answer to a message of this broker; False: clients are asked for none."""
        return False

    def end_of_chunk(self) -> None:
        """Respond to all messages of a chunk together, once there is space for them and they are on disk."""
        if self._due:
            respond = partial(self._peer.respond, self._due)
            self._due = []
            self._connection.when_accepted(partial(self._connection.when_confirmed, respond))

    def _send(self, arrival: Arrival, command_id: int, response_required: bool) -> None:
        message, producer_id, sequence, transaction = arrival
        producer = self._producers.get(producer_id)
        if message.payload_size > PAYLOAD_SIZE_UNCHECKED:
            check_properties(message)
        is_persistent = message.persistent if self._persistency is None else self._persistency
        self.received_count += 1
        if producer is None:
            raise WrongState(f"Cannot send message to a producer that has not been registered: {producer_id}")
        if producer.deferred is not None and transaction is None:
            self._defer(producer.deferred, None, arrival, command_id, response_required)
            return
        if (
            (producer.last_sequence >= sequence or producer.last_scheduled >= sequence)
            and is_persistent
            and transaction is None
            and self._is_stored(producer, message, sequence)
        ):
            _log.info("%s was repeated after a failover: it is stored already", message.message_id)
        else:
            is_new = self._connection.send(message, transaction, answered=response_required or producer.window)
            if not is_new and not self._may_repeat:
                raise RequestError(f"{message.destination} has another message of the id {message.message_id}")
            if self._restored.open and transaction is not None:
                self._restored.sent(transaction, producer_id.session_id, command_id)
        if response_required:
            if is_persistent and transaction is None:
                self._due.append(command_id)
            else:
                self._when_accepted(partial(self._peer.respond, (command_id,)))
        elif producer.window:
            self._when_accepted(partial(self._peer.write, producer.ack(message.payload_size)))

    def _not_sent(self, error: RequestError, arrival: Arrival, command_id: int, response_required: bool) -> None:
        """Refuse a message; or have it wait for space, as its policy says so."""
        producer_id: ProducerId = arrival[1]
        transaction: TransactionId | None = arrival[3]
        if not isinstance(error, SpaceAwaited) or transaction is not None:
            self._refuse(error, command_id if response_required else None, transaction)
            return
        producer = self._producers[producer_id]
        if not response_required:  # its window waits: nothing could tell the program which message has failed
            try:
                self._send_deferred(arrival, command_id, response_required)
            except RequestError as refused:
                self._refuse(refused, None, transaction)
            return
        producer.deferred = self._connection.deferred_sends(partial(_forget_deferred, producer))
        self._defer(producer.deferred, error, arrival, command_id, response_required)

    def _defer(
        self,
        deferred: DeferredSendsPort,
        error: SpaceAwaited | None,
        arrival: Arrival,
        command_id: int,
        response_required: bool,
    ) -> None:
        message, _, _, transaction = arrival
        refuse = partial(self._refuse, command_id=command_id if response_required else None, transaction=transaction)
        deferred.add(partial(self._send_deferred, arrival, command_id, response_required), refuse, message.size, error)

    def _send_deferred(self, arrival: Arrival, command_id: int, response_required: bool) -> None:
        """Send a message that has waited, before those behind it. One without a response is never refused."""
        producer = self._producers.get(arrival[1])
        deferred = None
        if producer is not None:
            deferred, producer.deferred = producer.deferred, None
        self._connection.is_patient = not response_required
        try:
            self._send(arrival, command_id, response_required)
        finally:
            self._connection.is_patient = False
            if producer is not None:
                producer.deferred = deferred
        self.end_of_chunk()

    def _is_stored(self, producer: OpenWireProducer, message: Message, sequence: int) -> bool:
        """Return True if a message that may be a repetition is stored, by the last sequence of its store."""
        is_scheduled = self._connection.is_scheduled(message)
        return sequence <= (producer.last_scheduled if is_scheduled else producer.last_sequence)

    def _when_accepted(self, callback: Callable[[], None]) -> None:
        self.end_of_chunk()  # earlier messages wait for their own space
        self._connection.when_accepted(callback)

    def _acknowledge(self, ack: Acknowledgement, command_id: int | None) -> None:
        consumer = self.consumers.get(ack.consumer_id)
        try:
            if consumer is not None:
                consumer.acknowledge(ack)
                if ack.transaction is not None and ack.type in _SETTLING and not consumer.is_counted:
                    self._restored.acknowledged(ack.transaction)
            elif ack.transaction is not None and ack.type in _SETTLING:
                raise WrongState(f"Consumer {ack.consumer_id} is gone, and what it acknowledged goes to another")
        except RequestError as error:
            self._saw_unmatched_ack |= self._reconnected and isinstance(error, UnmatchedAck)
            self._refuse(error, command_id, ack.transaction)
        else:
            if command_id is not None:
                self._connection.when_durable(partial(self._peer.respond, (command_id,)))

    # ------------------------------------------------------------ every other command

    def obey(self, command: BaseCommand) -> None:
        """Carry out a command that has no fast path.

        A command that is not supported is answered and ignored.
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
                # A client forgets a branch that is unknown. Until its end is on disk, a crash would bring it back.
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

    def foreign_message(self, frame: BytesIO) -> None:
        """Send a large message that arrived in another encoding than the store's; its frame is not copied."""
        command, start = self._peer.wire.decode_large(frame)
        assert isinstance(command, ActiveMQMessage), "its data type is a message's"
        self._transcode(command, stored if start < 0 else partial(stored_in_place, frame=frame, start=start))

    def _transcode(self, command: ActiveMQMessage, encode: Callable[[ActiveMQMessage], bytes] = stored) -> None:
        """Send a message that arrived in another encoding than the store's, by a function that returns the latter."""
        message_id, producer_id, transaction = command.message_id, command.producer_id, command.transaction_id
        if message_id is None or producer_id is None:
            raise MalformedOpenWire("a message without producer or id")
        command_id, response_required = command.command_id, command.response_required
        command.message_id = message_id._replace(broker_sequence_id=self._next_sequence())
        try:
            if message_id.producer_id != producer_id and not self.is_bridge:
                raise ForeignMessageId(f"{message_id} is not an id of its producer {producer_id}", transaction)
            command.destination = _checked(command.destination)
            message = self._arrivals.routed(encode(command))
        except RequestError as error:
            self._refuse(error, command_id if response_required else None, transaction)
            return
        arrival = message, producer_id, message_id.producer_sequence_id, transaction
        try:
            self._send(arrival, command_id, response_required)
        except RequestError as error:
            self._not_sent(error, arrival, command_id, response_required)

    def _refuse(
        self, error: RequestError, command_id: int | None, transaction: TransactionId | None, *, xa: bool = False
    ) -> None:
        if isinstance(error, ForeignMessageId) and self.bridge_remedy:
            error = WrongState(f"{error}: {self.bridge_remedy}")
        if not isinstance(error, AccessDenied):  # which has a line in the audit log
            _log.info("%s: refused: %s", self._connection.connection_id, error)
        if command_id is not None:
            self._peer.refuse(command_id, error, xa=xa)
            return
        if transaction is not None:
            try:
                self._connection.doom(transaction, str(error))
            except UnknownTransaction:
                _log.debug("%s is over already", transaction)
        self._peer.send_connection_error(error)

    # ------------------------------------------------------------ sessions, producers, consumers

    def _add_session(self, info: SessionInfo) -> None:
        if info.session_id is None:
            raise WrongState("A session without id")
        require_own(self._connection_id, info.session_id.connection_id, info.session_id)
        if info.session_id.value not in self._sessions:
            self._check_count(len(self._sessions), "sessions")
            self._connection.add_session()
            self._sessions.add(info.session_id.value)

    def _add_producer(self, info: ProducerInfo) -> None:
        producer_id = info.producer_id
        if producer_id is None:
            raise WrongState("A producer without id")
        require_own(self._connection_id, producer_id.connection_id, producer_id)
        self._require_session(producer_id.session_id, producer_id)
        if producer_id in self._producers:
            return
        self._check_count(len(self._producers), "producers")
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
        require_own(self._connection_id, consumer_id.connection_id, consumer_id)
        self._require_session(consumer_id.session_id, consumer_id)
        if consumer_id in self.consumers:
            return None
        self._check_count(len(self.consumers), "consumers")
        request = _request(info, _checked(info.destination))
        if self.is_bridge and is_advisory(request.destination):
            request = replace(request, on_dropped=self._fallen_behind)
        consumer = OpenWireConsumer(info, request, self._connection, self._peer, self._report_unencodable)
        self.consumers[consumer_id] = consumer
        consumer.start()
        return None

    def _fallen_behind(self) -> None:
        """End a bridge that has missed an advisory: the next one learns the demand again."""
        if self._on_error is not None and self._handlers:  # it may have ended by now
            self._on_error(ResourceLimit(FALLEN_BEHIND))

    def _report_unencodable(self, consumer: OpenWireConsumer, delivery: Delivery, error: Exception) -> None:
        """Report a message that cannot be encoded; it is rejected later, not during the dispatch."""
        message = delivery.message
        cause = f"message {message.message_id} of {message.destination} cannot be sent in this format: {error}"
        _log.error("%s: %s", consumer.consumer_id, cause, exc_info=unexpected(error))
        self._unencodable.append((consumer, delivery, cause))
        self._peer.send_connection_error(RequestError(cause))

    def _require_session(self, session_id: int, named: ConsumerId | ProducerId) -> None:
        if session_id not in self._sessions:
            raise WrongState(f"Cannot add {named} to a session that has not been registered: {session_id}")

    def _check_count(self, count: int, of: str) -> None:
        if count >= OBJECTS_MAX:
            raise ResourceLimit(
                f"The connection has {OBJECTS_MAX} {of} already: close some, or open another connection"
            )

    def _remove(self, info: RemoveInfo) -> None:
        removed = info.object_id
        if isinstance(removed, (ConsumerId, ProducerId, SessionId)):
            require_own(self._connection_id, removed.connection_id, removed)
        if isinstance(removed, ConsumerId):
            self._connection.work_off(self._removing((removed,), info.last_delivered_sequence_id))
        elif isinstance(removed, ProducerId):
            self._remove_producer(removed)
        elif isinstance(removed, SessionId):
            self._remove_session(removed.value, info.last_delivered_sequence_id)
        elif isinstance(removed, ConnectionId):
            if removed.value == self._connection.connection_id:
                self._remove_connection(info.last_delivered_sequence_id)
        else:
            raise WrongState(f"A RemoveInfo of {removed}, which cannot be removed")

    def _remove_producer(self, producer_id: ProducerId) -> None:
        if self._producers.pop(producer_id, None) is not None:
            self._arrivals.forget()
            self._connection.remove_producer(producer_id)

    def _remove_session(self, session_id: int, last_delivered: int) -> None:
        removed = [each for each in self.consumers if each.session_id == session_id]
        self._connection.work_off(self._removing(removed, last_delivered))
        for producer_id in [each for each in self._producers if each.session_id == session_id]:
            self._remove_producer(producer_id)
        if session_id in self._sessions and session_id != IMPLICIT_SESSION:
            self._sessions.remove(session_id)
            self._connection.remove_session()

    def _remove_connection(self, last_delivered: int) -> None:
        """Close all consumers and the connection, before the client disconnects."""
        self._connection.close(self._removing(list(self.consumers), last_delivered))

    def _removing(self, consumer_ids: Sequence[ConsumerId], last_delivered: int) -> Iterator[int]:
        """Close consumers, in steps that yield their costs."""
        for consumer_id in consumer_ids:
            consumer = self.consumers.pop(consumer_id, None)
            self.pulling.pop(consumer_id, None)
            if consumer is not None:
                yield from consumer.closing(last_delivered)
            yield _CLOSING_COST

    def _keeping_consumers(self) -> Iterator[ConsumerId]:
        """Yield the consumers whose messages are redelivered to a client that did not acknowledge them."""
        return (consumer_id for consumer_id, consumer in self.consumers.items() if not consumer.is_counted)

    def _control_consumer(self, control: ConsumerControl) -> None:
        consumer = None if control.consumer_id is None else self.consumers.get(control.consumer_id)
        if consumer is not None and not control.close:
            consumer.set_prefetch(control.prefetch)

    def pull(self, pull: MessagePull, now: float) -> None:
        """Pull one message for a consumer; ignored if the consumer is closed."""
        consumer = None if pull.consumer_id is None else self.consumers.get(pull.consumer_id)
        if consumer is not None and pull.consumer_id is not None:
            consumer.pull(pull.timeout, now)
            if consumer.pull_deadline is not None:
                self.pulling[pull.consumer_id] = consumer

    @property
    def next_deadline(self) -> float:
        """The time at which the next pull times out; infinite without a pull."""
        if not self.pulling:
            return _NEVER
        return min((each.pull_deadline for each in self.pulling.values() if each.pull_deadline), default=_NEVER)

    def end_pulls(self, now: float) -> None:
        """End the pulls that have timed out."""
        for consumer_id, consumer in list(self.pulling.items()):
            if consumer.pull_deadline is not None and consumer.pull_deadline <= now:
                consumer.end_pull()
            if consumer.pull_deadline is None:
                del self.pulling[consumer_id]

    # ------------------------------------------------------------ destinations, subscriptions, transactions

    def _change_destination(self, info: DestinationInfo) -> None:
        if info.operation_type == DestinationOperation.ADD:
            change: Callable[[Destination], None] = self._connection.add_destination
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
            self.must_reconnect = self._saw_unmatched_ack
        if info.type == TransactionType.BEGIN:
            if isinstance(transaction, LocalTransactionId):  # a branch of XA is global
                require_own(self._connection_id, transaction.connection_id, transaction)
            connection.begin(transaction)
            self._restored.begun(transaction)
        elif info.type == TransactionType.PREPARE:
            return IntegerResponse(result=XA_OK if connection.prepare(_branch(transaction)) else XA_RDONLY)
        elif info.type == TransactionType.COMMIT_ONE_PHASE:
            if self._restored.ended(transaction, info.command_id, self._keeping_consumers()):
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


def _forget_deferred(producer: OpenWireProducer) -> None:
    producer.deferred = None


def _checked(destination: Destination | None) -> Destination:
    """Return a destination without options, which are for the client."""
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
