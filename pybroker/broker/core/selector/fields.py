"""Names in selectors: a name of JMS's or ActiveMQ's header fields is that field, any other name is a property.

JMS 1.1 allows six header fields (the first group below), and ActiveMQ 5.17 the others too. Their names are reserved: a
property of the same name cannot be selected by. A field that is not set is NULL.

Properties come with Java's kinds of numbers (`openwire.values.Long` and others). Here they become plain `int` and
`float`, so that nothing further on has to know them.
"""

from collections.abc import Callable

from pybroker.broker.domain.openwire.message import OpenWireMessage

Value = Callable[[OpenWireMessage], object]
"""A compiled expression: returns an int, float, str or bool, None for NULL, or any other value of a property."""

Condition = Callable[[OpenWireMessage], bool | None]
"""A compiled condition: True, False, or None for UNKNOWN."""

_HEADERS: dict[str, Value] = {
    "JMSDeliveryMode": lambda message: "PERSISTENT" if message.persistent else "NON_PERSISTENT",
    "JMSPriority": lambda message: message.priority,
    "JMSMessageID": lambda message: message.message_id.jms_message_id if message.message_id else None,
    "JMSTimestamp": lambda message: message.timestamp,
    "JMSCorrelationID": lambda message: message.correlation_id,
    "JMSType": lambda message: message.jms_type,
    # As in ActiveMQ, the destination of a message that was moved, for example to a DLQ, is the original one.
    "JMSDestination": lambda message: _text(message.original_destination or message.destination),
    "JMSReplyTo": lambda message: _text(message.reply_to),
    "JMSExpiration": lambda message: message.expiration,
    "JMSRedelivered": lambda message: message.redelivery_counter > 0,
    "JMSXDeliveryCount": lambda message: message.redelivery_counter + 1,
    "JMSXGroupID": lambda message: message.group_id,
    "JMSXGroupSeq": lambda message: message.group_sequence,
    "JMSXGroupFirstForConsumer": lambda message: message.group_first_for_consumer,
    "JMSXUserID": lambda message: message.user_id,
    "JMSXProducerTXID": lambda message: _text(message.original_transaction_id or message.transaction_id),
    "JMSActiveMQBrokerInTime": lambda message: message.broker_in_time,
    "JMSActiveMQBrokerOutTime": lambda message: message.broker_out_time,
}

_PLAIN_TYPES: frozenset[type] = frozenset((int, str, float, bool, type(None)))


def field(name: str) -> Value:
    """Return the function that returns the value of a name."""
    return _HEADERS.get(name) or _property(name)


def _property(name: str) -> Value:
    def value(message: OpenWireMessage) -> object:
        found = message.properties.get(name)
        return found if type(found) in _PLAIN_TYPES else _plain(found)

    return value


def _plain(value: object) -> object:
    """Return a number or text of a Java type as Python's own type; return bytes, lists and maps unchanged."""
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value


def _text(value: object) -> str | None:
    return None if value is None else str(value)
