"""Notifications to the service manager: sd_notify(3), for units with `Type=notify` and `WatchdogSec=`.

| sent | when |
|---|---|
| `READY=1` | the member serves, or it stands by: another member has the lock |
| `STATUS=` | the role, with a master's addresses or the reason why a standby could not serve |
| `RELOADING=1` | SIGHUP, followed by `READY=1` |
| `STOPPING=1` | a stop was requested; not when a lost lock makes the member stand by again |
| `WATCHDOG=1` | the event loop turns: a loop that hangs sends none, and systemd starts the member again |
| `EXTEND_TIMEOUT_USEC=` | the start, or the stop, takes longer than the unit allows |

A single member is ready when its ports are open, as programs with `After=` need. A standby is ready too: it does its
part, and its start would otherwise end with a time-out, as the master may live for months. A member that opens a large
store at its start extends the start as long as the event loop turns, which it does meanwhile.
"""

import contextlib
import logging
import os
import socket
import time
from asyncio import sleep
from collections.abc import Generator, MutableMapping, Sequence
from typing import Final, Protocol

from pybroker.broker.domain.role import Role

BEAT_SECONDS: Final = 5.0
"""The longest interval of beats. It is shorter than half of most watchdogs, so that one long turn of the loop, when it
loads the backlog of a large store, has nearly all of the watchdog's time."""

EXTENSION_SECONDS: Final = 30.0
"""How long a start or a stop may take from a notification on: several beats, and the longest turns of the loop."""

_STATUS_MAX: Final = 500
"""The characters of a status that are shown."""

_log = logging.getLogger(__name__)


class NotifyingNode(Protocol):
    """The part of a node that decides if the member is ready, or stops."""

    @property
    def is_waiting(self) -> bool:
        """True once another member was found to have the lock."""
        ...

    @property
    def is_stopping(self) -> bool:
        """True after a stop was requested."""
        ...

    def obstacle(self) -> str:
        """Return the reason why a standby could not serve; empty if it could."""
        ...


class ServiceNotifier:
    """Sends the state of one member to the service manager, without blocking."""

    def __init__(self, address: str, *, watchdog_seconds: float, stop_seconds: float) -> None:
        """Create it.

        Args:
            address: the path of the service manager's socket, or `@` and an abstract one's name.
            watchdog_seconds: the longest time without a beat; 0 without a watchdog.
            stop_seconds: the longest time that an orderly stop waits for clients.
        """
        self.node: NotifyingNode | None = None
        """The member's present run."""
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog_seconds = watchdog_seconds
        self._stop_seconds = stop_seconds
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._role = Role.STANDBY
        self._listeners: Sequence[str] = ()
        self._status = ""
        self._is_ready = False
        self._is_stopping = False
        self._has_failed = False

    def publish(self, role: Role, listeners: list[str], epoch: int) -> None:
        """Send a change of the role."""
        self._role, self._listeners = role, listeners
        self._send(self._changes())

    async def run(self) -> None:
        """Send a beat now and periodically until cancelled."""
        interval = min(BEAT_SECONDS, self._watchdog_seconds / 2 or BEAT_SECONDS)
        while True:
            beat = ["WATCHDOG=1"] if self._watchdog_seconds else []
            if not self._is_ready:
                beat.append(_extension(EXTENSION_SECONDS))
            self._send([*beat, *self._changes()])
            await sleep(interval)

    @contextlib.contextmanager
    def reloading(self) -> Generator[None]:
        """Notify the beginning and the end of a reload. A member that still starts is not ready after it."""
        if self._is_ready:
            self._send(["RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}"])
        try:
            yield
        finally:
            if self._is_ready:
                self._send(["READY=1"])

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _changes(self) -> list[str]:
        """Return the assignments for what has changed since the last notification."""
        node, found = self.node, list[str]()
        if node is not None and node.is_stopping and not self._is_stopping:
            self._is_stopping = True
            # An orderly stop waits twice: until all is on disk, and until clients have read their answers.
            found += ["STOPPING=1", _extension(2 * self._stop_seconds + EXTENSION_SECONDS)]
        stands_by = self._role is Role.STANDBY and node is not None and node.is_waiting
        if not self._is_ready and (stands_by or self._role is Role.MASTER):
            self._is_ready = True
            found.append("READY=1")
        if (status := self._described()) != self._status:
            self._status = status
            found.append(f"STATUS={status}")
        return found

    def _described(self) -> str:
        return " ".join(self._sentence()[:_STATUS_MAX].split())

    def _sentence(self) -> str:
        match self._role:
            case Role.STANDBY:
                return _standing_by(self.node)
            case Role.PROMOTING:
                return "becoming master: opening the store"
            case Role.MASTER:
                return f"master: serving on {', '.join(self._listeners)}" if self._listeners else "master"
            case Role.RELINQUISHING:
                return "master no longer: closing connections and the store"
            case Role.STOPPED:
                return "stopped" if self._is_stopping else "master no longer"

    def _send(self, assignments: Sequence[str]) -> None:
        if not assignments:
            return
        try:
            self._socket.sendto("\n".join(assignments).encode(), self._address)
        except OSError as error:  # the manager starts again, or does not read: the next beat comes soon
            if not self._has_failed:
                _log.warning("the service manager cannot be notified: %s", error)
            self._has_failed = True
        else:
            self._has_failed = False


def open_notifier(
    stop_seconds: float, environment: MutableMapping[str, str] = os.environ, pid: int | None = None
) -> ServiceNotifier | None:
    """Return the notifier of this process; None without a service manager that wants to be notified.

    The variables are removed, because a child process that notified the manager would speak for this one.
    """
    address = environment.pop("NOTIFY_SOCKET", "")
    usec, watched = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
    if not address:
        return None
    if not address.startswith(("/", "@")):
        _log.warning("the service manager is not notified: NOTIFY_SOCKET=%s is no UNIX socket", address)
        return None
    is_watched = usec.isdecimal() and watched in ("", str(os.getpid() if pid is None else pid))
    return ServiceNotifier(address, watchdog_seconds=int(usec) / 1e6 if is_watched else 0.0, stop_seconds=stop_seconds)


def _standing_by(node: NotifyingNode | None) -> str:
    if node is None or not node.is_waiting:
        return "starting: trying to get the lock"
    obstacle = node.obstacle()
    return f"standby, which could not serve: {obstacle}" if obstacle else "standby: another member is master"


def _extension(seconds: float) -> str:
    return f"EXTEND_TIMEOUT_USEC={round(seconds * 1e6)}"
