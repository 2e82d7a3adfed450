"""HTTP/1.1 calls that end at a deadline, to the first of several addresses that answers.

`http.client` limits each operation on a socket, so that a peer which sends a byte now and then is waited for without
end. Here a call has one deadline for all its steps: the name's resolution, the connection, TLS, each read. What is read
is bounded as well. Used by `etcd` and `kubernetes`; it knows nothing of either.
"""

import contextlib
import http.client
import io
import json
import select
import socket
import ssl
import threading
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, NamedTuple, cast

from pybroker.errors import PybrokerError
from pybroker.locks.postgres.timing import now

BODY_BYTES_MAX = 65_536
"""The longest answer, and the longest line of a stream: a record of 4 KB is 6 KB in etcd's, and errors are short."""


_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
"""OpenSSL's names for an answer that is not TLS."""


class CallFailed(PybrokerError):
    """A call without a usable answer. The request may have been carried out, or be carried out later."""


class HttpAddress(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return `host:port` as a URL has it, an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class StoreRequest(NamedTuple):
    """A request to an election store.

    Attributes:
        path: with its query.
        body: JSON; empty: none.
        may_repeat: the request may be sent to another address when one has not answered.
        headers: besides those of the body.
        method: the HTTP method.
    """

    path: str
    body: bytes
    may_repeat: bool
    headers: Mapping[str, str] = {}
    method: str = "POST"


class HttpAnswer(NamedTuple):
    """The status and the body of an answer."""

    status: int
    body: bytes


class _DeadlineReader(io.RawIOBase):
    """Reads from a socket until a deadline, which may be moved."""

    def __init__(self, owner: "DeadlineSocket") -> None:
        super().__init__()
        self._owner = owner

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        return self._owner.recv_into(buffer)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._owner.end_reader()


class DeadlineSocket:
    """A connected socket with one deadline for all that is done with it; as `http.client` uses a socket."""

    def __init__(self, connected: socket.socket, deadline: float) -> None:
        """Own a socket."""
        self._socket = connected
        self._readers = 0
        self._is_closed = False
        self.deadline = deadline

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._socket.fileno()

    def sendall(self, data: bytes) -> None:
        """Send everything; the time-out of a socket is one for all of it."""
        self._limit()
        self._socket.sendall(data)

    def recv_into(self, buffer: Any) -> int:
        """Read what there is."""
        self._limit()
        return self._socket.recv_into(buffer)

    def makefile(self, mode: str, buffering: int = -1) -> io.BufferedReader:
        """Return a reader."""
        assert mode == "rb", f"{mode} with {buffering}: only answers are read as files"
        self._readers += 1
        return io.BufferedReader(_DeadlineReader(self))

    def end_reader(self) -> None:
        """Close the socket if it was closed while a reader was open, as sockets do."""
        self._readers -= 1
        if self._is_closed and not self._readers:
            self._socket.close()

    def shutdown(self) -> None:
        """End reads under way in other threads."""
        _shut_down(self._socket)

    def close(self) -> None:
        """Close it, or with its last reader: `http.client` closes it while it still reads a last answer."""
        self._is_closed = True
        if not self._readers:
            self._socket.close()

    def _limit(self) -> None:
        left = self.deadline - now()
        if left <= 0:
            raise TimeoutError("no answer in time")
        self._socket.settimeout(left)


class HttpChannel:
    """One keep-alive connection to the first address that answers. Used by one thread at a time."""

    def __init__(self, addresses: Sequence[HttpAddress], tls: ssl.SSLContext | None = None) -> None:
        """Connect to nothing yet."""
        self._addresses = [*addresses]
        self._tls = tls
        self._server_name = ""
        self._known: dict[str, list[Any]] = {}
        self._resolving: dict[str, Future[list[Any]]] = {}
        self._connection: http.client.HTTPConnection | None = None
        self._socket: DeadlineSocket | None = None
        self._dialling: socket.socket | None = None
        """The socket that is being connected."""
        self._is_interrupted = False

    @property
    def address(self) -> HttpAddress:
        """The address of the connection, or the first to try."""
        return self._addresses[0]

    @property
    def addresses(self) -> Sequence[HttpAddress]:
        """All addresses, in the order in which they are tried."""
        return tuple(self._addresses)

    def redirect(self, address: HttpAddress, tls: ssl.SSLContext | None, server_name: str = "") -> None:
        """Close the connection, and use another address, trust or certificate from here on.

        Args:
            address: the only one.
            tls: None: no TLS.
            server_name: the name in the server's certificate; empty: the address' host.
        """
        self.close()
        self._addresses = [address]
        self._tls = tls
        self._server_name = server_name

    def call(self, request: StoreRequest, deadline: float) -> HttpAnswer:
        """Send a request and return its answer.

        An address that refuses the connection is passed over. One that does not answer is given up at the deadline, or
        at its share of the time if the request may be repeated elsewhere.

        Raises:
            CallFailed: no address has answered in time, or a request that may not be repeated got no answer.
        """
        with self.opened(request, deadline) as response:
            try:
                data = response.read(BODY_BYTES_MAX + 1)
            except (OSError, http.client.HTTPException) as error:
                self._fail()
                raise CallFailed(_text(error)) from error
            if len(data) > BODY_BYTES_MAX:
                self._fail()
                raise CallFailed(f"an answer of more than {BODY_BYTES_MAX} bytes")
            return HttpAnswer(response.status, data)

    @contextlib.contextmanager
    def opened(self, request: StoreRequest, deadline: float) -> Generator[http.client.HTTPResponse]:
        """Send a request and give its answer as a stream, whose reads end at `set_deadline`.

        Raises:
            CallFailed: as `call`.
        """
        failures: list[str] = []
        for count in range(len(self._addresses), 0, -1):
            left = deadline - now()
            if failures and left <= 0:
                break
            limit = deadline if not request.may_repeat else now() + left / count
            address = self.address
            was_sent = False
            try:
                connection = self._connect(now() + left / count)
                self.set_deadline(limit)
                was_sent = True  # even a send that fails may have passed the request on
                headers = {"Content-Type": "application/json", **request.headers} if request.body else request.headers
                connection.request(request.method, request.path, request.body or None, headers)
                response = connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                failures.append(f"{address}: {_text(error)}")
                self._fail()
                if was_sent and not request.may_repeat:
                    raise CallFailed(failures[-1]) from error
                continue
            try:
                yield response
            finally:
                if not response.isclosed():  # its rest was not read
                    self.close()
            return
        raise CallFailed("; ".join(failures))

    def set_deadline(self, deadline: float) -> None:
        """Move the deadline of the connection."""
        if self._socket is not None:
            self._socket.deadline = deadline

    def interrupt(self) -> None:
        """End a call under way, and let every later one fail; from any thread."""
        self._is_interrupted = True
        if (dialling := self._dialling) is not None:
            _shut_down(dialling)
        if (connected := self._socket) is not None:
            connected.shutdown()

    def rotate(self) -> None:
        """Close the connection, and try the next address first."""
        self._fail()

    def close(self) -> None:
        """Close the connection. May be repeated."""
        connection, self._connection = self._connection, None
        connected, self._socket = self._socket, None
        if connection is not None:
            connection.close()  # with the reader of its answer, if that was not read to the end
        if connected is not None:
            connected.close()

    def _fail(self) -> None:
        self.close()
        self._addresses.append(self._addresses.pop(0))

    def _connect(self, deadline: float) -> http.client.HTTPConnection:
        connection, connected = self._connection, self._socket
        if connection is not None and connected is not None and connection.sock is not None:
            is_readable = bool(select.select([connected], [], [], 0)[0])
            if not is_readable:  # before a request was sent it is so when the peer has closed it
                return connection
        self.close()
        address = self.address
        owned = DeadlineSocket(self._dial(address, deadline), deadline)
        connection = http.client.HTTPConnection(address.host, address.port)
        connection.auto_open = 0  # it would connect without a deadline
        connection.sock = owned
        self._connection, self._socket = connection, owned
        if self._is_interrupted:  # `interrupt` may have found no socket
            raise OSError("closed")
        return connection

    def _dial(self, address: HttpAddress, deadline: float) -> socket.socket:
        error: OSError | None = None
        for family, target in self._resolve(address, deadline):
            connected = socket.socket(family, socket.SOCK_STREAM)
            try:
                self._own(connected, deadline)
                connected.connect(target)
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._tls is not None:
                    name = self._server_name or address.host
                    connected = secured = self._tls.wrap_socket(
                        connected, server_hostname=name, do_handshake_on_connect=False
                    )
                    self._own(secured, deadline)
                    secured.do_handshake()
                return connected
            except OSError as failed:  # ssl.SSLError is one
                connected.close()
                error = failed
            except BaseException:
                connected.close()
                raise
            finally:
                self._dialling = None
        raise error or OSError("the name has no address")

    def _own(self, dialling: socket.socket, deadline: float) -> None:
        """Have `interrupt` end what is done with a socket next, and the deadline too."""
        dialling.settimeout(max(0.001, deadline - now()))
        self._dialling = dialling
        if self._is_interrupted:  # it may have found no socket, or the one that TLS has taken over
            raise OSError("closed")

    def _resolve(self, address: HttpAddress, deadline: float) -> list[Any]:
        """Return family and socket address of a name: the last known ones if the resolver does not answer in time.

        A resolver has no deadline and cannot be interrupted, so it has a thread, one for each name at a time.
        """
        answer = self._resolving.get(address.host)
        if answer is None:
            answer = self._resolving[address.host] = Future()
            if _is_name(address.host):
                name = f"resolve {address.host}"
                threading.Thread(target=_resolve, args=(address, answer), name=name, daemon=True).start()
            else:
                _resolve(address, answer)
        try:
            found = answer.result(max(0.001, (deadline - now()) / 2))
        except (OSError, FutureTimeoutError) as error:
            if answer.done():
                del self._resolving[address.host]
            if address.host not in self._known:
                raise OSError(f"the name is not resolved: {_text(error)}") from error
            return self._known[address.host]
        del self._resolving[address.host]
        self._known[address.host] = found
        return found


def _shut_down(connection: socket.socket) -> None:
    """End what other threads do with a socket. TLS's own way is not for two threads."""
    with contextlib.suppress(OSError):  # the peer may have closed it already, or it is not connected
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def parse_object(data: bytes) -> dict[str, Any] | None:
    """Return a JSON object; None for anything else."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return object_or_none(found)


def object_or_none(value: object) -> dict[str, Any] | None:
    """Return a value that is a JSON object; None for another."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _is_name(host: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    except OSError:
        return True
    return False


def _resolve(address: HttpAddress, answer: "Future[list[Any]]") -> None:
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # a label that IDNA does not know
        answer.set_exception(OSError(_text(error)))
    else:
        answer.set_result([(each[0], each[4]) for each in found])


def _text(error: Exception) -> str:
    """Return a short description of an error of the network."""
    if isinstance(error, TimeoutError | FutureTimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError) or (isinstance(error, ssl.SSLError) and error.reason in _NO_TLS):
        return "it does not speak TLS"
    if isinstance(error, http.client.BadStatusLine | http.client.UnknownProtocol) and not isinstance(error, OSError):
        return "it does not speak HTTP"  # without what it said, which may be of any kind
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
