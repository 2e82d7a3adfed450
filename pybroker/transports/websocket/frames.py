"""WebSocket frames of a server: headers of data frames, and close frames. A server's frames are not masked.

```text
+-----------------+-------------------+---------------------+---------+
| FIN, 0, opcode  | 0, length         | if length was 126:  | payload |
| 1 + 3 + 4 bits  | 1 + 7 bits        | u16 BE; if 127: u64 |         |
+-----------------+-------------------+---------------------+---------+
close:  opcode 8, payload: code u16 BE, reason in UTF-8, 125 bytes in all
```

Source: RFC 6455, 5.2 and 7.4. What clients send is in `receiver`.
"""

import codecs
import enum
import struct
from collections.abc import Sequence
from typing import Final

_FIN: Final = 0x80
_SHORT_MAX: Final = 125
_U16: Final = 126
_U64: Final = 127
_REASON_BYTES_MAX: Final = 123

UTF8_CHECKED_BYTES: Final = 8 << 20
"""The longest frame outside ASCII that may be sent as text: to find out whether it is UTF-8 takes a millisecond for
each megabyte. Longer ones are sent as binary messages."""


class FrameOpcode(enum.IntEnum):
    """The opcodes of what a server sends."""

    TEXT = 1
    BINARY = 2
    CLOSE = 8


class WebSocketClose(enum.IntEnum):
    """The codes with which pybroker closes."""

    NORMAL = 1000
    """After a DISCONNECT, or because the client is silent."""
    GOING_AWAY = 1001
    """The broker stops."""
    PROTOCOL_ERROR = 1002
    """A violation of WebSocket, or of the protocol in it, whose session has sent an error before."""
    INVALID_TEXT = 1007
    """A text message that is no UTF-8."""
    POLICY = 1008
    """A limit, a changed right or an operator ends the connection."""
    TOO_BIG = 1009
    """A message above the limit."""
    INTERNAL_ERROR = 1011
    """The broker has failed."""


def encode_header(opcode: FrameOpcode, length: int) -> bytes:
    """Return the header of an unfragmented frame whose payload has so many bytes."""
    if length <= _SHORT_MAX:
        return bytes((_FIN | opcode, length))
    if length < 1 << 16:
        return struct.pack("!BBH", _FIN | opcode, _U16, length)
    return struct.pack("!BBQ", _FIN | opcode, _U64, length)


def encode_close(code: WebSocketClose, reason: str = "") -> bytes:
    """Return a close frame; a reason that is too long is cut."""
    text = reason.encode()
    if len(text) > _REASON_BYTES_MAX:
        text = text[:_REASON_BYTES_MAX].decode(errors="ignore").encode()
    return encode_header(FrameOpcode.CLOSE, 2 + len(text)) + struct.pack("!H", code) + text


def is_text(pieces: Sequence[bytes]) -> bool:
    """Return True if the pieces of a frame may be sent as text: they are ASCII, or UTF-8 and not too long to check."""
    if all(map(bytes.isascii, pieces)):
        return True
    if sum(map(len, pieces)) > UTF8_CHECKED_BYTES:
        return False
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for piece in pieces:
            decoder.decode(piece)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
