"""The look at the addresses of network connectors, over real sockets."""

import contextlib
import socket
import threading
from collections.abc import Callable, Generator
from unittest import mock

import pytest

from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.openwire.commands import BrokerId, BrokerInfo
from pybroker.broker.domain.openwire.marshal.wireformat import agree, broker_offer, encode_offer
from pybroker.transports.network.discovery import RemoteAddress
from pybroker.transports.network.probe import ProbeAnswer, probe

CONNECTOR = NetworkConnector(name="nc")
OFFER = encode_offer(broker_offer())
INFO = agree(broker_offer(), broker_offer()).wire_format().encode_frame(
    BrokerInfo(broker_id=BrokerId("ID:far"), broker_name="far")
)  # fmt: skip


@contextlib.contextmanager
def server(serve: Callable[[socket.socket], None]) -> Generator[RemoteAddress]:
    """Serve one connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            connection, _ = listener.accept()
            with connection:
                serve(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield RemoteAddress(host="127.0.0.1", port=listener.getsockname()[1])
        finally:
            thread.join()


def answer(address: RemoteAddress, seconds: float = 20.0) -> ProbeAnswer:
    (found,) = probe([(CONNECTOR, address)], seconds).values()
    return found


def read_all(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


@pytest.mark.parametrize("pieces", [[OFFER + INFO], [OFFER[:5], OFFER[5:] + INFO[:3], INFO[3:]]])
def test_broker_says_its_id_and_name(pieces: list[bytes]) -> None:
    def serve(connection: socket.socket) -> None:
        for each in pieces:
            connection.sendall(each)
        read_all(connection)

    with server(serve) as address:
        assert answer(address) == ProbeAnswer(broker_id="ID:far", broker_name="far")


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (b"", "it may want TLS"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it is an HTTP server"),
        (b"ERROR\nmessage:x\n\n\0", "it speaks STOMP"),
        (OFFER, "no BrokerInfo came"),
    ],
)
def test_other_servers_are_told_apart(said: bytes, problem: str) -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(said)

    with server(serve) as address:
        found = answer(address)
    assert problem in found.problem
    assert not found.broker_id


def test_closed_port_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert answer(RemoteAddress(host="127.0.0.1", port=port)).problem == "connection refused"


def test_silent_server_costs_no_more_than_the_time() -> None:
    with server(read_all) as address:
        assert answer(address, 0.2) == ProbeAnswer(problem="no answer within 0.2 s")


def test_name_without_an_address_is_known_as_such() -> None:
    error = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    with mock.patch("pybroker.transports.network.probe.socket.create_connection", side_effect=error):
        found = answer(RemoteAddress(host="no-such-host", port=61616))
    assert found == ProbeAnswer(problem="the host name no-such-host has no address", is_resolved=False)


def test_server_without_tls_has_the_remedy() -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(OFFER)

    with server(serve) as plain:
        found = answer(RemoteAddress(host=plain.host, port=plain.port, is_tls=True))
    assert "write tcp:// in the uri" in found.problem


def test_look_up_that_hangs_costs_no_more_than_the_time() -> None:
    released = threading.Event()

    def hang(*_: object, **__: object) -> None:
        released.wait()
        raise TimeoutError

    with mock.patch("pybroker.transports.network.probe.socket.create_connection", side_effect=hang):
        found = answer(RemoteAddress(host="h", port=1), 0.2)
        released.set()
    assert found.problem == "no answer within 0.2 s"
