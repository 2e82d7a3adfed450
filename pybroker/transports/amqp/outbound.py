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

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, cast

from pybroker.broker.domain.amqp.errors import AmqpError
from pybroker.broker.domain.amqp.sections import (
    AmqpMessage,
    AmqpMessageHeader,
    AmqpMessageProperties,
    bare_parts,
    encode_message,
    with_delivery_count,
)
from pybroker.broker.domain.amqp.values import AmqpValue, Symbol
from pybroker.broker.domain.errors import MalformedData
from pybroker.broker.domain.message import PRIORITY_DEFAULT, Message
from pybroker.broker.domain.openwire.java_text import java_text
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, view
from pybroker.broker.domain.openwire.values import Value, encode_map
from pybroker.broker.domain.ports import Clock
from pybroker.transports.amqp import names
from pybroker.transports.amqp.message_ids import id_of_text
from pybroker.transports.amqp.outbound_bodies import advisory_type, amqp_body

_UINT_MAX: Final = 2**32 - 1

_REDELIVERY_DELAY: Final = "redeliveryDelay"
"""The property of a message that the broker has sent again: the count of a delivery includes the earlier ones."""

_COUNT_BYTES: Final = 4
_NATIVE_ENTRY: Final = encode_map({names.NATIVE: True})[_COUNT_BYTES:]
_NATIVE_NAME: Final = names.NATIVE.encode()
_FORMAT_NAME: Final = names.MESSAGE_FORMAT.encode()


class RenderedTransfer(NamedTuple):
    """The content of a transfer.

    Attributes:
        payload: the encoded sections.
        message_format: the transfer's message format.
    """

    payload: bytes
    message_format: int


class MessageWriter:
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
            return self._made(message, fields, redelivery_count) if native is None else native
        except MalformedData as error:
            raise AmqpError(f"{message.message_id} cannot be sent by AMQP: {error}") from error

    def _native(self, fields: OpenWireMessage, redelivery_count: int) -> RenderedTransfer | None:
        """Return the body of a native message; None if it is no AMQP message."""
        payload = fields.body_bytes(self._body_bytes_max)
        try:
            bare_parts(payload)
            if redelivery_count > 0:
                payload = with_delivery_count(payload, _delivery_count(fields, redelivery_count))
        except AmqpError:
            return None
        has_format = _FORMAT_NAME in (fields.marshalled_properties or b"")
        return RenderedTransfer(payload, _message_format(fields.properties) if has_format else 0)

    def _made(self, message: Message, fields: OpenWireMessage, redelivery_count: int) -> RenderedTransfer:
        properties = fields.properties
        made = AmqpMessage()
        made.body_kind, made.body = amqp_body(fields, properties, self._body_bytes_max)
        made.header = self._header(message, fields, redelivery_count)
        made.properties = _properties(message, fields)
        annotations: dict[AmqpValue, AmqpValue] = {}
        application_properties: dict[AmqpValue, AmqpValue] = {}
        for name, value in properties.items():
            if name.startswith(names.PREFIX):
                if not _restore(made, annotations, name, value):
                    application_properties[name] = cast("AmqpValue", value)
            elif not name.startswith(names.SCHEDULED):
                application_properties[name] = cast("AmqpValue", value)
        if fields.type is MessageType.OBJECT and made.properties.content_type is None:
            made.properties.content_type = names.JAVA_OBJECT
        annotations[_JMS_DESTINATION] = names.kind_of(message.destination)
        if fields.reply_to is not None:
            annotations[_JMS_REPLY_TO] = names.kind_of(fields.reply_to)
        made.message_annotations = annotations
        if fields.data_structure is not None:
            application_properties[names.DATA_STRUCTURE_TYPE] = advisory_type(fields)
        made.application_properties = application_properties or None
        return RenderedTransfer(encode_message(made), _message_format(properties))

    def _header(self, message: Message, fields: OpenWireMessage, redelivery_count: int) -> AmqpMessageHeader | None:
        count = _delivery_count(fields, redelivery_count)
        if not (message.persistent or message.priority != PRIORITY_DEFAULT or message.expiration or count):
            return None
        header = AmqpMessageHeader()
        if message.persistent:
            header.durable = True
        if message.priority != PRIORITY_DEFAULT:
            header.priority = message.priority
        if message.expiration:
            header.ttl = min(max(message.expiration - self._clock(), 1), _UINT_MAX)
        if count:
            header.delivery_count = count
        return header


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
    return _NATIVE_ENTRY in marshalled or _is_true(fields.properties.get(names.NATIVE)) is True


