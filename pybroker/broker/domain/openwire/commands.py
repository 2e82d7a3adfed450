"""OpenWire's data structures: commands, messages, and what they are made of, as typed values.

The declarations are the schema: wire order is declaration order (inherited fields first), and each field's specifier
has its encoding, if it is cached, and its versions. `marshal` compiles its codec from them. Bodies and properties stay
bytes; `body` and `values` read those.

A missing field (an older version) has its default. Arrays are tuples whose elements may be null, as on the wire.
Source: OpenWire, wire versions 1 to 12 (ActiveMQ 5.17); names are Java's in Python spelling.
"""

# ruff: noqa: RUF009 -- the calls in these defaults are field specifiers, as `dataclasses.field` is

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Final, NamedTuple, TypeAlias

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import PRIORITY_DEFAULT
from pybroker.broker.domain.openwire.ids import ConsumerId as ConsumerId
from pybroker.broker.domain.openwire.ids import OpenWireMessageId as OpenWireMessageId
from pybroker.broker.domain.openwire.ids import ProducerId as ProducerId
from pybroker.broker.domain.openwire.marshal.schema import (
    array,
    boolean,
    byte,
    byte_array,
    cached,
    fixed_bytes,
    int32,
    int64,
    nested,
    string,
    throwable,
)
from pybroker.broker.domain.openwire.throwables import StackFrame as StackFrame
from pybroker.broker.domain.openwire.throwables import Throwable as Throwable
from pybroker.broker.domain.transaction import LocalTransactionId, TransactionId, XATransactionId

MAGIC: Final = b"ActiveMQ"
"""The first bytes of a WireFormatInfo, by which a port distinguishes OpenWire from other protocols."""

LAST_DELIVERED_UNSET: Final = -2
"""`RemoveInfo` of a client that does not report its deliveries."""

TRANSACTION_IDS: Final = (LocalTransactionId, XATransactionId)


class TransactionType(IntEnum):
    """The operation that a TransactionInfo requests."""

    BEGIN = 0
    PREPARE = 1
    COMMIT_ONE_PHASE = 2
    COMMIT_TWO_PHASE = 3
    ROLLBACK = 4
    RECOVER = 5
    FORGET = 6
    END = 7


class AckType(IntEnum):
    """The type of a MessageAck."""

    DELIVERED = 0
    POISON = 1
    STANDARD = 2
    REDELIVERED = 3
    INDIVIDUAL = 4
    UNMATCHED = 5
    EXPIRED = 6
    RELEASED = 100
    """The client returns one message to its queue, for any consumer. Of pybroker alone: see `Offer.release_enabled`.

    With a `message_count` of 0 its application has not seen the message, which does not count as delivered.
    """


class DestinationOperation(IntEnum):
    """The operation that a DestinationInfo requests."""

    ADD = 0
    REMOVE = 1


# ---------------------------------------------------------------- identifiers


class ConnectionId(NamedTuple):
    """A connection, by the name its client made up."""

    value: str | None

    def __str__(self) -> str:
        """Return the name."""
        return str(self.value)


class SessionId(NamedTuple):
    """A session: its connection, and its number there from 1; -1 is the connection's own."""

    connection_id: str | None
    value: int

    def __str__(self) -> str:
        """Return `<connection id>:<value>`."""
        return f"{self.connection_id}:{self.value}"


class BrokerId(NamedTuple):
    """A broker in a network of brokers."""

    value: str | None

    def __str__(self) -> str:
        """Return the name."""
        return str(self.value)


class BlankLocalTransactionId(NamedTuple):
    """A local transaction id without its connection: Java can make one, but no transaction has it."""

    value: int
    connection_id: ConnectionId | None = None


class BlankXATransactionId(NamedTuple):
    """An XA transaction id that lacks a part: Java can make one, but no transaction has it."""

    format_id: int
    global_transaction_id: bytes | None = None
    branch_qualifier: bytes | None = None


# ---------------------------------------------------------------- the connection


@dataclass(slots=True, kw_only=True)
class WireFormatInfo:
    """First frame of either side: what it speaks. See `marshal.wireformat` for the properties."""

    DATA_TYPE: ClassVar = 1
    magic: bytes = fixed_bytes(MAGIC)
    version: int = int32()
    marshalled_properties: bytes | None = byte_array()


