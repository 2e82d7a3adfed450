"""The fields and properties of a message that AMQP's sections set.

Source: ActiveMQ 5.17, AMQP transport:

```text
header                   durable: persistent; priority, delivery-count, ttl; JMS_AMQP_HEADER, JMS_AMQP_FirstAcquirer
message-annotations      JMS_AMQP_MA_<key>; x-opt-delivery-…: the scheduler's properties
application-properties   properties; JMS's names of fields set these
properties               fields; JMS_AMQP_PROPERTIES, JMS_AMQP_ContentType, …; they overrule application properties
footer                   JMS_AMQP_FT_<key>
```
"""

from collections.abc import Callable, Mapping
from typing import Final

from pybroker.broker.domain.amqp.errors import AmqpError
from pybroker.broker.domain.amqp.sections import AmqpMessage, AmqpMessageHeader, AmqpMessageProperties
from pybroker.broker.domain.amqp.values import AmqpDecimal, AmqpValue, Long
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import PRIORITY_DEFAULT
from pybroker.broker.domain.openwire.java_text import java_text
from pybroker.broker.domain.openwire.message import MessageType
from pybroker.broker.domain.openwire.values import Value
from pybroker.transports.amqp import names
from pybroker.transports.amqp.decimals import number_of
from pybroker.transports.amqp.message_ids import text_of_id
from pybroker.transports.amqp.property_values import JMS_TYPES, key_text, property_value

_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1

_INVALID_FIELD: Final = "amqp:invalid-field"


class TransferFields:
    """The parts of a message, most of which its sections set; the class's attributes are the defaults."""

    type: MessageType = MessageType.BYTES
    content: bytes | None = None
    persistent: bool = False
    priority: int = PRIORITY_DEFAULT
    expiration: int = 0
    timestamp: int = 0
    message_id: str | None = None
    correlation_id: str | None = None
    user_id: str | None = None
    reply_to: Destination | None = None
    jms_type: str | None = None
    group_id: str | None = None
    group_sequence: int = 0
    redelivery_counter: int = 0

    def __init__(self) -> None:
        self.properties: dict[str, Value] = {}

    def populate(self, message: AmqpMessage, now: int) -> None:
        """Set what the sections of a message say.

        Args:
            message: the message.
            now: milliseconds since the epoch.

        Raises:
            AmqpError: a section has a value that JMS has no type for.
            InvalidDestination: the reply-to address is empty.
        """
        header = message.header
        if header is not None:
            self._read_header(header)
        if message.message_annotations:
            self._read_annotations(message.message_annotations, now)
        if message.application_properties:
            self._read_application_properties(message.application_properties)
        if message.properties is not None:
            self._read_properties(message.properties)
        if header is not None and header.ttl and self.expiration == 0:
            self.expiration = now + header.ttl
        if message.footer:
            for key, value in message.footer.items():
                self.properties[names.FOOTER + key_text(key)] = property_value(value)

    def _read_header(self, header: AmqpMessageHeader) -> None:
        properties = self.properties
        properties[names.HEADER] = True
        if header.durable is not None:
            self.persistent = header.durable
        if header.priority is not None:
            # Java makes a signed byte of it, which makes the greatest ones the lowest.
            self.priority = min(header.priority, 9) if header.priority < 128 else 0
        if header.first_acquirer is not None:
            properties[names.FIRST_ACQUIRER] = header.first_acquirer
        if header.delivery_count:
            self.redelivery_counter = min(header.delivery_count, _INT_MAX)

    def _read_annotations(self, annotations: Mapping[AmqpValue, AmqpValue], now: int) -> None:
        properties = self.properties
        for key, value in annotations.items():
            name = key_text(key)
            schedule = _SCHEDULES.get(name)
            if schedule is not None and value is not None:
                schedule(properties, value, now)
            properties[names.MESSAGE_ANNOTATION + name] = property_value(value)

    def _read_application_properties(self, found: Mapping[AmqpValue, AmqpValue]) -> None:
        properties = self.properties
        for key, value in found.items():
            name = key if type(key) is str else _name(key)
            converted: Value = value if type(value) in JMS_TYPES else property_value(value)  # type: ignore[assignment]
            if name in _SETTERS and converted is not None:
                _SETTERS[name](self, converted)
            elif name:
                properties[name] = converted
            else:
                raise AmqpError("an application property without a name", _INVALID_FIELD)

    def _read_properties(self, found: AmqpMessageProperties) -> None:
        properties = self.properties
        properties[names.PROPERTIES] = True
        if found.message_id is not None:
            self.message_id = text_of_id(found.message_id)
        if found.user_id is not None:
            self.user_id = found.user_id.decode(errors="replace")
        if found.subject is not None:
            self.jms_type = found.subject
        if found.reply_to is not None:
            self.reply_to = names.parse_address(found.reply_to)
        if found.correlation_id is not None:
            self.correlation_id = text_of_id(found.correlation_id)
        if found.content_type is not None:
            properties[names.CONTENT_TYPE] = str(found.content_type)
        if found.content_encoding is not None:
            properties[names.CONTENT_ENCODING] = str(found.content_encoding)
        if found.creation_time is not None:
            self.timestamp = found.creation_time
        if found.group_id is not None:
            self.group_id = found.group_id
        if found.group_sequence is not None:
            self.group_sequence = _as_int(found.group_sequence)
        if found.reply_to_group_id is not None:
            properties[names.REPLY_TO_GROUP_ID] = found.reply_to_group_id
        if found.absolute_expiry_time is not None:
            self.expiration = found.absolute_expiry_time

    def remove_user(self) -> None:
        """Forget the user that the client names."""
        self.user_id = None
        self.properties.pop(names.USER, None)


