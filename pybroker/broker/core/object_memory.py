"""The memory of what clients create: destinations, durable subscriptions, consumers, producers and sessions.

All together they take at most a quarter of the broker's memory limit, and are counted in it. A client that would
exceed that is refused, except for the first `UNCHECKED_BYTES` of each connection: a client that uses few objects is not
refused because another client uses many. What a store holds is counted when it is recovered, and never refused.
"""

from typing import Final

from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.errors import ResourceLimit

DESTINATION_BYTES: Final = 6000
DURABLE_BYTES: Final = 5000
CONSUMER_BYTES: Final = 4000
PRODUCER_BYTES: Final = 500
SESSION_BYTES: Final = 100
"""The memory of each object, without names and selectors, with its entries in tables here and in the store. Measured
with 10,000 to a million of them."""

CHARACTER_BYTES: Final = 4
"""The memory of each character of a name or selector, which several tables have, and a selector compiled too."""

UNCHECKED_BYTES: Final = 64 << 10
"""The bytes that each connection may hold in any case: a hundred producers, or a dozen consumers."""

SHARE_MIN: Final = 16 << 20
"""The smallest share, so that a low limit on messages is none on the number of clients."""


class ObjectMemory:
    """Counts the memory of objects.

    Attributes:
        total: bytes that are counted.
    """

    __slots__ = ("_bytes_max", "_usage", "total")

    def __init__(self, usage: Usage | None = None) -> None:
        """Count in a broker's memory; None: without a limit."""
        self._usage = usage
        self._bytes_max = 0 if usage is None else max(usage.limit // 4, SHARE_MIN)
        self.total = 0

    def check(self, size: int, kind: str, held: int = 0) -> None:
        """Check that an object may be created.

        Args:
            size: its bytes.
            kind: what it is, for the error.
            held: bytes that its connection holds already; `UNCHECKED_BYTES` for objects that outlive it.

        Raises:
            ResourceLimit: it may not.
        """
        if self._bytes_max and held + size > UNCHECKED_BYTES and self.total + size > self._bytes_max:
            raise ResourceLimit(
                f"The {kind} cannot be created: destinations, subscriptions, consumers, producers and sessions take "
                f"{self.total} of the {self._bytes_max} bytes that they may"
            )

    def acquire(self, size: int) -> None:
        """Count an object."""
        self.total += size
        if self._usage is not None:
            self._usage.acquire(size)

    def release(self, size: int) -> None:
        """Subtract an object that is gone."""
        self.total -= size
        if self._usage is not None:
            self._usage.release(size)