@dataclass(slots=True, kw_only=True)
class BaseCommand:
    """The fields that every command has.

    Attributes:
        command_id: its number on the connection; a response names it.
        response_required: the sender waits for a response.
    """

    DATA_TYPE: ClassVar[int] = 0
    SINCE: ClassVar[int] = 1
    command_id: int = int32()
    response_required: bool = boolean()


@dataclass(slots=True, kw_only=True)
class BrokerInfo(BaseCommand):
    """A broker introduces itself, to its clients and to another broker's bridge."""

    DATA_TYPE: ClassVar[int] = 2
    broker_id: BrokerId | None = cached(BrokerId)
    broker_url: str | None = string()
    peer_broker_infos: "tuple[BrokerInfo | None, ...] | None" = array("BrokerInfo")
    broker_name: str | None = string()
    slave_broker: bool = boolean()
    master_broker: bool = boolean()
    fault_tolerant_configuration: bool = boolean()
    duplex_connection: bool = boolean(since=2)
    network_connection: bool = boolean(since=2)
    connection_id: int = int64(since=2)
    broker_upload_url: str | None = string(since=3)
    network_properties: str | None = string(since=3)


@dataclass(slots=True, kw_only=True)
class ConnectionInfo(BaseCommand):
    """A client opens its connection.

    Attributes:
        client_id: JMS client id; durable subscriptions go by it.
        manageable: the client understands `ConnectionControl` and `ConsumerControl`.
        fault_tolerant: it comes through a failover transport.
        failover_reconnect: it was connected before, and restores what it had.
    """

    DATA_TYPE: ClassVar[int] = 3
    connection_id: ConnectionId | None = cached(ConnectionId)
    client_id: str | None = string()
    password: str | None = string(is_secret=True)
    user_name: str | None = string()
    broker_path: tuple[BrokerId | None, ...] | None = array(BrokerId)
    broker_master_connector: bool = boolean()
    manageable: bool = boolean()
    client_master: bool = boolean(since=2, default=True)
    fault_tolerant: bool = boolean(since=6)
    failover_reconnect: bool = boolean(since=6)
    client_ip: str | None = string(since=8)


@dataclass(slots=True, kw_only=True)
class ConnectionControl(BaseCommand):
    """Information about a broker and its peers, sent to clients; a failover client sends it to identify itself.

    Attributes:
        connected_brokers: comma list of addresses a failover client may also use.
        reconnect_to: the address it shall go to.
        rebalance_connection: it shall go to the first of its list.
    """

    DATA_TYPE: ClassVar[int] = 18
    close: bool = boolean()
    exit: bool = boolean()
    fault_tolerant: bool = boolean()
    resume: bool = boolean()
    suspend: bool = boolean()
    connected_brokers: str | None = string(since=6)
    reconnect_to: str | None = string(since=6)
    rebalance_connection: bool = boolean(since=6)
    token: bytes | None = byte_array(since=8)


@dataclass(slots=True, kw_only=True)
class ConnectionErrorCommand(BaseCommand):
    """OpenWire's ConnectionError: something failed outside of any request."""

    DATA_TYPE: ClassVar[int] = 16
    exception: Throwable | None = throwable()
    connection_id: ConnectionId | None = nested(ConnectionId)


@dataclass(slots=True, kw_only=True)
class KeepAliveInfo(BaseCommand):
    """Keeps an idle connection open; answered only if a response is required."""

    DATA_TYPE: ClassVar[int] = 10


@dataclass(slots=True, kw_only=True)
class ShutdownInfo(BaseCommand):
    """The sender is about to close the socket."""

    DATA_TYPE: ClassVar[int] = 11


@dataclass(slots=True, kw_only=True)
class ControlCommand(BaseCommand):
    """An order to a broker; accepted and ignored."""

    DATA_TYPE: ClassVar[int] = 14
    command: str | None = string()


@dataclass(slots=True, kw_only=True)
class FlushCommand(BaseCommand):
    """Accepted and ignored."""

    DATA_TYPE: ClassVar[int] = 15


# ---------------------------------------------------------------- sessions, producers, consumers


@dataclass(slots=True, kw_only=True)
class SessionInfo(BaseCommand):
    """A session begins."""

    DATA_TYPE: ClassVar[int] = 4
    session_id: SessionId | None = cached(SessionId)


