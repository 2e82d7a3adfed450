"""Starts the fork server, and requests brokers from it. `pybroker.testing.fork_server` describes how each process ends.

There is one fork server per process, while at least one `Cluster` is open or the pytest session runs.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import NamedTuple

from pybroker.errors import PybrokerError

_ANSWER_SECONDS = 60.0
"""The time limit for loading the broker, on a machine that is busy with other tests."""

_END_SECONDS = 10.0

_lock = threading.Lock()
_holders = 0
_shared: "ForkServer | None" = None


class ClusterError(PybrokerError):
    """A broker did not reach the expected state, or does not exist; the message ends with its log."""


class Spawned(NamedTuple):
    """The process of a broker.

    Attributes:
        pid: its process id.
        pidfd: its descriptor for signals, which never means another process; the caller closes it.
    """

    pid: int
    pidfd: int


class ForkServer:
    """A running fork server. Thread-safe."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Without settings from the environment: PYBROKER_STORE would outlive the test.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYBROKER_")}
        # A child does not inherit every path by which pytest finds packages, and must not import modules from the
        # working directory (-P).
        path = (str(Path(__file__).parents[2]), environment.get("PYTHONPATH"))
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        self._control.settimeout(_ANSWER_SECONDS)
        self._error = ""
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 (our own program)
                [sys.executable, "-P", "-m", "pybroker.testing.fork_server", str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,  # Ctrl-C in the terminal is for the test run, which then closes its brokers
            )

    def spawn(
        self,
        arguments: Sequence[str],
        *,
        log: int,
        status: int,
        disk: tuple[Path, Path] | None,
        scratch: Path | None = None,
    ) -> Spawned:
        """Start a broker; the first call waits until the fork server has loaded.

        Args:
            arguments: the arguments of `pybroker`.
            log: descriptor of a pipe that becomes the broker's standard output and standard error.
            status: descriptor of a pipe that gets its exit code, negative for a signal, once it has ended.
            disk: directory of the store, and the marker file of a full disk.
            scratch: a directory that the fork server removes at its end.

        Raises:
            ClusterError: the fork server could not be started, or has ended.
        """
        request = {
            "arguments": list(arguments),
            "disk": disk and [str(path) for path in disk],
            "scratch": scratch and str(scratch),
        }
        with self._lock:
            try:
                socket.send_fds(self._control, [json.dumps(request).encode()], [log, status])
                reply, descriptors, _, _ = socket.recv_fds(self._control, 1024, 1)
            except OSError as error:
                raise ClusterError(f"{error}: {self._failure()}") from error
            if not reply:
                raise ClusterError(self._failure())
        return Spawned(json.loads(reply)["pid"], descriptors[0])

    def close(self) -> None:
        """End the fork server, and with it every broker that it has forked."""
        self._control.close()
        if self.owner == os.getpid():
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def _failure(self) -> str:
        """End the process, and return an error with its last output."""
        if not self._error:
            self._process.kill()
            _, output = self._process.communicate()
            self._error = output.decode(errors="replace").strip() or "the fork server was killed"
        return f"no brokers can be started: {self._error}"


@contextlib.contextmanager
def fork_server() -> Generator[ForkServer]:
    """Hold this process' fork server, which ends with its last holder."""
    global _holders, _shared
    with _lock:
        if _shared is None or _shared.owner != os.getpid():  # after a fork it is the parent's
            _holders, _shared = 0, ForkServer()
        held = _shared
        _holders += 1
    try:
        yield held
    finally:
        with _lock:
            if held is _shared:
                _holders -= 1
                if not _holders:
                    _shared = None
                    held.close()
