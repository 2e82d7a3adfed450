"""The connections that this broker opens: TCP, or TLS with a check of the other side's certificate.

```text
tcp://   connect ------------------------------------------> session
ssl://   connect --> ClientHello --> handshake, certificate --> session
                        time limit: that of the address, and at most 30 s
```

Each failure is a `NotConnected`, whose text is one line with the remedy. Certificates and keys are read for each
connection, so that renewed files are used without a restart.
"""

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Final

from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.errors import PybrokerError
from pybroker.transports.connection import MakeSession, Registry, SocketConnection
from pybroker.transports.handshakes import Handshakes
from pybroker.transports.network.discovery import RemoteAddress
from pybroker.transports.tls import client_context
from pybroker.transports.tls_connection import TlsConnection

TLS_SECONDS: Final = 30.0
"""The limit to a TLS handshake, where the address allows more or sets none."""

_CLOSED: Final = "the remote broker closed the connection"

_HOST_MISMATCHES: Final = (62, 64)
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH of OpenSSL."""

_EXPIRED: Final = 10
"""X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL."""

_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH", "RECORD_LAYER", "UNEXPECTED_MESSAGE")
"""The begin of OpenSSL's reasons when the other side answers in another protocol."""

_CERTIFICATE_ALERTS: Final = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "HANDSHAKE_FAILURE")
"""Parts of OpenSSL's reasons when the other side refuses the client's certificate, or its lack."""


class NotConnected(PybrokerError, OSError):
    """An address could not be connected to; the text has the remedy."""


class OutgoingHandshake:
    """The TLS handshake of a connection to a remote broker; see `ClientHandshake`.

    Attributes:
        server_host: the host that is dialled.
        done: done when the handshake is over; a `NotConnected` when it has failed.
    """

    def __init__(self, server_host: str, *, has_certificate: bool) -> None:
        """Wait for the handshake; `has_certificate`: this broker presents one, for the remedy."""
        self.server_host = server_host
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._has_certificate = has_certificate

    def established(self) -> None:
        """Let who waits go on."""
        if not self.done.done():
            self.done.set_result(None)

    def failed(self, failure: str, error: ssl.SSLError | None) -> str:
        """Return the failure with its remedy, for the one line that the connector logs."""
        text = failure if error is None else f"{failure}{tls_remedy(error, has_certificate=self._has_certificate)}"
        if not self.done.done():
            self.done.set_exception(NotConnected(text))
        return text


def tls_context(connector: NetworkConnector, address: RemoteAddress) -> ssl.SSLContext:
    """Read the certificates for a connection with TLS.

    Raises:
        ConfigError: a file cannot be used; names the setting.
    """
    return client_context(
        authorities=_path(connector.tls_ca),
        certificate=_path(connector.tls_certificate),
        key=_path(connector.tls_key),
        key_password_file=_path(connector.tls_key_password_file),
        verifies_host_name=connector.tls_verify_hostname and address.verify_host_name,
    )


async def connect(
    address: RemoteAddress,
    connector: NetworkConnector,
    registry: Registry,
    handshakes: Handshakes,
    make_session: MakeSession,
) -> SocketConnection:
    """Connect, and return the connection, whose session has begun.

    Raises:
        NotConnected: this failed, or took too long.
    """
    seconds = address.connection_timeout_seconds
    try:
        async with asyncio.timeout(seconds):
            if address.is_tls:
                return await _connect_tls(address, connector, registry, handshakes, make_session)
            plain = SocketConnection(registry, str(address), make_session, b"")
            await _dial(address, plain)
            return plain
    except NotConnected:
        raise
    except TimeoutError as error:
        raise NotConnected(f"no connection within {seconds:g} seconds") from error
    except ConnectionRefusedError as error:
        raise NotConnected("connection refused: does a broker listen there?") from error
    except socket.gaierror as error:
        raise NotConnected(f"the host name {address.host} has no address: correct the uri, or the name") from error
    except UnicodeError as error:  # the codec for host names has refused it, before any look-up
        raise NotConnected(f"{address.host} cannot be a host name: a part of it is empty or too long") from error
    except (OSError, ConfigError) as error:
        raise NotConnected(str(error)) from error


async def _connect_tls(
    address: RemoteAddress,
    connector: NetworkConnector,
    registry: Registry,
    handshakes: Handshakes,
    make_session: MakeSession,
) -> TlsConnection:
    """Connect, and wait for the end of the handshake."""
    context = await asyncio.to_thread(tls_context, connector, address)
    handshake = OutgoingHandshake(address.host, has_certificate=bool(connector.tls_certificate))
    connection = TlsConnection(
        registry,
        str(address),
        make_session,
        context=context,
        handshake_seconds=min(TLS_SECONDS, address.connection_timeout_seconds),
        handshakes=handshakes,
        client=handshake,
    )
    await _dial(address, connection)
    try:
        await handshake.done
    except asyncio.CancelledError:
        connection.abort()
        raise
    return connection


async def _dial(address: RemoteAddress, connection: SocketConnection) -> None:
    """Attach the connection to a socket."""
    connection.closed_by_peer = _CLOSED
    try:
        await asyncio.get_running_loop().create_connection(lambda: connection, address.host, address.port)
    except asyncio.CancelledError:
        connection.attempt_cancelled()
        raise


def _path(name: str) -> Path | None:
    return Path(name) if name else None


def tls_remedy(error: ssl.SSLError, *, has_certificate: bool) -> str:
    """Return what an operator can do about a failure, after a colon; empty if that is not known."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _HOST_MISMATCHES:
            return ": write in the uri the host that its certificate names, or set tls_verify_hostname = false"
        if error.verify_code == _EXPIRED:
            return ": the remote broker needs a new one"
        return ": set tls_ca to a file with the certificate of its authority"
    reason = error.reason or ""
    if "ALERT" in reason and any(each in reason for each in _CERTIFICATE_ALERTS):
        if has_certificate:
            return ": the remote broker does not accept tls_certificate; it needs one of an authority trusted there"
        return ": the remote broker may want a certificate: set tls_certificate and tls_key"
    if reason.startswith(_NO_TLS):
        return ": the port seems to be one without TLS: write tcp:// in the uri, or the port of a listener with TLS"
    return ""