@dataclass(slots=True, kw_only=True)
class NetworkBridgeFilter:
    """Keeps a network of brokers from sending a message round in circles."""

    DATA_TYPE: ClassVar = 91
    network_ttl: int = int32(until=9)
    network_broker_id: BrokerId | None = cached(BrokerId)
    message_ttl: int = int32(since=10)
    consumer_ttl: int = int32(since=10)


@dataclass(slots=True, kw_only=True)
class ConsumerInfo(BaseCommand):
    """A consumer begins.

    Attributes:
        prefetch_size: messages it takes without acknowledging; 0 means that it pulls each one.
        maximum_pending_message_limit: topic messages kept for it in addition.
        dispatch_async: ActiveMQ dispatches to it in a separate thread.
        subscription_name: makes it a durable subscription, with the connection's client id.
        additional_predicate: a bridge's filter.
    """

    DATA_TYPE: ClassVar[int] = 5
    consumer_id: ConsumerId | None = cached(ConsumerId)
    browser: bool = boolean()
    destination: Destination | None = cached(Destination)
    prefetch_size: int = int32()
    maximum_pending_message_limit: int = int32()
    dispatch_async: bool = boolean()
    selector: str | None = string()
    client_id: str | None = string(since=10)
    subscription_name: str | None = string()
    no_local: bool = boolean()
    exclusive: bool = boolean()
    retroactive: bool = boolean()
    priority: int = byte()
    broker_path: tuple[BrokerId | None, ...] | None = array(BrokerId)
    additional_predicate: NetworkBridgeFilter | None = nested(NetworkBridgeFilter)
    network_subscription: bool = boolean()
    optimized_acknowledge: bool = boolean()
    no_range_acks: bool = boolean()
    network_consumer_path: tuple[ConsumerId | None, ...] | None = array(ConsumerId, since=4)


@dataclass(slots=True, kw_only=True)
class ConsumerControl(BaseCommand):
    """Changes a consumer while it runs: its prefetch, or its end."""

    DATA_TYPE: ClassVar[int] = 17
    destination: Destination | None = nested(Destination, since=6)
    close: bool = boolean()
    consumer_id: ConsumerId | None = nested(ConsumerId)
    prefetch: int = int32()
    flush: bool = boolean(since=2)
    start: bool = boolean(since=2)
    stop: bool = boolean(since=2)


@dataclass(slots=True, kw_only=True)
class ProducerInfo(BaseCommand):
    """A producer begins.

    Attributes:
        destination: where it sends; null for one that names a destination with each message.
        window_size: bytes it sends without a `ProducerAck`; 0 for no window.
    """

    DATA_TYPE: ClassVar[int] = 6
    producer_id: ProducerId | None = cached(ProducerId)
    destination: Destination | None = cached(Destination)
    broker_path: tuple[BrokerId | None, ...] | None = array(BrokerId)
    dispatch_async: bool = boolean(since=2)
    window_size: int = int32(since=3)


@dataclass(slots=True, kw_only=True)
class ProducerAck(BaseCommand):
    """Opens a producer's window by that many bytes."""

    DATA_TYPE: ClassVar[int] = 19
    SINCE: ClassVar[int] = 3
    producer_id: ProducerId | None = nested(ProducerId, since=3)
    size: int = int32(since=3)


@dataclass(slots=True, kw_only=True)
class RemoveInfo(BaseCommand):
    """A connection, session, producer or consumer ends.

    Attributes:
        last_delivered_sequence_id: broker sequence of the last message a consumer has seen; -1 for none.
    """

    DATA_TYPE: ClassVar[int] = 12
    object_id: "DataStructure | None" = cached()
    last_delivered_sequence_id: int = int64(since=5, default=LAST_DELIVERED_UNSET)


@dataclass(slots=True, kw_only=True)
class RemoveSubscriptionInfo(BaseCommand):
    """Deletes a durable subscription."""

    DATA_TYPE: ClassVar[int] = 9
    connection_id: ConnectionId | None = cached(ConnectionId)
    subscription_name: str | None = string()
    client_id: str | None = string()


@dataclass(slots=True, kw_only=True)
class DestinationInfo(BaseCommand):
    """A destination comes or goes; temporary ones only ever this way.

    Attributes:
        operation_type: see `DestinationOperation`.
        timeout: how long a removal may wait for its users, in milliseconds.
    """

    DATA_TYPE: ClassVar[int] = 8
    connection_id: ConnectionId | None = cached(ConnectionId)
    destination: Destination | None = cached(Destination)
    operation_type: int = byte()
    timeout: int = int64()
    broker_path: tuple[BrokerId | None, ...] | None = array(BrokerId)


