"""The end of each frame: a CRC-32, or with a secret an HMAC.

A CRC finds damage. An HMAC with a key of its connection and direction also finds a frame that another peer made, left
out, repeated or moved, since each frame's number goes into it. It keeps nothing secret.

Source: specification of replication, 4.1 and 7.
"""

import hmac
import zlib
from collections.abc import Sequence
from typing import Final, Protocol

from pybroker.broker.domain.big_endian import UNSIGNED_INT, UNSIGNED_LONG

_HMAC_BYTES: Final = 16


class FrameSeal(Protocol):
    """Makes the ends of the frames of one direction of a connection, in their order."""

    @property
    def byte_count(self) -> int:
        """The length of an end."""
        ...

    def next(self, pieces: Sequence[bytes | memoryview]) -> bytes:
        """Return the end of the next frame, whose type, sequence and payload are in these pieces."""
        ...


class CrcSeal:
    """CRC-32 of type, sequence and payload."""

    byte_count = 4

    def next(self, pieces: Sequence[bytes | memoryview]) -> bytes:
        """Return a CRC-32."""
        crc = 0
        for piece in pieces:
            crc = zlib.crc32(piece, crc)
        return UNSIGNED_INT.pack(crc)


class HmacSeal:
    """The first 16 bytes of an HMAC-SHA256 over the frame's number, type, sequence and payload."""

    byte_count = _HMAC_BYTES

    def __init__(self, key: bytes) -> None:
        """Begin with frame 0.

        Args:
            key: of the connection and the direction.
        """
        self._base = hmac.new(key, digestmod="sha256")
        self._count = 0

    def next(self, pieces: Sequence[bytes | memoryview]) -> bytes:
        """Return an HMAC; the next one is for the next frame."""
        mac = self._base.copy()
        mac.update(UNSIGNED_LONG.pack(self._count))
        self._count += 1
        for piece in pieces:
            mac.update(piece)
        return mac.digest()[:_HMAC_BYTES]


def is_equal(one: bytes, other: bytes | memoryview) -> bool:
    """Compare two ends in a time that does not depend on their bytes."""
    return hmac.compare_digest(one, other)
