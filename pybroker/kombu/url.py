"""The URLs of Kombu and Celery as URIs of the client.

```text
activemq://user:password@a:61616,b:61616/?randomize=false     failover:(tcp://a:61616,tcp://b:61616)?randomize=false
activemq://a;activemq://b                                     failover:(tcp://a:61616,tcp://b:61616)
activemq+ssl://a:61617                                        failover:(ssl://a:61617)
activemq+failover:(tcp://a:61616,ssl://b:61617)?timeout=9000  failover:(tcp://a:61616,ssl://b:61617)?timeout=9000
```

Always `failover:`, also with one broker: the loss of a broker stays below Celery, which would run again the tasks in
execution. Options of the transport (`KombuOptions`) may be in the query; the others there are the client's.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

from pybroker.client import UnusableURI
from pybroker.kombu.options import similar

DEFAULT_PORT: Final = 61616
SSL_PORT: Final = 61617

_SCHEMES: Final[Mapping[str, tuple[str, int]]] = {
    "activemq": ("tcp", DEFAULT_PORT),
    "tcp": ("tcp", DEFAULT_PORT),
    "activemq+ssl": ("ssl", SSL_PORT),
    "ssl": ("ssl", SSL_PORT),
}
"""The client's scheme and the default port for a URL's scheme. Kombu removes the `activemq+` of some."""

_STOMP: Final = re.compile(r"(?:^|[+:(,;])(stomp(?:\+[a-z]+)?)(?::|$)")
"""A scheme of STOMP anywhere in a URL."""

_PASSWORD: Final = re.compile(r"(//[^/?#@;:]*:)((?:(?!;[\w+]+://).)*)(@)")
"""Up to the last @ of each URL, in case that the password is not encoded; better too much than a part of it."""


@dataclass(frozen=True, kw_only=True)
class BrokerURL:
    """One or more URLs, parsed.

    Attributes:
        uri: the client's URI, without user, password and options of the transport.
        user: the user name; None for anonymous.
        password: the password; None for none.
        options: the options of the query that are the transport's.
    """

    uri: str
    user: str | None
    password: str | None
    options: Mapping[str, str]


def parse(urls: Iterable[str], *, own_options: Collection[str] = (), ssl: bool = False) -> BrokerURL:
    """Parse the URLs of the brokers of one installation.

    Args:
        urls: one or more; those after the first may have no user and no options, or the same.
        own_options: the names of options that are the transport's. A misspelt one is taken too.
        ssl: TLS for the scheme `activemq` too, as Celery's `broker_use_ssl` demands.

    Raises:
        UnusableURI: a scheme, a path or a mixture of them that is not possible.
    """
    addresses: list[str] = []
    users: set[tuple[str | None, str | None]] = set()
    query: dict[str, str] = {}
    for url in urls:
        _check_protocol(url)
        if url.startswith(("failover:", "activemq+failover:")):
            if addresses:
                raise UnusableURI("a failover: URI names all brokers: write no other URL beside it", part=masked(url))
            return _of_failover(url.removeprefix("activemq+"), own_options)
        authority, options = _split(url, ssl=ssl)
        addresses += authority.addresses
        if authority.user is not None:
            users.add((authority.user, authority.password))
        query |= options
    if len(users) > 1:
        raise UnusableURI("all brokers of one installation have the same users: write one user and password")
    user, password = users.pop() if users else (None, None)
    taken = {name: query.pop(name) for name in list(query) if similar(name, own_options)}
    uri = f"failover:({','.join(dict.fromkeys(addresses))})" + (f"?{urlencode(query)}" if query else "")
    return BrokerURL(uri=uri, user=user, password=password, options=taken)


def _check_protocol(url: str) -> None:
    if found := _STOMP.search(url.partition("?")[0]):
        hint = "open an OpenWire connector, whose port is mostly 61616, and write activemq://host:61616"
        raise UnusableURI("the transport speaks OpenWire, and STOMP has no form for bindings", part=found[1], hint=hint)


def masked(url: str, mask: str = "**") -> str:
    """Return URLs, joined by `;`, with each password replaced."""
    return _PASSWORD.sub(lambda found: f"{found[1]}{mask}{found[3]}", url)


def url_of(host: str, port: int | None, user: str | None, password: str | None) -> str:
    """Return the URL of the arguments of a `kombu.Connection` that was given no URL."""
    login = quote(user, safe="") + (f":{quote(password, safe='')}" if password is not None else "") if user else ""
    where = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"activemq://{login}{'@' if login else ''}{where}{f':{port}' if port else ''}/"


@dataclass(frozen=True)
class _Authority:
    addresses: list[str]
    user: str | None
    password: str | None


def _split(url: str, *, ssl: bool) -> tuple[_Authority, dict[str, str]]:
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in _SCHEMES:
        hint = "write activemq://host:61616, activemq+ssl://host:61617 or activemq+failover:(…)"
        raise UnusableURI("this is no URL of an ActiveMQ", part=masked(url), hint=hint)
    kind, port = _SCHEMES["activemq+ssl"] if ssl else _SCHEMES[scheme]
    rest, _, query = rest.partition("?")
    authority, _, path = rest.partition("/")
    if "@" in path or "@" in query:  # a part of the password, which must not be shown
        raise UnusableURI("the user or the password has a character of URLs", hint="write / as %2F, ? as %3F, @ as %40")
    if path.strip("/"):
        raise UnusableURI("an ActiveMQ has no virtual hosts: the URL's path must be empty", part=path)
    login, _, hosts = authority.rpartition("@")
    user, colon, password = login.partition(":")
    named = [host.strip() for host in hosts.split(",") if host.strip()]  # a comma too many names no broker
    addresses = [f"{kind}://{_with_port(host, port)}" for host in named or ["localhost"]]
    parsed = _Authority(
        addresses=addresses,
        user=unquote(user) if user else None,
        password=unquote(password) if colon else None,
    )
    return parsed, dict(parse_qsl(query, keep_blank_values=True))


def _with_port(host: str, port: int) -> str:
    name, colon, text = host.rpartition(":")
    if not colon or host.endswith("]"):
        return f"{host or 'localhost'}:{port}"
    if text and not text.isdecimal():
        raise UnusableURI("a port is no number", hint="write host:61616")  # without the text: it may be a password
    return f"{name or 'localhost'}:{text or port}"


def _of_failover(uri: str, own_options: Collection[str]) -> BrokerURL:
    """Return a `failover:` URI as it is, without the options of the transport."""
    head, separator, query = uri.rpartition("?") if uri.rfind("?") > uri.rfind(")") else (uri, "", "")
    pairs = parse_qsl(query, keep_blank_values=True)
    taken = {name: value for name, value in pairs if similar(name, own_options)}
    others = [pair for pair in pairs if pair[0] not in taken]
    uri = head + (separator + urlencode(others) if others else "")
    return BrokerURL(uri=uri, user=None, password=None, options=taken)
