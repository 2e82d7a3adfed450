"""A connection pooler that pools by transaction, as PgBouncer with `pool_mode = transaction`: enough of one for tests.

A client's message goes to a session of the server that is free, which is the client's until the server is idle again,
outside of a transaction. Only simple queries are passed on. Poolers answer a connect themselves, so the process they
announce is none of the server's.
"""

import socket
import struct
import threading
from pathlib import Path

from tests.postgres_cluster import USER, PostgresDatabase

_ANNOUNCED_PID = 1
_PARAMETERS = {"server_version": "15.0", "client_encoding": "UTF8", "standard_conforming_strings": "on"}


class TransactionPooler:
    """Listens on a port of the loopback, for one database, until it is closed."""

    def __init__(self, database: PostgresDatabase) -> None:
        self.database = database
        self._free: list[socket.socket] = []
        self._open: list[socket.socket] = []
        self._mutex = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = database.through(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Cut everyone off."""
        self._listener.close()
        for each in self._open:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            self._open.append(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server: socket.socket | None = None
        try:
            self._greet(client)
            while (message := _message(client))[:1] == b"Q":
                server = server or self._session()
                server.sendall(message)
                while (answer := _message(server))[:1] != b"Z":
                    client.sendall(answer)
                if answer[-1:] == b"I":
                    self._free.append(server)
                    server = None
                client.sendall(answer)
        except (OSError, EOFError):
            pass  # one of both ends is gone
        finally:
            client.close()
            if server is not None:
                server.close()

    @staticmethod
    def _greet(client: socket.socket) -> None:
        while struct.unpack(">ii", (start := _exactly(client, 8)))[1] != 3 << 16:
            client.sendall(b"N")  # neither TLS nor GSSAPI
        _exactly(client, struct.unpack(">i", start[:4])[0] - 8)
        settings = b"".join(_packed(b"S", f"{name}\0{value}\0".encode()) for name, value in _PARAMETERS.items())
        pid = _packed(b"K", struct.pack(">ii", _ANNOUNCED_PID, 0))
        client.sendall(_packed(b"R", bytes(4)) + settings + pid + _packed(b"Z", b"I"))

    def _session(self) -> socket.socket:
        """Return the session that was freed last, or a new one."""
        with self._mutex:
            if self._free:
                return self._free.pop()
        cluster = self.database.cluster
        server = socket.socket(socket.AF_UNIX)
        server.connect(str(Path(cluster.directory) / f".s.PGSQL.{cluster.port}"))
        self._open.append(server)
        body = struct.pack(">i", 3 << 16) + f"user\0{USER}\0database\0{self.database.name}\0\0".encode()
        server.sendall(struct.pack(">i", len(body) + 4) + body)
        while _message(server)[:1] != b"Z":
            pass
        return server


def _packed(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">i", len(body) + 4) + body


def _message(peer: socket.socket) -> bytes:
    head = _exactly(peer, 5)
    return head + _exactly(peer, struct.unpack(">i", head[1:])[0] - 4)


def _exactly(peer: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = peer.recv(count - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return data