@dataclass(slots=True, kw_only=True)
class TransactionInfo(BaseCommand):
    """A step in a transaction's life; `type` is a `TransactionType`."""

    DATA_TYPE: ClassVar[int] = 7
    connection_id: ConnectionId | None = cached(ConnectionId)
    transaction_id: TransactionId | None = cached(*TRANSACTION_IDS)
    type: int = byte()


# ---------------------------------------------------------------- messages


@dataclass(slots=True, kw_only=True)
class ActiveMQMessage(BaseCommand):
    """A message without body, and what all messages have. The attributes are those of `message.OpenWireMessage`.

    There `data_structure` and the paths are kept in the store's form; here they are decoded.
    """

    DATA_TYPE: ClassVar[int] = 23
    producer_id: ProducerId | None = cached(ProducerId)
    destination: Destination | None = cached(Destination)
    transaction_id: TransactionId | None = cached(*TRANSACTION_IDS)
    original_destination: Destination | None = cached(Destination)
    message_id: OpenWireMessageId | None = nested(OpenWireMessageId)
    original_transaction_id: TransactionId | None = cached(*TRANSACTION_IDS)
    group_id: str | None = string()
    group_sequence: int = int32()
    correlation_id: str | None = string()
    persistent: bool = boolean()
    expiration: int = int64()
    priority: int = byte(PRIORITY_DEFAULT)
    reply_to: Destination | None = nested(Destination)
    timestamp: int = int64()
    jms_type: str | None = string()
    content: bytes | None = byte_array()
    marshalled_properties: bytes | None = byte_array()
    data_structure: "DataStructure | None" = nested()
    target_consumer_id: ConsumerId | None = cached(ConsumerId)
    compressed: bool = boolean()
    redelivery_counter: int = int32()
    broker_path: tuple[BrokerId | None, ...] | None = array(BrokerId)
    arrival: int = int64()
    user_id: str | None = string()
    received_by_bridge: bool = boolean()
    droppable: bool = boolean(since=2)
    cluster: tuple[BrokerId | None, ...] | None = array(BrokerId, since=3)
    broker_in_time: int = int64(since=3)
    broker_out_time: int = int64(since=3)
    group_first_for_consumer: bool = boolean(since=10)


@dataclass(slots=True, kw_only=True)
class ActiveMQBytesMessage(ActiveMQMessage):
    """JMS BytesMessage."""

    DATA_TYPE: ClassVar[int] = 24


@dataclass(slots=True, kw_only=True)
class ActiveMQMapMessage(ActiveMQMessage):
    """JMS MapMessage."""

    DATA_TYPE: ClassVar[int] = 25


@dataclass(slots=True, kw_only=True)
class ActiveMQObjectMessage(ActiveMQMessage):
    """JMS ObjectMessage: a Java serialization stream."""

    DATA_TYPE: ClassVar[int] = 26


@dataclass(slots=True, kw_only=True)
class ActiveMQStreamMessage(ActiveMQMessage):
    """JMS StreamMessage."""

    DATA_TYPE: ClassVar[int] = 27


@dataclass(slots=True, kw_only=True)
class ActiveMQTextMessage(ActiveMQMessage):
    """JMS TextMessage."""

    DATA_TYPE: ClassVar[int] = 28


@dataclass(slots=True, kw_only=True)
class ActiveMQBlobMessage(ActiveMQMessage):
    """A message whose body is at a URL."""

    DATA_TYPE: ClassVar[int] = 29
    SINCE: ClassVar[int] = 3
    remote_blob_url: str | None = string(since=3)
    mime_type: str | None = string(since=3)
    deleted_by_broker: bool = boolean(since=3)


MESSAGES: Final = (
    ActiveMQMessage,
    ActiveMQBytesMessage,
    ActiveMQMapMessage,
    ActiveMQObjectMessage,
    ActiveMQStreamMessage,
    ActiveMQTextMessage,
    ActiveMQBlobMessage,
)


