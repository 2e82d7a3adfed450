"""The names of durable subscriptions of MQTT clients, and the properties of their messages, as ActiveMQ has them.

Source: ActiveMQ 5.17, so that a store that changes hands keeps the sessions of its MQTT clients:

```text
subscription name    AT_LEAST_ONCE:<topic filter>, EXACTLY_ONCE:<topic filter>
```
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

QOS: Final = "ActiveMQ.MQTT.QoS"
"""The property with the QoS of a PUBLISH, an Integer."""

RETAIN: Final = "ActiveMQ.Retain"
"""The property of a message that becomes the retained one of its topic."""

RETAINED: Final = "ActiveMQ.Retained"
"""The property of a retained message that a new subscription gets."""

RETAIN_FLAG: Final = "MQTT_RETAIN"
"""The property of a message that was published with the retain flag, which live copies keep."""

PAYLOAD_FORMAT: Final = "MQTT_PAYLOAD_FORMAT"
CONTENT_TYPE: Final = "MQTT_CONTENT_TYPE"
CORRELATION_DATA: Final = "MQTT_CORRELATION_DATA"
"""The property with correlation data that is no text, in base 64."""

USER_PROPERTIES: Final = "MQTT_USER_PROPERTIES"
"""The property with the user properties of a PUBLISH as a JSON array of pairs, in their order."""

OWN: Final = frozenset(
    (QOS, RETAIN, RETAINED, RETAIN_FLAG, PAYLOAD_FORMAT, CONTENT_TYPE, CORRELATION_DATA, USER_PROPERTIES)
)
"""The properties that are not shown to MQTT clients as user properties."""

_QOS_NAMES: Final[Mapping[int, str]] = {0: "AT_MOST_ONCE", 1: "AT_LEAST_ONCE", 2: "EXACTLY_ONCE"}
_QOS_OF: Final[Mapping[str, int]] = {name: qos for qos, name in _QOS_NAMES.items()}


class SubscriptionName(NamedTuple):
    """The parts of the name of a durable subscription.

    Attributes:
        qos: the QoS of the subscription.
        filter: the topic filter, as the client wrote it.
    """

    qos: int
    filter: str


def qos_name(qos: int) -> str:
    """Return ActiveMQ's name of a QoS."""
    return _QOS_NAMES[qos]


def subscription_name(qos: int, text: str) -> str:
    """Return the name of the durable subscription with this QoS to a topic filter."""
    return f"{qos_name(qos)}:{text}"


def parse_subscription_name(name: str) -> SubscriptionName | None:
    """Return the parts of the name of a durable subscription; None if no MQTT client has made it."""
    text, colon, rest = name.partition(":")
    qos = _QOS_OF.get(text)
    return SubscriptionName(qos, rest) if colon and rest and qos is not None else None
