"""Texts and first bytes of a remote broker, which may be another program: shortened and explained for the log.

It does not decode frames. Source of the first bytes: the specifications of the protocols that are named.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from pybroker.broker.domain.errors import InvalidClientId

SHOWN_MAX: Final = 400
"""The characters of a text that a line of the log shows."""

FIRST_BYTES: Final = 8
"""The bytes by which a protocol is recognised."""

_PORT: Final = "write in the uri the port of a listener for OpenWire"
_UNKNOWN: Final = f"it does not speak OpenWire: {_PORT}"

_PROTOCOLS: Final = (
    (b"\x15\x03", "it answers with TLS: write ssl:// in the uri, or the port of a listener without TLS"),
    (b"\x16\x03", "it answers with TLS: write ssl:// in the uri, or the port of a listener without TLS"),
    (b"HTTP/", f"it is an HTTP server: {_PORT}"),
    (b"ERROR", f"it speaks STOMP: {_PORT}"),
    (b"CONNECTED", f"it speaks STOMP: {_PORT}"),
    (b"AMQP", f"it speaks AMQP: {_PORT}"),
    (b"SSH-", f"it is an SSH server: {_PORT}"),
    (b"\x20\x02", f"it speaks MQTT: {_PORT}"),
)
"""The first bytes of a server of another protocol, and the remedy."""


def one_line(text: str) -> str:
    """Return a text without control characters, shortened."""
    cut = text[:SHOWN_MAX]
    shown = "".join(each if each.isprintable() else " " for each in cut)
    return shown + ("…" if len(text) > SHOWN_MAX else "")


@contextmanager
def one_bridge_of(connector: str, remote_name: str) -> Generator[None]:
    """Add the remedy to the error that a client id of a bridge is connected already.

    Args:
        connector: the name of the connector.
        remote_name: that of the remote broker.

    Raises:
        InvalidClientId: as in the block, with the remedy.
    """
    try:
        yield
    except InvalidClientId as error:
        raise InvalidClientId(
            f"another bridge with broker {remote_name} is of a connector named {connector} too: if two addresses lead "
            "to the same broker, remove one of them, or write masterslave:(…); otherwise give each connector a name of "
            f"its own ({error})"
        ) from error


def protocol_hint(first: bytes) -> str:
    """Return what a server seems to be that does not speak OpenWire, and the remedy.

    Args:
        first: the first bytes that it has sent, `FIRST_BYTES` or fewer.
    """
    if not first:
        return "it may want TLS, then write ssl:// in the uri; or it is no listener for OpenWire"
    for begin, hint in _PROTOCOLS:
        if begin.startswith(first[: len(begin)]) and len(first) >= min(len(begin), 2):
            return hint
    return _UNKNOWN


def no_wire_format(error: Exception, first: bytes) -> str:
    """Return the reason why a server's first bytes are no WireFormatInfo: its protocol, or the error if none is known.

    Args:
        error: what is wrong with the bytes.
        first: the first of them, `FIRST_BYTES` or fewer.
    """
    hint = protocol_hint(first)
    return f"{error}: {hint}" if hint == _UNKNOWN else hint
