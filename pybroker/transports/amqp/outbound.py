"""Messages as the payloads of transfers.

Source: ActiveMQ 5.17, AMQP transport: the body of a native or raw message is sent bit by bit as it came, unless its
header has to count earlier deliveries. Of any other message, sections are made:

```text
header                   durable, priority if not 4, ttl, delivery-count; first-acquirer from its property
delivery-annotations     JMS_AMQP_DA_<key>
message-annotations      x-opt-jms-dest, x-opt-jms-reply-to, JMS_AMQP_MA_<key>
properties               the fields of JMS, with qualified names of destinations
application-properties   all other properties, without those of the scheduler
body                     as `outbound_bodies` has it
footer                   JMS_AMQP_FT_<key>
```

Unlike in ActiveMQ, a message that only claims to be native is sent as any other message.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final, NamedTuple

from pybroker.broker.domain.amqp.errors import AmqpError
from pybroker.broker.domain.amqp.sections import (
    AmqpMessage,
    AmqpMessageHeader,
    AmqpMessageProperties,
    encode_message,
    require_sections,
    with_delivery_count,
)
from pybroker.broker.domain.amqp.values import AmqpValue, Symbol
from pybroker.broker.domain.destination import DestinationType
from pybroker.broker.domain.errors import MalformedData
from pybroker.broker.domain.message import PRIORITY_DEFAULT, Message
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, view
from pybroker.broker.domain.openwire.values import Value, encode_map
from pybroker.broker.domain.ports import Clock
from pybroker.transports.amqp import names
from pybroker.transports.amqp.message_ids import id_of_text
from pybroker.transports.amqp.outbound_bodies import advisory_type, amqp_body
from pybroker.transports.amqp.restored_sections import RestoredSections, java_boolean, restored_sections

_UINT_MAX: Final = 2**32 - 1

_REDELIVERY_DELAY: Final = "redeliveryDelay"
"""The property of a message that the broker has sent again: the count of a delivery includes the earlier ones."""

_COUNT_BYTES: Final = 4
_NATIVE_ENTRY: Final = encode_map({names.NATIVE: True})[_COUNT_BYTES:]
_NATIVE_NAME: Final = names.NATIVE.encode()
_FORMAT_NAME: Final = names.MESSAGE_FORMAT.encode()


_FORM: Final = object()
"""The form of a rendered message that its fields keep."""


class RenderedTransfer(NamedTuple):
    """The content of a transfer.

    Attributes:
        payload: the encoded sections.
        message_format: the transfer's message format.
    """

    payload: bytes
    message_format: int


class TransferWriter:
    """Renders messages for the links of one connection."""

    __slots__ = ("_body_bytes_max", "_clock")

    def __init__(self, clock: Clock, *, body_bytes_max: int) -> None:
        """Create a writer.

        Args:
            clock: milliseconds since the epoch.
            body_bytes_max: the limit to an inflated body.
        """
        self._clock = clock
        self._body_bytes_max = body_bytes_max

    def render(self, message: Message, redelivery_count: int) -> RenderedTransfer:
        """Return the payload of a transfer, and its message format.

        Args:
            message: the message.
            redelivery_count: how often it may have been delivered before.

        Raises:
            AmqpError: the message cannot be sent by AMQP, now or later: its bytes do not decode, or a value in it has
                no form in AMQP.
        """
        try:
            fields = view(message)
            native = self._native(fields, redelivery_count) if _claims_native(fields) else None
            if native is not None:
                return native
            if message.destination.is_queue or message.expiration or redelivery_count:
                return self._made(message, fields, redelivery_count)
            return self._shared(message, fields)
        except MalformedData as error:
            raise AmqpError(f"{message.message_id} cannot be sent by AMQP: {error}") from error

    def _native(self, fields: OpenWireMessage, redelivery_count: int) -> RenderedTransfer | None:
        """Return the body of a native message; None if it is no AMQP message."""
        payload = fields.body_bytes(self._body_bytes_max)
        try:
            require_sections(payload)
            if redelivery_count > 0:
                payload = with_delivery_count(payload, _delivery_count(fields, redelivery_count))
        except AmqpError:
            return None
        has_format = _FORMAT_NAME in (fields.marshalled_properties or b"")
        return RenderedTransfer(payload, _message_format(fields.properties) if has_format else 0)

    def _shared(self, message: Message, fields: OpenWireMessage) -> RenderedTransfer:
        """Return what is the same for all consumers of a topic; the message keeps it for the next one."""
        rendered = fields.rendered
        if rendered is not None and rendered[0] is _FORM:
            return RenderedTransfer(rendered[2], 0)
        made = self._made(message, fields, 0)
        if not made.message_format and len(made.payload) <= message.size:  # what the cache of fields counts
            fields.rendered = (_FORM, "", made.payload)
        return made

    def _made(self, message: Message, fields: OpenWireMessage, redelivery_count: int) -> RenderedTransfer:
        properties = fields.properties
        body = amqp_body(fields, properties, self._body_bytes_max)
        sections = restored_sections(properties)
        _set_properties(sections.properties, message, fields)
        if fields.data_structure is not None:
            sections.application_properties[names.DATA_STRUCTURE_TYPE] = advisory_type(fields)
        made = AmqpMessage(properties=sections.properties)
        made.application_properties = sections.application_properties or None
        # Most messages have a header and annotations that others have, too.
        shared = self._set_header(made, message, fields, sections, redelivery_count)
        made.delivery_annotations = sections.delivery_annotations or None
        kinds = message.destination.type, None if fields.reply_to is None else fields.reply_to.type
        if sections.message_annotations or made.delivery_annotations or made.header:
            made.message_annotations = sections.message_annotations | _annotations(*kinds)
        else:
            shared += _encoded_annotations(*kinds)
        footer = encode_message(AmqpMessage(footer=sections.footer)) if sections.footer else b""
        payload = b"".join((shared, encode_message(made), body.head, body.rest, footer))
        return RenderedTransfer(payload, _message_format(properties))

    def _set_header(
        self,
        made: AmqpMessage,
        message: Message,
        fields: OpenWireMessage,
        sections: RestoredSections,
        redelivery_count: int,
    ) -> bytes:
        """Set the header, or return it encoded if it is a usual one, or there is none."""
        count = _delivery_count(fields, redelivery_count)
        if not (message.expiration or count or sections.first_acquirer is not None):
            return _encoded_header(message.persistent, message.priority, sections.has_header)
        made.header = header = _header(message.persistent, message.priority)
        header.first_acquirer = sections.first_acquirer
        if message.expiration:
            header.ttl = min(max(message.expiration - self._clock(), 1), _UINT_MAX)
        if count:
            header.delivery_count = count
        return b""


def _header(persistent: bool, priority: int) -> AmqpMessageHeader:
    header = AmqpMessageHeader()
    if persistent:
        header.durable = True
    if priority != PRIORITY_DEFAULT:
        header.priority = priority
    return header


@cache
def _encoded_header(persistent: bool, priority: int, is_there: bool) -> bytes:
    """Return one of the forty usual headers, encoded; nothing if there is nothing to say and it need not be there."""
    if not (persistent or priority != PRIORITY_DEFAULT or is_there):
        return b""
    return encode_message(AmqpMessage(header=_header(persistent, priority)))


def _annotations(destination: DestinationType, reply_to: DestinationType | None) -> dict[AmqpValue, AmqpValue]:
    made: dict[AmqpValue, AmqpValue] = {_JMS_DESTINATION: names.KINDS[destination]}
    if reply_to is not None:
        made[_JMS_REPLY_TO] = names.KINDS[reply_to]
    return made


@cache
def _encoded_annotations(destination: DestinationType, reply_to: DestinationType | None) -> bytes:
    return encode_message(AmqpMessage(message_annotations=_annotations(destination, reply_to)))


_JMS_DESTINATION: Final = Symbol(names.JMS_DESTINATION)
_JMS_REPLY_TO: Final = Symbol(names.JMS_REPLY_TO)


def _claims_native(fields: OpenWireMessage) -> bool:
    """Return True if a property says that the body is an AMQP message.

    It is searched in the encoded properties, so that those of a native message are not decoded. A STOMP client can only
    write it as a text.
    """
    marshalled = fields.marshalled_properties
    if fields.type is not MessageType.BYTES or marshalled is None or _NATIVE_NAME not in marshalled:
        return False
    return _NATIVE_ENTRY in marshalled or java_boolean(fields.properties.get(names.NATIVE)) is True


def _delivery_count(fields: OpenWireMessage, redelivery_count: int) -> int:
    """Return the number of earlier deliveries: those that the message's client counted, and those of the broker."""
    counted = fields.redelivery_counter
    if counted > 0 and _REDELIVERY_DELAY not in fields.properties:
        redelivery_count += counted
    return min(redelivery_count, _UINT_MAX)


def _message_format(properties: Mapping[str, Value]) -> int:
    value = properties.get(names.MESSAGE_FORMAT)
    return value if isinstance(value, int) and 0 <= value <= _UINT_MAX else 0


def _set_properties(made: AmqpMessageProperties, message: Message, fields: OpenWireMessage) -> None:
    """Set the fields of JMS in their section."""
    text = None if fields.message_id is None else fields.message_id.text_view
    made.message_id = message.message_id if text is None else id_of_text(text)
    if fields.user_id is not None:
        made.user_id = fields.user_id.encode(errors="replace")
    made.to = names.address_of(message.destination)
    made.subject = fields.jms_type
    if fields.reply_to is not None:
        made.reply_to = names.address_of(fields.reply_to)
    if fields.correlation_id is not None:
        made.correlation_id = id_of_text(fields.correlation_id)
    if message.expiration:
        made.absolute_expiry_time = message.expiration
    if fields.timestamp:
        made.creation_time = fields.timestamp
    made.group_id = fields.group_id
    if fields.group_sequence > 0:
        made.group_sequence = fields.group_sequence
    if fields.type is MessageType.OBJECT and made.content_type is None:
        made.content_type = names.JAVA_OBJECT
