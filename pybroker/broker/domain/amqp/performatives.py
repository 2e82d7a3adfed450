"""AMQP's composite types but the sections of messages: performatives, termini, delivery states, SASL frames.

The declarations are the schema: `composites` compiles readers and writers from them. A field that is null or absent is
None; defaults of the standard are not filled in. Integers are plain ints.

Source: AMQP 1.0, 2.7 "Performatives", 2.8.14 "Error", 3.4 "Delivery State", 3.5 "Sources and Targets", 4.5
"Coordination", 5.3 "SASL".
"""

# ruff: noqa: RUF009 -- the calls in these defaults are field specifiers, as `dataclasses.field` is

from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

from pybroker.broker.domain.amqp.schema import (
    DELIVERY_STATES,
    OUTCOMES,
    binary,
    boolean,
    composite,
    mapping,
    string,
    symbol,
    symbols,
    ubyte,
    uint,
    ulong,
    ushort,
)
from pybroker.broker.domain.amqp.values import AmqpDescribed, AmqpValue, Symbol

AmqpFields: TypeAlias = dict[AmqpValue, AmqpValue]
"""A map whose keys are symbols: properties, filters, annotations, the info of an error."""

# ---------------------------------------------------------------- errors and delivery states


@dataclass(slots=True, kw_only=True)
class AmqpErrorCondition:
    """error: the reason for which a link, session or connection ends, or a delivery is rejected."""

    DESCRIPTOR: ClassVar = 0x1D
    NAME: ClassVar = "amqp:error:list"
    condition: Symbol = symbol(mandatory=True)
    description: str | None = string()
    info: AmqpFields | None = mapping()


@dataclass(slots=True, kw_only=True)
class AmqpReceived:
    """received: how much of a delivery has come."""

    DESCRIPTOR: ClassVar = 0x23
    NAME: ClassVar = "amqp:received:list"
    section_number: int = uint(mandatory=True)
    section_offset: int = ulong(mandatory=True)


@dataclass(slots=True, kw_only=True)
class AmqpAccepted:
    """accepted: the delivery is done with."""

    DESCRIPTOR: ClassVar = 0x24
    NAME: ClassVar = "amqp:accepted:list"


@dataclass(slots=True, kw_only=True)
class AmqpRejected:
    """rejected: the message is invalid, and can never be processed."""

    DESCRIPTOR: ClassVar = 0x25
    NAME: ClassVar = "amqp:rejected:list"
    error: AmqpErrorCondition | None = composite("AmqpErrorCondition", is_open=False)


@dataclass(slots=True, kw_only=True)
class AmqpReleased:
    """released: the message was not, and will not be, acted upon."""

    DESCRIPTOR: ClassVar = 0x26
    NAME: ClassVar = "amqp:released:list"


@dataclass(slots=True, kw_only=True)
class AmqpModified:
    """modified: the message was not processed, and is to be changed."""

    DESCRIPTOR: ClassVar = 0x27
    NAME: ClassVar = "amqp:modified:list"
    delivery_failed: bool | None = boolean()
    undeliverable_here: bool | None = boolean()
    message_annotations: AmqpFields | None = mapping()


@dataclass(slots=True, kw_only=True)
class AmqpDeclare:
    """declare: begins a transaction; the body of a message to the coordinator."""

    DESCRIPTOR: ClassVar = 0x31
    NAME: ClassVar = "amqp:declare:list"
    global_id: AmqpDescribed | None = composite()


@dataclass(slots=True, kw_only=True)
class AmqpDischarge:
    """discharge: ends a transaction; the body of a message to the coordinator."""

    DESCRIPTOR: ClassVar = 0x32
    NAME: ClassVar = "amqp:discharge:list"
    txn_id: bytes = binary(mandatory=True)
    fail: bool | None = boolean()


@dataclass(slots=True, kw_only=True)
class AmqpDeclared:
    """declared: the outcome of a declare."""

    DESCRIPTOR: ClassVar = 0x33
    NAME: ClassVar = "amqp:declared:list"
    txn_id: bytes = binary(mandatory=True)


AmqpOutcome: TypeAlias = AmqpAccepted | AmqpRejected | AmqpReleased | AmqpModified | AmqpDeclared
"""The final state of a delivery."""


@dataclass(slots=True, kw_only=True)
class AmqpTransactionalState:
    """transactional-state: the delivery, or its outcome, belongs to a transaction."""

    DESCRIPTOR: ClassVar = 0x34
    NAME: ClassVar = "amqp:transactional-state:list"
    txn_id: bytes = binary(mandatory=True)
    outcome: AmqpOutcome | AmqpDescribed | None = composite(*OUTCOMES)


AmqpDeliveryState: TypeAlias = AmqpOutcome | AmqpReceived | AmqpTransactionalState | AmqpDescribed
"""A delivery's state; one that AMQP does not define stays an `AmqpDescribed`."""

# ---------------------------------------------------------------- termini


