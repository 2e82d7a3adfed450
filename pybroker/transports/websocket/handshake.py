"""The opening handshake of a WebSocket connection: a request's bytes to an answer, and the protocol that is chosen.

The library `websockets` reads the request and answers an upgrade. Before it come limits, and what is no upgrade:

| request | answer |
|---|---|
| GET with `Upgrade: websocket` | 101, or 400; 403 for an origin that may not connect |
| GET or HEAD without, OPTIONS | 200 and no content, so that a load balancer can look whether the port is open |
| other methods | 405 |
| more than `HEAD_BYTES_MAX` or `HEADERS_MAX` | 431 |

Path, query and `Authorization` have no meaning. Extensions are declined, compression too, which would let a peer turn
kilobytes into gigabytes.

Source: RFC 6455, 4.2; ActiveMQ 5.17 for 200 and 405.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from websockets.datastructures import MultipleValuesError
from websockets.exceptions import NegotiationError
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from pybroker.transports.websocket.origins import OriginRule
from pybroker.transports.websocket.release import release
from pybroker.transports.websocket.subprotocols import ChosenSubprotocol, SubprotocolFamily, choose

HEAD_BYTES_MAX: Final = 8 << 10
"""The limit to the request line and the headers."""

HEADERS_MAX: Final = 100

HEAD_END: Final = b"\r\n\r\n"

_LINE_END: Final = b"\r\n"
_EMPTY_ANSWERS: Final = (b"HEAD", b"OPTIONS")
_ALLOWED: Final = "GET, HEAD, OPTIONS"

_websockets_log = logging.getLogger(f"{__name__}.websockets")
_websockets_log.setLevel(logging.WARNING)  # below, the library logs frames, which have bodies and passwords


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradedConnection:
    """A connection that has become one of WebSocket.

    Attributes:
        protocol: the library's part, for the frames.
        family: the protocol in it.
    """

    protocol: ServerProtocol
    family: SubprotocolFamily


@dataclass(frozen=True, slots=True, kw_only=True)
class HandshakeAnswer:
    """The answer to a request.

    Attributes:
        data: its bytes.
        status: the status of HTTP.
        upgraded: the connection that it begins; None: it ends behind the answer.
        reason: why it is no upgrade, for the log.
        is_refused_origin: the reason is the page that it comes from.
    """

    data: bytes
    status: int
    upgraded: UpgradedConnection | None = None
    reason: str = ""
    is_refused_origin: bool = False


def answer(head: bytes, families: Collection[SubprotocolFamily], origins: OriginRule) -> HandshakeAnswer:
    """Return the answer to a request.

    Args:
        head: the request line and the headers, with the blank line.
        families: the protocols that are served; the first one is for clients that offer none.
        origins: decides from which pages a script may connect.
    """
    if len(head) > HEAD_BYTES_MAX or head.count(_LINE_END) > HEADERS_MAX + 2:
        return refuse(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            f"a request may have {HEAD_BYTES_MAX} bytes and {HEADERS_MAX} headers",
        )
    method = head.partition(b" ")[0]
    if method in _EMPTY_ANSWERS:
        return refuse(HTTPStatus.OK, "")
    if method != b"GET":
        return refuse(HTTPStatus.METHOD_NOT_ALLOWED, "this port speaks WebSocket: send GET with Upgrade")
    protocol = _ChoosingProtocol(families)
    protocol.receive_data(head)
    request = next(iter(protocol.events_received()), None)
    if not isinstance(request, Request):
        release(protocol)
        return refuse(HTTPStatus.BAD_REQUEST, "this is no request of HTTP/1.1")
    found = _answer(protocol, request, origins)
    if found.upgraded is None:
        release(protocol)
    return found


def refuse(status: HTTPStatus, reason: str, *, is_refused_origin: bool = False) -> HandshakeAnswer:
    """Return an answer that ends the connection.

    Args:
        status: the status of HTTP.
        reason: the text for the client and the log; empty for none.
        is_refused_origin: see `HandshakeAnswer`.
    """
    protocol = ServerProtocol(logger=_websockets_log)
    data = _serialized(protocol.reject(status, f"{reason}\n" if reason else ""))
    release(protocol)
    return HandshakeAnswer(data=data, status=status, reason=reason, is_refused_origin=is_refused_origin)


class _ChoosingProtocol(ServerProtocol):
    """Chooses the subprotocol, and keeps the choice."""

    def __init__(self, families: Collection[SubprotocolFamily]) -> None:
        self._families = families
        self.chosen: ChosenSubprotocol | None = None
        super().__init__(max_size=None, logger=_websockets_log)

    def select_subprotocol(self, subprotocols: Sequence[Subprotocol]) -> Subprotocol | None:
        """Return the subprotocol for an offer; None if none was offered.

        Raises:
            NegotiationError: none of it is served.
        """
        self.chosen = choose(subprotocols, self._families)
        if self.chosen is None:
            served = ", ".join(name for family in self._families for name in family.subprotocols)
            raise NegotiationError(f"no offered subprotocol is served; served are {served}")
        return None if self.chosen.name is None else Subprotocol(self.chosen.name)


def _answer(protocol: _ChoosingProtocol, request: Request, origins: OriginRule) -> HandshakeAnswer:
    try:
        origin, host = request.headers.get("Origin"), request.headers.get("Host")
    except MultipleValuesError as error:
        return refuse(HTTPStatus.BAD_REQUEST, f"there is more than one header {error}")
    if "Upgrade" not in request.headers:
        return refuse(HTTPStatus.OK, "")
    if not origins.allows(origin, host):
        return refuse(HTTPStatus.FORBIDDEN, f"pages of {origin} may not connect to this broker", is_refused_origin=True)
    response = protocol.accept(request)
    if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS or protocol.chosen is None:
        reason = str(protocol.handshake_exc)
        return HandshakeAnswer(data=_serialized(response), status=response.status_code, reason=reason)
    protocol.send_response(response)
    return HandshakeAnswer(
        data=b"".join(protocol.data_to_send()),
        status=response.status_code,
        upgraded=UpgradedConnection(protocol=protocol, family=protocol.chosen.family),
    )


def _serialized(response: Response) -> bytes:
    """Return an answer that is no upgrade, with the headers that RFC 9110 and RFC 6455 demand."""
    if response.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        response.headers["Allow"] = _ALLOWED
    elif response.status_code in (HTTPStatus.BAD_REQUEST, HTTPStatus.UPGRADE_REQUIRED):
        response.headers["Sec-WebSocket-Version"] = "13"
    elif response.status_code == HTTPStatus.SERVICE_UNAVAILABLE:
        del response.headers["Date"]  # a listener has this answer ready
    return response.serialize()
