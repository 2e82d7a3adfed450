"""The address of a member's HTTP server for management: `http://HOST:PORT`, `https://HOST:PORT`, or `HOST:PORT`."""

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import urlsplit

from pybroker.management_client.errors import UnusableAddress

PORT: Final = 8161
"""The port of a URL without one, as of ActiveMQ's console."""

_SCHEMES: Final = ("http", "https")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAddress:
    """An address.

    Attributes:
        host: a name, or an IP address without brackets.
        port: its port.
        is_tls: True for https.
        prefix: the path in front of all paths, behind a reverse proxy; else empty.
    """

    host: str
    port: int
    is_tls: bool = False
    prefix: str = ""

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the address that a text has.

        Raises:
            UnusableAddress: it has none. The message has no password.
        """
        try:
            parts = urlsplit(text if "://" in text else f"http://{text}")
            port = parts.port
        except ValueError as error:
            raise UnusableAddress(f"{_shown(text)} is no address: {error}") from error
        if parts.username is not None or parts.password is not None:
            raise UnusableAddress(
                "a URL has no user and no password, which other users of this machine would see: use --user, and "
                "PYBROKER_PASSWORD or --password-file"
            )
        if parts.scheme not in _SCHEMES or not parts.hostname or parts.query or parts.fragment:
            raise UnusableAddress(f"{_shown(text)} is no address: write http://HOST:PORT or https://HOST:PORT")
        return cls(
            host=parts.hostname,
            port=PORT if port is None else port,
            is_tls=parts.scheme == "https",
            prefix=parts.path.rstrip("/"),
        )

    @property
    def url(self) -> str:
        """The URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}{self.prefix}"

    @property
    def is_confidential(self) -> bool:
        """True if no other host can read what is sent there."""
        return self.is_tls or _is_loopback(self.host)


def addresses(texts: Iterable[str]) -> Sequence[ApiAddress]:
    """Return the addresses of texts, each one or several with commas; each address once.

    Raises:
        UnusableAddress: one is none.
    """
    found = [ApiAddress.of(each.strip()) for text in texts for each in text.split(",") if each.strip()]
    return list(dict.fromkeys(found))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _shown(text: str) -> str:
    """Return a text without what may be a password."""
    return repr(text.rpartition("@")[2][:100])
