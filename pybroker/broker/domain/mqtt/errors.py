"""Errors of MQTT clients: a sentence for the log and, in MQTT 5, for the client; and the reason code for the client."""

from pybroker.broker.domain.errors import BrokerError, ProtocolError
from pybroker.broker.domain.mqtt.reason_codes import ReasonCode


class MqttProtocolError(ProtocolError):
    """Bytes that violate the protocol, after which the connection is closed.

    Attributes:
        reason: the reason code of DISCONNECT, or of CONNACK if the client is not connected yet.
    """

    def __init__(self, message: str, reason: ReasonCode = ReasonCode.PROTOCOL_ERROR) -> None:
        super().__init__(message)
        self.reason = reason


def malformed(message: str) -> MqttProtocolError:
    """Return the error for a packet that cannot be decoded."""
    return MqttProtocolError(message, ReasonCode.MALFORMED_PACKET)


class PacketTooLarge(BrokerError):
    """A PUBLISH is larger than its client accepts: it is not sent, and the client is not at fault."""
