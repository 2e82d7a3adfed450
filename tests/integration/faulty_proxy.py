"""A TCP proxy of the loopback that loses answers, delays requests, and cuts connections."""

import contextlib
import selectors
import socket
import threading


class FaultyProxy:
    """Listens on a port of its own, until closed. One thread moves all bytes.

    A client that hangs up does not end a connection to the server whose requests were held: they were sent.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._servers: dict[socket.socket, socket.socket] = {}
        self._clients: dict[socket.socket, socket.socket] = {}
        self._held: dict[socket.socket, bytes] = {}
        self._has_held: set[socket.socket] = set()
        self._mutex = threading.RLock()
        self._is_closed = False
        self.loses_answers = False
        self.holds_requests = False
        self.lost_bytes = 0
        self.held_bytes = 0
        for each in (self._listener, self._woken):
            self._selector.register(each, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def __enter__(self) -> "FaultyProxy":
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed = True
        self._wake.sendall(b"!")
        self._thread.join()
        for each in (self._listener, self._wake, self._woken, *self._servers, *self._servers.values()):
            each.close()
        self._selector.close()

    def release(self) -> None:
        """Pass on what was held, though its sender has hung up."""
        with self._mutex:
            self.holds_requests = False
            for server, data in self._held.items():
                server.sendall(data)
            self._held.clear()

    def cut(self) -> None:
        """Close all connections."""
        with self._mutex:
            for client in [*self._servers]:
                self._end(client)

    def _run(self) -> None:
        while not self._is_closed:
            for key, _ in self._selector.select():
                with self._mutex:
                    self._handle(key.fileobj)  # type: ignore[arg-type]

    def _handle(self, source: socket.socket) -> None:
        if source is self._listener:
            self._accept()
        elif source in self._servers:
            self._move_request(source)
        elif source in self._clients:
            self._move_answer(source)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", self._target_port))
        except OSError:
            client.close()
            return
        self._servers[client], self._clients[server] = server, client
        for each in (client, server):
            self._selector.register(each, selectors.EVENT_READ)

    def _move_request(self, client: socket.socket) -> None:
        server = self._servers[client]
        chunk = _received(client)
        if not chunk and server in self._has_held:
            self._selector.unregister(client)
        elif not chunk:
            self._end(client)
        elif self.holds_requests:
            self._held[server] = self._held.get(server, b"") + chunk
            self._has_held.add(server)
            self.held_bytes += len(chunk)
        else:
            with contextlib.suppress(OSError):
                server.sendall(chunk)

    def _move_answer(self, server: socket.socket) -> None:
        client = self._clients[server]
        chunk = _received(server)
        if not chunk:
            self._end(client)
        elif self.loses_answers:
            self.lost_bytes += len(chunk)
        else:
            with contextlib.suppress(OSError):
                client.sendall(chunk)

    def _end(self, client: socket.socket) -> None:
        server = self._servers.pop(client)
        del self._clients[server]
        self._held.pop(server, None)
        self._has_held.discard(server)
        for each in (client, server):
            with contextlib.suppress(KeyError):
                self._selector.unregister(each)
            each.close()


def _received(source: socket.socket) -> bytes:
    with contextlib.suppress(OSError):
        return source.recv(65536)
    return b""
