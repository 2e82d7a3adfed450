"""The session of a WebSocket connection, sans-I/O: the handshake, and then the session of the protocol within.

```text
bytes --> FrameReceiver --payloads--> inner session
bytes <-- WebSocketLink <--frames---- inner session
```

The inner session gets the payloads as one stream of bytes, however the client cuts them into messages.

Source: RFC 6455; the closing handshake is 5.5.1 and 7.1.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.errors import BrokerError
from pybroker.transports.fair_queue import FRAMES_PER_CLOCK
from pybroker.transports.session import INPUT_WAIT_SECONDS, Link, Session
from pybroker.transports.websocket.frames import WebSocketClose
from pybroker.transports.websocket.handshake import (
    HEAD_BYTES_MAX,
    HEAD_END,
    HandshakeAnswer,
    UpgradedConnection,
    answer,
    refuse,
)
from pybroker.transports.websocket.link import WebSocketLink
from pybroker.transports.websocket.origins import OriginRule
from pybroker.transports.websocket.receiver import FrameReceiver
from pybroker.transports.websocket.subprotocols import SubprotocolFamily

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSocketSettings:
    """The settings of a listener's WebSocket sessions.

    Attributes:
        families: makes the session within, by protocol; the first one is for clients that offer no subprotocol.
        origins: the pages that may connect.
        message_bytes_max: the longest message.
        handshake_seconds: how long a client may take for its request.
    """

    families: Mapping[SubprotocolFamily, Callable[[Link], Session]]
    origins: OriginRule
    message_bytes_max: int
    handshake_seconds: float


class WebSocketSession:
    """Serves one WebSocket connection; a `Session`."""

    def __init__(self, link: Link, settings: WebSocketSettings) -> None:
        """Wait for the request.

        Args:
            link: moves the bytes.
            settings: those of the listener.
        """
        self._link = link
        self._settings = settings
        self._head = bytearray()
        self._receiver: FrameReceiver | None = None
        self._inner: Session | None = None
        self._inner_link: WebSocketLink | None = None
        self._is_inner_left = False
        self._is_held = False
        self._is_closed = False
        link.wake_at(link.time() + settings.handshake_seconds)

    # ------------------------------------------------------------ Session

    @property
    def is_connected(self) -> bool:
        """True while the peer is a client that the broker has admitted."""
        return self._inner is not None and self._inner.is_connected

    def receive(self, chunk: bytes) -> bool:
        """Carry out the frames that the chunk completes; before that, answer the request."""
        if self._is_closed:
            return False
        if self._receiver is None:
            return self._shake_hands(chunk)
        self._receiver.add(chunk)
        return self.proceed()

    def proceed(self) -> bool:
        """Carry out frames until the slice is over; return True if any may be left."""
        inner, link, receiver = self._inner, self._inner_link, self._receiver
        if inner is None or link is None or receiver is None or self._is_held:
            return False
        if self._is_inner_left:
            self._is_inner_left = inner.proceed()
            if self._is_inner_left:
                return True
        left = FRAMES_PER_CLOCK
        while self._may_go_on(link):
            payload = receiver.next()
            if payload is None:
                return False
            if payload:
                link.received()
                link.is_binary = link.is_binary or receiver.has_binary
                self._is_inner_left = inner.receive(payload)
                if self._is_inner_left:
                    return True
            else:
                self._answer_control(receiver, link)
            left -= 1
            if not left or EFFORT.is_large:
                if self._link.is_slice_over():
                    return True
                left = FRAMES_PER_CLOCK
        return False

    def written(self) -> None:
        """React to all output having left the process."""
        if self._inner is not None:
            self._inner.written()

    def handed_over(self) -> None:
        """Count all output so far as possibly received by the peer."""
        if self._inner is not None:
            self._inner.handed_over()

    def pause_writing(self) -> None:
        """Pause delivery, as the peer reads too slowly."""
        if self._inner is not None:
            self._inner.pause_writing()

    def hold(self) -> None:
        """Carry out no frame behind the present one."""
        self._is_held = True
        if self._inner is not None:
            self._inner.hold()

    def release(self) -> None:
        """Carry out frames again."""
        self._is_held = False
        if self._inner is not None:
            self._inner.release()
            self._is_inner_left = True  # it may have been held in the middle of a payload

    def on_timer(self) -> None:
        """React to the time that the inner session asked for; before, close if the request is late."""
        if self._inner is not None:
            self._inner.on_timer()
        elif self._link.is_input_waiting:
            self._link.wake_at(self._link.time() + INPUT_WAIT_SECONDS)
        else:
            late = f"no whole request came within {self._settings.handshake_seconds:g} seconds"
            self._refuse(refuse(HTTPStatus.REQUEST_TIMEOUT, late))

    def stopping(self) -> None:
        """Send the close frame of a broker that stops."""
        if self._inner_link is not None:
            self._inner_link.send_close(WebSocketClose.GOING_AWAY, "the broker stops")

    def give_up(self, error: BrokerError) -> None:
        """Close with an error that no command of the peer brings about."""
        if self._is_closed:
            return
        if self._inner is None or self._inner_link is None:
            self._refuse(refuse(HTTPStatus.SERVICE_UNAVAILABLE, str(error)))
            return
        is_known = type(error) is not BrokerError
        self._inner_link.close_code = WebSocketClose.POLICY if is_known else WebSocketClose.INTERNAL_ERROR
        self._inner.give_up(error)

    def lost(self) -> None:
        """React to the end of the connection."""
        self._is_closed = True
        if self._receiver is not None:
            self._receiver.clear()
        if self._inner is not None:
            self._inner.lost()

    # ------------------------------------------------------------ handshake

    def _shake_hands(self, chunk: bytes) -> bool:
        """Answer the request once it is whole, and carry out what came behind it; returns as `receive`."""
        searched = max(0, len(self._head) - len(HEAD_END) + 1)
        self._head += chunk
        end = self._head.find(HEAD_END, searched, HEAD_BYTES_MAX + 1)
        if end < 0 and len(self._head) <= HEAD_BYTES_MAX:
            return False
        size = len(self._head) if end < 0 else end + len(HEAD_END)
        head, rest = bytes(self._head[:size]), bytes(self._head[size:])
        self._head.clear()
        found = answer(head, self._settings.families, self._settings.origins)
        if found.upgraded is None:
            self._refuse(found)
            return False
        self._link.write(found.data)
        receiver = self._begin(found.upgraded)
        if not rest:
            return False
        receiver.add(rest)
        return self.proceed()

    def _begin(self, upgraded: UpgradedConnection) -> FrameReceiver:
        """Begin the inner session, which sets a timer of its own; return the receiver of frames."""
        self._receiver = receiver = FrameReceiver(upgraded.protocol, self._settings.message_bytes_max)
        self._inner_link = WebSocketLink(self._link, upgraded.family)
        self._inner = self._settings.families[upgraded.family](self._inner_link)
        return receiver

    def _refuse(self, found: HandshakeAnswer) -> None:
        """Send an answer that is no upgrade, and close."""
        if found.is_refused_origin:
            _log.warning("%s refused: %s: list them in websocket_origins", self._link.peer, found.reason)
        elif found.reason:
            _log.info("%s closed: no WebSocket (%d): %s", self._link.peer, found.status, found.reason)
        self._is_closed = True
        self._head.clear()
        self._link.wake_at(None)
        self._link.write(found.data)
        self._link.close()

    # ------------------------------------------------------------ frames

    def _may_go_on(self, link: WebSocketLink) -> bool:
        """Return True unless the last frame closed the connection, or had its input held."""
        return not (self._is_held or link.is_closed)

    def _answer_control(self, receiver: FrameReceiver, link: WebSocketLink) -> None:
        """Send pongs; behind a close frame, or one for a violation, close."""
        if output := receiver.output():
            self._link.write(output)
        if receiver.is_over:
            self._is_closed = link.is_closed = True
            if receiver.is_closed_by_peer:
                link.ending = f"closed by the client ({receiver.reason})"
            else:
                link.ending = f"closed for a violation of WebSocket: {receiver.reason}"
                _log.warning("%s closed: WebSocket: %s", self._link.peer, receiver.reason)
            self._link.wake_at(None)
            self._link.close()
