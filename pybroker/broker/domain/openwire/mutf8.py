"""Java's modified UTF-8, in linear time whatever the bytes: surrogates cost little more than other characters.

Modified UTF-8 writes a supplementary character as its two surrogates, three bytes each, and U+0000 as two bytes.
Python's codecs call a function for each surrogate, half a microsecond and more: 48 MB of them took 8 to 19 s. Here they
are processed by operations on whole slices. No codec of Python's decodes a surrogate without such a call, but each is
the bitwise OR of two characters that it does decode:

```text
              U+D800..DFFF  =  U+D000..D7FF  |  U+C800..CFFF
UTF-8         ED A0..BF xx     ED 80..9F xx     EC A0..BF xx
UTF-16        D8..DF xx        D0..D7 xx        C8..CF xx
```

So a slice becomes two, which differ where there are surrogates only. Both are converted to the other encoding, and
their OR is the slice in that encoding.

Source: `DataOutput.writeUTF` of Java; RFC 3629 (UTF-8), RFC 2781 (UTF-16).
"""

import re
import sys
from array import array
from codecs import getincrementaldecoder
from collections.abc import Iterator
from typing import Final

SLICE_BYTES: Final = 32 << 10
"""Bytes that are processed at a time: their intermediate forms fit the processor's cache. They take 0.5 ms."""

_CHECKED_BYTES: Final = 1 << 20

_FEW: Final = 4
"""Up to so many surrogates go through Python's codecs, which cost less for them than all operations on a slice."""

_SHORT_BYTES: Final = 256
"""Up to so many bytes are encoded a character at a time, which costs less for few of them."""


def decoded_slices(data: bytes) -> Iterator[str]:
    """Yield the text of modified or standard UTF-8, a slice at a time. Surrogates without a partner stay as they are.

    Raises:
        UnicodeDecodeError: it is neither; the position is that in the slice.
    """
    for piece in _slices(data):
        yield _decoded(piece)


def utf8_slices(data: bytes, start: int, stop: int | None = None) -> Iterator[bytes]:
    """Yield modified or standard UTF-8 as standard UTF-8, a slice at a time; a single surrogate becomes `?`.

    Args:
        data: the bytes.
        start: the offset of the text.
        stop: the offset of its end; None: that of the bytes.

    Raises:
        UnicodeDecodeError: it is neither; the position is that in the slice.
    """
    for piece in _slices(data, start, stop):
        if piece.isascii():
            yield piece
        else:
            yield _decoded(piece).encode("utf-8", "replace")


def check_utf8(data: bytes) -> None:
    """Check that bytes are standard UTF-8. Raises `UnicodeDecodeError` with the position of what is not."""
    decoder = getincrementaldecoder("utf-8")()
    view = memoryview(data)
    start = 0
    try:
        for start in range(0, len(data), _CHECKED_BYTES):
            decoder.decode(view[start : start + _CHECKED_BYTES])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        data.decode()  # raises it with the position in all of the bytes
        raise


def encoded_slices(data: bytes) -> Iterator[bytes]:
    """Yield UTF-8 that decodes, surrogates included, as modified UTF-8, a slice at a time."""
    if len(data) <= _SHORT_BYTES:
        yield _SUPPLEMENTARY.sub(_surrogates, data).replace(b"\x00", _NUL)
        return
    for piece in _slices(data):
        encoded = _encoded(piece) if _SUPPLEMENTARY.search(piece) else piece
        yield encoded.replace(b"\x00", _NUL)


# ---------------------------------------------------------------- slices

_NUL: Final = b"\xc0\x80"
_HIGH_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xaf][\x80-\xbf]\Z")
_CHANGED: Final = b"\x00\xf0\xf1\xf2\xf3\xf4"
"""U+0000, and the first bytes of supplementary characters."""
_SUPPLEMENTARY: Final = re.compile(rb"[\xf0-\xf4][\x80-\xbf]{3}")


def is_plain_utf8(piece: bytes) -> bool:
    """Return True if a piece of UTF-8 is the same in modified UTF-8: no NUL, nothing of a supplementary character."""
    return len(piece.translate(None, _CHANGED)) == len(piece)


