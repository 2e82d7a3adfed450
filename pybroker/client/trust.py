"""Errors of a TLS handshake as errors of the client: an untrusted certificate, which is final, or a port without TLS.

Source: RFC 8446, Alert Protocol; the names of the reasons are OpenSSL's.
"""

import re
import socket
import ssl
from typing import Any, Final

from pybroker.client.errors import ConnectionLost, UntrustedBroker

_REFUSED: Final = re.compile(
    r"ALERT_(BAD_|UNSUPPORTED_)?CERTIFICATE|ALERT_UNKNOWN_CA|ALERT_ACCESS_DENIED|ALERT_HANDSHAKE_FAILURE"
)
"""The alerts of a broker that requires a certificate and does not accept the client's."""

_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"})
"""OpenSSL's reasons, which differ between its versions, if what is received is not a TLS record."""

_ALERT_SECONDS: Final = 1.0
"""The wait for an alert: with TLS 1.3 a broker refuses a client's certificate only after the handshake."""


def untrusted(error: BaseException, address: str) -> UntrustedBroker | None:
    """Return the error for a lack of trust; None if another attempt may succeed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        cause = UntrustedBroker(f"{address}: {error}", address=address)
    elif isinstance(error, ssl.SSLError) and _REFUSED.search(error.reason or ""):
        cause = UntrustedBroker(f"{address} does not trust this client: {error.reason}", address=address)
    else:
        return None
    return cause


def handshake_error(error: ssl.SSLError, address: str) -> ConnectionLost | UntrustedBroker | None:
    """Return the client's error for a failed TLS handshake; None if OpenSSL's error is to be raised as it is."""
    if error.reason in _NOT_TLS:
        text = f"{address} answers without TLS: use the broker's port for TLS, or a scheme without TLS here"
        return ConnectionLost(text, address=address)
    return untrusted(error, address)


def client_context(
    ca_certs: str | None = None,
    cert_file: str | None = None,
    key_file: str | None = None,
    password: str | None = None,
    verify: bool = True,
    **_: Any,
) -> ssl.SSLContext:
    """Return the TLS context for stomp.py's TLS options.

    Raises:
        OSError: a file does not exist, or has the wrong format.
    """
    context = ssl.create_default_context(cafile=ca_certs)
    if cert_file is not None:
        context.load_cert_chain(cert_file, key_file or cert_file, password)
    if not verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def probe(host: str, port: int, context: ssl.SSLContext, seconds: float) -> UntrustedBroker | None:
    """Connect only to find out if both sides trust each other; None if they do, or if there is no answer."""
    try:
        with (
            socket.create_connection((host, port), seconds) as plain,
            context.wrap_socket(plain, server_hostname=host) as encrypted,
        ):
            encrypted.settimeout(min(seconds, _ALERT_SECONDS))
            encrypted.recv(1)
    except OSError as error:
        return untrusted(error, f"stomp+ssl://{host}:{port}")
    return None
