"""Detection of a peer's protocol by its first bytes, on a port for several protocols.

```text
OpenWire   00 00 00 nn  01 'ActiveMQ'      size and type of a WireFormatInfo, its magic
STOMP      gap 'CONNECT' | 'STOMP'         gap: line ends and blanks, which a STOMP decoder skips too
MQTT       10 nn 00 04 'MQTT'              type, remaining length and protocol name of a CONNECT
AMQP       'AMQP'                          the first bytes of its protocol header
WebSocket  'GET '                          the method of its request
```

An OpenWire size begins with a NUL, or its first frame would have 16 MB; so one byte decides which of them it may be.
"""

import enum
import logging
from collections.abc import Mapping

from pybroker.broker.domain.errors import BrokerError
from pybroker.transports.connection import MakeSession, ReplaceableLink
from pybroker.transports.session import INPUT_WAIT_SECONDS, Session

_log = logging.getLogger(__name__)


class DetectedProtocol(enum.Enum):
    """The protocol that the first bytes belong to."""

    OPENWIRE = "OpenWire"
    STOMP = "STOMP"
    MQTT = "MQTT"
    AMQP = "AMQP"
    WEBSOCKET = "HTTP"
    UNKNOWN = "none of the protocols of this port"
    UNDECIDED = "too few bytes to tell"


_SIZE_BYTES = 4
_MAGIC = b"\x01ActiveMQ"
_COMMANDS = (b"CONNECT", b"STOMP")
_REQUEST = b"GET "
_MQTT_CONNECT = b"\x10"
_AMQP = b"AMQP"
_GAP = b"\r\n\t "
_TLS_HANDSHAKE = b"\x16\x03"
_SHOWN_BYTES = 16

HEAD_BYTES = 16
"""The first bytes of a connection, by which its protocol can be known."""


def detect(head: bytes) -> DetectedProtocol:
    """Return the protocol of a connection that begins with these bytes."""
    if head[:1] == b"\0":
        magic = head[_SIZE_BYTES : _SIZE_BYTES + len(_MAGIC)]
        return _compare(magic, (_MAGIC,), DetectedProtocol.OPENWIRE)
    if head[:1] == _MQTT_CONNECT:
        return DetectedProtocol.MQTT
    if head[:1] == _REQUEST[:1]:
        return _compare(head[: len(_REQUEST)], (_REQUEST,), DetectedProtocol.WEBSOCKET)
    if head[:1] == _AMQP[:1]:
        return _compare(head[: len(_AMQP)], (_AMQP,), DetectedProtocol.AMQP)
    return _compare(head.lstrip(_GAP)[: max(map(len, _COMMANDS))], _COMMANDS, DetectedProtocol.STOMP)


def other_protocol(head: bytes, own: DetectedProtocol) -> str | None:
    """Return which other protocol a connection speaks that a port of one protocol cannot read; None if it is not known.

    Args:
        head: the first bytes of the connection.
        own: the port's protocol.
    """
    if head.startswith(_TLS_HANDSHAKE):
        return f"it speaks TLS: use a port of {own.value} with TLS"
    detected = detect(head)
    if detected in (own, DetectedProtocol.UNKNOWN, DetectedProtocol.UNDECIDED):
        return None
    return f"it speaks {detected.value}: use a port of that, or of auto"


def _compare(head: bytes, openings: tuple[bytes, ...], detected: DetectedProtocol) -> DetectedProtocol:
    if head.startswith(openings):
        return detected
    return (
        DetectedProtocol.UNDECIDED
        if any(opening.startswith(head) for opening in openings)
        else DetectedProtocol.UNKNOWN
    )


class Detector(Session):
    """The session of a peer whose protocol is not known yet; replaces itself as soon as it is."""

    def __init__(
        self, link: ReplaceableLink, sessions: Mapping[DetectedProtocol, MakeSession], *, seconds: float
    ) -> None:
        """Wait for the first bytes.

        Args:
            link: moves the bytes.
            sessions: makes the session, by supported protocol.
            seconds: how long the peer may take.
        """
        self._link = link
        self._sessions = sessions
        self._seconds = seconds
        self._head = b""
        link.wake_at(link.time() + seconds)

    @property
    def is_connected(self) -> bool:
        """False: its protocol is not known yet."""
        return False

    def receive(self, chunk: bytes) -> bool:
        """Detect the protocol. Bytes of an incomplete opening are kept, at most a dozen."""
        head = self._head + chunk if self._head else chunk
        detected = detect(head)
        if detected is DetectedProtocol.UNDECIDED:
            self._head = _without_gap(head)
            return False
        make_session = self._sessions.get(detected)
        if make_session is None:
            self._close(_unsupported(detected, head))
            return False
        session = make_session(self._link)
        self._link.become(session)
        return session.receive(head)

    def proceed(self) -> bool:
        """Do nothing: the detected protocol's session has the frames."""
        return False

    def written(self) -> None:
        """Do nothing: nothing was written."""

    def handed_over(self) -> None:
        """Do nothing: nothing was written."""

    def pause_writing(self) -> None:
        """Do nothing: nothing was written."""

    def hold(self) -> None:
        """Do nothing: no work was begun."""

    def release(self) -> None:
        """Do nothing: nothing was held."""

    def on_timer(self) -> None:
        """Close the connection of a peer that has not sent enough."""
        if self._link.is_input_waiting:
            self._link.wake_at(self._link.time() + INPUT_WAIT_SECONDS)
            return
        self._close(f"its first bytes did not show a protocol within {self._seconds:g} seconds")

    def stopping(self) -> None:
        """Do nothing: the peer awaits no protocol's end."""

    def give_up(self, error: BrokerError) -> None:
        """Close the connection."""
        self._close(str(error))

    def lost(self) -> None:
        """Do nothing: health checks connect and leave at once."""

    def _close(self, reason: str) -> None:
        _log.info("%s closed: %s", self._link.peer, reason)
        self._link.wake_at(None)
        self._link.close()


def _without_gap(head: bytes) -> bytes:
    """Shorten a gap to one byte, which marks that there was one."""
    opening = head.lstrip(_GAP)
    return head if len(opening) == len(head) else head[:1] + opening


def _unsupported(detected: DetectedProtocol, head: bytes) -> str:
    if detected is not DetectedProtocol.UNKNOWN:
        return f"it speaks {detected.value}, which this port does not support"
    if head.startswith(_TLS_HANDSHAKE):
        return "it speaks TLS: use the port of auto_ssl"
    return f"it speaks {detected.value}, but begins with {head[:_SHOWN_BYTES]!r}"
