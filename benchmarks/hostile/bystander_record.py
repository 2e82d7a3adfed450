"""The parts that the bystanders of all protocols share: their measurements, their messages' numbers, their sockets."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

QUEUE: Final = "BYSTANDER"
PATIENCE_SECONDS: Final = 180.0


class Record:
    """What the threads measure."""

    def __init__(self) -> None:
        self.waits: dict[str, list[tuple[float, float]]] = {}
        self.late: list[tuple[float, float]] = []
        self.errors: list[str] = []
        self.refused = 0
        self.under_way: dict[str, float] = {}
        self.is_over = False

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure a step."""
        began = self.under_way[name] = time.monotonic()
        try:
            yield
        finally:
            self.waits.setdefault(name, []).append((began, time.monotonic() - began))
            del self.under_way[name]

    def end(self) -> dict[str, Any]:
        """Return everything, with steps under way as if they ended now."""
        self.is_over, now = True, time.monotonic()
        for name, began in list(self.under_way.items()):
            self.waits.setdefault(name, []).append((began, now - began))
        return {"waits": self.waits, "late": self.late, "errors": self.errors, "refused": self.refused}


class NumberedBodies:
    """The bodies of one client's messages: each is to come once, in the order in which they were sent."""

    def __init__(self) -> None:
        self._process = f"{os.getpid()}-"
        self._number = 0

    def next(self) -> str:
        """Return the body of the next message to send."""
        self._number += 1
        return f"{self._process}{self._number}"

    def is_last(self, body: str) -> bool:
        """Return True for the body that was sent last, and False for one that an earlier process has left.

        Raises:
            RuntimeError: it is another of this process, so that a message is lost, or came twice.
        """
        if body == f"{self._process}{self._number}":
            return True
        if body.startswith(self._process):
            raise RuntimeError(f"message {body} came in place of {self._number}: one is lost, or came twice")
        return False


def connected(port: int) -> socket.socket:
    """Return a connection to a port of this host."""
    made = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made
