"""Message bodies (`content`): text framing, and the compression some producers use.

Source: OpenWire v11, ActiveMQTextMessage and ActiveMQBytesMessage; RFC 1950 (zlib).

```text
text                | i32 n | n bytes modified UTF-8 |
compressed bytes    | i32 n | zlib stream of n bytes, what follows is slack |
any other, compressed        | zlib stream of the whole content |
```
"""

import zlib
from typing import Final

from pybroker.broker.domain.big_endian import INT
from pybroker.broker.domain.openwire.loose import (
    MalformedOpenWire,
    Reader,
    decode_mutf8,
    decoded_mutf8_slices,
    encode_mutf8,
)
from pybroker.broker.domain.openwire.mutf8 import encoded_slices

BODY_BYTES_MAX: Final = 100 * 1024 * 1024
"""Limit of the uncompressed size of a body: the largest frame that ActiveMQ accepts by default."""


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
    text.decode()
    encoded = b"".join(encoded_slices(text))
    return INT.pack(len(encoded)) + encoded


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
    encoded = _text_bytes(content)
    if encoded.isascii():
        return encoded
    try:
        encoded.decode()
    except UnicodeDecodeError:
        return b"".join([piece.encode("utf-8", "replace") for piece in decoded_mutf8_slices(encoded)])
    return encoded


def inflate(content: bytes, limit: int = BODY_BYTES_MAX) -> bytes:
    """Return what a compressed content was.

    Raises:
        MalformedOpenWire: it is no whole zlib stream, or more than `limit` bytes come out of it.
    """
    stream = zlib.decompressobj()
    try:
        body = stream.decompress(content, limit + 1)
    except zlib.error as error:
        raise MalformedOpenWire(f"a compressed body that is no zlib stream: {error}") from error
    if len(body) > limit:
        raise MalformedOpenWire(f"a compressed body of more than {limit} bytes")
    if not stream.eof:
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
    if length == 0:
        return b""  # zlib takes a limit of 0 for none
    try:
        body = zlib.decompressobj().decompress(reader.take(reader.remaining), length)
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


def _text_bytes(content: bytes) -> bytes:
    encoded = content[INT.size :]
    if len(content) < INT.size or INT.unpack_from(content)[0] != len(encoded):
        raise MalformedOpenWire(f"a text of {len(encoded)} bytes, which is not what its length says")
    return encoded