@dataclass(slots=True, kw_only=True)
class AmqpSource:
    """source: what a link takes its messages from."""

    DESCRIPTOR: ClassVar = 0x28
    NAME: ClassVar = "amqp:source:list"
    address: str | None = string()
    durable: int | None = uint()
    expiry_policy: Symbol | None = symbol()
    timeout: int | None = uint()
    dynamic: bool | None = boolean()
    dynamic_node_properties: AmqpFields | None = mapping()
    distribution_mode: Symbol | None = symbol()
    filter: AmqpFields | None = mapping()
    default_outcome: AmqpOutcome | AmqpDescribed | None = composite(*OUTCOMES)
    outcomes: tuple[Symbol, ...] | None = symbols()
    capabilities: tuple[Symbol, ...] | None = symbols()


@dataclass(slots=True, kw_only=True)
class AmqpTarget:
    """target: what a link brings its messages to."""

    DESCRIPTOR: ClassVar = 0x29
    NAME: ClassVar = "amqp:target:list"
    address: str | None = string()
    durable: int | None = uint()
    expiry_policy: Symbol | None = symbol()
    timeout: int | None = uint()
    dynamic: bool | None = boolean()
    dynamic_node_properties: AmqpFields | None = mapping()
    capabilities: tuple[Symbol, ...] | None = symbols()


@dataclass(slots=True, kw_only=True)
class AmqpCoordinator:
    """coordinator: the target of a link that controls transactions."""

    DESCRIPTOR: ClassVar = 0x30
    NAME: ClassVar = "amqp:coordinator:list"
    capabilities: tuple[Symbol, ...] | None = symbols()


# ---------------------------------------------------------------- performatives


@dataclass(slots=True, kw_only=True)
class AmqpOpen:
    """open: begins a connection."""

    DESCRIPTOR: ClassVar = 0x10
    NAME: ClassVar = "amqp:open:list"
    container_id: str = string(mandatory=True)
    hostname: str | None = string()
    max_frame_size: int | None = uint()
    channel_max: int | None = ushort()
    idle_time_out: int | None = uint()
    outgoing_locales: tuple[Symbol, ...] | None = symbols()
    incoming_locales: tuple[Symbol, ...] | None = symbols()
    offered_capabilities: tuple[Symbol, ...] | None = symbols()
    desired_capabilities: tuple[Symbol, ...] | None = symbols()
    properties: AmqpFields | None = mapping()


@dataclass(slots=True, kw_only=True)
class AmqpBegin:
    """begin: begins a session."""

    DESCRIPTOR: ClassVar = 0x11
    NAME: ClassVar = "amqp:begin:list"
    remote_channel: int | None = ushort()
    next_outgoing_id: int = uint(mandatory=True)
    incoming_window: int = uint(mandatory=True)
    outgoing_window: int = uint(mandatory=True)
    handle_max: int | None = uint()
    offered_capabilities: tuple[Symbol, ...] | None = symbols()
    desired_capabilities: tuple[Symbol, ...] | None = symbols()
    properties: AmqpFields | None = mapping()


@dataclass(slots=True, kw_only=True)
class AmqpAttach:
    """attach: begins a link. `role` is True for a receiver."""

    DESCRIPTOR: ClassVar = 0x12
    NAME: ClassVar = "amqp:attach:list"
    name: str = string(mandatory=True)
    handle: int = uint(mandatory=True)
    role: bool = boolean(mandatory=True)
    snd_settle_mode: int | None = ubyte()
    rcv_settle_mode: int | None = ubyte()
    source: AmqpSource | AmqpDescribed | None = composite("AmqpSource")
    target: AmqpTarget | AmqpCoordinator | AmqpDescribed | None = composite("AmqpTarget", "AmqpCoordinator")
    unsettled: AmqpFields | None = mapping()
    incomplete_unsettled: bool | None = boolean()
    initial_delivery_count: int | None = uint()
    max_message_size: int | None = ulong()
    offered_capabilities: tuple[Symbol, ...] | None = symbols()
    desired_capabilities: tuple[Symbol, ...] | None = symbols()
    properties: AmqpFields | None = mapping()


@dataclass(slots=True, kw_only=True)
class AmqpFlow:
    """flow: the state of a session's windows, and of a link's credit if it has a handle."""

    DESCRIPTOR: ClassVar = 0x13
    NAME: ClassVar = "amqp:flow:list"
    next_incoming_id: int | None = uint()
    incoming_window: int = uint(mandatory=True)
    next_outgoing_id: int = uint(mandatory=True)
    outgoing_window: int = uint(mandatory=True)
    handle: int | None = uint()
    delivery_count: int | None = uint()
    link_credit: int | None = uint()
    available: int | None = uint()
    drain: bool | None = boolean()
    echo: bool | None = boolean()
    properties: AmqpFields | None = mapping()


