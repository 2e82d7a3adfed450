"""The listener of the health checks: a small part of HTTP/1.x, with one answer for each connection.

A connection gets `REQUEST_SECONDS` for a request of at most `REQUEST_BYTES_MAX`, and is closed after the answer. Of
more than `CONNECTIONS_MAX` connections the oldest is closed. So whatever peers do, a check is answered.

Source: RFC 9112, 2 to 9.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, cast

from pybroker.management.checks import PATHS, Health

REQUEST_SECONDS: Final = 5.0
REQUEST_BYTES_MAX: Final = 8192
CONNECTIONS_MAX: Final = 200

_METHODS: Final = ("GET", "HEAD")
_ENDS: Final = (b"\r\n\r\n", b"\n\n")

Check = Callable[[str], Health]
"""Returns the answer for one of `PATHS`."""


class HealthConnection(asyncio.Protocol):
    """One connection."""

    def __init__(self, check: Check, open_connections: "dict[HealthConnection, None]") -> None:
        """Create it.

        Args:
            check: returns the answers.
            open_connections: all connections of the listener, the oldest first.
        """
        self._check = check
        self._open = open_connections
        self._request = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Make room for the connection, and wait for its request."""
        self._transport = cast("asyncio.Transport", transport)
        self._deadline = asyncio.get_running_loop().call_later(REQUEST_SECONDS, self._give_up)
        if len(self._open) >= CONNECTIONS_MAX:
            next(iter(self._open)).abort()
        self._open[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._deadline.cancel()
        self._open.pop(self, None)

    def data_received(self, data: bytes) -> None:
        """Answer once the head of the request is complete; ignore what follows it."""
        if self._transport.is_closing():
            return
        self._request += data
        head = min((part for end in _ENDS if (part := self._request.partition(end))[1]), key=_length, default=None)
        if head is not None:
            self._answer(head[0])
        elif len(self._request) > REQUEST_BYTES_MAX:
            self._send(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too large")

    def abort(self) -> None:
        """Close the connection at once, to make room for another."""
        self._open.pop(self, None)
        self._transport.abort()

    def _give_up(self) -> None:
        if not self._transport.is_closing():
            self._send(HTTPStatus.REQUEST_TIMEOUT, f"the request did not end within {REQUEST_SECONDS:g} s")

    def _answer(self, head: bytes) -> None:
        method, _, rest = head.splitlines()[0].decode("latin-1").partition(" ") if head else ("", "", "")
        target, _, version = rest.rpartition(" ")
        if not version.startswith("HTTP/1."):
            self._send(HTTPStatus.BAD_REQUEST, "the request is not one of HTTP/1.x")
        elif method not in _METHODS:
            self._send(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are answered", allow=", ".join(_METHODS))
        elif (path := target.partition("?")[0]) not in PATHS:
            self._send(HTTPStatus.NOT_FOUND, f"there are {', '.join(PATHS)}", is_head=method == "HEAD")
        else:
            health = self._check(path)
            self._send(health.status, health.text, is_head=method == "HEAD")

    def _send(self, status: HTTPStatus, text: str, *, is_head: bool = False, **headers: str) -> None:
        """Send the only answer of this connection."""
        body = f"{text}\n".encode(errors="replace")
        fields = {
            "content-type": "text/plain; charset=utf-8",
            "content-length": str(len(body)),
            "cache-control": "no-store",
            "connection": "close",
        }
        lines = [f"HTTP/1.1 {status.value} {status.phrase}", *map(": ".join, (fields | headers).items()), "", ""]
        self._transport.write("\r\n".join(lines).encode() + (b"" if is_head else body))
        self._transport.close()


def _length(parts: tuple[bytes, bytes, bytes]) -> int:
    return len(parts[0])
