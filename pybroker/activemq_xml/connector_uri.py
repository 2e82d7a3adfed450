"""The URI of a `transportConnector`: a scheme, a host, a port, and options.

Source: activemq-xml.md, section 4.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from pybroker.activemq_xml.values import whole

DEFAULT_PORTS: Final = {"openwire": 61616, "stomp": 61613, "mqtt": 1883, "amqp": 5672, "ws": 61614, "auto": 61616}


class ConnectorScheme(NamedTuple):
    """The listener that a scheme stands for.

    Attributes:
        protocol: `openwire`, `stomp`, `mqtt`, `amqp`, `ws` or `auto`.
        is_tls: clients speak TLS.
    """

    protocol: str
    is_tls: bool = False


SCHEMES: Final[Mapping[str, ConnectorScheme]] = {
    "tcp": ConnectorScheme("openwire"),
    "nio": ConnectorScheme("openwire"),
    "ssl": ConnectorScheme("openwire", is_tls=True),
    "nio+ssl": ConnectorScheme("openwire", is_tls=True),
    "stomp": ConnectorScheme("stomp"),
    "stomp+nio": ConnectorScheme("stomp"),
    "stomp+ssl": ConnectorScheme("stomp", is_tls=True),
    "stomp+nio+ssl": ConnectorScheme("stomp", is_tls=True),
    "mqtt": ConnectorScheme("mqtt"),
    "mqtt+nio": ConnectorScheme("mqtt"),
    "mqtt+ssl": ConnectorScheme("mqtt", is_tls=True),
    "mqtt+nio+ssl": ConnectorScheme("mqtt", is_tls=True),
    "amqp": ConnectorScheme("amqp"),
    "amqp+nio": ConnectorScheme("amqp"),
    "amqp+ssl": ConnectorScheme("amqp", is_tls=True),
    "amqp+nio+ssl": ConnectorScheme("amqp", is_tls=True),
    "ws": ConnectorScheme("ws"),
    "wss": ConnectorScheme("ws", is_tls=True),
    "auto": ConnectorScheme("auto"),
    "auto+nio": ConnectorScheme("auto"),
    "auto+ssl": ConnectorScheme("auto", is_tls=True),
    "auto+nio+ssl": ConnectorScheme("auto", is_tls=True),
}
"""The schemes that pybroker serves."""

OTHER_PROTOCOLS: Final = ("http", "https", "udp", "multicast")
"""The first parts of schemes that ActiveMQ has and pybroker does not."""


@dataclass(frozen=True, slots=True)
class ConnectorUri:
    """The parts of a connector's URI.

    Attributes:
        scheme: in lower case.
        host: a name or an address, IPv6 without brackets.
        port: 0 for any free one; None for the protocol's.
        options: by name, as they are written.
    """

    scheme: str
    host: str
    port: int | None
    options: Mapping[str, str]

    @property
    def protocol(self) -> str:
        """The first part of the scheme: `amqp` of `amqp+nio+ssl`."""
        return self.scheme.partition("+")[0]


def scheme_of(text: str) -> str:
    """Return the scheme of a URI, in lower case; empty if it has none."""
    scheme, separator, _ = text.strip().partition(":")
    return scheme.lower() if separator else ""


def parse(text: str) -> ConnectorUri:
    """Return the parts of a URI.

    Raises:
        ValueError: it has no host, or no usable port.
    """
    parts = urlsplit(text.strip())
    if not parts.hostname:
        raise ValueError("it must be SCHEME://HOST:PORT, such as tcp://0.0.0.0:61616")
    try:
        port = parts.port
    except ValueError:
        raise ValueError("its port must be a number from 0 to 65535") from None
    return ConnectorUri(
        parts.scheme.lower(), parts.hostname, port, dict(parse_qsl(parts.query, keep_blank_values=True))
    )


def count(value: str) -> int:
    """Return a number that is not negative.

    Raises:
        ValueError: it is none.
    """
    number = whole(value)
    if number < 0:
        raise ValueError("it must not be negative")
    return number
