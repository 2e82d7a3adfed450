"""Carries out the packets of a connection's input: the loop that sessions share whose codec yields one value a packet.

```text
chunk -> decoder.feed -> packets --one at a time--> obey
                            |                        `- returns True: not now, the same packet comes again
                            `- slice over, or held: the others wait for `proceed`
```

A packet is called a frame where the protocol's name for it is that. Between packets other connections may come first
(`fair_queue`); a large packet of which only a part has come has its memory reserved (`frame_memory`).
"""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Generic, Protocol, TypeVar

from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.errors import BrokerError
from pybroker.transports.fair_queue import FRAMES_PER_CLOCK
from pybroker.transports.frame_memory import UNRESERVED_BYTES
from pybroker.transports.session import Link

Packet = TypeVar("Packet")
_Decoded = TypeVar("_Decoded", covariant=True)


class Decoder(Protocol[_Decoded]):
    """Turns chunks into packets."""

    def feed(self, chunk: bytes, /) -> Iterator[_Decoded]:
        """Yield each packet that the chunk completes.

        Raises:
            BrokerError: the bytes are no packet.
        """
        ...

    @property
    def received(self) -> int:
        """The bytes that have come of an unfinished packet."""
        ...

    @property
    def unfinished(self) -> int:
        """The bytes of the whole unfinished packet, as far as is known."""
        ...

    def clear(self) -> None:
        """Drop what is unfinished."""
        ...


class PacketLoop(Generic[Packet]):
    """The packets of one connection.

    Attributes:
        is_deaf: True while no packet is carried out, because the session is held or over; the session sets it.
    """

    __slots__ = ("_again", "_decoder", "_fail", "_has_reserved", "_link", "_obey", "_packets", "is_deaf")

    def __init__(
        self,
        link: Link,
        decoder: Decoder[Packet],
        obey: Callable[[Packet], bool | None],
        fail: Callable[[BrokerError], None],
    ) -> None:
        """Begin.

        Args:
            link: moves the bytes.
            decoder: turns them into packets.
            obey: carries out a packet; returns True if it cannot yet, and is to get it again.
            fail: ends the connection, because `decoder` or `obey` has raised an error.
        """
        self.is_deaf = False
        self._link = link
        self._decoder = decoder
        self._obey = obey
        self._fail = fail
        self._packets: Iterator[Packet] = iter(())
        """The packets of the last chunk that are left."""
        self._again: Packet | None = None
        self._has_reserved = False

    def receive(self, chunk: bytes) -> bool:
        """Carry out the packets that a chunk completes; returns as `Session.receive`."""
        if self.is_deaf:
            return False
        self._packets = self._decoder.feed(chunk)
        return self.proceed()

    def proceed(self) -> bool:
        """Carry out complete packets until the slice is over; return True if any may be left."""
        is_deaf = self.is_deaf  # a variable, as a type checker would take the attribute for False below
        if is_deaf:
            return False
        obey, fail, packets = self._obey, self._fail, self._packets  # `end` may come before an error
        if self._again is not None:
            packets = chain((self._again,), packets)
            self._again = None
        left = FRAMES_PER_CLOCK
        try:
            for packet in packets:
                if obey(packet):
                    self._again = packet
                    return True
                if self._has_reserved:  # for this packet, which the broker has now
                    self._has_reserved = False
                    self._link.release_frame()
                if self.is_deaf:
                    return False
                left -= 1
                if not left or EFFORT.is_large:
                    if self._link.is_slice_over():
                        return True
                    left = FRAMES_PER_CLOCK
        except BrokerError as error:
            fail(error)
            return False
        received = self._decoder.received
        if received > UNRESERVED_BYTES:
            self._has_reserved = True
            self._link.reserve_frame(self._decoder.unfinished, received)
        return False

    def end(self) -> None:
        """Drop what was received and is not carried out, and the session, so that no garbage collection has to."""
        self.is_deaf = True
        self._decoder.clear()
        self._packets = iter(())
        self._again = None
        self._obey = self._fail = _ended


def _ended(_packet: object) -> None:
    raise AssertionError("a connection that has ended gets no packets")
