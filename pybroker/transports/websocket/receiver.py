"""Received WebSocket frames to payloads, through the sans-I/O half of the library `websockets`.

The library reads, checks and unmasks frames, and answers pings and close frames. It would read all frames of a chunk at
once, and keep a large frame until it is complete. So it gets one frame at a time, and a large frame as fragments:

```text
client   | header, length n > PIECE_BYTES | payload ...                                          |
library  | header, FIN 0, PIECE_BYTES | payload | header, CONTINUATION, PIECE_BYTES | payload | ... |
```

A mask has four bytes, and `PIECE_BYTES` is a multiple of that, so the mask of each fragment is that of the frame. The
receiver reads no more of a header than lengths and mask, and checks what has to be known before the payload comes.

Source: RFC 6455, 5.2 to 5.5, and 8.1.
"""

import codecs
from collections.abc import Iterable
from typing import Final

from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol

from pybroker.transports.websocket.frames import WebSocketClose
from pybroker.transports.websocket.release import release

PIECE_BYTES: Final = 16 << 10
"""The payload that is kept until it is complete: 16 MB in 1,000 connections."""

_FIN: Final = 0x80
_MASKED: Final = 0x80
_CONTROL: Final = 0x08
_LENGTH: Final = 0x7F
_SHORT_MAX: Final = 125
_LENGTH_BYTES: Final = {126: 2, 127: 8}
"""The bytes of the two longer forms of a length."""
_LENGTHS: Final = {126: (126, (1 << 16) - 1), 127: (1 << 16, (1 << 63) - 1)}
"""The lengths that they are for."""
_MASK_BYTES: Final = 4
_HEADER_BYTES_MIN: Final = 2
_HEADER_BYTES_MAX: Final = 14


