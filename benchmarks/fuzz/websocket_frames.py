"""WebSocket conversations that are nearly right: requests, and messages whose frames are cut, among others, or wrong.

Source: RFC 6455, 4.1 and 5.2.
"""

import base64
import struct
from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

from benchmarks.fuzz import bytes_mutations

_CONTINUATION: Final = 0
_TEXT: Final = 1
_BINARY: Final = 2
_CLOSE: Final = 8
_PING: Final = 9
_PONG: Final = 10
_FIN: Final = 0x80
_MASKED: Final = 0x80
_OPCODES: Final = (_CONTINUATION, _TEXT, _BINARY, 3, 7, _CLOSE, _PING, _PONG, 15)
_LENGTHS: Final = (0, 1, 125, 126, 65_535, 65_536, 1 << 20, (1 << 63) - 1, 1 << 63)
_MUTATED: Final = 0.05
"""The share of messages with a wrong frame, most of which end the connection."""
_HEADERS: Final = (
    "Origin: http://b", "Origin: http://evil.example", "Origin: null", "Sec-WebSocket-Protocol: v12.stomp, v11.stomp",
    "Sec-WebSocket-Protocol: mqtt", "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits",
    "Content-Length: 5", "Transfer-Encoding: chunked", "Host: other", "Connection: close", "Cookie: a=b",
)  # fmt: skip


def request(dice: Random) -> bytes:
    """Return a request for an upgrade."""
    key = base64.b64encode(dice.randbytes(16)).decode()
    lines = ["Host: b", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
    return _head([*lines, f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Protocol: v12.stomp"])


def wrong_request(dice: Random) -> bytes:
    """Return a request that is mutated, or has other headers."""
    good = request(dice)
    if dice.random() < 0.5:
        return bytes_mutations.mutated(good, dice, [good])
    lines = good.decode().split("\r\n")[1:-2]
    del lines[dice.randrange(len(lines))]
    lines += [dice.choice(_HEADERS) for _ in range(dice.choice((1, 2, 200)))]
    dice.shuffle(lines)
    return _head(lines)


def frame(opcode: int, payload: bytes, mask: bytes = b"\1\2\3\4", *, is_last: bool = True) -> bytes:
    """Return a client's frame."""
    size = len(payload)
    if size < 126:
        length = bytes((_MASKED | size,))
    elif size < 1 << 16:
        length = struct.pack("!BH", _MASKED | 126, size)
    else:
        length = struct.pack("!BQ", _MASKED | 127, size)
    pad = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    masked = (int.from_bytes(payload, "big") ^ pad).to_bytes(size, "big")
    return bytes(((_FIN if is_last else 0) | opcode,)) + length + mask + masked


def messages(data: bytes, dice: Random) -> bytes:
    """Return bytes as messages, some of them in fragments, and now and then with a wrong frame."""
    frames = list(_messages(data, dice))
    if dice.random() < _MUTATED:
        at = dice.randrange(len(frames))
        frames[at] = _wrong(frames[at], dice, frames)
    return b"".join(frames)


def _messages(data: bytes, dice: Random) -> Iterator[bytes]:
    """Yield frames; fragments of text are cut anywhere, within characters too."""
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(dice.choice((0, 0, 0, 1, 3))))
    pieces = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    # Text that is none would end the connection, and mutated frames of STOMP often are none.
    opcode = dice.choice((_TEXT, _BINARY)) if data.isascii() else _BINARY
    is_fragmented = dice.random() < 0.3
    for number, piece in enumerate(pieces):
        if dice.random() < 0.05:
            yield frame(dice.choice((_PING, _PONG)), dice.randbytes(dice.choice((0, 3, 125))), dice.randbytes(4))
        is_last = not is_fragmented or number == len(pieces) - 1
        yield frame(_CONTINUATION if is_fragmented and number else opcode, piece, dice.randbytes(4), is_last=is_last)


def _wrong(good: bytes, dice: Random, others: Sequence[bytes]) -> bytes:
    match dice.randrange(4):
        case 0:
            return bytes_mutations.mutated(good, dice, others)
        case 1:
            return bytes((dice.randrange(256),)) + good[1:]
        case 2:
            length = dice.choice(_LENGTHS)
            return bytes((_FIN | dice.choice(_OPCODES), _MASKED | 127)) + struct.pack("!Q", length) + good[:20]
        case _:
            payload = dice.choice((b"", b"\x03", b"\x03\xe8", b"\x03\xe8\xff", b"\x00\x00", b"\x03\xe8bye"))
            return frame(dice.choice((_CLOSE, _TEXT, _CONTINUATION)), payload, dice.randbytes(4))


def _head(lines: Sequence[str]) -> bytes:
    return "\r\n".join(("GET /stomp HTTP/1.1", *lines, "", "")).encode()