def _slices(data: bytes, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
    """Cut a text into slices that end between characters, and not within a pair of surrogates."""
    length = len(data) if stop is None else stop
    while length - start > SLICE_BYTES:
        end = start + SLICE_BYTES
        for _ in range(3):
            if data[end] & 0xC0 != 0x80:
                break
            end -= 1
        if _HIGH_SURROGATE.match(data, end - 3, end):
            end -= 3
        yield data[start:end]
        start = end
    yield data[start:length] if start or length < len(data) else data


# ---------------------------------------------------------------- surrogates


def _table(*ranges: tuple[int, int]) -> bytes:
    return bytes([any(first <= byte <= last for first, last in ranges) for byte in range(256)])


_LEAD: Final = _table((0xED, 0xED))
_SECOND: Final = _table((0xA0, 0xBF))
_FIRST_HALF: Final = _table((0xD8, 0xDB))
_SECOND_HALF: Final = _table((0xDC, 0xDF))
_EITHER_HALF: Final = _table((0xD8, 0xDF))
_WIDE: Final = "w" if sys.version_info >= (3, 13) else "u"
"""The array of UTF-32 units, in little-endian order as on all machines that pybroker runs on.

It makes a text of any units, where the codec calls a function for each surrogate.
"""


def _integer(data: bytes | bytearray) -> int:
    return int.from_bytes(data, "little")


def _two(data: bytes) -> tuple[bytes, bytes]:
    """Return UTF-8 with surrogates as the two texts without any whose OR it is."""
    leads = _integer(data.translate(_LEAD)) & _integer(data.translate(_SECOND)) >> 8
    bits, length = _integer(data), len(data)
    return (bits ^ leads << 13).to_bytes(length, "little"), (bits ^ leads).to_bytes(length, "little")


def _decoded(data: bytes) -> str:
    data = data.replace(_NUL, b"\x00")
    surrogates = data.count(b"\xed")
    if surrogates <= _FEW:
        return _decoded_by_codecs(data) if surrogates else data.decode()
    one, other = (each.decode().encode("utf-16-le") for each in _two(data))
    length = len(one)
    units = (_integer(one) | _integer(other)).to_bytes(length, "little")
    try:
        return units.decode("utf-16-le")
    except UnicodeDecodeError:  # a surrogate without partner
        return _with_single_surrogates(one, other, units)


def _with_single_surrogates(one: bytes, other: bytes, units: bytes) -> str:
    """Return the text of UTF-16 units; where a surrogate has no partner, that of the OR of the two others."""
    length, high = len(units), units[1::2]
    pairs = _integer(high.translate(_FIRST_HALF)) & _integer(high.translate(_SECOND_HALF)) >> 8
    is_paired = bytearray(length)
    is_paired[1::2] = (pairs | pairs << 8).to_bytes(length // 2, "little")
    mask = _integer(is_paired) * 0xFF
    joined, rest = _integer(units) & mask, ~mask
    wide, wider = (
        (_integer(each) & rest | joined).to_bytes(length, "little").decode("utf-16-le").encode("utf-32-le")
        for each in (one, other)
    )
    text = array(_WIDE)  # pyright: ignore[reportDeprecated] - "w" replaces "u" from Python 3.13 on
    text.frombytes((_integer(wide) | _integer(wider)).to_bytes(len(wide), "little"))
    return text.tounicode()


def _decoded_by_codecs(data: bytes) -> str:
    # No other character's bytes contain 0xc0, and decoding and encoding as UTF-16 joins surrogates into pairs.
    halves = data.decode("utf-8", "surrogatepass")
    return halves.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


def _encoded(data: bytes) -> bytes:
    one, other = (each.decode().encode("utf-16-le") for each in _two(data))
    length = len(one)
    halves = bytearray(length)
    halves[1::2] = one[1::2].translate(_EITHER_HALF)
    mask = _integer(halves)
    # D8..DF without the bit 0x08 is D0..D7, without 0x10 C8..CF.
    narrow, narrower = (
        (_integer(each) ^ mask << shift).to_bytes(length, "little").decode("utf-16-le").encode()
        for each, shift in ((one, 3), (other, 4))
    )
    return (_integer(narrow) | _integer(narrower)).to_bytes(len(narrow), "little")


def _surrogates(match: re.Match[bytes]) -> bytes:
    """Return a supplementary character of UTF-8 as the UTF-8 of its surrogates."""
    code = ord(match[0].decode()) - 0x10000
    return (chr(0xD800 + (code >> 10)) + chr(0xDC00 + (code & 0x3FF))).encode("utf-8", "surrogatepass")
