"""Names in selectors: a name of JMS's or ActiveMQ's header fields is that field, any other name is a property.

JMS 1.1 allows six header fields (the first group below), and ActiveMQ 5.17 the others too. Their names are reserved: a
property of the same name cannot be selected by. A field that is not set is NULL.

Properties come with Java's kinds of numbers (`openwire.values.Long` and others). `subject` makes them plain `int` and
`float`, so that nothing further on has to know them.
"""

from collections.abc import Callable
from typing import Final

from pybroker.broker.core.selector.subject import Subject

Value = Callable[[Subject], object]
"""A compiled expression: returns an int, float, str or bool, None for NULL, or any other value of a property."""

Condition = Callable[[Subject], bool | None]
"""A compiled condition: True, False, or None for UNKNOWN."""

_HEADERS: dict[str, Value] = {
    "JMSDeliveryMode": lambda subject: "PERSISTENT" if subject.fields.persistent else "NON_PERSISTENT",
    "JMSPriority": lambda subject: subject.fields.priority,
    "JMSMessageID": lambda subject: None if (found := subject.fields.message_id) is None else found.jms_message_id,
    "JMSTimestamp": lambda subject: subject.fields.timestamp,
    "JMSCorrelationID": lambda subject: subject.fields.correlation_id,
    "JMSType": lambda subject: subject.fields.jms_type,
    # As in ActiveMQ, the destination of a message that was moved, for example to a DLQ, is the original one.
    "JMSDestination": lambda subject: _text(subject.fields.original_destination or subject.fields.destination),
    "JMSReplyTo": lambda subject: _text(subject.fields.reply_to),
    "JMSExpiration": lambda subject: subject.fields.expiration,
    "JMSRedelivered": lambda subject: subject.redelivery_count > 0,
    "JMSXDeliveryCount": lambda subject: subject.redelivery_count + 1,
    "JMSXGroupID": lambda subject: subject.fields.group_id,
    "JMSXGroupSeq": lambda subject: subject.fields.group_sequence,
    "JMSXGroupFirstForConsumer": lambda subject: subject.fields.group_first_for_consumer,
    "JMSXUserID": lambda subject: subject.fields.user_id,
    "JMSXProducerTXID": lambda subject: _text(subject.fields.original_transaction_id or subject.fields.transaction_id),
    "JMSActiveMQBrokerInTime": lambda subject: subject.fields.broker_in_time,
    "JMSActiveMQBrokerOutTime": lambda subject: subject.fields.broker_out_time,
}

_ABSENT: Final = object()


def field(name: str) -> Value:
    """Return the function that returns the value of a name."""
    return _HEADERS.get(name) or _property(name)


def _property(name: str) -> Value:
    def value(subject: Subject) -> object:
        found = subject.found.get(name, _ABSENT)
        return subject.find(name) if found is _ABSENT else found

    return value


def _text(value: object) -> str | None:
    return None if value is None else str(value)
