"""The thread of a watch that reads a stream of changes, and opens it again after every failure.

A subclass has one engine's stream. Used by `etcd` and `kubernetes`.
"""

import abc
import logging
import threading

from pybroker.broker.domain.errors import ConfigError, LockError

_log = logging.getLogger(__name__)


class ReopenedWatch(abc.ABC):
    """A `RegisterWatch` over a stream of changes."""

    def __init__(self, name: str, pause_seconds: float) -> None:
        """Start nothing yet: a subclass calls `start` once it is complete.

        Args:
            name: the register's.
            pause_seconds: the time between a failure and the next try.
        """
        self._pause_seconds = pause_seconds
        self._is_closed = threading.Event()
        self._logged = ""
        self._has_read = False
        self._thread = threading.Thread(target=self._run, name=f"watch {name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread. May be repeated."""
        self._is_closed.set()
        self._interrupt()
        self._thread.join()

    def succeeded(self) -> None:
        """Log the next failure again, also one that was logged before."""
        self._logged = ""

    def has_read(self) -> None:
        """Note that the register answers, so that a failure from here on is one of the stream."""
        self._has_read = True

    def pause(self) -> None:
        """Wait before the next try, or until the end."""
        self._is_closed.wait(self._pause_seconds)

    @abc.abstractmethod
    def _follow(self) -> None:
        """Read the register, and pass on its content and each later one, until the stream ends.

        Raises:
            LockError: the stream has failed; it is opened again after a pause.
            ConfigError: the election store refuses the user.
        """

    @abc.abstractmethod
    def _interrupt(self) -> None:
        """End a read under way, and let every later one fail; from any thread."""

    @abc.abstractmethod
    def _release(self) -> None:
        """Close the connections, in the thread, at its end."""

    def _run(self) -> None:
        try:
            while not self._is_closed.is_set():
                self._has_read = False
                try:
                    self._follow()
                except (LockError, ConfigError) as error:
                    self._report(error)
                    self.pause()
        finally:
            self._release()

    def _report(self, error: Exception) -> None:
        """Log a failure once, until the next success. That of a read is logged by the member, which reads as well."""
        if self._has_read and not self._is_closed.is_set() and str(error) != self._logged:
            self._logged = str(error)
            _log.warning("changes of the register are seen later, as the watch has failed: %s", error)
