"""Calls to an election store that hang, and are ended from another thread."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable

import pytest

from pybroker.locks.election.http_calls import CallFailed, HttpAddress, HttpChannel, StoreRequest
from pybroker.locks.postgres.timing import now

SECONDS = 30.0


def client_context() -> ssl.SSLContext:
    """Return a context for connections to a server that never shows a certificate."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@pytest.mark.parametrize("make_tls", [client_context, lambda: None], ids=["handshake", "answer"])
def test_interrupt_ends_a_call_to_a_server_that_hangs(make_tls: Callable[[], ssl.SSLContext | None]) -> None:
    """A member that stops does not wait for the time-out, neither in a handshake of TLS nor for an answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        channel = HttpChannel([HttpAddress("127.0.0.1", listener.getsockname()[1])], make_tls())
        failures: list[CallFailed] = []

        def call() -> None:
            try:
                channel.call(StoreRequest("/", b"", may_repeat=True), now() + SECONDS)
            except CallFailed as error:
                failures.append(error)

        calling = threading.Thread(target=call)
        calling.start()
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(1), "it has begun"
            channel.interrupt()
            calling.join(SECONDS / 2)
            assert not calling.is_alive()
            calling.join()
        assert failures


@pytest.mark.parametrize(
    ("make_tls", "answer", "expected"),
    [
        (lambda: None, b"\0\0\1\x34\1ActiveMQ\r\n", "it does not speak HTTP"),
        (lambda: None, b"", "Remote end closed connection without response"),
        (client_context, b"HTTP/1.0 400 Bad Request\r\n\r\n", "it does not speak TLS"),
        (client_context, b"", "it does not speak TLS"),
    ],
)
def test_server_of_another_kind_is_a_sentence(
    make_tls: Callable[[], ssl.SSLContext | None], answer: bytes, expected: str
) -> None:
    """Without the bytes that it sent, which a log would show as they are."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        channel = HttpChannel([HttpAddress("127.0.0.1", port)], make_tls())

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)
                with contextlib.suppress(ConnectionResetError):  # by an end of TLS that has seen enough
                    connection.recv(65_536)  # what is unread would reset the connection

        serving = threading.Thread(target=serve)
        serving.start()
        with pytest.raises(CallFailed) as caught:
            channel.call(StoreRequest("/", b"", may_repeat=True), now() + SECONDS)
        assert str(caught.value) == f"127.0.0.1:{port}: {expected}"
        serving.join()
