"""A flag that the client's threads set, and for which one thread or event loop of the application waits."""

import os
import threading


class Wakeup:
    """A flag with a file descriptor, which an event loop can watch.

    The descriptor is readable while the flag is set. It exists from the first call of `fileno`.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._pipe: tuple[int, int] | None = None
        self._process = 0  # that made the pipe; a child shares it, and must not take the parent's byte

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
                    os.read(self._pipe[0], 1)

    def wait(self, timeout: float | None) -> bool:
        """Wait until the flag is set; return False at the timeout, in seconds."""
        return self._event.wait(timeout)

    def fileno(self) -> int:
        """Return the descriptor."""
        with self._lock:
            if self._pipe is None:
                self._pipe = os.pipe()
                self._process = os.getpid()
                if self._event.is_set():
                    self._write()
            return self._pipe[0]

    def close(self) -> None:
        """Close the descriptor, if there is one."""
        with self._lock:
            pipe, self._pipe = self._pipe, None
            for descriptor in pipe or ():
                os.close(descriptor)

    def _write(self) -> None:
        if self._pipe is not None and self._process == os.getpid():
            os.write(self._pipe[1], b"\0")  # one byte at a time: the pipe cannot be full
