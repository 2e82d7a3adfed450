"""Starts the nursery, and has it fork brokers. See `pybroker.testing.nursery` for who ends when.

There is one nursery per process, for as long as anybody holds it: a `Cluster` does while it is open, the pytest plug-in
for the session.
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

_ANSWER_SECONDS = 60.0
"""How long the nursery may take to load the broker, on a machine that is busy with other tests."""

_END_SECONDS = 10.0

_lock = threading.Lock()
_holders = 0
_shared: "Nursery | None" = None


class NurseryFailed(Exception):
    """The process that forks brokers could not be started, or is gone."""


class Spawned(NamedTuple):
    """A broker's process.

    Attributes:
        pid: its number, for people.
        pidfd: names the process for signals, and never another one; the caller closes it.
    """

    pid: int
    pidfd: int


class Nursery:
    """A running nursery. May be used from several threads."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # The settings of whoever runs the tests are none of a test's: PYBROKER_STORE would outlive it.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYBROKER_")}
        # Not every way by which pytest finds packages is inherited, and what lies where the tests run is not to be
        # taken for a module of Python's (-P).
        path = (str(Path(__file__).parents[2]), environment.get("PYTHONPATH"))
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        self._control.settimeout(_ANSWER_SECONDS)
        self._words = ""
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 (our own program)
                [sys.executable, "-P", "-m", "pybroker.testing.nursery", str(theirs.fileno()), str(os.getpid())],
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
        """Start a broker. Waits until the nursery has loaded, the first time.

        Args:
            arguments: of the command `pybroker`.
            log: descriptor of a pipe that becomes the broker's standard output and standard error.
            status: descriptor of a pipe that gets its exit code, negative for a signal, once it has ended.
            disk: directory of the store, and the file that says that its disk is full.
            scratch: a directory that the nursery removes at its end, if it is there.

        Raises:
            NurseryFailed: there is no nursery, or no more.
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
                raise NurseryFailed(f"{error}: {self._last_words()}") from error
            if not reply:
                raise NurseryFailed(self._last_words())
        return Spawned(json.loads(reply)["pid"], descriptors[0])

    def close(self) -> None:
        """End it, and thereby every broker it has forked."""
        self._control.close()
        if self.owner == os.getpid():
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def _last_words(self) -> str:
        """Return why it has ended, or must."""
        if not self._words:
            self._process.kill()
            _, words = self._process.communicate()
            self._words = words.decode(errors="replace").strip() or "the nursery was killed"
        return f"no brokers can be started: {self._words}"


@contextlib.contextmanager
def nursery() -> Generator[Nursery]:
    """Hold this process' nursery, which ends when nobody does any more."""
    global _holders, _shared
    with _lock:
        if _shared is None or _shared.owner != os.getpid():  # after a fork it is the parent's
            _holders, _shared = 0, Nursery()
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
