"""The web pages whose scripts may connect over WebSocket, by the `Origin` of the handshake.

A browser lets the scripts of any page connect to any host, and names the page's site in `Origin`. Without a check each
page that an employee visits could use the brokers of the company's network. Programs that are no browsers send none.

Source: RFC 6455, 10.2; RFC 6454, 6.2. ActiveMQ does not check it.
"""

from typing import Final
from urllib.parse import SplitResult, urlsplit

from pybroker.broker.domain.addresses import in_url

SAME_HOST: Final = "same-host"
"""The entry for pages of the host that the request is sent to, whatever their scheme and port."""

_ANY: Final = "*"
_NO_SITE: Final = "null"
"""The origin of pages without a site, such as files and sandboxed frames."""

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class OriginRule:
    """The setting `websocket_origins`: requests without an origin are always accepted."""

    def __init__(self, text: str) -> None:
        """Read a comma list.

        Raises:
            ValueError: an entry is no origin; says what to write.
        """
        entries = [each.strip() for each in text.split(",") if each.strip()]
        self._is_any = _ANY in entries
        self._is_same_host = SAME_HOST in entries
        try:
            self._listed = frozenset(_normal(each) for each in entries if each not in (_ANY, SAME_HOST))
        except ValueError as error:
            raise ValueError(
                f"{error}; write a comma list of origins such as https://app.example.com, of {SAME_HOST}, of "
                f"{_NO_SITE}, or {_ANY} for every page"
            ) from error

    def allows(self, origin: str | None, host: str | None) -> bool:
        """Return True if a request may connect.

        Args:
            origin: its header `Origin`; None without one.
            host: its header `Host`; None without one.
        """
        if origin is None or self._is_any:
            return True
        try:
            if _normal(origin) in self._listed:
                return True
            return self._is_same_host and host is not None and _host(urlsplit(origin)) == _host(urlsplit(f"//{host}"))
        except ValueError:
            return False


def _normal(origin: str) -> str:
    """Return an origin in the form in which equal ones are equal: without the default port, in lower case.

    Raises:
        ValueError: it is no origin.
    """
    if origin == _NO_SITE:
        return origin
    parts = urlsplit(origin)
    if not parts.scheme or parts.path.strip("/") or parts.query or parts.fragment or parts.username is not None:
        raise ValueError(f"{origin!r} is no origin")
    port = parts.port
    host = _host(parts)
    shown = in_url(host)
    return f"{parts.scheme}://{shown}" + ("" if port in (None, _DEFAULT_PORTS.get(parts.scheme)) else f":{port}")


def _host(parts: SplitResult) -> str:
    """Return the host of a URL, in lower case.

    Raises:
        ValueError: it has none.
    """
    if not parts.hostname:
        raise ValueError(f"{parts.geturl()!r} is no origin")
    return parts.hostname
