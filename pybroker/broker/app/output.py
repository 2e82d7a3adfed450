"""Standard output for what must not get lost: bytes that have been written once `settle` returns.

Nothing stays in a buffer of Python's, which would be written, or fail, after the command had said that all is well.
"""

import os
import stat
import sys

from pybroker.broker.domain.errors import BrokerError


class OutputFailed(BrokerError):
    """The output does not take what is written: its disk is full, or its reader is gone."""


class Output:
    """Collects bytes for a file descriptor. Not thread-safe."""

    def __init__(self, descriptor: int | None = None) -> None:
        """Begin to write to a descriptor; by default standard output's."""
        sys.stdout.flush()
        self._descriptor = sys.stdout.fileno() if descriptor is None else descriptor
        self._is_file = stat.S_ISREG(os.fstat(self._descriptor).st_mode)
        self._waiting = bytearray()

    @property
    def byte_count(self) -> int:
        """How many bytes wait to be written."""
        return len(self._waiting)

    def add(self, line: bytes) -> None:
        """Collect a line, to which its end is added."""
        self._waiting += line
        self._waiting += b"\n"

    def settle(self) -> None:
        """Write all that was collected; in a file it is on the disk on return.

        Raises:
            BrokenPipeError: the reader is gone.
            OutputFailed: it cannot be written.
        """
        try:
            while self._waiting:
                del self._waiting[: os.write(self._descriptor, self._waiting)]
            if self._is_file:
                os.fsync(self._descriptor)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputFailed(f"the output cannot be written: {error.strerror}") from error
