"""The link of a session within WebSocket: makes a message of each frame that the session writes."""

from collections.abc import Callable, Sequence
from typing import Final

from pybroker.broker.domain.errors import BrokerError
from pybroker.transports.session import Link
from pybroker.transports.websocket.frames import FrameOpcode, WebSocketClose, encode_close, encode_header, is_text
from pybroker.transports.websocket.subprotocols import SubprotocolFamily

_TEXT: Final = FrameOpcode.TEXT
_BINARY: Final = FrameOpcode.BINARY
_JOINED_BYTES_MAX: Final = 16 << 10
"""The longest frame that is copied behind its header; a longer one is written by itself, and may be shared."""


class WebSocketLink:
    """A session's `Link`, over the link of a WebSocket connection.

    Attributes:
        is_binary: messages are binary from now on, as the client's are.
        is_closed: a close frame was sent, and nothing more is written.
        close_code: the code of the close frame; None: by the last frame.
        ending: see `Link`; that of the connection, unless it is set.
    """

    def __init__(self, link: Link, family: SubprotocolFamily) -> None:
        """Begin with text or binary messages, as the protocol's family has them."""
        self._link = link
        self._error_prefix = family.error_prefix
        self.is_binary = not family.sends_text
        self.is_closed = False
        self.close_code: WebSocketClose | None = None
        self._ending = ""
        self._has_sent_error = False

    def _is_error(self, frame: bytes) -> bool:
        return self._error_prefix is not None and frame.startswith(self._error_prefix)

    # ------------------------------------------------------------ what becomes frames

    def write(self, data: bytes | memoryview) -> None:
        """Send a whole frame as one message."""
        frame = bytes(data)  # is itself, unless it is a view
        size = len(frame)
        if size > _JOINED_BYTES_MAX or self.is_closed:
            self.write_pieces((frame,))
            return
        self._has_sent_error = self._is_error(frame)
        is_binary = self.is_binary or not (frame.isascii() or is_text((frame,)))
        self._link.write(encode_header(_BINARY if is_binary else _TEXT, size) + frame)

    def write_pieces(self, pieces: Sequence[bytes]) -> None:
        """Send a frame that is in pieces as one message."""
        if self.is_closed:
            return
        self._has_sent_error = self._is_error(pieces[0])
        is_binary = self.is_binary or not is_text(pieces)
        size = sum(map(len, pieces))
        header = encode_header(_BINARY if is_binary else _TEXT, size)
        if size <= _JOINED_BYTES_MAX:
            self._link.write(b"".join((header, *pieces)))
        else:
            self._link.write(header)
            self._link.write_pieces(pieces)

    def close(self) -> None:
        """Send a close frame, and close after the output has left."""
        code = self.close_code
        if code is None:
            code = WebSocketClose.PROTOCOL_ERROR if self._has_sent_error else WebSocketClose.NORMAL
        self.send_close(code)
        self._link.close()

    def send_close(self, code: WebSocketClose, reason: str = "") -> None:
        """Send a close frame, unless one was sent."""
        if not self.is_closed:
            self.is_closed = True
            self._link.write(encode_close(code, reason))

    def received(self) -> None:
        """Forget an error that was sent: the client goes on."""
        self._has_sent_error = False

    # ------------------------------------------------------------ the connection's

    @property
    def peer(self) -> str:
        """The other end; see `Throttle`."""
        return self._link.peer

    @property
    def certificate(self) -> str | None:
        """The subject of the peer's certificate; see `Link`."""
        return self._link.certificate

    @property
    def reading_since(self) -> float | None:
        """The time since which the peer is read; None while it is not."""
        return self._link.reading_since

    @property
    def is_input_waiting(self) -> bool:
        """True while received input waits for a slice."""
        return self._link.is_input_waiting

    @property
    def ending(self) -> str:
        """A description of how the connection ended; see `Link`."""
        return self._ending or self._link.ending

    @ending.setter
    def ending(self, text: str) -> None:
        self._ending = text

    def time(self) -> float:
        """Monotonic seconds."""
        return self._link.time()

    def is_slice_over(self) -> bool:
        """Return True if other connections should go first."""
        return self._link.is_slice_over()

    def wake_at(self, when: float | None) -> None:
        """Call `on_timer` at that time."""
        self._link.wake_at(when)

    def reserve_frame(self, size: int, received: int) -> None:
        """Reserve memory for a large frame of which only a part has come."""
        self._link.reserve_frame(size, received)

    def release_frame(self) -> None:
        """Release what was reserved."""
        self._link.release_frame()

    def in_thread(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Run work of long duration in a thread."""
        self._link.in_thread(work, done)

    def pause_reading(self) -> None:
        """Stop reading from this peer."""
        self._link.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading from this peer."""
        self._link.resume_reading()

    def hold_input(self) -> None:
        """Process no more of what this peer sends."""
        self._link.hold_input()

    def release_input(self) -> None:
        """Process the peer's input again."""
        self._link.release_input()

    def give_up(self, error: BrokerError) -> None:
        """Close the connection with an error that its commands do not bring about."""
        self._link.give_up(error)