def _name(key: AmqpValue) -> str:
    if not isinstance(key, str):
        raise AmqpError(f"an application property whose name is a {type(key).__name__}", _INVALID_FIELD)
    return f"{key}"


def _as_int(number: int) -> int:
    """Return the Java int of an uint: the greatest are negative, and a negative group sequence closes the group."""
    return number if number <= _INT_MAX else number - 2**32


# ---------------------------------------------------------------- scheduling


def _set_delivery_time(properties: dict[str, Value], value: AmqpValue, now: int) -> None:
    _set_if_positive(properties, names.SCHEDULED_DELAY, _number(value) - now)


def _set_delay(properties: dict[str, Value], value: AmqpValue, _: int) -> None:
    _set_if_positive(properties, names.SCHEDULED_DELAY, _number(value))


def _set_period(properties: dict[str, Value], value: AmqpValue, _: int) -> None:
    _set_if_positive(properties, names.SCHEDULED_PERIOD, _number(value))


def _set_repeat(properties: dict[str, Value], value: AmqpValue, _: int) -> None:
    repeat = _number(value)
    if repeat > 0:
        properties[names.SCHEDULED_REPEAT] = min(repeat, _INT_MAX)


def _set_cron(properties: dict[str, Value], value: AmqpValue, _: int) -> None:
    if not isinstance(value, str):
        raise AmqpError(f"{names.DELIVERY_CRON} that is a {type(value).__name__}", _INVALID_FIELD)
    properties[names.SCHEDULED_CRON] = f"{value}"


def _set_if_positive(properties: dict[str, Value], name: str, milliseconds: int) -> None:
    if milliseconds > 0:
        properties[name] = Long(min(milliseconds, _LONG_MAX))


def _number(value: AmqpValue) -> int:
    if isinstance(value, AmqpDecimal):
        value = number_of(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise AmqpError(f"a scheduling annotation that is a {type(value).__name__}", _INVALID_FIELD)
    try:
        return int(value)
    except (ValueError, OverflowError) as error:
        raise AmqpError(f"a scheduling annotation that is {value}", _INVALID_FIELD) from error


_SCHEDULES: Final[Mapping[str, Callable[[dict[str, Value], AmqpValue, int], None]]] = {
    names.DELIVERY_TIME: _set_delivery_time,
    names.DELIVERY_DELAY: _set_delay,
    names.DELIVERY_PERIOD: _set_period,
    names.DELIVERY_REPEAT: _set_repeat,
    names.DELIVERY_CRON: _set_cron,
}


# ---------------------------------------------------------------- application properties with JMS's names of fields


def _set_correlation_id(fields: TransferFields, value: Value) -> None:
    fields.correlation_id = _text(value)


def _set_type(fields: TransferFields, value: Value) -> None:
    fields.jms_type = _text(value)


def _set_group_id(fields: TransferFields, value: Value) -> None:
    fields.group_id = _text(value)


def _set_group_sequence(fields: TransferFields, value: Value) -> None:
    fields.group_sequence = _integer(value, _INT_MAX)


def _set_delivery_count(fields: TransferFields, value: Value) -> None:
    fields.redelivery_counter = max(0, _integer(value, _INT_MAX) - 1)


def _set_delivery_mode(fields: TransferFields, value: Value) -> None:
    fields.persistent = value if isinstance(value, bool) else _integer(value, _INT_MAX) == _PERSISTENT


def _set_expiration(fields: TransferFields, value: Value) -> None:
    fields.expiration = _integer(value, _LONG_MAX)


def _set_priority(fields: TransferFields, value: Value) -> None:
    fields.priority = min(max(_integer(value, _INT_MAX), 0), 9)


def _set_redelivered(fields: TransferFields, value: Value) -> None:
    if value in (True, "true"):
        fields.redelivery_counter = fields.redelivery_counter or 1
    else:
        fields.redelivery_counter = 0


def _set_reply_to(fields: TransferFields, value: Value) -> None:
    fields.reply_to = names.parse_address(_text(value))


def _set_timestamp(fields: TransferFields, value: Value) -> None:
    fields.timestamp = _integer(value, _LONG_MAX)


_PERSISTENT: Final = 2
"""JMS's number of the delivery mode."""

_SETTERS: Final[Mapping[str, Callable[[TransferFields, Value], None]]] = {
    "JMSCorrelationID": _set_correlation_id,
    "JMSDeliveryMode": _set_delivery_mode,
    "JMSExpiration": _set_expiration,
    "JMSPriority": _set_priority,
    "JMSRedelivered": _set_redelivered,
    "JMSReplyTo": _set_reply_to,
    "JMSTimestamp": _set_timestamp,
    "JMSType": _set_type,
    "JMSXDeliveryCount": _set_delivery_count,
    "JMSXGroupID": _set_group_id,
    "JMSXGroupSeq": _set_group_sequence,
}


def _text(value: Value) -> str:
    if isinstance(value, (str, bool, int, float)):
        return java_text(value)
    raise AmqpError(f"a JMS field that is a {type(value).__name__}", _INVALID_FIELD)


def _integer(value: Value, maximum: int) -> int:
    if isinstance(value, str) and len(value) <= _DIGITS_MAX:
        try:
            value = int(value)
        except ValueError as error:
            raise AmqpError(f"a JMS field that is {value!r}, where a whole number belongs", _INVALID_FIELD) from error
    if not isinstance(value, int) or isinstance(value, bool) or not -maximum <= value <= maximum:
        raise AmqpError(f"a JMS field that is a {type(value).__name__}, or out of range", _INVALID_FIELD)
    return int(value)


_DIGITS_MAX: Final = 20
