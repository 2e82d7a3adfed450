"""The fields of a message that the headers of a SEND frame set; see `mapping` for the table of them."""

from collections.abc import Callable, Mapping

from pybroker.broker.domain.destination import Destination, parse
from pybroker.broker.domain.message import PRIORITY_DEFAULT
from pybroker.broker.domain.stomp.errors import StompRequestError
from pybroker.broker.domain.stomp.frames import shortened
from pybroker.transports.stomp.destinations import DestinationNames, names_a_destination

_LONG = (-(2**63), 2**63 - 1)
_INTEGER = (-(2**31), 2**31 - 1)


class SendFields:
    """The fields of a message from the headers of SEND; the class's attributes are the defaults."""

    persistent: bool = False
    priority: int = PRIORITY_DEFAULT
    expiration: int = 0
    timestamp: int | None = None
    correlation_id: str | None = None
    reply_to: Destination | None = None
    jms_type: str | None = None
    group_id: str | None = None
    group_sequence: int = 0

    def __init__(self, names: DestinationNames) -> None:
        self.names = names
        self.properties: dict[str, str] = {}

    def set_persistent(self, text: str) -> None:
        """Set the persistent."""
        self.persistent = text == "true"

    def set_priority(self, text: str) -> None:
        """Set the priority. Raises `StompRequestError` if it cannot be read."""
        self.priority = min(max(_integer("priority", text, _INTEGER), 0), 9)

    def set_expiration(self, text: str) -> None:
        """Set the expiration. Raises `StompRequestError` if it cannot be read."""
        self.expiration = _integer("expires", text, _LONG)

    def set_timestamp(self, text: str) -> None:
        """Set the timestamp. Raises `StompRequestError` if it cannot be read."""
        self.timestamp = _integer("timestamp", text, _LONG)

    def set_correlation_id(self, text: str) -> None:
        """Set the correlation id."""
        self.correlation_id = text

    def set_reply_to(self, text: str) -> None:
        """Set the reply to."""
        if names_a_destination(text):
            self.reply_to = self.names.parse(text)
        else:
            self.properties["reply-to"] = text

    def set_jms_reply_to(self, text: str) -> None:
        """Set the JMS reply to."""
        self.reply_to = parse(text)

    def set_jms_type(self, text: str) -> None:
        """Set the JMS type."""
        self.jms_type = text

    def set_group_id(self, text: str) -> None:
        """Set the group id."""
        self.group_id = text

    def set_group_sequence(self, text: str) -> None:
        """Set the group sequence. Raises `StompRequestError` if it cannot be read."""
        self.group_sequence = _integer("JMSXGroupSeq", text, _INTEGER)

    def set_delivery_mode(self, text: str) -> None:
        """Set the delivery mode. Raises `StompRequestError` if it cannot be read."""
        mode = text.strip().upper()
        if mode not in _DELIVERY_MODES:
            raise StompRequestError(
                f"Invalid JMSDeliveryMode: {shortened(text)}", f"Write one of {', '.join(sorted(_DELIVERY_MODES))}."
            )
        self.persistent = _DELIVERY_MODES[mode]

    def leave_out(self, text: str) -> None:
        """Ignore a header that the broker sets, or that is used elsewhere."""


_DELIVERY_MODES = {"PERSISTENT": True, "2": True, "NON_PERSISTENT": False, "1": False}

_Setter = Callable[[SendFields, str], None]

FIELDS: Mapping[str, _Setter] = {
    "destination": SendFields.leave_out,
    "receipt": SendFields.leave_out,
    "transaction": SendFields.leave_out,
    "content-length": SendFields.leave_out,
    "message-id": SendFields.leave_out,
    "redelivered": SendFields.leave_out,
    "subscription": SendFields.leave_out,
    "JMSXUserID": SendFields.leave_out,
    "JMSRedelivered": SendFields.leave_out,
    "JMSXDeliveryCount": SendFields.leave_out,
    "persistent": SendFields.set_persistent,
    "priority": SendFields.set_priority,
    "expires": SendFields.set_expiration,
    "timestamp": SendFields.set_timestamp,
    "correlation-id": SendFields.set_correlation_id,
    "reply-to": SendFields.set_reply_to,
    "type": SendFields.set_jms_type,
    "JMSXGroupID": SendFields.set_group_id,
    "JMSXGroupSeq": SendFields.set_group_sequence,
}

JMS_FIELDS: Mapping[str, _Setter] = {
    "JMSCorrelationID": SendFields.set_correlation_id,
    "JMSDeliveryMode": SendFields.set_delivery_mode,
    "JMSExpiration": SendFields.set_expiration,
    "JMSPriority": SendFields.set_priority,
    "JMSReplyTo": SendFields.set_jms_reply_to,
    "JMSTimestamp": SendFields.set_timestamp,
    "JMSType": SendFields.set_jms_type,
}
"""JMS names of some of the same fields; applied last, so that they win, as in ActiveMQ."""
JMS_NAMES = frozenset(JMS_FIELDS)


def _integer(header: str, text: str, bounds: tuple[int, int]) -> int:
    digits = text.strip()
    unsigned = digits[1:] if digits[:1] in ("-", "+") else digits
    if unsigned.isascii() and unsigned.isdigit() and len(unsigned) <= 19 and bounds[0] <= int(digits) <= bounds[1]:
        return int(digits)
    raise StompRequestError(
        f"Invalid {header} header: {shortened(text)}", f"Expected an integer from {bounds[0]} to {bounds[1]}."
    )
