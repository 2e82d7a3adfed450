"""Names in ActiveMQ's mapping of AMQP: addresses, message annotations, and the properties that keep what JMS has not.

Source: ActiveMQ 5.17, AMQP transport. Programs that read AMQP messages by another protocol, and stores that change
hands, have these names:

```text
JMS_AMQP_HEADER, JMS_AMQP_PROPERTIES     the message had this section
JMS_AMQP_MA_x, JMS_AMQP_FT_x             message annotation x, footer x
JMS_AMQP_ORIGINAL_ENCODING               how the body was encoded
JMS_AMQP_NATIVE                          the body is a whole AMQP message
```
"""

from collections.abc import Collection
from typing import Final

from pybroker.broker.domain.amqp.values import Byte, Short, Symbol
from pybroker.broker.domain.destination import Destination, DestinationType, parse

PREFIX: Final = "JMS_AMQP_"
NATIVE: Final = "JMS_AMQP_NATIVE"
HEADER: Final = "JMS_AMQP_HEADER"
PROPERTIES: Final = "JMS_AMQP_PROPERTIES"
ORIGINAL_ENCODING: Final = "JMS_AMQP_ORIGINAL_ENCODING"
MESSAGE_FORMAT: Final = "JMS_AMQP_MESSAGE_FORMAT"
FIRST_ACQUIRER: Final = "JMS_AMQP_FirstAcquirer"
CONTENT_TYPE: Final = "JMS_AMQP_ContentType"
CONTENT_ENCODING: Final = "JMS_AMQP_ContentEncoding"
REPLY_TO_GROUP_ID: Final = "JMS_AMQP_ReplyToGroupID"
DELIVERY_ANNOTATION: Final = "JMS_AMQP_DA_"
MESSAGE_ANNOTATION: Final = "JMS_AMQP_MA_"
FOOTER: Final = "JMS_AMQP_FT_"

DATA_STRUCTURE_TYPE: Final = "ActiveMqDataStructureType"
"""The application property with the kind of command that an advisory is about."""

USER: Final = "JMSXUserID"

SCHEDULED: Final = "AMQ_SCHEDULED_"
SCHEDULED_DELAY: Final = "AMQ_SCHEDULED_DELAY"
SCHEDULED_PERIOD: Final = "AMQ_SCHEDULED_PERIOD"
SCHEDULED_REPEAT: Final = "AMQ_SCHEDULED_REPEAT"
SCHEDULED_CRON: Final = "AMQ_SCHEDULED_CRON"

DELIVERY_TIME: Final = "x-opt-delivery-time"
DELIVERY_DELAY: Final = "x-opt-delivery-delay"
DELIVERY_PERIOD: Final = "x-opt-delivery-period"
DELIVERY_REPEAT: Final = "x-opt-delivery-repeat"
DELIVERY_CRON: Final = "x-opt-delivery-cron"

JMS_DESTINATION: Final = "x-opt-jms-dest"
JMS_REPLY_TO: Final = "x-opt-jms-reply-to"

JAVA_OBJECT: Final = Symbol("application/x-java-serialized-object")
OCTET_STREAM: Final = Symbol("application/octet-stream")


class OriginalEncoding:
    """The section and type of a body, as `JMS_AMQP_ORIGINAL_ENCODING` has it."""

    NONE: Final = Short(1)
    DATA: Final = Short(2)
    SEQUENCE: Final = Short(3)
    VALUE_NULL: Final = Short(4)
    VALUE_STRING: Final = Short(5)
    VALUE_BINARY: Final = Short(6)
    VALUE_MAP: Final = Short(7)
    VALUE_LIST: Final = Short(8)


# ---------------------------------------------------------------- addresses

_CAPABILITIES: Final = {
    "queue": DestinationType.QUEUE,
    "topic": DestinationType.TOPIC,
    "temporary-queue": DestinationType.TEMP_QUEUE,
    "temporary-topic": DestinationType.TEMP_TOPIC,
}

KINDS: Final = {
    DestinationType.QUEUE: Byte(0),
    DestinationType.TOPIC: Byte(1),
    DestinationType.TEMP_QUEUE: Byte(2),
    DestinationType.TEMP_TOPIC: Byte(3),
}
"""The values of `x-opt-jms-dest` and `x-opt-jms-reply-to`."""


def parse_address(text: str, capabilities: Collection[str] = ()) -> Destination:
    """Return the destination of an address, without its options.

    Args:
        text: the address: `queue://N`, `topic://N`, `temp-queue://N`, `temp-topic://N`, or a bare name.
        capabilities: those of the terminus. They determine what a bare name is, by default a queue. ActiveMQ ignores
            them; Qpid JMS and others send them.

    Raises:
        InvalidDestination: the name is empty.
    """
    kind = DestinationType.QUEUE
    for name in capabilities:
        found = _CAPABILITIES.get(name)
        if found is not None:
            kind = found
            break
    return parse(text, kind)


def address_of(destination: Destination) -> str:
    """Return the address of a destination, with its prefix: `queue://N`."""
    return str(destination)
