"""Subprotocols of WebSocket: the families of their names, and the choice among those that a client offers.

Source: RFC 6455, 1.9 and 4.2.2; ActiveMQ 5.17 for the order of STOMP's, and for the last of an offer that names several
protocols.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class SubprotocolFamily:
    """The subprotocols of one protocol.

    Attributes:
        name: the protocol, for logs.
        subprotocols: their names, the preferred one first.
        sends_text: its messages are text, unless they are no UTF-8 or the client sends binary ones; False: all binary.
        error_prefix: the beginning of a frame behind which the session closes for a violation of the protocol; None:
            the frames do not show that by their beginning.
    """

    name: str
    subprotocols: tuple[str, ...]
    sends_text: bool
    error_prefix: bytes | None


STOMP: Final = SubprotocolFamily(
    name="STOMP",
    subprotocols=("v12.stomp", "v11.stomp", "v10.stomp", "stomp"),
    sends_text=True,
    error_prefix=b"ERROR\n",
)
"""STOMP; the name does not limit the version, which CONNECT decides."""

MQTT: Final = SubprotocolFamily(
    name="MQTT",
    subprotocols=("mqttv3.1", "mqtt"),
    sends_text=False,
    error_prefix=b"\xe0",
)
"""MQTT; CONNECT decides the version. The broker sends DISCONNECT for violations alone, and in MQTT 5."""

AMQP: Final = SubprotocolFamily(name="AMQP", subprotocols=("amqp",), sends_text=False, error_prefix=None)
"""AMQP 1.0."""


class ChosenSubprotocol(NamedTuple):
    """The outcome of an offer.

    Attributes:
        family: the protocol of the connection.
        name: the subprotocol for the answer; None if none was offered.
    """

    family: SubprotocolFamily
    name: str | None


def choose(offered: Sequence[str], served: Iterable[SubprotocolFamily]) -> ChosenSubprotocol | None:
    """Return the subprotocol for an offer; None if none of it is served.

    Args:
        offered: the names, in the client's order.
        served: the families of the listener; the first one serves clients that offer nothing.
    """
    families = list(served)
    if not offered:
        return ChosenSubprotocol(families[0], None)
    for last in reversed(offered):
        for family in families:
            if last in family.subprotocols:
                return ChosenSubprotocol(family, next(name for name in family.subprotocols if name in offered))
    return None
