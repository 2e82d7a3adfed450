"""A flag that the client's threads set, and for which one thread or event loop of the application waits."""

import os
import threading
from typing import Final

_BYTES_MAX: Final = 16
"""One byte is in the pipe while the flag is set; a handler of a signal that sets it meanwhile may add one."""


class Wakeup:
    """A flag with a file descriptor, which an event loop can watch.

    The descriptor is readable while the flag is set. It exists from the first call of `fileno` until `close`.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.RLock()  # a handler of a signal may set the flag while its thread has the lock
        self._pipe: tuple[int, int] | None = None
        self._process = os.getpid()  # a child shares the pipe, and must not take the parent's byte
        self._is_closed = False

    def set(self) -> None:
        """Set the flag; may be called in any thread. Does not block."""
        with self._lock:
            if not self._event.is_set():
                self._event.set()
                self._write()

    def clear(self) -> None:
        """Clear the flag: call this before looking at what it announces."""
        with self._lock:
            if self._event.is_set():
                self._event.clear()
                if self._pipe is not None and self._process == os.getpid():
                    os.read(self._pipe[0], _BYTES_MAX)

    def wait(self, timeout: float | None) -> bool:
        """Wait until the flag is set; return False at the timeout, in seconds."""
        return self._event.wait(timeout)

    def fileno(self) -> int:
        """Return the descriptor.

        Raises:
            ValueError: it is closed.
        """
        with self._lock:
            if self._is_closed:
                raise ValueError("the flag is closed")
            if self._pipe is None:
                self._pipe = os.pipe()
                if self._event.is_set():
                    self._write()
            return self._pipe[0]

    def close(self) -> None:
        """Set the flag, so that no thread waits for it any more, and close the descriptor, if there is one.

        In a forked child this closes the child's copies only. It takes no lock there, as another thread of the parent
        may have had it during the fork.
        """
        if self._process != os.getpid():
            self._close()
            return
        with self._lock:
            self._close()
            self._event.set()

    def _close(self) -> None:
        self._is_closed = True
        pipe, self._pipe = self._pipe, None
        for descriptor in pipe or ():
            os.close(descriptor)

    def _write(self) -> None:
        if self._pipe is not None and self._process == os.getpid():
            os.write(self._pipe[1], b"\0")  # one byte at a time: the pipe cannot be full
