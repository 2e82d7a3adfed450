"""Attaches links: the termini of an attach as requests to the core, and the broker's answers.

```text
 client's role   terminus                                  becomes
 sender          target with an address                    a producer
 sender          no target, or one without an address      a producer that names a destination in each message
 sender          coordinator                               the controller of transactions
 receiver        source with an address                    a consumer
 receiver        durable source of a topic                 a durable subscription: container id, name of the link
 receiver        no source                                 the durable subscription that has the link's name
 both            dynamic terminus                          a temporary destination, which lives as long as the link
```

A refused link is attached without its source or target, and detached at once with the error: the session goes on.

Source: AMQP 1.0, 2.6.3, 3.5, 4.2; "AMQP Filter Expressions" and "AMQP JMS Mapping" for filters; ActiveMQ 5.17 for
addresses, options, durable subscriptions and texts of errors.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, Protocol
from urllib.parse import parse_qsl

from pybroker.broker.domain.amqp.errors import AmqpError
from pybroker.broker.domain.amqp.performatives import (
    AmqpAttach,
    AmqpCoordinator,
    AmqpDeliveryState,
    AmqpDetach,
    AmqpFields,
    AmqpSource,
    AmqpTarget,
)
from pybroker.broker.domain.amqp.values import AmqpDescribed, Symbol, UnsignedLong
from pybroker.broker.domain.destination import (
    NAME_MAX,
    Destination,
    DestinationType,
    parts_to_consume,
)
from pybroker.broker.domain.errors import BrokerError, DestinationDoesNotExist, RequestError
from pybroker.broker.domain.openwire.ids import ProducerId
from pybroker.broker.domain.security import AccessDenied
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.transports.amqp.coordinator import CoordinatorLink
from pybroker.transports.amqp.inbound import TransferReader
from pybroker.transports.amqp.incoming import IncomingLink, IncomingSession
from pybroker.transports.amqp.links import AmqpLink, detach
from pybroker.transports.amqp.names import address_of, parse_address
from pybroker.transports.amqp.outgoing import OutgoingLink, OutgoingSession
from pybroker.transports.amqp.peer import AmqpPeer
from pybroker.transports.amqp.refusals import (
    INVALID_FIELD,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    LinkRefused,
)
from pybroker.transports.amqp.transactions import AmqpTransactions

_log = logging.getLogger(__name__)

_SETTLED: Final = 1
"""The snd-settle-mode of links whose deliveries are settled when they are sent."""
_MIXED: Final = 2
_FIRST: Final = 0
"""The rcv-settle-mode in which the receiver settles when it has processed."""

_SESSION_ID: Final = -1
"""The number of the session in ids of producers, which are numbered in their connection."""

SELECTOR: Final = ("apache.org:selector-filter:string", 0x0000_468C_0000_0004)
NO_LOCAL: Final = ("apache.org:no-local-filter:list", 0x0000_468C_0000_0003)
"""The descriptors of filters, as symbol and as number."""

_SELECTOR_KEY: Final = "jms-selector"
_NO_LOCAL_KEY: Final = "no-local"
_COPY: Final = "copy"
_UNSETTLED_STATE: Final = 2
_NEVER: Final = "never"
_SESSION_END: Final = "session-end"

_DELETE_ON_CLOSE: Final = 0x2B
_DYNAMIC_KINDS: Final = {
    DestinationType.TEMP_QUEUE: "temporary-queue",
    DestinationType.TEMP_TOPIC: "temporary-topic",
}
_DELAYED_DELIVERY: Final = "DELAYED_DELIVERY"

_FLAGS: Final = {"exclusive": "exclusive", "retroactive": "retroactive", "noLocal": "no_local", "browser": "browser"}
_NUMBERS: Final = {"priority": ("priority", -128, 127), "maximumPendingMessageLimit": ("pending_limit", 0, 2**31 - 1)}
_WITHOUT_EFFECT: Final = frozenset(
    ("prefetchSize", "dispatchAsync", "optimizedAcknowledge", "noRangeAcks", "networkSubscription")
)
_CONSUMER: Final = "consumer."


class AttachingSession(IncomingSession, OutgoingSession, Protocol):
    """A session to which links are attached."""

    def put(self, link: AmqpLink) -> None:
        """Add a link, in the place of the one that was reserved for it."""
        ...

    def send(self, performative: AmqpAttach | AmqpDetach) -> None:
        """Send a frame of this session; do nothing once it has ended."""
        ...

    def when_detached(self, callback: Callable[[], None]) -> None:
        """Call back once all detaches of the client are answered: it may use their handles again before that."""
        ...


def attach_link(session: AttachingSession, peer: AmqpPeer, transactions: AmqpTransactions, attach: AmqpAttach) -> None:
    """Attach a link, or refuse it, and answer."""
    try:
        if len(attach.name) > NAME_MAX:
            raise LinkRefused(
                f"The name of a link has {len(attach.name)} characters: {NAME_MAX} are allowed", INVALID_FIELD
            )
        if attach.role:
            _attach_receiver(session, peer, attach)
        elif isinstance(attach.target, AmqpCoordinator):
            _attach_coordinator(session, peer, transactions, attach)
        else:
            _attach_sender(session, peer, attach)
    except DestinationDoesNotExist:
        condition = INVALID_FIELD if attach.role else PRECONDITION_FAILED
        _refuse(session, peer, attach, LinkRefused("Not a broker created temp destination", condition))
    except (RequestError, AmqpError) as error:
        _refuse(session, peer, attach, error)


def _refuse(session: AttachingSession, peer: AmqpPeer, attach: AmqpAttach, error: BrokerError) -> None:
    if not isinstance(error, AccessDenied):  # which has a line in the audit log
        _log.info("%s: attach of the link %r refused: %s", peer.connection.connection_id, attach.name[:100], error)
    answer = _answer(attach)
    if attach.role:
        answer.source = None
    else:
        answer.target = None
    session.when_detached(partial(_send_refusal, session, answer, detach(attach.handle, is_closed=True, error=error)))


def _send_refusal(session: AttachingSession, answer: AmqpAttach, ending: AmqpDetach) -> None:
    session.send(answer)
    session.send(ending)


def _answer(attach: AmqpAttach) -> AmqpAttach:
    """Return the broker's attach, with the client's termini."""
    return AmqpAttach(
        name=attach.name,
        handle=attach.handle,
        role=not attach.role,
        snd_settle_mode=_MIXED if attach.snd_settle_mode is None else attach.snd_settle_mode,
        rcv_settle_mode=_FIRST,
        source=attach.source,
        target=attach.target,
        initial_delivery_count=0 if attach.role else None,
    )


# ---------------------------------------------------------------- the client sends


def _attach_sender(session: AttachingSession, peer: AmqpPeer, attach: AmqpAttach) -> None:
    target = attach.target
    if target is None:
        target = AmqpTarget()
    if not isinstance(target, AmqpTarget):
        raise LinkRefused("The target is of an unknown kind", NOT_IMPLEMENTED)
    temporary: Destination | None = None
    if target.dynamic:
        temporary = _create_temporary(peer, target.capabilities)
        target = replace(
            target,
            address=address_of(temporary),
            expiry_policy=Symbol(_SESSION_END),
            dynamic_node_properties=_lifetime(),
            capabilities=(Symbol(_DYNAMIC_KINDS[temporary.type]),),
        )
    destination = temporary
    if target.address and temporary is None:
        destination = parse_address(target.address, target.capabilities or ())
    number = peer.producer_value()
    producer_id = ProducerId(peer.connection.connection_id, _SESSION_ID, number)
    try:
        peer.connection.add_producer(producer_id, destination)
    except BaseException:
        if temporary is not None:
            peer.connection.remove_destination(temporary)
        raise
    link = IncomingLink(
        attach.handle,
        attach.name,
        session,
        peer,
        destination=destination,
        reader=TransferReader(
            peer.connection.connection_id,
            peer.clock,
            peer.next_sequence,
            peer.transformer,
            producer_value=number,
            session_id=_SESSION_ID,
            removes_user=peer.has_login,
        ),
        producer_id=producer_id,
        temporary=temporary,
        delivery_count=attach.initial_delivery_count or 0,
    )
    session.put(link)
    answer = _answer(attach)
    answer.target = target
    answer.max_message_size = peer.limits.message_bytes_max
    if _DELAYED_DELIVERY in (attach.desired_capabilities or ()):
        answer.offered_capabilities = (Symbol(_DELAYED_DELIVERY),)
    session.when_detached(partial(_begin, session, link, answer))


def _attach_coordinator(
    session: AttachingSession, peer: AmqpPeer, transactions: AmqpTransactions, attach: AmqpAttach
) -> None:
    link = CoordinatorLink(
        attach.handle, attach.name, session, peer, transactions, delivery_count=attach.initial_delivery_count or 0
    )
    session.put(link)
    session.when_detached(partial(_begin, session, link, _answer(attach)))


# ---------------------------------------------------------------- the client receives


def _attach_receiver(session: AttachingSession, peer: AmqpPeer, attach: AmqpAttach) -> None:
    source = attach.source
    if source is None:
        source = _source_of_durable(peer, attach.name)
    if not isinstance(source, AmqpSource):
        raise LinkRefused("The source is of an unknown kind", NOT_IMPLEMENTED)
    temporary: Destination | None = None
    if source.dynamic:
        temporary = _create_temporary(peer, source.capabilities)
        source = replace(
            source,
            address=address_of(temporary),
            expiry_policy=Symbol(_SESSION_END),
            dynamic_node_properties=_lifetime(),
            capabilities=(Symbol(_DYNAMIC_KINDS[temporary.type]),),
        )
    try:
        _subscribe(session, peer, attach, source, temporary)
    except BaseException:
        if temporary is not None:
            peer.connection.remove_destination(temporary)
        raise


def _subscribe(
    session: AttachingSession, peer: AmqpPeer, attach: AmqpAttach, source: AmqpSource, temporary: Destination | None
) -> None:
    if not source.address:
        raise LinkRefused("source address not set", INVALID_FIELD)
    destination = temporary or parse_address(source.address, source.capabilities or ())
    filters = _filters(source.filter)
    request = _request(attach, source, destination, filters)
    connection = peer.connection
    link = OutgoingLink(
        attach.handle,
        attach.name,
        session,
        peer,
        is_presettled=attach.snd_settle_mode == _SETTLED,
        is_counted=request.is_counted,
        default_outcome=_outcome(source.default_outcome),
        message_bytes_max=attach.max_message_size or None,
        durable_name=request.subscription_name,
        temporary=temporary,
    )
    link.consumer = connection.subscribe(request, link.deliver)
    session.put(link)
    answer = _answer(attach)
    answer.source = replace(source, filter=filters.recognised or None, outcomes=None)
    begin = partial(_begin, session, link, answer)
    if request.subscription_name is None:
        connection.when_carried_out(partial(session.when_detached, begin))
    else:
        connection.when_durable(begin)


def _begin(session: AttachingSession, link: IncomingLink | CoordinatorLink | OutgoingLink, answer: AmqpAttach) -> None:
    """Answer, and begin, unless the client has detached meanwhile: that has an answer behind this one."""
    session.send(answer)
    link.start()


def _outcome(state: object) -> AmqpDeliveryState | None:
    return state if isinstance(state, AmqpDeliveryState) else None


def _request(attach: AmqpAttach, source: AmqpSource, destination: Destination, filters: "_Filters") -> ConsumerRequest:
    first, *others = parts_to_consume(destination)
    is_durable = bool(source.durable) and first.type is DestinationType.TOPIC
    request = ConsumerRequest(
        destination=first,
        composite=tuple(others),
        prefetch=0,
        selector=filters.selector,
        subscription_name=attach.name if is_durable else None,
        no_local=filters.no_local,
        browser=source.distribution_mode == _COPY and first.is_queue,
    )
    return _with_options(request, source.address or "")


def _with_options(request: ConsumerRequest, address: str) -> ConsumerRequest:
    """Return a request with the options of an address, `?consumer.exclusive=true`.

    Raises:
        LinkRefused: some are unknown, or have values that they cannot have.
    """
    options = address.partition("?")[2]
    if _CONSUMER not in options:
        return request
    changes: dict[str, bool | int] = {}
    unknown: list[str] = []
    for name, value in parse_qsl(options, keep_blank_values=True):
        if not name.startswith(_CONSUMER):
            continue
        option = name.removeprefix(_CONSUMER)
        number = _whole(value)
        if option in _FLAGS and value in ("true", "false"):
            changes[_FLAGS[option]] = value == "true"
        elif option in _NUMBERS and number is not None and _NUMBERS[option][1] <= number <= _NUMBERS[option][2]:
            changes[_NUMBERS[option][0]] = number
        elif option not in _WITHOUT_EFFECT:
            unknown.append(f"{option}={value}"[:200])
    if unknown:
        raise LinkRefused(
            f"There are {len(unknown)} consumer options that couldn't be set on the consumer. Check the options are "
            f"spelled correctly. Unknown parameters=[{{{', '.join(unknown)}}}]. This consumer cannot be started.",
            INVALID_FIELD,
        )
    return replace(request, **changes)  # type: ignore[arg-type] # each has the type of its attribute


def _whole(text: str) -> int | None:
    digits = text.strip()
    is_number = digits.isascii() and digits.removeprefix("-").isdigit() and len(digits) < 12
    return int(digits) if is_number else None


class _Filters(NamedTuple):
    """The filters of a source that the broker knows.

    Attributes:
        selector: the condition; None for every message.
        no_local: messages of the same connection are left out.
        recognised: the filters as the client has written them.
    """

    selector: str | None
    no_local: bool
    recognised: AmqpFields


def _filters(written: AmqpFields | None) -> _Filters:
    """Read filters. They are recognised by their descriptors; the keys are the client's choice.

    Raises:
        LinkRefused: a selector is no text.
    """
    selector: str | None = None
    no_local = False
    recognised: AmqpFields = {}
    for key, value in (written or {}).items():
        if not isinstance(value, AmqpDescribed) or not isinstance(key, str):
            continue
        if value.descriptor in SELECTOR:
            if not isinstance(value.value, str):
                raise LinkRefused("The filter of a selector is no text", INVALID_FIELD)
            selector = value.value
        elif value.descriptor in NO_LOCAL:
            no_local = True
        else:
            continue
        recognised[key] = value
    return _Filters(selector if selector and not selector.isspace() else None, no_local, recognised)


def _source_of_durable(peer: AmqpPeer, name: str) -> AmqpSource:
    """Return the source of a durable subscription that a client attaches again by its name alone.

    Raises:
        LinkRefused: there is none.
    """
    for info in peer.connection.durable_subscriptions():
        if info.name == name:
            filters: AmqpFields = {}
            if info.selector:
                filters[Symbol(_SELECTOR_KEY)] = AmqpDescribed(Symbol(SELECTOR[0]), info.selector)
            if info.no_local:
                filters[Symbol(_NO_LOCAL_KEY)] = AmqpDescribed(Symbol(NO_LOCAL[0]), "NoLocalFilter{}")
            return AmqpSource(
                address=address_of(info.subscribed_destination),
                durable=_UNSETTLED_STATE,
                expiry_policy=Symbol(_NEVER),
                distribution_mode=Symbol(_COPY),
                filter=filters or None,
            )
    raise LinkRefused(f"Unknown subscription link: {name[:200]}", NOT_FOUND)


# ---------------------------------------------------------------- dynamic nodes


def _create_temporary(peer: AmqpPeer, capabilities: tuple[Symbol, ...] | None) -> Destination:
    is_topic = "temporary-topic" in (capabilities or ())
    return peer.connection.create_temporary(DestinationType.TEMP_TOPIC if is_topic else DestinationType.TEMP_QUEUE)


def _lifetime() -> AmqpFields:
    """Return the properties of a node that lives as long as its link."""
    return {Symbol("lifetime-policy"): AmqpDescribed(UnsignedLong(_DELETE_ON_CLOSE), [])}
