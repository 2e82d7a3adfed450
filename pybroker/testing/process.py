"""One process of `pybroker start`: its log, its state as read from the log, its end; and the thread that watches it.

Nothing is polled. A thread with an event loop reads the logs and exit codes of a cluster's brokers, and runs the
proxies (`pybroker.testing.proxy`); the test's thread waits on a condition.
"""

import asyncio
import contextlib
import enum
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pybroker.testing.launcher import ClusterError, ForkServer, Spawned

T = TypeVar("T")

_READ_BYTES = 65_536
_TAIL_LINES = 200

_LISTENING = re.compile(r"\S+ \S+ INFO +node: listening on (\S.*), \d+ ms after the lock was won")
_WAITING = re.compile(r"\S+ \S+ INFO +node: standby: waiting for the lock")
_LEAVING = re.compile(r"\S+ \S+ \w+ +node: (asked to stop|lost the lock|the store failed|cannot become master)")
_URL = re.compile(r"(\w+)://[^,]*:(\d+)")


class State(enum.Enum):
    """The state of a broker's process."""

    STARTING = "starting"
    STANDBY = "standby"
    MASTER = "master"
    LEAVING = "leaving"
    """It disconnects its clients, then ends or becomes standby."""
    GONE = "gone"


def tail(log: Sequence[str]) -> str:
    """Return the end of a log, for a report."""
    return "\n".join(log[-_TAIL_LINES:])


def log_action(log: list[str], text: str) -> None:
    """Add a line about the test's action to a broker's log."""
    now = time.time()
    log.append(f"{time.strftime('%F %T', time.localtime(now))}.{int(now % 1 * 1000):03} ------- test: {text}")


class Watcher:
    """An event loop in a thread, and a condition that is notified after each change."""

    def __init__(self) -> None:
        self.loop = asyncio.SelectorEventLoop()
        self.changed = threading.Condition()
        self._thread = threading.Thread(target=self.loop.run_forever, name="pybroker.testing", daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Run a function in the thread, and wait for its end."""

        async def run() -> None:
            function(*arguments)

        self.run(run)

    def run(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine function in the thread, and wait for its end."""
        asyncio.run_coroutine_threadsafe(function(), self.loop).result()

    def wait(self, predicate: Callable[[], T], seconds: float) -> T:
        """Wait until the predicate is true or the time is over, and return its value."""
        with self.changed:
            return self.changed.wait_for(predicate, seconds)

    def notify(self) -> None:
        """Wake the waiting threads, which evaluate their predicates again."""
        with self.changed:
            self.changed.notify_all()

    def close(self) -> None:
        """End the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class BrokerProcess:
    """A broker's process."""

    def __init__(self, watcher: Watcher, log: list[str], on_change: Callable[["BrokerProcess", "State"], None]) -> None:
        """Create it, without starting.

        Args:
            watcher: reads its log.
            log: gets the lines; those of an earlier process may be there.
            on_change: called in the watcher's thread with each new state.
        """
        self.state = State.STARTING
        self.exit_code: int | None = None
        """The exit code; negative for a signal; None while it runs."""
        self.ports: dict[str, int] = {}
        """The ports of a master's listeners, by scheme."""
        self.is_frozen = False
        self.log = log
        self._watcher = watcher
        self._on_change = on_change
        self._spawned: Spawned | None = None
        self._rest = b""

    @property
    def pid(self) -> int:
        """The process id; 0 before the start."""
        return self._spawned.pid if self._spawned else 0

    def start(
        self,
        fork_server: ForkServer,
        arguments: Sequence[str],
        disk: tuple[Path, Path] | None,
        scratch: Path | None = None,
    ) -> None:
        """Start the process.

        Raises:
            ClusterError: no process can be started.
        """
        log, log_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        status, status_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            os.set_blocking(log_end, True)
            self._spawned = fork_server.spawn(arguments, log=log_end, status=status_end, disk=disk, scratch=scratch)
        except BaseException:
            os.close(log)
            os.close(status)
            raise
        finally:
            os.close(log_end)
            os.close(status_end)
        self._watcher.call(self._watch, log, status)

    def send_signal(self, number: int) -> None:
        """Send a signal; no effect after its end."""
        if self._spawned is not None and self.state is not State.GONE:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._spawned.pidfd, number)

    def kill9(self, seconds: float) -> None:
        """Send SIGKILL, and wait for the end."""
        log_action(self.log, "killed with SIGKILL")
        self.send_signal(signal.SIGKILL)
        self.join(seconds)

    def stop(self, seconds: float) -> int:
        """Send SIGTERM, wait for the end, and return the exit code."""
        self.thaw()
        log_action(self.log, "stopped with SIGTERM")
        self.send_signal(signal.SIGTERM)
        self.join(seconds)
        return self.exit_code if self.exit_code is not None else -1

    def freeze(self) -> None:
        """Send SIGSTOP; it keeps its connections, ports and lock."""
        log_action(self.log, "frozen with SIGSTOP")
        self.send_signal(signal.SIGSTOP)
        self.is_frozen = True

    def thaw(self) -> None:
        """Send SIGCONT, if it is frozen."""
        if self.is_frozen:
            log_action(self.log, "thawed with SIGCONT")
            self.send_signal(signal.SIGCONT)
            self.is_frozen = False

    def join(self, seconds: float) -> None:
        """Wait for the end.

        Raises:
            ClusterError: it did not end in time.
        """
        if self._spawned is not None and not self._watcher.wait(lambda: self.state is State.GONE, seconds):
            raise ClusterError(f"process {self.pid} did not end within {seconds} s; its log:\n{tail(self.log)}")

    def close(self) -> None:
        """Release the descriptor of a process that has ended."""
        if self._spawned is not None:
            os.close(self._spawned.pidfd)
            self._spawned = None

    # ------------------------------------------------------------ in the watcher's thread

    def _watch(self, log: int, status: int) -> None:
        self._watcher.loop.add_reader(log, self._read_log, log)
        self._watcher.loop.add_reader(status, self._read_status, log, status)

    def _read_log(self, log: int) -> bool:
        """Read a chunk of the log; False if there is none."""
        try:
            chunk = os.read(log, _READ_BYTES)
        except BlockingIOError:
            return False
        if not chunk:
            self._watcher.loop.remove_reader(log)
            return False
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._process_line(line.decode(errors="replace"))
        self._watcher.notify()
        return True

    def _read_status(self, log: int, status: int) -> None:
        code = os.read(status, 16)
        while self._read_log(log):
            pass
        for descriptor in (log, status):
            self._watcher.loop.remove_reader(descriptor)
            os.close(descriptor)
        self.exit_code = int(code or -signal.SIGKILL)  # no code: the fork server has ended, and with it the broker
        self._enter(State.GONE)

    def _process_line(self, line: str) -> None:
        self.log.append(line)
        if match := _LISTENING.fullmatch(line):
            self.ports = {scheme: int(port) for scheme, port in _URL.findall(match[1])}
            self._enter(State.MASTER)
        elif _WAITING.match(line):
            self._enter(State.STANDBY)
        elif _LEAVING.match(line):
            self._enter(State.LEAVING)

    def _enter(self, state: State) -> None:
        if state is State.MASTER:
            self._on_change(self, state)  # its proxies are open before a test sees a master
        self.state = state
        self.is_frozen = self.is_frozen and state is not State.GONE
        if state is not State.MASTER:
            self._on_change(self, state)
        self._watcher.notify()
