"""Non-blocking output of log lines to a file descriptor.

A pipe that is not read, or a terminal that is stopped, would stop the event loop at the next line, and with it every
client and the renewal of the lock. Here lines wait in memory until they can be written, and are left out beyond a
limit. A regular file takes every line at once.
"""

import os
import select
import time
from collections import deque
from typing import Final

WAITING_BYTES_MAX: Final = 1 << 20
"""The limit to lines that wait: some 8,000."""

_CHUNK_BYTES: Final = select.PIPE_BUF
"""Bytes that a pipe takes without waiting if it takes any."""

END_SECONDS: Final = 1.0
"""The time for which `close` waits for the reader."""


class LogOutput:
    """Lines on their way to a descriptor.

    Attributes:
        left_out: the number of lines that were left out since it was reset.
    """

    def __init__(self, descriptor: int) -> None:
        self.left_out = 0
        self._descriptor = descriptor
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    @property
    def is_behind(self) -> bool:
        """True while lines wait."""
        return bool(self._waiting)

    def write(self, line: bytes) -> None:
        """Write a line, now or when those before it are written; leave it out if too much waits."""
        if self._waiting_bytes + len(line) > WAITING_BYTES_MAX:
            self.left_out += 1
            return
        self._waiting.append(line)
        self._waiting_bytes += len(line)
        self.flush()

    def flush(self, wait_ms: int = 0) -> None:
        """Write what the descriptor takes, waiting so many milliseconds for its reader; leave all out if it fails."""
        waiting = self._waiting
        try:
            while waiting and self._poll.poll(wait_ms):
                line = waiting[0]
                count = os.write(self._descriptor, line[:_CHUNK_BYTES])
                self._waiting_bytes -= count
                if count == len(line):
                    waiting.popleft()
                else:
                    waiting[0] = line[count:]
        except BlockingIOError:  # the descriptor is another process's too, which has made it non-blocking
            return
        except OSError:  # there is no reader any more, or the disk is full
            self.left_out += len(waiting)
            waiting.clear()
            self._waiting_bytes = 0

    def close(self) -> None:
        """Write what is left, as far as the reader takes it soon. The descriptor stays open."""
        ends_at = time.monotonic() + END_SECONDS
        while self._waiting and (seconds := ends_at - time.monotonic()) > 0:
            self.flush(int(seconds * 1000) + 1)
