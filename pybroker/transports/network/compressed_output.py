"""Sends the messages of a bridge with compressed bodies, in their order.

```text
small  --> compressed at once --------------------------> written
large  --> waits --> compressed in the server's thread --> written
small behind a large one --> waits for its turn ---------> written
```

A large body takes 20 ms for each MB, during which the event loop serves all other clients. The bridge takes no further
messages meanwhile: one at a time is in memory twice.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from pybroker.broker.domain.errors import BrokerError
from pybroker.broker.domain.network.compression import compressed
from pybroker.transports.session import Link

AT_ONCE_BYTES_MAX: Final = 64 << 10
"""Larger messages are compressed in the thread; one of this size takes 1.5 ms."""


class CompressedOutput:
    """The messages that wait for their compression, or behind such a one."""

    def __init__(
        self,
        link: Link,
        write: Callable[[bytes], None],
        *,
        pause: Callable[[], None],
        on_error: Callable[[BrokerError], None],
    ) -> None:
        """Begin with none.

        Args:
            link: has the thread.
            write: writes an encoded message to the remote broker.
            pause: forwards nothing until all that was written has left the process.
            on_error: called for a message that cannot be compressed, which ends the bridge.
        """
        self._link = link
        self._write = write
        self._pause = pause
        self._on_error = on_error
        self._waiting: deque[bytes] = deque()
        self._result: bytes | BrokerError = b""
        self._is_closed = False

    @property
    def is_waiting(self) -> bool:
        """True while messages wait here."""
        return bool(self._waiting)

    def send(self, data: bytes) -> None:
        """Write an encoded message with its body compressed; or later, if it is large or such a one is before it.

        Raises:
            MalformedOpenWire: it does not decode.
        """
        if not self._waiting and len(data) <= AT_ONCE_BYTES_MAX:
            self._write(compressed(data))
            return
        self._waiting.append(data)
        self._pause()
        if len(self._waiting) == 1:
            self._begin()

    def close(self) -> None:
        """Drop what waits: it has no answer, and returns to its place."""
        self._is_closed = True
        self._waiting.clear()

    def _begin(self) -> None:
        self._link.in_thread(partial(self._work, self._waiting[0]), self._done)

    def _work(self, data: bytes) -> None:
        """Compress a message, in the thread."""
        try:
            self._result = compressed(data)
        except BrokerError as error:
            self._result = error

    def _done(self) -> None:
        """Write the first message, and those behind it that need no thread."""
        if self._is_closed:
            return
        result, self._result = self._result, b""
        if isinstance(result, BrokerError):
            self._on_error(result)
            return
        self._waiting.popleft()
        self._write(result)
        try:
            while self._waiting and len(self._waiting[0]) <= AT_ONCE_BYTES_MAX:
                self._write(compressed(self._waiting.popleft()))
        except BrokerError as error:
            self._on_error(error)
            return
        if self._waiting:
            self._begin()