@dataclass(slots=True, kw_only=True)
class AmqpTransfer:
    """transfer: a delivery, or a part of one; the payload of its frame is that of the message."""

    DESCRIPTOR: ClassVar = 0x14
    NAME: ClassVar = "amqp:transfer:list"
    handle: int = uint(mandatory=True)
    delivery_id: int | None = uint()
    delivery_tag: bytes | None = binary()
    message_format: int | None = uint()
    settled: bool | None = boolean()
    more: bool | None = boolean()
    rcv_settle_mode: int | None = ubyte()
    state: AmqpDeliveryState | None = composite(*DELIVERY_STATES)
    resume: bool | None = boolean()
    aborted: bool | None = boolean()
    batchable: bool | None = boolean()


@dataclass(slots=True, kw_only=True)
class AmqpDisposition:
    """disposition: the state of deliveries `first` to `last`. `role` is True if they were received."""

    DESCRIPTOR: ClassVar = 0x15
    NAME: ClassVar = "amqp:disposition:list"
    role: bool = boolean(mandatory=True)
    first: int = uint(mandatory=True)
    last: int | None = uint()
    settled: bool | None = boolean()
    state: AmqpDeliveryState | None = composite(*DELIVERY_STATES)
    batchable: bool | None = boolean()


@dataclass(slots=True, kw_only=True)
class AmqpDetach:
    """detach: ends a link, or interrupts it if it is not closed."""

    DESCRIPTOR: ClassVar = 0x16
    NAME: ClassVar = "amqp:detach:list"
    handle: int = uint(mandatory=True)
    closed: bool | None = boolean()
    error: AmqpErrorCondition | None = composite("AmqpErrorCondition", is_open=False)


@dataclass(slots=True, kw_only=True)
class AmqpEnd:
    """end: ends a session."""

    DESCRIPTOR: ClassVar = 0x17
    NAME: ClassVar = "amqp:end:list"
    error: AmqpErrorCondition | None = composite("AmqpErrorCondition", is_open=False)


@dataclass(slots=True, kw_only=True)
class AmqpClose:
    """close: ends a connection."""

    DESCRIPTOR: ClassVar = 0x18
    NAME: ClassVar = "amqp:close:list"
    error: AmqpErrorCondition | None = composite("AmqpErrorCondition", is_open=False)


# ---------------------------------------------------------------- SASL


@dataclass(slots=True, kw_only=True)
class SaslMechanisms:
    """sasl-mechanisms: what the server offers."""

    DESCRIPTOR: ClassVar = 0x40
    NAME: ClassVar = "amqp:sasl-mechanisms:list"
    sasl_server_mechanisms: tuple[Symbol, ...] = symbols(mandatory=True)


@dataclass(slots=True, kw_only=True)
class SaslInit:
    """sasl-init: what the client has chosen, and its first response."""

    DESCRIPTOR: ClassVar = 0x41
    NAME: ClassVar = "amqp:sasl-init:list"
    mechanism: Symbol = symbol(mandatory=True)
    initial_response: bytes | None = binary(is_secret=True)
    hostname: str | None = string()


@dataclass(slots=True, kw_only=True)
class SaslChallenge:
    """sasl-challenge: what the server asks."""

    DESCRIPTOR: ClassVar = 0x42
    NAME: ClassVar = "amqp:sasl-challenge:list"
    challenge: bytes = binary(mandatory=True, is_secret=True)


@dataclass(slots=True, kw_only=True)
class SaslResponse:
    """sasl-response: what the client answers."""

    DESCRIPTOR: ClassVar = 0x43
    NAME: ClassVar = "amqp:sasl-response:list"
    response: bytes = binary(mandatory=True, is_secret=True)


@dataclass(slots=True, kw_only=True)
class SaslOutcome:
    """sasl-outcome: the end of the exchange. Code 0 is success, 1 means that the login is refused."""

    DESCRIPTOR: ClassVar = 0x44
    NAME: ClassVar = "amqp:sasl-outcome:list"
    code: int = ubyte(mandatory=True)
    additional_data: bytes | None = binary(is_secret=True)


AmqpPerformative: TypeAlias = (
    AmqpOpen | AmqpBegin | AmqpAttach | AmqpFlow | AmqpTransfer | AmqpDisposition | AmqpDetach | AmqpEnd | AmqpClose
)
"""The performatives of AMQP frames (type 0); those of SASL frames are `SaslPerformative`."""

SaslPerformative: TypeAlias = SaslMechanisms | SaslInit | SaslChallenge | SaslResponse | SaslOutcome
"""The content of a frame of type SASL."""

COMPOSITES: Final[tuple[type[Any], ...]] = (
    AmqpOpen,
    AmqpBegin,
    AmqpAttach,
    AmqpFlow,
    AmqpTransfer,
    AmqpDisposition,
    AmqpDetach,
    AmqpEnd,
    AmqpClose,
    AmqpErrorCondition,
    AmqpReceived,
    AmqpAccepted,
    AmqpRejected,
    AmqpReleased,
    AmqpModified,
    AmqpSource,
    AmqpTarget,
    AmqpCoordinator,
    AmqpDeclare,
    AmqpDischarge,
    AmqpDeclared,
    AmqpTransactionalState,
    SaslMechanisms,
    SaslInit,
    SaslChallenge,
    SaslResponse,
    SaslOutcome,
)
"""All of them."""
