"""TLS handshakes beside the event loop.

A handshake signs with the certificate's key: 0.5 ms of processor time with RSA 2048, 4 ms with RSA 4096. Every peer
that connects can request one. On the event loop, a thousand of them would stop every client for seconds; here they are
computed in a few threads, in the order of arrival, while OpenSSL releases Python's interpreter lock.

```text
data_received --chunk--> queue --> thread: decrypt --plaintext or error--> event loop: done
```
"""

import asyncio
import logging
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from pybroker.transports.tls import TlsChannel

_log = logging.getLogger(__name__)

_THREADS_MAX = 4
"""Upper limit; at most half of the machine's cores are used, the others serve the connected clients."""

Done = Callable[[bytes | Exception], None]
"""Called on the event loop with the plaintext that followed the handshake, or with the error."""


class Handshakes:
    """Computes the handshakes of one server; `admission` limits their number.

    A channel whose step is under way belongs to a thread: no other code may touch it until `done` was called.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        threads = max(1, min(_THREADS_MAX, (os.cpu_count() or 1) // 2))
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="tls-handshake")  # started by the first step

    def step(self, channel: TlsChannel, data: bytes, done: Done) -> Future[None]:
        """Decrypt bytes in a thread; cancel the returned future to drop a step that has not begun."""
        return self._threads.submit(self._compute, channel, data, done)

    def close(self) -> None:
        """Drop the steps that have not begun, and wait some milliseconds for the others."""
        self._threads.shutdown(cancel_futures=True)

    def _compute(self, channel: TlsChannel, data: bytes, done: Done) -> None:
        try:
            plaintext = channel.decrypt(data)
        except Exception as error:
            # No local name for the error: its traceback has this frame, and the cycle would keep the channel alive.
            self._loop.call_soon_threadsafe(done, error)
        else:
            self._loop.call_soon_threadsafe(done, plaintext)
