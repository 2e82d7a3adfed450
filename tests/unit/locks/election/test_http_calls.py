"""Calls to an election store that hang, and are ended from another thread."""

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
