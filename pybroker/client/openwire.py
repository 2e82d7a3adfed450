"""The client's OpenWire: requests become commands, commands become events. `openwire_messages` converts messages.

The client offers loose encoding without caching, in the newest version it knows, which every ActiveMQ accepts. All
consumers and producers belong to one session: transactions have ids of their own, and acknowledgements name a consumer.

Source: OpenWire v12 (ActiveMQ 5.17): connecting, consuming, acknowledging, failover clients; `InactivityMonitor`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from pybroker.broker.domain.big_endian import INT
from pybroker.broker.domain.destination import ADVISORY_PREFIX, Destination, DestinationType, topic
from pybroker.broker.domain.inactivity import InactivityMonitor
from pybroker.broker.domain.message import RESENT
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.openwire.loose import MalformedOpenWire, UnencodableOpenWire, string
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.framing import FRAME_BYTES_MAX
from pybroker.broker.domain.openwire.marshal.wireformat import (
    INACTIVITY_MS,
    INITIAL_DELAY_MS,
    Agreement,
    Offer,
    agree,
    decode_offer,
    encode_offer,
)
from pybroker.broker.domain.openwire.values import encode_map
from pybroker.broker.domain.transaction import LocalTransactionId
from pybroker.client.conversation import (
    Acknowledge,
    AddConsumer,
    AddProducer,
    AddTemporary,
    Answered,
    BeginTransaction,
    CommitTransaction,
    ConsumerEnded,
    CreateDestination,
    DeleteDestination,
    Delivered,
    DestinationListed,
    Ended,
    ErrorReported,
    Event,
    Exhausted,
    ListDestinations,
    Login,
    LoginFailed,
    Opened,
    Pull,
    Redirected,
    Release,
    RemoveConsumer,
    RemoveDurable,
    RemoveProducer,
    Request,
    RollbackTransaction,
    SendMessage,
    SetPrefetch,
)
from pybroker.client.errors import (
    ClientError,
    ConnectionLost,
    DestinationRefused,
    FrameTooLarge,
    LoginRefused,
    NoRoom,
    NotAuthorized,
    ProtocolViolation,
    Refused,
    SelectorRefused,
    TransactionRolledBack,
    UnsendableMessage,
)
from pybroker.client.messages import Message, Outgoing
from pybroker.client.openwire_messages import Receipt, encode_body, received

SESSION: Final = 1
_NOTHING_DELIVERED: Final = -1

_GREETING_SECONDS: Final = 10.0
"""The shortest time that a peer has for its WireFormatInfo."""

_LOGIN, _SESSION, _DISCONNECT = 1, 2, 3
"""The command numbers of the conversation itself, below `conversation.FIRST_NUMBER`."""

_KINDS: Final[Mapping[str, type[Refused]]] = {
    "InvalidDestinationException": DestinationRefused,
    "DestinationDoesNotExistException": DestinationRefused,
    "InvalidSelectorException": SelectorRefused,
    "ResourceAllocationException": NoRoom,
    "SecurityException": NotAuthorized,  # after the login
}
"""The error for each Java exception, by its name without the package: `javax.jms` and `jakarta.jms` are equivalent."""

_LOGIN_FATAL: Final = frozenset(("SecurityException", "InvalidClientIDException", "JMSSecurityException"))
"""Java exceptions at the login that every broker of an installation would raise."""


class OpenWireConversation:
    """`conversation.Conversation` for OpenWire."""

    def __init__(
        self,
        *,
        host: str = "",
        inactivity_ms: int = INACTIVITY_MS,
        initial_delay_ms: int = INITIAL_DELAY_MS,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        """Create a conversation; `bytes_to_send` returns its WireFormatInfo.

        Args:
            host: the host name of the URI, for virtual hosts.
            inactivity_ms: the silence after which the peer is dead; 0 for no limit. The smaller of both offers applies.
            initial_delay_ms: the delay before the inactivity monitor starts; also the time for the peer's first frame,
                which is 10 s at least.
            frame_bytes_max: the largest frame, in both directions. The smaller of both offers applies.
        """
        self._login: Login | None = None
        self._broker_url = ""
        self._connection_id = self._client_id = ""
        self._offer = Offer(
            tcp_no_delay_enabled=True,
            max_inactivity_ms=inactivity_ms,
            initial_delay_ms=initial_delay_ms,
            frame_bytes_max=frame_bytes_max,
            host=host or None,
            provider_name="pybroker",
            platform_details="Python",
        )
        self._out = bytearray(encode_offer(self._offer))
        self._in = bytearray()
        self._offset = 0
        self._agreement: Agreement | None = None
        self._format = WireFormat()
        self._frame_bytes_max = frame_bytes_max
        self._monitor: InactivityMonitor | None = None
        self._greeting_due_at: float | None = None
        self._is_open = False
        self._is_restoring = False
        self._listings: set[int] = set()
        self._can_release = False

    @property
    def can_release(self) -> bool:
        """True if the broker is a pybroker: ActiveMQ has no such acknowledgement."""
        return self._can_release

    def open(self, login: Login) -> None:
        """Log in, see `Conversation.open`."""
        self._login = login
        self._connection_id, self._client_id = login.connection_id, login.client_id
        if self._agreement is not None:
            self._log_in(login)

    # ------------------------------------------------------------ in

    def receive(self, chunk: bytes) -> list[Event]:
        """Process bytes, see `Conversation.receive`."""
        if self._monitor is not None:
            self._monitor.has_read = True
        self._in += chunk
        events: list[Event] = []
        try:
            while (frame := self._next_frame()) is not None:
                if self._agreement is None:
                    self._greet(frame)
                else:
                    events += self._events(frame)
        except MalformedOpenWire as error:
            raise ProtocolViolation(f"the peer does not speak OpenWire: {error}") from error
        del self._in[: self._offset]
        self._offset = 0
        return events

    def _next_frame(self) -> bytes | None:
        data, start = self._in, self._offset + INT.size
        if len(data) < start:
            return None
        size: int = INT.unpack_from(data, self._offset)[0]
        if self._agreement is None and not _GREETING.startswith(data[start : start + len(_GREETING)]):
            raise ProtocolViolation("the peer does not speak OpenWire: perhaps the port is for another protocol")
        if not 0 < size <= self._frame_bytes_max:
            self._check_size(size)
        end = start + size
        if len(data) < end:
            return None
        self._offset = end
        return bytes(memoryview(data)[start:end])

    def _check_size(self, size: int) -> None:
        if self._agreement is None or size <= 0:
            raise ProtocolViolation(f"the peer does not speak OpenWire: a frame of {size} bytes")
        limit = self._frame_bytes_max
        raise FrameTooLarge(f"the broker sends {size} bytes, at most {limit} were agreed", size=size, limit=limit)

    def _greet(self, frame: bytes) -> None:
        """Determine the agreement of both offers, and log in if `open` was called."""
        offer = decode_offer(frame)
        agreement = agree(self._offer, offer)
        self._agreement = agreement
        self._can_release = offer.release_enabled is True
        self._format = agreement.wire_format()
        self._frame_bytes_max = agreement.frame_bytes_max
        if self._login is not None:
            self._log_in(self._login)

    def _log_in(self, login: Login) -> None:
        if login.is_failover:
            self._put(wire.ConnectionControl(fault_tolerant=True))
        self._put(
            wire.ConnectionInfo(
                command_id=_LOGIN,
                response_required=True,
                connection_id=wire.ConnectionId(self._connection_id),
                client_id=login.client_id,
                user_name=login.user,
                password=login.password,
                manageable=True,
                fault_tolerant=login.is_failover,
                failover_reconnect=login.is_again,
            )
        )

    def _events(self, frame: bytes) -> Sequence[Event]:
        if frame == _NULL_COMMAND:
            return ()
        command = self._format.decode(frame)
        match command:
            case wire.MessageDispatch(message=wire.ActiveMQMessage() as message, consumer_id=consumer_id):
                if consumer_id is None:
                    return ()
                if consumer_id.value in self._listings:
                    return _listed(consumer_id.value, message.data_structure)
                return (Delivered(consumer_id.value, received(command, message)),)
            case wire.MessageDispatch(message=None, consumer_id=wire.ConsumerId(value=consumer)):
                return (Exhausted(consumer),)
            case wire.Response(correlation_id=number):
                return self._answered(number, command)
            case wire.KeepAliveInfo(response_required=True):
                self._put(wire.KeepAliveInfo())
            case wire.ConnectionControl():
                return _redirected(command, self._broker_url)
            case wire.BrokerInfo():
                self._broker_url = command.broker_url or ""
            case wire.ConsumerControl(close=True, consumer_id=wire.ConsumerId(value=consumer)):
                return (ConsumerEnded(consumer, Refused("the broker closed the consumer")),)
            case wire.ConnectionErrorCommand(exception=exception):
                return (ErrorReported(_refusal(exception)),)
            case wire.ShutdownInfo():
                return (Ended("the broker shuts the connection down"),)
            case _:
                pass  # the client needs no ProducerAck and no later commands
        return ()

    def _answered(self, number: int, response: wire.Response) -> Sequence[Event]:
        exception = response.exception if isinstance(response, wire.ExceptionResponse) else None
        failed = isinstance(response, wire.ExceptionResponse)
        if number == _LOGIN:
            return self._logged_in(exception, failed)
        if number == _DISCONNECT:
            self._put(wire.ShutdownInfo())
            return (Ended("closed"),)
        return (Answered(number, _refusal(exception) if failed else None),)

    def _logged_in(self, exception: wire.Throwable | None, failed: bool) -> Sequence[Event]:
        if failed:
            name, text = _name(exception), _text(exception)
            if name in _LOGIN_FATAL:
                return (LoginFailed(LoginRefused(f"the broker refuses the login: {text}")),)
            return (Ended(f"the broker does not take the connection: {text}"),)
        session = wire.SessionId(self._connection_id, SESSION)
        self._put(wire.SessionInfo(command_id=_SESSION, session_id=session))
        self._is_open = True
        self._is_restoring = self._login is not None and self._login.is_again
        return (Opened(),)

    # ------------------------------------------------------------ out

    def request(self, request: Request, number: int, *, answer: bool) -> None:
        """Encode a request, see `Conversation.request`."""
        try:
            commands = self._commands(request)
            commands[-1].response_required = answer
            for command in commands:
                command.command_id = number
                self._put(command)
        except UnencodableOpenWire as error:
            raise UnsendableMessage(str(error)) from error

    def close(self) -> None:
        """Disconnect in order, see `Conversation.close`."""
        disconnect = wire.RemoveInfo(
            command_id=_DISCONNECT,
            response_required=True,
            object_id=wire.ConnectionId(self._connection_id),
            last_delivered_sequence_id=wire.LAST_DELIVERED_UNSET,
        )
        self._put(disconnect)

    def bytes_to_send(self) -> bytes:
        """Return the bytes to send, see `Conversation.bytes_to_send`."""
        data = bytes(self._out)
        self._out.clear()
        if self._is_open:
            self._is_restoring = False  # the state sends all restored requests at `Opened`
        return data

    def tick(self, now: float) -> float:
        """Do the work due, see `Conversation.tick`."""
        agreement, monitor = self._agreement, self._monitor
        if agreement is None:
            self._greeting_due_at = self._greeting_due_at or now + max(
                _GREETING_SECONDS, self._offer.initial_delay_ms / 1000
            )
            if now >= self._greeting_due_at:
                raise ConnectionLost("the peer sends nothing: perhaps it is no broker, or a frozen one")
            return self._greeting_due_at
        if agreement.max_inactivity_ms <= 0:
            return float("inf")
        if monitor is None:
            first = now + agreement.initial_delay_ms / 1000
            monitor = self._monitor = InactivityMonitor(agreement.max_inactivity_ms / 1000, first, first)
        if monitor.is_peer_dead(now):
            raise ConnectionLost(f"the broker was silent for more than {monitor.seconds:g} s")
        if monitor.is_heartbeat_due(now):
            self._put(wire.KeepAliveInfo())
        return monitor.next_check

    def _put(self, command: wire.DataStructure) -> None:
        frame = self._format.encode(command)
        limit = self._frame_bytes_max
        if len(frame) > limit:
            raise FrameTooLarge(
                f"a frame of {len(frame)} bytes, the broker allows at most {limit}", size=len(frame), limit=limit
            )
        self._out += INT.pack(len(frame))
        self._out += frame
        if self._monitor is not None:
            self._monitor.wrote()

    def _commands(self, request: Request) -> Sequence[wire.BaseCommand]:
        match request:
            case SendMessage(message=message):
                return (self._message(message),)
            case Acknowledge():
                return self._acks(request)
            case Release(consumer=consumer, message=message, is_seen=is_seen):
                (ack,) = self._acks(Acknowledge(consumer=consumer, messages=[message], individually=True))
                ack.ack_type = wire.AckType.RELEASED
                ack.message_count = int(is_seen)
                return (ack,)
            case BeginTransaction(transaction=number):
                return (self._transaction(number, wire.TransactionType.BEGIN),)
            case CommitTransaction(transaction=number):
                return (self._transaction(number, wire.TransactionType.COMMIT_ONE_PHASE),)
            case RollbackTransaction(transaction=number):
                return (self._transaction(number, wire.TransactionType.ROLLBACK),)
            case AddConsumer():
                return (self._consumer_info(request),)
            case Pull(consumer=consumer, destination=destination, seconds=seconds):
                consumer_id = self._consumer_id(consumer)
                return (wire.MessagePull(consumer_id=consumer_id, destination=destination, timeout=_pull_ms(seconds)),)
            case SetPrefetch(consumer=consumer, destination=destination, prefetch=prefetch):
                consumer_id = self._consumer_id(consumer)
                return (wire.ConsumerControl(consumer_id=consumer_id, destination=destination, prefetch=prefetch),)
            case RemoveConsumer(consumer=consumer, last=last):
                self._listings.discard(consumer)
                return (_removed(self._consumer_id(consumer), _broker_sequence(last)),)
            case AddProducer(producer=producer, destination=destination):
                return (wire.ProducerInfo(producer_id=self._producer_id(producer), destination=destination),)
            case RemoveProducer(producer=producer):
                return (_removed(self._producer_id(producer)),)
            case AddTemporary(destination=destination) | CreateDestination(destination=destination):
                return (self._destination_info(destination, wire.DestinationOperation.ADD),)
            case DeleteDestination(destination=destination):
                return (self._destination_info(destination, wire.DestinationOperation.REMOVE),)
            case ListDestinations():
                return (self._listing(request),)
            case RemoveDurable(name=name):
                return (
                    wire.RemoveSubscriptionInfo(
                        connection_id=wire.ConnectionId(self._connection_id),
                        subscription_name=name,
                        client_id=self._client_id,
                    ),
                )

    def _message(self, message: Outgoing) -> wire.BaseCommand:
        make, content = encode_body(message.body, message.kind)
        for text in (message.group_id, message.correlation_id, message.type):
            string(text)  # raises for text that Java cannot decode, which the codec accepts from others
        producer_id = self._producer_id(message.producer)
        properties = message.properties
        # No consumer has seen the messages of an open transaction, so those need no mark.
        if (self._is_restoring and message.transaction is None) or message.redelivery_count:
            properties = {**properties, RESENT: True}
        command = make(
            producer_id=producer_id,
            destination=message.destination,
            transaction_id=self._transaction_id(message.transaction),
            message_id=wire.OpenWireMessageId(None, producer_id, message.sequence),
            group_id=message.group_id,
            group_sequence=message.group_sequence,
            correlation_id=message.correlation_id,
            persistent=message.persistent,
            expiration=message.expiration,
            priority=message.priority,
            reply_to=message.reply_to,
            timestamp=message.timestamp,
            jms_type=message.type,
            redelivery_counter=message.redelivery_count,  # a pybroker ignores it and reads the property
            content=content,
            marshalled_properties=encode_map(properties) if properties else None,
        )
        return command

    def _acks(self, request: Acknowledge) -> Sequence[wire.MessageAck]:
        transaction_id = self._transaction_id(request.transaction)
        receipts = [message.receipt for message in request.messages if isinstance(message.receipt, Receipt)]
        ack = wire.MessageAck(
            destination=receipts[-1].destination,
            transaction_id=transaction_id,
            consumer_id=self._consumer_id(request.consumer),
            ack_type=wire.AckType.STANDARD,
            first_message_id=receipts[0].message_id,
            last_message_id=receipts[-1].message_id,
            message_count=len(receipts),
        )
        if request.poison is not None:
            ack.ack_type = wire.AckType.POISON
            ack.poison_cause = wire.Throwable(class_name="java.lang.Throwable", message=request.poison)
        if not request.individually or request.poison is not None:
            return (ack,)
        return tuple(
            replace(
                ack,
                ack_type=wire.AckType.INDIVIDUAL,
                destination=receipt.destination,
                first_message_id=None,
                last_message_id=receipt.message_id,
                message_count=1,
            )
            for receipt in receipts
        )

    def _consumer_info(self, request: AddConsumer) -> wire.BaseCommand:
        return wire.ConsumerInfo(
            consumer_id=self._consumer_id(request.consumer),
            destination=request.destination,
            prefetch_size=request.prefetch,
            dispatch_async=True,
            selector=request.selector,
            client_id=self._client_id,
            subscription_name=request.durable,
            no_local=request.no_local,
            exclusive=request.exclusive,
            priority=request.priority,
            browser=request.browser,
        )

    def _listing(self, request: ListDestinations) -> wire.BaseCommand:
        """Return a consumer of advisories: the broker sends it one for each destination that exists."""
        self._listings.add(request.consumer)
        kinds = dict.fromkeys((_ADVISORY_KINDS[request.type], _ADVISORY_KINDS[DestinationType.TEMP_QUEUE]))
        return wire.ConsumerInfo(
            consumer_id=self._consumer_id(request.consumer),
            destination=topic(",".join(f"{ADVISORY_PREFIX}{kind}" for kind in kinds)),
            prefetch_size=_LISTING_PREFETCH,
            dispatch_async=False,  # an ActiveMQ then sends the advisories before its answer
            client_id=self._client_id,
        )

    def _destination_info(self, destination: Destination, operation: wire.DestinationOperation) -> wire.BaseCommand:
        return wire.DestinationInfo(
            connection_id=wire.ConnectionId(self._connection_id), destination=destination, operation_type=operation
        )

    def _transaction(self, number: int, kind: int) -> wire.BaseCommand:
        return wire.TransactionInfo(
            connection_id=wire.ConnectionId(self._connection_id), transaction_id=self._transaction_id(number), type=kind
        )

    def _transaction_id(self, number: int | None) -> LocalTransactionId | None:
        return None if number is None else LocalTransactionId(self._connection_id, number)

    def _producer_id(self, number: int) -> wire.ProducerId:
        return wire.ProducerId(self._connection_id, SESSION, number)

    def _consumer_id(self, number: int) -> wire.ConsumerId:
        return wire.ConsumerId(self._connection_id, SESSION, number)


# ---------------------------------------------------------------- received commands

_GREETING: Final = bytes((wire.WireFormatInfo.DATA_TYPE,)) + wire.MAGIC
_NULL_COMMAND: Final = b"\x00"


_LISTING_PREFETCH: Final = 10_000_000
"""More than the destinations of any broker, so that no advisory waits for an acknowledgement."""

_ADVISORY_KINDS: Final[Mapping[DestinationType, str]] = {
    DestinationType.QUEUE: "Queue",
    DestinationType.TOPIC: "Topic",
    DestinationType.TEMP_QUEUE: "TempQueue",
    DestinationType.TEMP_TOPIC: "TempTopic",
}
"""The end of the name of the topic of advisories about destinations, by their type."""


def _listed(consumer: int, advised: object) -> Sequence[Event]:
    if not isinstance(advised, wire.DestinationInfo) or advised.destination is None:
        return ()
    return (
        (DestinationListed(consumer, advised.destination),)
        if advised.operation_type == wire.DestinationOperation.ADD
        else ()
    )


def _redirected(command: wire.ConnectionControl, sender: str) -> Sequence[Event]:
    brokers = tuple(each.strip() for each in (command.connected_brokers or "").split(",") if each.strip())
    reconnect_to = command.reconnect_to or ""
    if not brokers and not reconnect_to and not command.rebalance_connection:
        return ()
    return (Redirected(brokers, reconnect_to, command.rebalance_connection, sender),)


def _name(exception: wire.Throwable | None) -> str:
    """Return the name of a Java exception without its package."""
    return (exception.class_name or "").rpartition(".")[2] if exception else ""


def _text(exception: wire.Throwable | None) -> str:
    return (exception.message if exception else None) or _name(exception) or "no reason given"


def _refusal(exception: wire.Throwable | None) -> ClientError:
    name, text = _name(exception), _text(exception)
    if name == "TransactionRolledBackException":
        return TransactionRolledBack(text)
    kind = (exception.class_name or "") if exception else ""
    return _KINDS.get(name, Refused)(text, kind=kind)


# ---------------------------------------------------------------- sent commands


def _removed(what: wire.Identifier, last_delivered: int = wire.LAST_DELIVERED_UNSET) -> wire.BaseCommand:
    return wire.RemoveInfo(object_id=what, last_delivered_sequence_id=last_delivered)


def _pull_ms(seconds: float | None) -> int:
    """Return the timeout of a MessagePull: 0 for no limit, -1 for an answer at once."""
    if seconds is None:
        return 0
    return math.ceil(min(seconds, _PULL_SECONDS_MAX) * 1000) or -1


_PULL_SECONDS_MAX: Final = 86_400.0
"""The longest timeout of a pull; a consumer that waits longer sends another."""


def _broker_sequence(last: Message | None) -> int:
    """Return the broker sequence of the last message that the application received: later ones were not delivered."""
    receipt = last.receipt if last is not None else None
    if not isinstance(receipt, Receipt) or receipt.message_id is None:
        return _NOTHING_DELIVERED
    return receipt.message_id.broker_sequence_id
