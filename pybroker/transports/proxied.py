"""Connections through a proxy: reads the header with the client's address, then leaves the socket to a connection.

```text
proxy --header--> ProxyHeaderReader --address--> connection made, admitted --first bytes--> TLS or session
```

The header comes before TLS. The address in it counts from then on: for limits, `allow` and `deny`, logins and logs.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from pybroker.broker.domain.addresses import is_loopback
from pybroker.transports.connection import SocketConnection, release_references
from pybroker.transports.proxy_protocol import ProxyHeader, ProxyHeaderError, parse

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxies:
    """The proxies of a listener, which serves no other peers.

    Attributes:
        are_trusted: returns True for the address of a proxy.
        header_seconds: how long it may take for the header.
    """

    are_trusted: Callable[[str], bool]
    header_seconds: float


class MakeConnection(Protocol):
    """Makes the connection of a client."""

    def __call__(self, host: str, port: int, /, *, is_proxy: bool) -> SocketConnection | None:
        """Return the connection; None if its address may not connect, which is logged.

        Args:
            host: the client's address.
            port: its port.
            is_proxy: the address is the proxy's, which is trusted.
        """
        ...


class ReaderRegistry(Protocol):
    """The server, as the readers of headers see it."""

    def begin_header(self, reader: "ProxyHeaderReader") -> bool:
        """Add a reader; False if no connection is accepted any more."""
        ...

    def end_header(self, reader: "ProxyHeaderReader") -> None:
        """Remove a reader, if it is still there."""
        ...


class ProxyHeaderReader(asyncio.Protocol):
    """The protocol of an accepted socket until its header has come."""

    def __init__(self, registry: ReaderRegistry, proxy: tuple[str, int], seconds: float, make: MakeConnection) -> None:
        """Wait for the transport.

        Args:
            registry: the server.
            proxy: address and port of the proxy.
            seconds: the time limit of the header.
            make: called at most once.
        """
        self._proxy = proxy
        self._seconds = seconds
        self._make = make
        self._registry = registry
        self._received = b""
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None  # set while the header is awaited

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the time limit."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass of it
        if self._registry.begin_header(self):
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._on_time)
        else:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Leave the socket to the client's connection once the header is complete."""
        self._received += data
        try:
            header = parse(self._received)
        except ProxyHeaderError as error:
            self._fail(str(error))
        else:
            if header is not None:
                self._hand_over(header)

    def connection_lost(self, exc: Exception | None) -> None:
        """React to the end; a health check that connects and leaves is not worth a line."""
        if self._received and self._timer is not None:
            _log.info("%s closed: the proxy left before the end of its header", self._proxy[0])
        self._end()
        release_references(self._transport)

    def abort(self) -> None:
        """Close at once."""
        self._end()
        self._transport.abort()

    def _on_time(self) -> None:
        self._fail(f"no header within {self._seconds:g} seconds")

    def _fail(self, reason: str) -> None:
        _log.warning("%s closed: this port serves proxies only, and got %s", self._proxy[0], reason)
        self.abort()

    def _hand_over(self, header: ProxyHeader) -> None:
        self._end()
        client = self._client(header)
        connection = self._make(*(client or self._proxy), is_proxy=client is None)
        if connection is None:
            self._transport.abort()
            return
        rest = self._received[header.size :]
        self._transport.set_protocol(connection)
        connection.connection_made(self._transport)
        if rest:
            connection.data_received(rest)

    def _client(self, header: ProxyHeader) -> tuple[str, int] | None:
        """Return the client's address; None: the proxy's counts.

        A loopback address is one of the proxy's machine, which is not this one unless the proxy's is a loopback too.
        """
        if header.source is None or (is_loopback(header.source[0]) and not is_loopback(self._proxy[0])):
            return None
        return header.source

    def _end(self) -> None:
        self._registry.end_header(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
