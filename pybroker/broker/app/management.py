"""The node's end of the management process: starts it, and tells it the node's state.

The node binds the ports that it serves, so that one which cannot be used is found at the start, and none is lost while
the process is started again: it is when it ends, or gives no sign of life. It gets no other descriptor, so that it
holds none of the node's locks.
"""

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

import pybroker
from pybroker.broker.app.binding import bind
from pybroker.broker.app.config import Config
from pybroker.broker.app.machine import MACHINE
from pybroker.broker.domain.node_state import LINE_BYTES_MAX, NodeState
from pybroker.broker.domain.role import Role
from pybroker.transports.server import in_url

_log = logging.getLogger(__name__)

_TELL_SECONDS: Final = 1.0

_SILENT_SECONDS: Final = 30.0
"""The time without a sign of life from the management process after which it is ended, and started again."""

_END_SECONDS: Final = 10.0
"""The time in which a process that was killed ends, unless the kernel waits for a disk on its behalf."""

_AGAIN_SECONDS: Final = 1.0
_AGAIN_SECONDS_MAX: Final = 60.0
"""The process is started again at once; if it ends again within the longest pause, after pauses that double."""

_PASSED_ON: Final = ("PATH", "PYTHON", "LD_", "LANG", "LC_", "TZ")
"""How the environment variables begin that the process gets: others may have passwords."""


class Management:
    """The management process of one member."""

    def __init__(self, port: socket.socket) -> None:
        """Create it, without starting the process; `port` is the bound socket of the health checks."""
        self.obstacle: Callable[[], str] = str
        """Called with each state; returns the reason why this member could not serve."""
        self._port = port
        self._role = Role.STANDBY
        self._link: _Link | None = None

    def publish(self, role: Role, listeners: list[str], epoch: int) -> None:
        """Tell the node's role, now and from now on."""
        self._role = role
        self._tell()

    async def run(self) -> None:
        """Keep the process running until cancelled, which ends it."""
        pause = 0.0
        with self._port:
            while True:
                began_at = time.monotonic()
                try:
                    why = await self._run_once()
                except OSError as error:  # there is no memory, or no descriptor, for another process now
                    why = f"cannot be started: {error}"
                if time.monotonic() - began_at > _AGAIN_SECONDS_MAX:
                    pause = 0.0
                _log.error("the management process %s: health checks are answered again in %.0f s", why, pause)
                await asyncio.sleep(pause)
                pause = min(2 * pause + _AGAIN_SECONDS, _AGAIN_SECONDS_MAX)

    async def _run_once(self) -> str:
        """Run the process until it ends; return why."""
        mine, other = socket.socketpair()
        try:
            with other:
                process = await asyncio.to_thread(_start, other, self._port)
            _, link = await asyncio.get_running_loop().create_unix_connection(_Link, sock=mine)
        except BaseException:
            mine.close()  # then the process ends, if it was started
            raise
        self._link = link
        why = ""
        try:
            while not link.has_ended:
                self._tell()
                if time.monotonic() - link.heard_at > _SILENT_SECONDS:
                    why = f"gave no sign of life for {_SILENT_SECONDS:.0f} s"
                    break
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_TELL_SECONDS):
                        await link.ended.wait()
        finally:
            self._link = None
            link.close()
            process.kill()
        code = await asyncio.to_thread(_wait, process)
        return why or f"has ended (exit code {code})"

    def _tell(self) -> None:
        if self._link is not None:
            self._link.send(NodeState(role=self._role, obstacle=self.obstacle(), at=time.monotonic()))


async def open_management(config: Config, health: int) -> Management:
    """Return the management process, not started, with a port for the health checks.

    Raises:
        ConfigError: the port cannot be bound.
    """
    port = await bind(MACHINE, config.bind, health, "health")
    host, number = port.getsockname()[:2]
    _log.info("health checks at http://%s:%d", in_url(host), number)
    return Management(port)


class _Link(asyncio.Protocol):
    """The node's end of the link."""

    def __init__(self) -> None:
        self.heard_at = time.monotonic()
        self.ended = asyncio.Event()

    @property
    def has_ended(self) -> bool:
        """True once the process has ended, or closed the link."""
        return self.ended.is_set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Note a sign of life, which is all that comes."""
        self.heard_at = time.monotonic()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()

    def send(self, state: NodeState) -> None:
        """Send a state; drop it if the process does not read: it gets a newer one when it does."""
        if self._transport.get_write_buffer_size() < LINE_BYTES_MAX:
            self._transport.write(state.as_line())

    def close(self) -> None:
        self._transport.abort()


def _wait(process: "subprocess.Popen[bytes]") -> int | None:
    """Wait for a process that was killed; return its exit code, None if it does not end even so."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(_END_SECONDS)
    return None


def _start(link: socket.socket, health: socket.socket) -> "subprocess.Popen[bytes]":
    """Start the process. Blocks for some milliseconds."""
    command = [sys.executable, "-P", "-m", "pybroker.management", "--link", str(link.fileno())]
    root = str(Path(pybroker.__file__).parents[1])  # found in a checkout, too; -P leaves out the present directory
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    environment = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
    return subprocess.Popen(  # noqa: S603 (our own program)
        [*command, "--health", str(health.fileno())],
        stdin=subprocess.DEVNULL,
        pass_fds=(link.fileno(), health.fileno()),
        env=environment | {"PYTHONPATH": paths},
    )
