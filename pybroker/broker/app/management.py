"""The node's end of the management process: starts it, and tells it the node's state.

The node binds the ports that it serves, so that one which cannot be used is found at the start, and none is lost while
the process is started again: it is when it ends, or gives no sign of life. It gets no other descriptor, so that it
holds none of the node's locks.
"""

import asyncio
import contextlib
import importlib.util
import ipaddress
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pybroker
from pybroker.broker.app.binding import bind
from pybroker.broker.app.config import Config
from pybroker.broker.app.ha_state import HaState
from pybroker.broker.app.machine import MACHINE
from pybroker.broker.app.management_link import ManagementLink
from pybroker.broker.app.management_logins import ManagementLogins
from pybroker.broker.app.node import Node
from pybroker.broker.app.node_answers import NodeAnswers
from pybroker.broker.app.security_files import SecurityFiles
from pybroker.broker.domain.addresses import in_url
from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.node_state import NodeState
from pybroker.broker.domain.role import Role

_log = logging.getLogger(__name__)

_TELL_SECONDS: Final = 1.0

_SILENT_SECONDS: Final = 30.0
"""The time without a sign of life from the management process after which it is ended, and started again."""

_END_SECONDS: Final = 10.0
"""The time in which a process that was killed ends, unless the kernel waits for a disk on its behalf."""

_AGAIN_SECONDS: Final = 1.0
_AGAIN_SECONDS_MAX: Final = 60.0
"""The process is started again at once; if it ends again within the longest pause, after pauses that double."""

_BACKLOG: Final = 128

_PASSED_ON: Final = ("PATH", "PYTHON", "LD_", "LANG", "LC_", "TZ")
"""How the environment variables begin that the process gets: others may have passwords."""


class Management:
    """The management process of one member.

    Attributes:
        url: the address of its HTTP server, as other hosts have it; empty: there is none.
    """

    def __init__(
        self,
        ports: Mapping[str, socket.socket],
        setup: Mapping[str, Any],
        logins: ManagementLogins,
        answers: NodeAnswers,
        url: str = "",
    ) -> None:
        """Create it, without starting the process.

        Args:
            ports: the bound sockets, by the setting that each is for.
            setup: the initial settings of the process, sent over the link; see `pybroker.management.setup`.
            logins: decides who may use management.
            answers: answers the requests of the process.
            url: the address of the HTTP server, as other hosts have it; empty: there is none.
        """
        self.obstacle: Callable[[], str] = str
        """Called with each state; returns the reason why this member could not serve."""
        self.url = url
        self._ports = ports
        self._setup = setup
        self._logins = logins
        self._answers = answers
        self._role = Role.STANDBY
        self._link: ManagementLink | None = None

    def manage(self, node: Node, ha_state: Callable[[], HaState]) -> None:
        """Answer requests about a run of this member, from now on; `ha_state` returns the state of the pair."""
        self.obstacle = node.obstacle
        self._answers.manage(node, ha_state)

    def publish(self, role: Role, listeners: list[str], epoch: int) -> None:
        """Tell the node's role, now and from now on."""
        self._role = role
        self._tell()

    async def run(self) -> None:
        """Keep the process running until cancelled, which ends it."""
        pause = 0.0
        with contextlib.ExitStack() as stack:
            for port in self._ports.values():
                stack.enter_context(port)
            stack.callback(self._logins.close)
            stack.callback(self._answers.ha.close)
            while True:
                began_at = time.monotonic()
                try:
                    why = await self._run_once()
                except OSError as error:  # there is no memory, or no descriptor, for another process now
                    why = f"cannot be started: {error}"
                if time.monotonic() - began_at > _AGAIN_SECONDS_MAX:
                    pause = 0.0
                _log.error("the management process %s: it is started again in %.0f s", why, pause)
                await asyncio.sleep(pause)
                pause = min(2 * pause + _AGAIN_SECONDS, _AGAIN_SECONDS_MAX)

    async def _run_once(self) -> str:
        """Run the process until it ends; return why."""
        mine, other = socket.socketpair()
        try:
            with other:
                process = await asyncio.to_thread(_start, other, self._ports)
            _, link = await asyncio.get_running_loop().create_unix_connection(
                lambda: ManagementLink(self._answers), sock=mine
            )
        except BaseException:
            mine.close()  # then the process ends, if it was started
            raise
        self._link = link
        link.set_up(self._setup)
        why = ""
        try:
            looked_at = time.monotonic()
            while not link.has_ended:
                self._tell()
                if time.monotonic() - looked_at > _SILENT_SECONDS / 2:  # this process was stopped, and not the other
                    link.heard_at = time.monotonic()
                looked_at = time.monotonic()
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
            self._link.tell(
                NodeState(
                    role=self._role,
                    obstacle=self.obstacle(),
                    at=time.monotonic(),
                    users_version=self._logins.version,
                )
            )


