# mypy: disable-error-code="type-var, union-attr, arg-type"
"""Real broker processes on one store, for tests that kill them."""

import contextlib
import fcntl
import json
import os
import random
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from tests.integration.forked import ForkedBroker, run_forked

START_SECONDS = 30.0


_LOG_BYTES = 1 << 20
"""What a log may have that is not read: then the broker stops, in the middle of a line."""

WORKERS_MAX = 16

_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw15").removeprefix("gw")) % WORKERS_MAX

PORTS = range(12_000 + _worker, 32_768, WORKERS_MAX)
"""Ports below those of outgoing connections in Linux: one of these may not have a port that a standby binds later.

Each process of a parallel run has ports of its own, for a port is often chosen long before a broker listens on it.
"""

_given: set[int] = set()


def free_port() -> int:
    """Return a port no one listens on, and that is used only once here."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                return port


class BrokerProcess:
    """One `pybroker start`, with its log line by line."""

    module = ""
    """The program that a subclass runs instead, in a fresh process."""

    prefix: tuple[str, ...] = ()
    """The beginning of such a process' command, for one in a network namespace or with a library preloaded."""

    def __init__(
        self, store: str, *, name: str, port: int, extra: tuple[str, ...] = (), is_fresh: bool = False
    ) -> None:
        """Start it.

        Args:
            store: as the command takes it.
            name: of the member.
            port: for STOMP.
            extra: more arguments.
            is_fresh: not forked (see `forked`), but a process with a command line and limits of its own.
        """
        self.name = name
        self.port = port
        self.lines: list[str] = []
        command = ["start", "--store", store, "--name", name, "--stomp", str(port), *extra]
        if "--openwire" not in extra:
            command += ["--openwire", "off"]  # its default port would be taken by whatever else runs here
        if "--disk-reserve" not in extra:
            command += ["--disk-reserve", "0"]  # or the directories of a test run would take gigabytes
        self.process = self._fresh(command) if is_fresh or self.module else ForkedBroker(command)
        fcntl.fcntl(self.process.stderr, fcntl.F_SETPIPE_SZ, _LOG_BYTES)
        self._rest = b""

    def _fresh(self, command: list[str]) -> "subprocess.Popen[bytes]":
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYBROKER_")}
        program = [*self.prefix, sys.executable, "-m", self.module or "pybroker.broker.app.cli"]
        return subprocess.Popen([*program, *command], stderr=subprocess.PIPE, env=environment)

    def wait_for(self, pattern: str, seconds: float = START_SECONDS) -> re.Match[str]:
        """Read the log until a line matches; what came before counts too."""
        deadline = time.monotonic() + seconds
        seen = 0
        while True:
            for line in self.lines[seen:]:
                if match := re.search(pattern, line):
                    return match
            seen = len(self.lines)
            if not self._read(max(0.0, deadline - time.monotonic())):
                log = "\n".join(self.lines)
                raise AssertionError(
                    f"{self.name} never logged {pattern!r} (exit {self.process.poll()}); its log:\n{log}"
                )

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()

    def terminate(self, seconds: float = START_SECONDS) -> int:
        """Request an orderly stop and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.join(seconds)

    def join(self, seconds: float = START_SECONDS) -> int:
        """Read the log until the end, and return the exit code."""
        deadline = time.monotonic() + seconds
        while self._read(max(0.0, deadline - time.monotonic())):
            pass
        code = self.process.wait(timeout=max(0.1, deadline - time.monotonic()))
        self.process.stderr.close()
        return code

    def close(self) -> None:
        """Leave nothing running."""
        if self.process.poll() is None:
            self.kill()
        self.process.stderr.close()

    def drain(self, seconds: float) -> None:
        """Read what the log has, waiting for a moment: a full pipe would stop the broker."""
        self._read(seconds)

    def _read(self, seconds: float) -> bool:
        """Read what there is; False at the end of the log or when nothing came in time."""
        ready, _, _ = select.select([self.process.stderr], [], [], seconds)
        chunk = os.read(self.process.stderr.fileno(), 65536) if ready else b""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        self.lines += [line.decode() for line in lines]
        return bool(chunk)


class Pair:
    """Two brokers on one store; a killed one is started again as standby."""

    def __init__(self, store: Path, *extra: str) -> None:
        self.store = str(store)
        self._extra = extra
        self._ports = {"a": free_port(), "b": free_port()}
        self.nodes = {name: self._start(name) for name in self._ports}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.close()

    @property
    def ports(self) -> list[int]:
        return list(self._ports.values())

    def wait_for_master(self) -> BrokerProcess:
        """Return the member that serves, once one does."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            for node in self.nodes.values():
                if _listens(node.port):
                    return node
            time.sleep(0.005)
        raise AssertionError(
            "no one became master:\n" + "\n".join(line for n in self.nodes.values() for line in n.lines)
        )

    def wait_for_standby(self) -> BrokerProcess:
        """Return the member that waits, once it does."""
        standby = next(node for node in self.nodes.values() if node is not self.wait_for_master())
        standby.wait_for("waiting for the lock")
        return standby

    def restart(self, node: BrokerProcess) -> BrokerProcess:
        """Start a member that is gone again."""
        node.close()
        self.nodes[node.name] = self._start(node.name)
        return self.nodes[node.name]

    def status(self) -> dict[str, Any]:
        """Return the output of `pybroker status --json`."""
        output = run_forked("status", "--store", self.store, "--json").stdout
        return json.JSONDecoder().raw_decode(output, output.index("{"))[0]  # between lines of the log, if there are any

    def wait_for_status(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the status once the condition holds: members write their entries after they log."""
        deadline = time.monotonic() + START_SECONDS
        while not condition(status := self.status()):
            assert time.monotonic() < deadline, status
        return status

    def _start(self, name: str) -> BrokerProcess:
        return BrokerProcess(self.store, name=name, port=self._ports[name], extra=self._extra)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True
