"""A TCP proxy of the loopback that becomes a black hole: it stops moving bytes, and closes nothing.

Like a cut cable for both ends, except that the proxy's own kernel answers keepalives. So what
is tested through it are the bounds that programs keep themselves.
"""

import contextlib
import select
import socket
import threading


class StallingProxy:
    """Listens on a port of its own, until closed. One thread moves all bytes."""

    def __init__(self, target_port: int, target_host: str = "127.0.0.1") -> None:
        self._target = target_host, target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._peers: dict[socket.socket, socket.socket] = {}
        self._is_stalled = threading.Event()
        self._stalled = threading.Event()
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def __enter__(self) -> "StallingProxy":
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stalled.set()
        self._wake.close()
        self._thread.join()
        for each in (self._listener, self._woken, *self._peers):
            each.close()

    def stall(self) -> None:
        """Move nothing more from now on; connections stay open, and new ones are taken by the kernel only."""
        self._is_stalled.set()
        self._wake.sendall(b"!")
        assert self._stalled.wait(10)

    def _run(self) -> None:
        while not self._is_stalled.is_set():
            ready, _, _ = select.select([self._listener, self._woken, *self._peers], [], [])
            for each in ready:
                if each is self._listener:
                    self._accept()
                elif each is not self._woken:
                    self._move(each)
        self._stalled.set()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        server = socket.create_connection(self._target)
        self._peers |= {client: server, server: client}

    def _move(self, source: socket.socket) -> None:
        if source not in self._peers:  # its peer ended in this round
            return
        chunk = b""
        with contextlib.suppress(ConnectionError):
            chunk = source.recv(65536)
            if chunk:
                self._peers[source].sendall(chunk)
        if not chunk:
            peer = self._peers.pop(source)
            del self._peers[peer]
            source.close()
            peer.close()