async def open_management(config: Config, security: SecurityFiles) -> Management:
    """Return the management process, not started, with its ports.

    Raises:
        ConfigError: a port cannot be bound, or the LDAP directory's settings cannot be used.
    """
    ports: dict[str, socket.socket] = {}
    url = ""
    try:
        if config.health is not None:
            ports["health"] = await _listen(config.bind, config.health, "health")
            _log.info("health checks at http://%s", _address(ports["health"]))
        if config.management is not None:
            _require_libraries()
            host, number = config.management.host or config.bind, config.management.port
            ports["management"] = await _listen(host, number, "management")
            scheme = "https" if config.management_tls else "http"
            _log.info("management at %s://%s", scheme, _address(ports["management"]))
            url = f"{scheme}://{_address(ports['management'], socket.gethostname())}"
        logins = ManagementLogins(config, security)
    except BaseException:
        for port in ports.values():
            port.close()
        raise
    return Management(ports, _setup(config), logins, NodeAnswers(config, logins), url)


async def _listen(host: str, port: int, setting: str) -> socket.socket:
    """Return a socket whose connections wait in the kernel until the process serves them."""
    bound = await bind(MACHINE, host, port, setting)
    bound.listen(_BACKLOG)
    return bound


def _require_libraries() -> None:
    """Check that the libraries of the HTTP server are installed.

    Raises:
        ConfigError: they are not.
    """
    if missing := [name for name in ("aiohttp", "prometheus_client") if importlib.util.find_spec(name) is None]:
        packages = " ".join(missing).replace("_", "-")
        raise ConfigError(
            f"it needs {' and '.join(missing)}, not installed here",
            setting="management",
            hint=f"pip install {packages}, which is the extra `management` of pybroker",
        )


def _address(port: socket.socket, host_name: str = "") -> str:
    """Return the address of a port; with `host_name` for one that takes connections of every interface."""
    host, number = port.getsockname()[:2]
    if host_name and ipaddress.ip_address(host).is_unspecified:
        host = host_name
    return f"{in_url(host)}:{number}"


def _setup(config: Config) -> Mapping[str, Any]:
    tls = None
    if config.management_tls:
        tls = {
            "certificate": str(config.tls_certificate),
            "key": None if config.tls_key is None else str(config.tls_key),
            "key_password_file": None if config.tls_key_password_file is None else str(config.tls_key_password_file),
            "version_min": config.tls_version_min,
            "ciphers": config.tls_ciphers,
        }
    return {"version": pybroker.__version__, "has_users": config.has_users, "tls": tls}


def _wait(process: "subprocess.Popen[bytes]") -> int | None:
    """Wait for a process that was killed; return its exit code, None if it does not end even so."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(_END_SECONDS)
    return None


def _start(link: socket.socket, ports: Mapping[str, socket.socket]) -> "subprocess.Popen[bytes]":
    """Start the process. Blocks for some milliseconds."""
    command = [sys.executable, "-P", "-m", "pybroker.management", "--link", str(link.fileno())]
    for name, port in ports.items():
        command += [f"--{name}", str(port.fileno())]
    root = str(Path(pybroker.__file__).parents[1])  # found in a checkout, too; -P leaves out the present directory
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    environment = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
    return subprocess.Popen(  # noqa: S603 (our own program)
        command,
        stdin=subprocess.DEVNULL,
        pass_fds=(link.fileno(), *[port.fileno() for port in ports.values()]),
        env=environment | {"PYTHONPATH": paths},
    )
