"""Message bodies (`content`): text framing, and the compression some producers use.

Source: OpenWire v11, ActiveMQTextMessage and ActiveMQBytesMessage; RFC 1950 (zlib).

```text
text                | i32 n | n bytes modified UTF-8 |
compressed bytes    | i32 n | zlib stream of n bytes, what follows is slack |
any other, compressed        | zlib stream of the whole content |
```
"""

import zlib
from io import BytesIO
from typing import Final

from pybroker.broker.domain.big_endian import INT
from pybroker.broker.domain.openwire.loose import (
    MalformedOpenWire,
    Reader,
    decode_mutf8,
    encode_mutf8,
)
from pybroker.broker.domain.openwire.mutf8 import SLICE_BYTES, check_utf8, encoded_slices, is_plain_utf8, utf8_slices

BODY_BYTES_MAX: Final = 100 * 1024 * 1024
"""Limit of the uncompressed size of a body: the largest frame that ActiveMQ accepts by default."""

_SLICE_BYTES: Final = 64 << 10
"""Compressed bytes that zlib gets at once."""

_PIECE_BYTES: Final = 1 << 20
"""Uncompressed bytes that it returns at once."""


def encode_text(text: str) -> bytes:
    """Return the content of a text message."""
    encoded = encode_mutf8(text)
    return INT.pack(len(encoded)) + encoded


def encode_text_utf8(text: bytes) -> bytes:
    """Return the content of a text message whose text comes as standard UTF-8, as STOMP's bodies do.

    Raises:
        UnicodeDecodeError: it is no UTF-8.
    """
    if text.isascii() and b"\x00" not in text:
        return INT.pack(len(text)) + text
    check_utf8(text)
    encoded = b"".join(encoded_slices(text))
    return INT.pack(len(encoded)) + encoded


def text_pieces(text: bytes) -> list[bytes]:
    """Return the content of `encode_text_utf8` in pieces; a text that needs no change is a piece as it is.

    Raises:
        UnicodeDecodeError: it is no UTF-8.
    """
    check_utf8(text)
    if all(is_plain_utf8(text[at : at + SLICE_BYTES]) for at in range(0, len(text), SLICE_BYTES)):
        pieces = [text]
    else:
        pieces = list(encoded_slices(text))
    return [INT.pack(sum(map(len, pieces))), *pieces]


def utf8_pieces(data: bytes, start: int, stop: int) -> list[bytes]:
    """Return the text of `decode_text_utf8` in pieces, from a content within other bytes.

    Raises:
        MalformedOpenWire: the content is cut short or no UTF-8.
    """
    if stop - start < INT.size or INT.unpack_from(data, start)[0] != stop - start - INT.size:
        raise MalformedOpenWire("a text whose length is not what it says")
    try:
        return list(utf8_slices(data, start + INT.size, stop))
    except UnicodeDecodeError as error:
        raise MalformedOpenWire(f"a string that is not UTF-8: {error.reason}") from error


def decode_text(content: bytes) -> str:
    """Return the text of a text message's content.

    Raises:
        MalformedOpenWire: the content is cut short or no UTF-8.
    """
    return decode_mutf8(_text_bytes(content))


def decode_text_utf8(content: bytes) -> bytes:
    """Return the text of a text message's content as standard UTF-8; a surrogate without partner becomes `?`.

    Raises:
        MalformedOpenWire: the content is cut short or no UTF-8.
    """
    if len(content) > SLICE_BYTES:
        # Whatever it is, in slices: a thread that does this holds the interpreter for a moment only.
        _check_text_length(content)
        if all(content[at : at + SLICE_BYTES].isascii() for at in range(INT.size, len(content), SLICE_BYTES)):
            return content[INT.size :]
        try:
            return b"".join(utf8_slices(content, INT.size))
        except UnicodeDecodeError as error:
            raise MalformedOpenWire(f"a string that is not UTF-8: {error.reason}") from error
    encoded = _text_bytes(content)
    return encoded if encoded.isascii() else decode_mutf8(encoded).encode("utf-8", "replace")


def inflate(content: bytes, limit: int = BODY_BYTES_MAX) -> bytes:
    """Return what a compressed content was.

    Raises:
        MalformedOpenWire: it is no whole zlib stream, or more than `limit` bytes come out of it.
    """
    try:
        body, is_whole = _decompressed(content, limit + 1)
    except zlib.error as error:
        raise MalformedOpenWire(f"a compressed body that is no zlib stream: {error}") from error
    if len(body) > limit:
        del body  # the error's traceback has this frame, and may be kept for longer
        raise MalformedOpenWire(f"a compressed body of more than {limit} bytes")
    if not is_whole:
        raise MalformedOpenWire("a compressed body that is cut short")
    return body


def inflate_bytes_message(content: bytes, limit: int = BODY_BYTES_MAX) -> bytes:
    """Return what the compressed content of a bytes message was.

    Raises:
        MalformedOpenWire: it is no zlib stream of the length it announces, or that is more than `limit` bytes.
    """
    reader = Reader(content)
    length = reader.integer()
    if not 0 <= length <= limit:
        raise MalformedOpenWire(f"a compressed body of {length} bytes, where the limit is {limit}")
    try:
        body, _ = _decompressed(reader.take(reader.remaining), length)
    except zlib.error as error:
        raise MalformedOpenWire(f"a compressed body that is no zlib stream: {error}") from error
    if len(body) != length:
        raise MalformedOpenWire(f"a compressed body of {length} bytes of which {len(body)} are there")
    return body


def inflates_within(content: bytes, limit: int, *, is_bytes_message: bool) -> bool:
    """Return True if a compressed content is at most so many bytes, or does not inflate."""
    if is_bytes_message:
        return len(content) < INT.size or INT.unpack_from(content)[0] <= limit
    try:
        return len(zlib.decompressobj().decompress(content, limit + 1)) <= limit
    except zlib.error:
        return True


def _decompressed(content: bytes, size_max: int) -> tuple[bytes, bool]:
    """Return what comes out of a stream, at most so many bytes, and whether its end was reached.

    The bytes are in memory once. zlib itself would join the blocks that it has gathered, and so need twice their
    memory. The content goes in by slices, because after each piece zlib copies what it has not consumed.
    """
    stream, gathered, size = zlib.decompressobj(), BytesIO(), 0
    with memoryview(content) as view:
        for start in range(0, len(view), _SLICE_BYTES):
            left: bytes | memoryview = view[start : start + _SLICE_BYTES]
            while left and size < size_max and not stream.eof:
                size += gathered.write(stream.decompress(left, min(_PIECE_BYTES, size_max - size)))
                left = stream.unconsumed_tail
    while size < size_max and (piece := stream.decompress(b"", min(_PIECE_BYTES, size_max - size))):
        size += gathered.write(piece)
    return gathered.getvalue(), stream.eof


def _text_bytes(content: bytes) -> bytes:
    _check_text_length(content)
    return content[INT.size :]


def _check_text_length(content: bytes) -> None:
    length = len(content) - INT.size
    if length < 0 or INT.unpack_from(content)[0] != length:
        raise MalformedOpenWire(f"a text of {max(length, 0)} bytes, which is not what its length says")
