"""`Wire`, one transport with its conversation, and `Dialler`, which opens it: host names, TCP, TLS, socket options."""

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Callable
from ipaddress import ip_address
from math import inf
from typing import cast

from pybroker import blocking
from pybroker.client.conversation import Conversation, Ended
from pybroker.client.errors import ClientError, ConnectionLost
from pybroker.client.pending import Callbacks
from pybroker.client.trust import handshake_error
from pybroker.client.uri import Address


class Wire(asyncio.Protocol):
    """One transport with its conversation.

    Attributes:
        conversation: the conversation on the transport.
        lost: set to the reason when the transport is closed.
        on_writable: called when the transport accepts bytes again.
        is_congested: the peer reads more slowly than this side writes.
        on_data: the function that gets received bytes; at first the one for backups.
    """

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.lost: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self.on_writable = Callbacks()
        self.is_congested = False
        self.on_data: Callable[[bytes], None] = self._receive_as_backup
        self._has_received = asyncio.Event()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the greeting."""
        self._transport = cast("asyncio.Transport", transport)
        self.write(self.conversation.bytes_to_send())

    def data_received(self, data: bytes) -> None:
        """Pass received bytes to `on_data`; an error closes the transport."""
        try:
            self.on_data(data)
        except ClientError as error:
            self.drop(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Record that the transport is closed."""
        self._end(exc or ConnectionLost("the broker closed the connection"))

    def pause_writing(self) -> None:
        """Record that the write buffer is full."""
        self.is_congested = True

    def resume_writing(self) -> None:
        """Record that the write buffer has space again."""
        self.is_congested = False
        self.on_writable.call()

    def write(self, data: bytes) -> None:
        """Send bytes; does nothing without a transport."""
        if data and self._transport is not None:
            self._transport.write(data)

    def socket(self) -> socket.socket | None:
        """Return the socket, to set its options."""
        return self._transport.get_extra_info("socket") if self._transport is not None else None

    def finish(self, error: Exception) -> None:
        """Close the transport after all written bytes are sent."""
        self._end(error)
        if self._transport is not None:
            self._transport.close()

    def drop(self, error: Exception) -> None:
        """Abort the transport."""
        self._end(error)
        if self._transport is not None:
            self._transport.abort()

    def drop_if_silent(self, due_at: float, error: Exception) -> None:
        """Abort the transport if nothing is received until then, by the loop's clock."""
        receive, timer = self.on_data, asyncio.get_running_loop().call_at(due_at, self.drop, error)

        def receive_first(data: bytes) -> None:
            timer.cancel()
            self.on_data = receive
            receive(data)

        self.on_data = receive_first

    async def keep_alive(self) -> None:
        """Send the heart-beats of a backup connection until it is lost, or the task is cancelled."""
        while not self.lost.done():
            try:
                due_at = self.conversation.tick(time.monotonic())
            except ClientError as error:
                self.drop(error)
                return
            self.write(self.conversation.bytes_to_send())
            self._has_received.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds_until(due_at)):
                    await self._has_received.wait()

    def _receive_as_backup(self, data: bytes) -> None:
        for event in self.conversation.receive(data):
            if isinstance(event, Ended):
                self.drop(ConnectionLost(event.reason))
        self.write(self.conversation.bytes_to_send())
        self._has_received.set()  # the agreement may require an earlier check

    def _end(self, error: Exception) -> None:
        if not self.lost.done():
            self.lost.set_result(error)
        self._has_received.set()
        self.resume_writing()


class Dialler:
    """Opens connections to brokers."""

    def __init__(self, make: Callable[[Address], Conversation], ssl_context: ssl.SSLContext | None = None) -> None:
        """Store the factory and the TLS context.

        Args:
            make: returns a conversation for a broker.
            ssl_context: the TLS context; by default one that verifies certificates with the system's authorities.
        """
        self._make = make
        self._ssl_context = ssl_context

    async def dial(self, address: Address, seconds: float = inf) -> Wire:
        """Connect to a broker, within so many seconds or the URI's `connectionTimeout`, whichever is less.

        Raises:
            OSError: the broker cannot be reached.
            ConnectionLost: the broker did not answer in time, or did so without TLS.
            UntrustedBroker: TLS verification failed.
        """
        limit = address.options.connection_timeout_seconds
        seconds = min(seconds, inf if limit is None else limit)
        try:
            async with asyncio.timeout(seconds if seconds < inf else None):
                wire = await self._connect(address)
        except ssl.SSLError as error:
            cause = handshake_error(error, str(address))
            if cause is None:
                raise
            raise cause from error
        except TimeoutError as error:
            raise silent(address) from error
        self._tune(wire, address)
        return wire

    async def _connect(self, address: Address) -> Wire:
        tls = self._tls(address) if address.scheme.is_tls else None
        error = OSError(f"{address.host} has no address")
        for host in await _addresses(address.host):
            try:
                _, wire = await asyncio.get_running_loop().create_connection(
                    lambda: Wire(self._make(address)),
                    host,
                    address.port,
                    ssl=tls,
                    server_hostname=address.host if tls is not None else None,
                )
            except OSError as refused:  # includes errors of TLS: one address of several may have a wrong certificate
                if not isinstance(error, ssl.SSLError):
                    error = refused
            else:
                return wire
        raise error

    def _tune(self, wire: Wire, address: Address) -> None:
        sock = wire.socket()
        options = address.options
        if sock is None:
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, options.tcp_no_delay)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, options.keep_alive)
        if options.socket_buffer_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.socket_buffer_bytes)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.socket_buffer_bytes)

    def _tls(self, address: Address) -> ssl.SSLContext:
        context = self._ssl_context
        if context is None:
            context = ssl.create_default_context()
            context.check_hostname = address.options.verify_host_name
        return context


def silent(address: Address) -> ConnectionLost:
    """Return the error of a broker that says nothing, as a machine that is off or a process that is stopped."""
    return ConnectionLost(f"{address} did not answer in time", address=str(address))


async def _addresses(host: str) -> list[str]:
    """Return the IP addresses of a host; of an IP address, itself."""
    with contextlib.suppress(ValueError):
        return [str(ip_address(host))]
    found = await blocking.call(lambda: socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def seconds_until(due_at: float) -> float | None:
    """Return the seconds until a time of the monotonic clock; None for infinity."""
    return None if due_at == float("inf") else max(0.0, due_at - time.monotonic())
