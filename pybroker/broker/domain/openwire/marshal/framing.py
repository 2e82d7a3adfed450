"""Splits a socket's chunks into frames: sizes, limits, and copies only of the frames that chunks cut in two.

A frame of a megabyte or more always comes in several chunks. It is gathered in a buffer of its own, whose bytes can be
kept as they are: to copy 100 MB takes up to a quarter of a second, and as much memory again.

```text
| i32 size | u8 data type | size - 1 bytes |        00 00 00 01 00 is the null command, which means nothing
```

Source: OpenWire, framing.
"""

from io import BytesIO
from typing import Final

from pybroker.broker.domain.big_endian import INT
from pybroker.broker.domain.openwire.loose import MalformedOpenWire

FRAME_BYTES_MAX: Final = 104857600
"""The default limit of ActiveMQ's connectors."""

WHOLE_BYTES_MIN: Final = 1 << 20
"""The length from which a frame is gathered in a buffer of its own."""

_PREFIX: Final = INT.size
_size_at: Final = INT.unpack_from


class FrameReader:
    """Splits chunks into frames. After a chunk, `advance` moves from frame to frame, at once or later.

    A frame in `whole` comes before them: the caller takes it, and sets `whole` to None.

    Attributes:
        frame_bytes_max: the largest frame that is accepted; it may change between two frames, after a negotiation.
        data: bytes that contain the last frame found.
        start: the offset of that frame's data type.
        stop: the offset behind that frame.
        unfinished: the length of the frame of which only a part has come; 0 for none, or only its size.
        whole: a large frame that the last chunk has completed, from its data type on; None for none.
    """

    __slots__ = ("_held", "_missing", "_partial", "data", "frame_bytes_max", "start", "stop", "unfinished", "whole")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self.data: bytes = b""
        self.start: int = 0
        self.stop: int = 0
        self.unfinished: int = 0
        self.whole: BytesIO | None = None
        self._partial: BytesIO | None = None
        self._missing: int = 0
        self._held: bytes = b""

    def feed(self, chunk: bytes) -> None:
        """Add what the socket gave; the frames of what it gave before should have been taken."""
        partial = self._partial
        if partial is None:
            self.data = self.data[self.stop :] + chunk if self.stop < len(self.data) else chunk
            self.stop = 0
        elif len(chunk) < self._missing:
            partial.write(chunk)
            self._missing -= len(chunk)
        else:
            self._complete(partial, chunk)

    @property
    def received(self) -> int:
        """How many bytes of the unfinished frame have come."""
        return self.unfinished - self._missing

    def advance(self) -> bool:
        """Go to the next complete frame; False when there is none.

        Raises:
            MalformedOpenWire: a frame announces an impossible size, or one above the limit. The rest is lost.
        """
        while self._partial is None:
            data, start = self.data, self.stop + _PREFIX
            if start > len(data):
                if self.stop == len(data):
                    self.data = b""  # a silent connection must not hold the last frame, which may be a large one
                    self.stop = 0
                return False
            size: int = _size_at(data, self.stop)[0]
            if not 0 < size <= self.frame_bytes_max:
                raise MalformedOpenWire(f"a frame of {size} bytes, where 1 to {self.frame_bytes_max} are allowed")
            stop = start + size
            if stop > len(data):
                self._keep(stop)
                return False
            self.start, self.stop = start, stop
            if size > 1 or data[start]:
                return True
        return False

    def skip(self, count: int) -> None:
        """Go over so many frames, which are there and as long as this one."""
        step = count * (_PREFIX + self.stop - self.start)
        self.start += step
        self.stop += step
        if self.stop > len(self.data):  # what was carried out for them has held the input
            missing = self.stop - len(self.data)
            self.data += self._held[:missing]
            self._held = self._held[missing:]

    def hold(self) -> None:
        """Find no frame behind the last one until `release`."""
        self._held = self.data[self.stop :]
        self.data = self.data[: self.stop]

    def release(self) -> None:
        """Find the frames again that were held; nothing was fed meanwhile."""
        held, self._held = self._held, b""
        if held:
            self.feed(held)

    def clear(self) -> None:
        """Drop all bytes: the connection has ended, and the garbage collection that finds this object may come late."""
        self.data = self._held = b""
        self.start = self.stop = self.unfinished = self._missing = 0
        self._partial = self.whole = None

    def _keep(self, stop: int) -> None:
        """Begin to gather a frame of which only a part is there; its size stays with it, unless it is large."""
        self.unfinished = stop - self.stop
        start = self.stop + (_PREFIX if self.unfinished > WHOLE_BYTES_MIN else 0)
        self._partial = BytesIO()
        self._partial.write(memoryview(self.data)[start:])
        self._missing = stop - len(self.data)
        self.data = b""
        self.stop = 0

    def _complete(self, partial: BytesIO, chunk: bytes) -> None:
        if self.unfinished > WHOLE_BYTES_MIN:
            partial.write(memoryview(chunk)[: self._missing])
            self.whole = partial
            self.data = chunk[self._missing :]
        else:
            # The chunk's other frames are copied along, once: a chunk is small beside what it cost to read it.
            partial.write(chunk)
            self.data = partial.getvalue()
        self._partial = None
        self._missing = self.unfinished = 0