@dataclass(slots=True, kw_only=True)
class MessageDispatch(BaseCommand):
    """A message for a consumer; a null one ends a browse, or a pull that found nothing."""

    DATA_TYPE: ClassVar[int] = 21
    consumer_id: ConsumerId | None = cached(ConsumerId)
    destination: Destination | None = cached(Destination)
    message: ActiveMQMessage | None = nested(*MESSAGES)
    redelivery_counter: int = int32()


@dataclass(slots=True, kw_only=True)
class MessageAck(BaseCommand):
    """A consumer is done with the messages from first to last.

    Attributes:
        ack_type: see `AckType`; a plain number, because another peer's may be unknown here.
        first_message_id: null for `last_message_id` alone, or for `message_count` messages.
        poison_cause: for POISON, why.
    """

    DATA_TYPE: ClassVar[int] = 22
    destination: Destination | None = cached(Destination)
    transaction_id: TransactionId | None = cached(*TRANSACTION_IDS)
    consumer_id: ConsumerId | None = cached(ConsumerId)
    ack_type: int = byte()
    first_message_id: OpenWireMessageId | None = nested(OpenWireMessageId)
    last_message_id: OpenWireMessageId | None = nested(OpenWireMessageId)
    message_count: int = int32()
    poison_cause: Throwable | None = throwable(since=7)


@dataclass(slots=True, kw_only=True)
class MessagePull(BaseCommand):
    """Requests one message for a consumer with prefetch 0.

    Attributes:
        timeout: milliseconds to wait; 0: without limit, -1: do not wait.
    """

    DATA_TYPE: ClassVar[int] = 20
    SINCE: ClassVar[int] = 2
    consumer_id: ConsumerId | None = cached(ConsumerId, since=2)
    destination: Destination | None = cached(Destination, since=2)
    timeout: int = int64(since=2)
    correlation_id: str | None = string(since=3)
    message_id: OpenWireMessageId | None = nested(OpenWireMessageId, since=3)


@dataclass(slots=True, kw_only=True)
class MessageDispatchNotification(BaseCommand):
    """A report of a dispatch, sent by the masters of old ActiveMQ versions to their slaves; accepted and ignored."""

    DATA_TYPE: ClassVar[int] = 90
    consumer_id: ConsumerId | None = cached(ConsumerId)
    destination: Destination | None = cached(Destination)
    delivery_sequence_id: int = int64()
    message_id: OpenWireMessageId | None = nested(OpenWireMessageId)


# ---------------------------------------------------------------- responses


@dataclass(slots=True, kw_only=True)
class Response(BaseCommand):
    """Answers a command, whose id is `correlation_id`."""

    DATA_TYPE: ClassVar[int] = 30
    correlation_id: int = int32()


@dataclass(slots=True, kw_only=True)
class ExceptionResponse(Response):
    """Refused, or failed."""

    DATA_TYPE: ClassVar[int] = 31
    exception: Throwable | None = throwable()


@dataclass(slots=True, kw_only=True)
class DataResponse(Response):
    """Done, with an answer."""

    DATA_TYPE: ClassVar[int] = 32
    data: "DataStructure | None" = nested()


@dataclass(slots=True, kw_only=True)
class DataArrayResponse(Response):
    """Done, with several answers: the transactions that a RECOVER found."""

    DATA_TYPE: ClassVar[int] = 33
    data: "tuple[DataStructure | None, ...] | None" = array()


@dataclass(slots=True, kw_only=True)
class IntegerResponse(Response):
    """Done, with a number: how a PREPARE went."""

    DATA_TYPE: ClassVar[int] = 34
    result: int = int32()


# ---------------------------------------------------------------- networks, stores, datagrams


@dataclass(slots=True, kw_only=True)
class BrokerSubscriptionInfo(BaseCommand):
    """A broker's durable subscriptions, for a bridge that keeps them in step."""

    DATA_TYPE: ClassVar[int] = 92
    SINCE: ClassVar[int] = 12
    broker_id: BrokerId | None = nested(BrokerId, since=12)
    broker_name: str | None = string(since=12)
    subscription_infos: tuple[ConsumerInfo | None, ...] | None = array(ConsumerInfo, since=12)


@dataclass(slots=True, kw_only=True)
class SubscriptionInfo:
    """A durable subscription, as stores and RPC answers hold it."""

    DATA_TYPE: ClassVar = 55
    client_id: str | None = string()
    destination: Destination | None = cached(Destination)
    selector: str | None = string()
    subscription_name: str | None = string()
    subscribed_destination: Destination | None = nested(Destination, since=3)
    no_local: bool = boolean(since=11)


