"""A TCP proxy of the loopback whose connections can be cut: both ends get a reset, and what was on its way is lost."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER without a time: closing sends a reset, and drops what the kernel has not sent."""


class CuttingProxy:
    """Listens on a port of its own, until closed, and moves bytes to and from another."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for each in self._threads:
            each.join()

    def cut(self) -> int:
        """Reset all connections; return how many ends there were."""
        with self._lock:
            ended, self._sockets = self._sockets, set()
        for each in ended:
            with contextlib.suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                each.shutdown(socket.SHUT_RD)  # ends a read of its thread, which a close would not
            each.close()
        return len(ended)

    def _start(self, target: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # it was closed
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target_port))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._sockets |= {client, server}
            self._start(self._move, client, server)
            self._start(self._move, server, client)

    def _move(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(65536):
                target.sendall(chunk)
            target.shutdown(socket.SHUT_WR)
