"""Answers each STOMP frame with a receipt and does nothing else: what the STOMP client alone can reach.

Run as a process of its own, so that it takes a core as a broker would; it prints its port and serves one connection.
"""

import socket

from benchmarks.driver import RECEIPT

_CONNECTED = b"CONNECTED\nversion:1.2\n\n\0\n"
_READ_BYTES = 1 << 18


def main() -> None:
    """Serve until the client leaves. The first frame must come in a piece of its own, as a client's CONNECT does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        connection, _ = listener.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.recv(_READ_BYTES)
            connection.sendall(_CONNECTED)
            while chunk := connection.recv(_READ_BYTES):
                connection.sendall(RECEIPT * chunk.count(b"\0"))


if __name__ == "__main__":
    main()