@dataclass(slots=True, kw_only=True)
class PartialCommand:
    """A piece of a command, for datagrams."""

    DATA_TYPE: ClassVar[int] = 60
    command_id: int = int32()
    data: bytes | None = byte_array()


@dataclass(slots=True, kw_only=True)
class LastPartialCommand(PartialCommand):
    """The last piece."""

    DATA_TYPE: ClassVar[int] = 61


@dataclass(slots=True, kw_only=True)
class ReplayCommand(BaseCommand):
    """Asks for datagrams again."""

    DATA_TYPE: ClassVar[int] = 65
    first_nak_number: int = int32()
    last_nak_number: int = int32()


@dataclass(slots=True, kw_only=True)
class DiscoveryEvent:
    """A broker was found, or lost."""

    DATA_TYPE: ClassVar = 40
    service_name: str | None = string()
    broker_name: str | None = string()


@dataclass(slots=True, kw_only=True)
class JournalTopicAck:
    """ActiveMQ's journal before KahaDB: a durable subscription's acknowledgement."""

    DATA_TYPE: ClassVar = 50
    destination: Destination | None = nested(Destination)
    message_id: OpenWireMessageId | None = nested(OpenWireMessageId)
    message_sequence_id: int = int64()
    subscription_name: str | None = string()
    client_id: str | None = string()
    transaction_id: TransactionId | None = nested(*TRANSACTION_IDS)


@dataclass(slots=True, kw_only=True)
class JournalQueueAck:
    """ActiveMQ's journal before KahaDB: a queue's acknowledgement."""

    DATA_TYPE: ClassVar = 52
    destination: Destination | None = nested(Destination)
    message_ack: MessageAck | None = nested(MessageAck)


@dataclass(slots=True, kw_only=True)
class JournalTrace:
    """ActiveMQ's journal before KahaDB: a comment."""

    DATA_TYPE: ClassVar = 53
    message: str | None = string()


@dataclass(slots=True, kw_only=True)
class JournalTransaction:
    """ActiveMQ's journal before KahaDB: how a transaction went."""

    DATA_TYPE: ClassVar = 54
    transaction_id: TransactionId | None = nested(*TRANSACTION_IDS)
    type: int = byte()
    was_prepared: bool = boolean()


Record: TypeAlias = (
    BaseCommand
    | WireFormatInfo
    | NetworkBridgeFilter
    | SubscriptionInfo
    | PartialCommand
    | DiscoveryEvent
    | JournalTopicAck
    | JournalQueueAck
    | JournalTrace
    | JournalTransaction
)
"""The structures that are declared field by field."""

Identifier: TypeAlias = (
    Destination
    | TransactionId
    | ConnectionId
    | SessionId
    | ConsumerId
    | ProducerId
    | BrokerId
    | OpenWireMessageId
    | BlankLocalTransactionId
    | BlankXATransactionId
)
"""Identifiers, which are immutable and hashable."""

DataStructure: TypeAlias = Record | Identifier
"""Any structure with a data type."""

RECORDS: Final[tuple[type[Record], ...]] = (
    WireFormatInfo,
    BrokerInfo,
    ConnectionInfo,
    SessionInfo,
    ConsumerInfo,
    ProducerInfo,
    TransactionInfo,
    DestinationInfo,
    RemoveSubscriptionInfo,
    KeepAliveInfo,
    ShutdownInfo,
    RemoveInfo,
    ControlCommand,
    FlushCommand,
    ConnectionErrorCommand,
    ConsumerControl,
    ConnectionControl,
    ProducerAck,
    MessagePull,
    MessageDispatch,
    MessageAck,
    *MESSAGES,
    Response,
    ExceptionResponse,
    DataResponse,
    DataArrayResponse,
    IntegerResponse,
    DiscoveryEvent,
    JournalTopicAck,
    JournalQueueAck,
    JournalTrace,
    JournalTransaction,
    SubscriptionInfo,
    PartialCommand,
    LastPartialCommand,
    ReplayCommand,
    MessageDispatchNotification,
    NetworkBridgeFilter,
    BrokerSubscriptionInfo,
)
"""Every class above that has a data type, by that type."""
