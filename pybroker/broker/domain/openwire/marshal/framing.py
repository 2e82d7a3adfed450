"""Frames out of the chunks a socket gives: sizes, limits, and no copying but for the frames that chunks cut in two.

```text
| i32 size | u8 data type | size - 1 bytes |        00 00 00 01 00 is the null command, which means nothing
```

Source: OpenWire, framing.
"""

from collections.abc import Iterator
from io import BytesIO
from typing import Final

from pybroker.broker.domain.openwire.loose import INT, MalformedOpenWire

FRAME_BYTES_MAX: Final = 104857600
"""What a stock ActiveMQ's connectors take."""

_PREFIX = INT.size
_size_at = INT.unpack_from


class FrameReader:
    """Gathers chunks and gives frames. Feed a chunk, then take the frames; who stops half-way may go on later.

    Attributes:
        frame_bytes_max: the largest frame that is taken; may change between two frames, as negotiation has it.
    """

    __slots__ = ("_data", "_missing", "_offset", "_partial", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._data = b""
        self._offset = 0
        self._partial: BytesIO | None = None
        self._missing = 0

    def feed(self, chunk: bytes) -> None:
        """Add what the socket gave; `frames` should have been taken to the end before."""
        partial = self._partial
        if partial is None:
            self._data = self._data[self._offset :] + chunk if self._offset < len(self._data) else chunk
            self._offset = 0
        elif len(chunk) < self._missing:
            partial.write(chunk)
            self._missing -= len(chunk)
        else:
            self._complete(partial, chunk)

    def frames(self) -> Iterator[tuple[bytes, int, int]]:
        """Give each complete frame as bytes and where in them it starts (at its data type) and ends.

        Raises:
            MalformedOpenWire: a frame announces no size that could be, or one beyond the limit. What follows is lost.
        """
        while self._partial is None:
            data, start = self._data, self._offset + _PREFIX
            if start > len(data):
                return
            size: int = _size_at(data, self._offset)[0]
            if not 0 < size <= self.frame_bytes_max:
                raise MalformedOpenWire(f"a frame of {size} bytes, where 1 to {self.frame_bytes_max} are allowed")
            end = start + size
            if end > len(data):
                self._keep(end)
                return
            self._offset = end
            if size > 1 or data[start]:
                yield data, start, end

    def _keep(self, end: int) -> None:
        """Begin to gather a frame of which only a part is there; its size stays with it."""
        self._partial = BytesIO()
        self._partial.write(memoryview(self._data)[self._offset :])
        self._missing = end - len(self._data)
        self._data = b""
        self._offset = 0

    def _complete(self, partial: BytesIO, chunk: bytes) -> None:
        # The chunk's other frames are copied along, once: a chunk is small beside what it cost to read it.
        partial.write(chunk)
        self._data = partial.getvalue()
        self._partial = None
        self._missing = 0
