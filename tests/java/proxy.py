"""A TCP proxy that loses answers: it stops passing on what the server sends, and later cuts the connections."""

import contextlib
import socket
import threading
from collections.abc import Callable

CHUNK = 1 << 16


class Proxy:
    """Listens on a port of its own, until closed.

    Args:
        target: returns the port to connect to, for each connection again.
    """

    def __init__(self, target: Callable[[], int]) -> None:
        self._target = target
        self._sockets: list[socket.socket] = []
        self._is_muted = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def mute(self) -> None:
        """Drop what the server sends from now on."""
        self._is_muted = True

    def cut(self) -> None:
        """Break all connections; new ones work again."""
        self._is_muted = False
        while self._sockets:
            _break(self._sockets.pop())

    def close(self) -> None:
        _break(self._listener)
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._target()))
                except OSError:
                    client.close()
                    continue
                self._sockets += [client, server]
                threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(CHUNK):
                if not (is_answer and self._is_muted):
                    sink.sendall(chunk)
        _break(sink)


def _break(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
