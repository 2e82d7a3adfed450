"""Sends the messages of a bridge with compressed bodies, in their order.

```text
small  --> compressed at once --------------------------> written
large  --> waits --> compressed in the server's thread --> written
small behind a large one --> waits for its turn ---------> written
```

A large body takes 20 ms for each MB, during which the event loop serves all other clients. The bridge takes no further
messages meanwhile: one at a time is in memory twice.
"""

import logging
import zlib
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from pybroker.broker.domain.errors import BrokerError, LockError, StoreError
from pybroker.broker.domain.network.compression import compressed
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.transports.session import Link

_log = logging.getLogger(__name__)

AT_ONCE_BYTES_MAX: Final = 64 << 10
"""Larger messages are compressed in the thread; one of this size takes 1.5 ms."""

OnFailed = Callable[[Exception], None]
"""Gets the error of a message that cannot be written."""


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
            on_error: called for an error of this broker, which ends the bridge.
        """
        self._link = link
        self._write = write
        self._pause = pause
        self._on_error = on_error
        self._waiting: deque[tuple[bytes, OnFailed]] = deque()
        self._result = b""
        self._is_closed = False

    @property
    def is_waiting(self) -> bool:
        """True while messages wait here."""
        return bool(self._waiting)

    def send(self, data: bytes, on_failed: OnFailed) -> None:
        """Write an encoded message with its body compressed; or later, if it is large or such a one is before it.

        Args:
            data: the message.
            on_failed: called if it cannot be written later; an error of now is raised. Others are written all the same.
        """
        if not self._waiting and len(data) <= AT_ONCE_BYTES_MAX:
            self._write(_compressed_if_valid(data))
            return
        self._waiting.append((data, on_failed))
        self._pause()
        if len(self._waiting) == 1:
            self._begin()

    def close(self) -> None:
        """Drop what waits: it has no answer, and returns to its place."""
        self._is_closed = True
        self._waiting.clear()

    def _begin(self) -> None:
        self._link.in_thread(partial(self._work, self._waiting[0][0]), self._done)

    def _work(self, data: bytes) -> None:
        """Compress a message, in the thread."""
        self._result = _compressed_if_valid(data)

    def _done(self) -> None:
        """Write the first message, and those behind it that need no thread."""
        if self._is_closed:
            return
        _, on_failed = self._waiting.popleft()
        result, self._result = self._result, b""
        self._write_one(result, on_failed)
        while self._waiting and len(self._waiting[0][0]) <= AT_ONCE_BYTES_MAX:
            data, on_failed = self._waiting.popleft()
            self._write_one(_compressed_if_valid(data), on_failed)
        if self._waiting:
            self._begin()

    def _write_one(self, data: bytes, on_failed: OnFailed) -> None:
        try:
            self._write(data)
        except (StoreError, LockError) as error:
            self._on_error(error)
        except Exception as error:  # as in the dispatch of a message; here nothing else would end the pause
            on_failed(error)


def _compressed_if_valid(data: bytes) -> bytes:
    """Return a message with its body compressed; one that does not decode stays as it is, and the other broker answers.

    So does one for which there is no memory now, since an error in the thread would leave the bridge waiting for ever.
    To end the bridge for it would end every later one too, since the message comes again.
    """
    try:
        return compressed(data)
    except (MalformedOpenWire, MemoryError, zlib.error) as error:
        _log.warning("a message of %d bytes crosses a bridge without compression: %s", len(data), error)
        return data
