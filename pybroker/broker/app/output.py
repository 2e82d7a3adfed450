"""Standard output without silent losses, whose write failures are errors of one line.

Nothing that `BufferedOutput` has written stays in a buffer of Python's, where a failure would come to light only after
the command had reported success.
"""

import io
import os
import stat
import sys
from typing import TYPE_CHECKING

from pybroker.broker.domain.errors import BrokerError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class OutputFailed(BrokerError):
    """A failed write to the output: its disk is full, or its reader is gone."""


class _StandardOutput(io.FileIO):
    """Standard output's bytes: a failed write raises `OutputFailed` once; later writes are discarded."""

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write some of the bytes."""
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            os.dup2(
                os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), self.fileno()
            )  # otherwise Python's exit fails again
            raise _failed(error) from error


def report_failures() -> None:
    """Make `sys.stdout` raise `OutputFailed` if a write fails, unless it was replaced before."""
    former = sys.stdout
    if sys.stdout is not sys.__stdout__:
        return
    raw = io.BufferedWriter(_StandardOutput(former.fileno(), "wb", closefd=False))
    sys.stdout = io.TextIOWrapper(raw, encoding=former.encoding, errors=former.errors, line_buffering=former.isatty())


def _failed(error: OSError) -> OutputFailed:
    return OutputFailed(f"the output cannot be written: {error.strerror}")


class BufferedOutput:
    """Collects bytes for a file descriptor. Not thread-safe."""

    def __init__(self, descriptor: int | None = None) -> None:
        """Create an output for a descriptor, by default standard output's."""
        sys.stdout.flush()
        self._descriptor = sys.stdout.fileno() if descriptor is None else descriptor
        self._is_file = stat.S_ISREG(os.fstat(self._descriptor).st_mode)
        self._waiting = bytearray()

    @property
    def byte_count(self) -> int:
        """The number of collected bytes."""
        return len(self._waiting)

    def add(self, line: bytes) -> None:
        """Collect a line, with a line end."""
        self._waiting += line
        self._waiting += b"\n"

    def flush(self) -> None:
        """Write all collected bytes; a file is also synced.

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
            raise _failed(error) from error
