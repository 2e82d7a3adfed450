"""TLS: whether an error means that one side does not trust the other, which trying again would not change.

Source: RFC 8446, Alert Protocol; the reasons' names are OpenSSL's.
"""

import re
import socket
import ssl
from typing import Any, Final

from pybroker.client.errors import UntrustedBroker

_REFUSED: Final = re.compile(
    r"ALERT_(BAD_|UNSUPPORTED_)?CERTIFICATE|ALERT_UNKNOWN_CA|ALERT_ACCESS_DENIED|ALERT_HANDSHAKE_FAILURE"
)
"""What a broker says to a client whose certificate it misses, or does not like."""

_ALERT_SECONDS: Final = 1.0
"""A broker that wants a certificate says so only after the handshake (TLS 1.3)."""


def untrusted(error: BaseException, address: str) -> UntrustedBroker | None:
    """Return what an error means if it is about trust; None if trying again may help."""
    if isinstance(error, ssl.SSLCertVerificationError):
        cause = UntrustedBroker(f"{address}: {error}", address=address)
    elif isinstance(error, ssl.SSLError) and _REFUSED.search(error.reason or ""):
        cause = UntrustedBroker(f"{address} does not trust this client: {error.reason}", address=address)
    else:
        return None
    return cause


def client_context(
    ca_certs: str | None = None,
    cert_file: str | None = None,
    key_file: str | None = None,
    password: str | None = None,
    verify: bool = True,
    **_: Any,
) -> ssl.SSLContext:
    """Return what stomp.py makes of its options of TLS.

    Raises:
        OSError: a file does not exist, or is none of the kind.
    """
    context = ssl.create_default_context(cafile=ca_certs)
    if cert_file is not None:
        context.load_cert_chain(cert_file, key_file or cert_file, password)
    if not verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def probe(host: str, port: int, context: ssl.SSLContext, seconds: float) -> UntrustedBroker | None:
    """Connect for nothing but to learn whether both sides trust each other; None if they do, or nobody answers."""
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
