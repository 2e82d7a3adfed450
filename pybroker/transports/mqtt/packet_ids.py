"""A set of packet identifiers that takes at most 8 KiB, however many of the 65,535 are in it.

A client before MQTT 5 is bound to no receive maximum: it may leave every identifier of QoS 2 unreleased. In a set of
Python these take some megabytes for each connection, which no limit of the core counts.
"""

from typing import Final

FEW_MAX: Final = 64
"""So many are in a set of Python, which is smaller then than a bit for each possible one."""

FEW_BYTES: Final = 100
"""The memory of one in a set of Python."""

BITS_BYTES: Final = 1 << 13
"""A bit for each packet identifier."""


class PacketIds:
    """Packet identifiers, 1 to 65535."""

    __slots__ = ("_bits", "_count", "_few")

    def __init__(self) -> None:
        self._few: set[int] = set()
        self._bits: bytearray | None = None
        self._count = 0
        """The number of bits that are set in `_bits`."""

    def __contains__(self, packet_id: int) -> bool:
        if self._bits is None:
            return packet_id in self._few
        return bool(self._bits[packet_id >> 3] & 1 << (packet_id & 7))

    def __len__(self) -> int:
        return len(self._few) if self._bits is None else self._count

    @property
    def size(self) -> int:
        """The bytes of memory that it takes, about."""
        return FEW_BYTES * len(self._few) if self._bits is None else BITS_BYTES

    def add(self, packet_id: int) -> None:
        """Add one. Harmless when repeated."""
        if self._bits is None:
            self._few.add(packet_id)
            if len(self._few) > FEW_MAX:
                self._count = len(self._few)
                self._bits = bytearray(BITS_BYTES)
                for each in self._few:
                    self._bits[each >> 3] |= 1 << (each & 7)
                self._few = set()
        elif packet_id not in self:
            self._bits[packet_id >> 3] |= 1 << (packet_id & 7)
            self._count += 1

    def discard(self, packet_id: int) -> None:
        """Remove one, if it is there."""
        if self._bits is None:
            self._few.discard(packet_id)
        elif packet_id in self:
            self._bits[packet_id >> 3] &= ~(1 << (packet_id & 7))
            self._count -= 1
            if not self._count:
                self._bits = None
