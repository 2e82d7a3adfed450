"""Real brokers for tests, forked by `pybroker.testing`'s fork server instead of the slow import by a new Python.

They are processes of `pybroker start` with pid, log, signals and exit code; but limits, environment and the command
line in `ps` are those of the fork server, which is started once in a test run and ends all its brokers at its end.
"""

import atexit
import contextlib
import os
import select
import signal
import subprocess
import threading
import weakref
from collections.abc import Sequence
from functools import cache

from pybroker.testing.launcher import ForkServer, fork_server


class ForkedBroker:
    """The part of `subprocess.Popen` that tests need, with its names."""

    def __init__(self, arguments: Sequence[str]) -> None:
        log, log_end = os.pipe2(os.O_CLOEXEC)
        self._status, status_end = os.pipe2(os.O_CLOEXEC)
        self.stderr = os.fdopen(log, "rb", buffering=0)  # and standard output; the reader closes it
        weakref.finalize(self, os.close, self._status)
        try:
            self.pid, self._pidfd = _fork_server().spawn(arguments, log=log_end, status=status_end, disk=None)
        except BaseException:
            self.stderr.close()
            raise
        finally:
            os.close(log_end)
            os.close(status_end)
        weakref.finalize(self, os.close, self._pidfd)
        self.returncode: int | None = None
        self._ending = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit code; None while it runs."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code, negative for a signal."""
        if (code := self._ended(timeout)) is None:
            raise subprocess.TimeoutExpired("pybroker", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], seconds)[0]:
            with self._ending:
                if self.returncode is None:
                    self.returncode = int(os.read(self._status, 16) or -signal.SIGKILL)
        return self.returncode


def run_forked(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run any command of `pybroker` to its end; errors are among its output."""
    process = ForkedBroker(arguments)
    with process.stderr as output:
        text = output.read().decode()
    return subprocess.CompletedProcess(arguments, process.wait(), stdout=text)


@cache
def _fork_server() -> ForkServer:
    held = contextlib.ExitStack()
    atexit.register(held.close)
    return held.enter_context(fork_server())
