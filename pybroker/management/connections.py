"""The connections of the HTTP server: limited in number, and in the time that a client may be slow.

Of more than `CONNECTIONS_MAX` connections the one is closed that has waited longest for a request. One whose client
does not end the head of a request within `HEAD_SECONDS` is closed too.
"""

import asyncio
import logging
from typing import Any, Final

from aiohttp import web
from aiohttp.http import HttpProcessingError
from aiohttp.http_exceptions import LineTooLong

HEAD_SECONDS: Final = 10.0
KEEP_ALIVE_SECONDS: Final = 15.0
CONNECTIONS_MAX: Final = 200
LINE_BYTES_MAX: Final = 8190
"""The limit to the request line, and to each header."""


_log = logging.getLogger(__name__)


def _is_no_bad_request(record: logging.LogRecord) -> bool:
    """Return False for the log record of a malformed HTTP request: clients could fill the log with them."""
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


_log.addFilter(_is_no_bad_request)


class OpenConnections:
    """The open connections, the longest without a request first."""

    def __init__(self, server: web.Server) -> None:
        """Begin without one; `server` handles their requests."""
        self._server = server
        self._idle: dict[HttpConnection, None] = {}
        self.count = 0

    def make(self) -> "HttpConnection":
        """Return a new connection, for `create_server`."""
        loop = asyncio.get_running_loop()
        return HttpConnection(
            self,
            self._server,
            loop=loop,
            access_log=None,
            logger=_log,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            lingering_time=1.0,
            max_line_size=LINE_BYTES_MAX,
            max_field_size=LINE_BYTES_MAX,
            max_headers=100,
            auto_decompress=False,  # a small body could become a large one
        )

    def opened(self, connection: "HttpConnection") -> None:
        """Count a connection, and close another if there are too many."""
        self.count += 1
        self._idle[connection] = None
        if self.count > CONNECTIONS_MAX:
            next(iter(self._idle)).abort()

    def closed(self, connection: "HttpConnection") -> None:
        """Forget a connection."""
        self.count -= 1
        self._idle.pop(connection, None)

    def begun(self, connection: "HttpConnection") -> None:
        """Keep a connection that has a request."""
        self._idle.pop(connection, None)

    def ended(self, connection: "HttpConnection") -> None:
        """Note that its answer is complete."""
        self._idle[connection] = None


class HttpConnection(web.RequestHandler):
    """One connection."""

    __slots__ = ("_deadline", "_is_open", "_open")

    def __init__(self, open_connections: OpenConnections, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._open = open_connections
        self._is_open = False
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection, and wait for its first request."""
        super().connection_made(transport)
        self._is_open = True
        self._open.opened(self)
        self._wait()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self._stop_waiting()
        if self._is_open:
            self._is_open = False
            self._open.closed(self)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no request in HTTP with a sentence in JSON; aiohttp's own text repeats what was received."""
        answer = super().handle_error(request, status, exc, message)
        if not isinstance(exc, HttpProcessingError):
            return answer
        sentence = "this is no valid request in HTTP/1.1"
        if isinstance(exc, LineTooLong):
            sentence = f"the address or a header of the request is longer than {LINE_BYTES_MAX:,} bytes"
        refusal = web.json_response({"error": sentence}, status=status)
        refusal.force_close()
        return refusal

    def begin(self) -> None:
        """The head of a request is complete."""
        self._stop_waiting()
        if self._is_open:
            self._open.begun(self)

    def end(self) -> None:
        """Its answer is complete."""
        if self._is_open:
            self._open.ended(self)
            self._wait()

    def abort(self) -> None:
        """Close the connection at once."""
        if self.transport is not None:
            self.transport.abort()

    def _wait(self) -> None:
        seconds = HEAD_SECONDS + KEEP_ALIVE_SECONDS
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
