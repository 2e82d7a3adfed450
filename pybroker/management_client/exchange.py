"""One request over HTTP, and its answer. Blocks; another thread may end it."""

import base64
import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import urlencode

from pybroker.management_client.address import ApiAddress
from pybroker.management_client.errors import AnswerLost, ManagementError

CONNECT_SECONDS: Final = 5.0

ANSWER_SECONDS: Final = 65.0
"""Longer than a member takes for an answer that is no operation: it answers an error then."""

ANSWER_BYTES_MAX: Final = 64 << 20
"""The length of an answer: more than that of a message of 16 MB in base64, the largest that a member sends."""


class MemberSilent(ManagementError):
    """A member that cannot be connected to: nothing was sent to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiLogin:
    """The login, and the trust in the certificates of members.

    Attributes:
        user: the user; empty: without a login.
        password: its password.
        tls: the trust; None: that of the system.
    """

    user: str = ""
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None

    @property
    def header(self) -> Mapping[str, str]:
        """The header field of HTTP."""
        if not self.user:
            return {}
        return {"Authorization": "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAnswer:
    """An answer.

    Attributes:
        status: the status of HTTP.
        value: its JSON; a text that is none as it is.
    """

    status: int
    value: Any

    @property
    def error(self) -> str:
        """The sentence of an error."""
        value: object = self.value
        fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {"error": str(value)}
        text = str(fields.get("error", "")).strip().partition("\n")[0][:1000]
        return text or f"the member answers {self.status}"


class ApiExchange:
    """One request to one member."""

    def __init__(self, address: ApiAddress, login: ApiLogin) -> None:
        """Create it, without connecting."""
        self._address = address
        self._login = login
        self._socket: socket.socket | None = None
        self._is_ended = False

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        connect_seconds: float = CONNECT_SECONDS,
        seconds: float = ANSWER_SECONDS,
    ) -> ApiAnswer:
        """Return the answer, whatever its status is.

        Args:
            method: GET, POST or DELETE.
            path: percent-encoded.
            query: the parameters; those that are None are left out.
            body: the fields of the body; None: it has none.
            connect_seconds: the time for the connection.
            seconds: the time without a byte of an answer.

        Raises:
            MemberSilent: there is no connection.
            AnswerLost: it broke before the answer had come.
        """
        address = self._address
        parameters = urlencode({name: value for name, value in (query or {}).items() if value is not None})
        target = f"{address.prefix}{path}{'?' if parameters else ''}{parameters}"
        headers = {"Accept": "application/json", "Connection": "close", **self._login.header}
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection = self._connection(connect_seconds)
        with contextlib.closing(connection):
            try:
                connection.connect()
                self._socket = cast("socket.socket", connection.sock)
                self._socket.settimeout(seconds)
            except (OSError, ValueError) as error:  # ValueError: a name that is none of IDNA
                raise MemberSilent(f"{address.url}: {_reason(error)}") from error
            try:
                connection.request(method, target, None if body is None else json.dumps(body).encode(), headers)
                return _answer(connection.getresponse())
            except (OSError, ValueError, http.client.HTTPException) as error:
                text = "the request was ended" if self._is_ended else _reason(error)
                raise AnswerLost(f"{address.url} has not answered: {text}") from error

    def end(self) -> None:
        """End it from another thread: the connection is closed, and with it ends what the member does for it."""
        self._is_ended = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        address = self._address
        if not address.is_tls:
            return http.client.HTTPConnection(address.host, address.port, timeout=seconds)
        return http.client.HTTPSConnection(address.host, address.port, timeout=seconds, context=self._login.tls)


def _answer(response: http.client.HTTPResponse) -> ApiAnswer:
    data = response.read(ANSWER_BYTES_MAX + 1)
    if len(data) > ANSWER_BYTES_MAX:
        raise ValueError(f"the answer is larger than {ANSWER_BYTES_MAX:,} bytes")
    if response.length:
        raise ValueError(f"it has closed the connection, with {response.length:,} bytes missing")
    text = data.decode(errors="replace")
    is_json = response.headers.get_content_type() == "application/json"
    return ApiAnswer(status=response.status, value=json.loads(text) if is_json else text)


def _reason(error: Exception) -> str:
    """Return why an exchange failed, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message} (--ca)"
    if isinstance(error, ssl.SSLError):
        return f"TLS fails: {error.reason or error}; is it http?"
    if isinstance(error, TimeoutError):
        return "it does not answer in time"
    if isinstance(error, ConnectionResetError | BrokenPipeError):  # http.client.RemoteDisconnected is one
        return "it has closed the connection"
    if isinstance(error, http.client.BadStatusLine):
        return "it does not speak HTTP; is it https?"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