def _is_true(value: Value) -> bool | None:
    """Return the boolean that Java makes of a property; None if it makes none."""
    if isinstance(value, bool):
        return value
    return value.lower() == "true" if isinstance(value, str) else None


def _delivery_count(fields: OpenWireMessage, redelivery_count: int) -> int:
    """Return the number of earlier deliveries: those that the message's client counted, and those of the broker."""
    counted = fields.redelivery_counter
    if counted > 0 and _REDELIVERY_DELAY not in fields.properties:
        redelivery_count += counted
    return min(redelivery_count, _UINT_MAX)


def _message_format(properties: Mapping[str, Value]) -> int:
    value = properties.get(names.MESSAGE_FORMAT)
    return value if isinstance(value, int) and 0 <= value <= _UINT_MAX else 0


def _properties(message: Message, fields: OpenWireMessage) -> AmqpMessageProperties:
    """Return the section with the fields of JMS."""
    made = AmqpMessageProperties()
    message_id = fields.message_id
    if message_id is not None:
        text = message_id.text_view
        made.message_id = str(message_id) if text is None else id_of_text(text)
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
    return made


# ---------------------------------------------------------------- properties that keep parts of an AMQP message


def _restore(message: AmqpMessage, annotations: dict[AmqpValue, AmqpValue], name: str, value: Value) -> bool:
    """Put a property back where it came from; return False for one that came from nowhere else."""
    restore = _RESTORERS.get(name)
    if restore is not None:
        restore(message, value)
    elif name.startswith(names.MESSAGE_ANNOTATION):
        annotations[_symbol(name[len(names.MESSAGE_ANNOTATION) :])] = cast("AmqpValue", value)
    elif name.startswith(names.DELIVERY_ANNOTATION):
        message.delivery_annotations = message.delivery_annotations or {}
        message.delivery_annotations[_symbol(name[len(names.DELIVERY_ANNOTATION) :])] = cast("AmqpValue", value)
    elif name.startswith(names.FOOTER):
        message.footer = message.footer or {}
        message.footer[_symbol(name[len(names.FOOTER) :])] = cast("AmqpValue", value)
    else:
        return False
    return True


def _leave_out(_: AmqpMessage, __: Value) -> None:
    """Ignore a property that describes the conversion."""


def _restore_header(message: AmqpMessage, _: Value) -> None:
    message.header = message.header or AmqpMessageHeader()


def _restore_first_acquirer(message: AmqpMessage, value: Value) -> None:
    found = _is_true(value)
    if found is not None:
        message.header = message.header or AmqpMessageHeader()
        message.header.first_acquirer = found


def _restore_content_type(message: AmqpMessage, value: Value) -> None:
    assert message.properties is not None, "each message has some"
    message.properties.content_type = _symbol(java_text(value))


def _restore_content_encoding(message: AmqpMessage, value: Value) -> None:
    assert message.properties is not None, "each message has some"
    message.properties.content_encoding = _symbol(java_text(value))


def _restore_reply_to_group_id(message: AmqpMessage, value: Value) -> None:
    assert message.properties is not None, "each message has some"
    message.properties.reply_to_group_id = java_text(value)


_RESTORERS: Final[Mapping[str, Callable[[AmqpMessage, Any], None]]] = {
    names.NATIVE: _leave_out,
    names.ORIGINAL_ENCODING: _leave_out,
    names.MESSAGE_FORMAT: _leave_out,
    names.PROPERTIES: _leave_out,
    names.HEADER: _restore_header,
    names.FIRST_ACQUIRER: _restore_first_acquirer,
    names.CONTENT_TYPE: _restore_content_type,
    names.CONTENT_ENCODING: _restore_content_encoding,
    names.REPLY_TO_GROUP_ID: _restore_reply_to_group_id,
}


def _symbol(text: str) -> Symbol:
    """Return a symbol, which is ASCII: other characters become `?`, as in Java."""
    return Symbol(text if text.isascii() else text.encode("ascii", "replace").decode())