class FrameReceiver:
    """Turns chunks into payloads of data frames, one at a time.

    Attributes:
        has_binary: True from the first binary message on.
    """

    __slots__ = (
        "_at",
        "_data",
        "_final",
        "_header",
        "_is_text",
        "_left",
        "_mask",
        "_message_bytes",
        "_message_bytes_max",
        "_protocol",
        "_rest",
        "_text",
        "has_binary",
    )

    def __init__(self, protocol: ServerProtocol, message_bytes_max: int) -> None:
        """Begin behind the handshake.

        Args:
            protocol: the library's part, in its state `OPEN`, without a limit to messages.
            message_bytes_max: the longest message.
        """
        self._protocol = protocol
        self._message_bytes_max = message_bytes_max
        self._data = b""
        self._at = 0
        self._header = b""
        """An incomplete header."""
        self._left: int = 0
        """The bytes that the library still needs of the payload whose header it has."""
        self._rest = 0
        """The bytes behind these of a large frame."""
        self._mask = b""
        self._final = 0
        """The FIN bit of a large frame."""
        self._message_bytes = 0
        self._is_text = False
        self._text = codecs.getincrementaldecoder("utf-8")()
        self.has_binary = False

    @property
    def is_over(self) -> bool:
        """True when a close frame came, or was made for a violation; `output` has the answer."""
        return self._protocol.close_expected()

    @property
    def reason(self) -> str:
        """A description of why it is over."""
        error = self._protocol.parser_exc
        if error is not None:
            return str(error)
        sent, received = self._protocol.close_sent, self._protocol.close_rcvd
        if received is not None:
            return f"close frame {received.code}"
        return "" if sent is None else sent.reason

    @property
    def is_closed_by_peer(self) -> bool:
        """True if a valid close frame came."""
        return self._protocol.close_rcvd is not None and self._protocol.parser_exc is None

    def add(self, chunk: bytes) -> None:
        """Append received bytes."""
        self._data = self._data[self._at :] + chunk if self._at < len(self._data) else chunk
        self._at = 0

    def output(self) -> bytes:
        """Return the frames to send: pongs, and the last one."""
        return b"".join(self._protocol.data_to_send())

    def next(self) -> bytes | None:
        """Return the payload of the next data frame, or of a piece of a large one; None if more bytes are needed.

        Other frames return an empty payload, as empty data frames do; then there may be an `output`.
        """
        if self.is_over:
            return None
        header: bytes | None = b""
        if not self._left:
            header = self._continue_frame() if self._rest else self._begin_frame()
        if header is None:
            return b"" if self._protocol.close_expected() else None
        payload = self._data[self._at : self._at + self._left]
        self._at += len(payload)
        self._left -= len(payload)
        self._protocol.receive_data(header + payload)
        if self._left and not self._protocol.close_expected():
            self._drop_data()
            return None
        return self._payload(self._protocol.events_received())

    def clear(self) -> None:
        """Drop what is left, and release the library's part."""
        self._data = self._header = b""
        self._at = self._left = self._rest = 0
        release(self._protocol)

    def _begin_frame(self) -> bytes | None:
        """Take a header off the received bytes, and return it for the library.

        Returns:
            The header, of the first fragment if the frame is large; None if it is incomplete, or the frame refused.
        """
        head = self._header + self._data[self._at : self._at + _HEADER_BYTES_MAX - len(self._header)]
        if len(head) < _HEADER_BYTES_MIN:
            self._keep(head)
            return None
        first, second = head[0], head[1]
        length = form = second & _LENGTH
        payload_at = _HEADER_BYTES_MIN + _LENGTH_BYTES.get(form, 0)
        mask_at, payload_at = payload_at, payload_at + (_MASK_BYTES if second & _MASKED else 0)
        if len(head) < payload_at:
            self._keep(head)
            return None
        self._at += payload_at - len(self._header)
        self._header = b""
        if form > _SHORT_MAX:
            length = int.from_bytes(head[_HEADER_BYTES_MIN:mask_at], "big")
            if not _LENGTHS[form][0] <= length <= _LENGTHS[form][1]:
                self._fail(WebSocketClose.PROTOCOL_ERROR, "the length of a frame is not in its shortest form")
                return None
        if first & _CONTROL:
            if length > _SHORT_MAX:
                self._fail(WebSocketClose.PROTOCOL_ERROR, "control frame too long")
                return None
        elif self._message_bytes + length > self._message_bytes_max:
            self._fail(WebSocketClose.TOO_BIG, f"a message may have {self._message_bytes_max} bytes")
            return None
        else:
            self._message_bytes = 0 if first & _FIN else self._message_bytes + length
        self._left = min(length, PIECE_BYTES)
        if length <= PIECE_BYTES:
            return head[:payload_at]
        self._rest = length - PIECE_BYTES
        self._final = first & _FIN
        self._mask = head[mask_at:payload_at]
        return _fragment_header(first & ~_FIN, second, PIECE_BYTES, self._mask)

    def _continue_frame(self) -> bytes:
        """Return the header of a large frame's next fragment, for the library."""
        self._left = min(self._rest, PIECE_BYTES)
        self._rest -= self._left
        return _fragment_header(0 if self._rest else self._final, _MASKED, self._left, self._mask)

    def _keep(self, head: bytes) -> None:
        """Keep an incomplete header."""
        self._header = head
        self._drop_data()

    def _drop_data(self) -> None:
        """Drop the chunk, all of which is read: a silent client would keep it for long."""
        self._data = b""
        self._at = 0

    def _fail(self, code: WebSocketClose, reason: str) -> None:
        self._protocol.fail(code, reason)

    def _payload(self, frames: Iterable[Request | Response | Frame]) -> bytes:
        """Return the payload of a data frame that was completed, if one was."""
        for frame in frames:
            assert isinstance(frame, Frame), "the handshake is over"
            if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
                self._is_text = frame.opcode is Opcode.TEXT
                self.has_binary = self.has_binary or not self._is_text
            elif frame.opcode is not Opcode.CONT:
                break
            payload = bytes(frame.data)
            if not self._is_text or self._is_utf8(payload, frame):
                return payload
            self._fail(WebSocketClose.INVALID_TEXT, "a text message is no UTF-8")
        return b""

    def _is_utf8(self, payload: bytes, frame: Frame) -> bool:
        """Return True if a part of a text message goes on in UTF-8; the last one ends with a whole character."""
        try:
            if frame.fin and frame.opcode is Opcode.TEXT:
                return payload.isascii() or bool(payload.decode())
            self._text.decode(payload, frame.fin)
        except UnicodeDecodeError:
            return False
        return True


def _fragment_header(first: int, second: int, length: int, mask: bytes) -> bytes:
    """Return the header of a fragment that is made of a large frame, with the frame's own MASK bit."""
    if length <= _SHORT_MAX:
        return bytes((first, second & _MASKED | length)) + mask
    return bytes((first, second & _MASKED | 126)) + length.to_bytes(2, "big") + mask
