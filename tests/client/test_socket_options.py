"""Options of one broker's connection: what each does to the socket, and to TLS."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from pybroker.client import BrokerMissing, UntrustedBroker, connect
from pybroker.client.arguments import make_conversation
from pybroker.client.errors import ConnectionClosed
from pybroker.client.uri import parse
from pybroker.client.wire import Dialler
from tests.client.test_tls import secured

PATIENCE = 30.0


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """Accepts connections, as any kernel does, and sends nothing."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server


def option(server: socket.socket, query: str, level: int, name: int) -> int:
    """Return what an option of the URI makes of the client's socket."""

    async def main() -> int:
        (address,) = parse(f"tcp://127.0.0.1:{server.getsockname()[1]}?{query}").addresses
        wire = await Dialler(make_conversation).dial(address)
        sock = wire.socket()
        assert sock is not None
        value = sock.getsockopt(level, name)
        wire.drop(ConnectionClosed("over"))
        await asyncio.sleep(0)
        return value

    return asyncio.run(main())


def test_tcp_no_delay_is_on_unless_it_is_not_wanted(server: socket.socket) -> None:
    no_delay = (socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert option(server, "", *no_delay)
    assert not option(server, "tcpNoDelay=false", *no_delay)


def test_keep_alive_is_off_unless_it_is_wanted(server: socket.socket) -> None:
    keep_alive = (socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert not option(server, "", *keep_alive)
    assert option(server, "keepAlive=true", *keep_alive)


@pytest.mark.parametrize("name", [socket.SO_SNDBUF, socket.SO_RCVBUF])
def test_the_size_of_buffers(server: socket.socket, name: int) -> None:
    """Linux doubles the requested size, for its own bookkeeping."""
    small, large = (option(server, f"socketBufferSize={size}", socket.SOL_SOCKET, name) for size in (8192, 65_536))
    assert small == 2 * 8192
    assert large == 2 * 65_536


def test_the_time_until_a_connection_stands(server: socket.socket) -> None:
    """TCP does at once; TLS never."""
    port = server.getsockname()[1]
    with pytest.raises(BrokerMissing, match="did not answer in time"):
        connect(f"ssl://127.0.0.1:{port}?connectionTimeout=100", timeout=PATIENCE)


def test_the_host_name_is_verified_unless_that_is_not_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))  # the system's authorities
    with secured(authority, tmp_path) as port:
        uri = f"ssl://localhost:{port}"  # the certificate is for 127.0.0.1
        with pytest.raises(UntrustedBroker, match="Hostname mismatch"):
            connect(uri, timeout=PATIENCE)
        for name in ("socket.verifyHostName", "verifyHostName"):
            with connect(f"{uri}?{name}=false", timeout=PATIENCE) as connection:
                connection.send("queue://q", "x")
