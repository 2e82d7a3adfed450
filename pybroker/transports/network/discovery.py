"""The URI of a network connector: the brokers to bridge to, and the options of their connections.

```text
static:(tcp://a:61616,ssl://b:61617)?option=value     one bridge for each address; `simple:` is the same
masterslave:(tcp://a:61616,tcp://b:61616)             one bridge, to the first address that accepts it
static:(failover:(tcp://a:61616,tcp://b:61616))       as masterslave:, see below
tcp://a:61616                                         as static:(tcp://a:61616)
```

In ActiveMQ a `failover:` transport reconnects under the bridge, which then keeps stale demand and loses messages. Here
its addresses are tried in their order, and each loss ends the bridge, as with `masterslave:`.

The module opens no connection. Source: ActiveMQ 5.17, `SimpleDiscoveryAgent`, `MasterSlaveDiscoveryAgent`,
`TcpTransport`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote_plus

from pybroker.broker.domain.addresses import in_url
from pybroker.transports.network.backoff import BridgeDelays

ADDRESSES_MAX: Final = 100
"""The limit to the addresses of a connector."""

_MILLISECONDS_MAX: Final = 7 * 24 * 3600 * 1000
"""The longest time of an option, a week."""

_INT_MAX: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteAddress:
    """The address of a broker, and the options of a connection to it. The comparison ignores the options.

    Attributes:
        host: the host, without brackets.
        port: the port.
        is_tls: True for `ssl:`.
        connection_timeout_seconds: `connectionTimeout`, the limit to open TCP and TLS.
        tcp_no_delay: `tcpNoDelay`.
        keep_alive: `keepAlive`, TCP's keep-alive.
        verify_host_name: `socket.verifyHostName`, whether the certificate must be for the host.
        max_inactivity_ms: `wireFormat.maxInactivityDuration`; 0 for no limit.
        initial_delay_ms: `wireFormat.maxInactivityDurationInitalDelay`.
        frame_bytes_max: `wireFormat.maxFrameSize`; None: the default.
    """

    host: str
    port: int
    is_tls: bool = False
    connection_timeout_seconds: float = field(default=30.0, compare=False)
    tcp_no_delay: bool = field(default=True, compare=False)
    keep_alive: bool = field(default=False, compare=False)
    verify_host_name: bool = field(default=True, compare=False)
    max_inactivity_ms: int = field(default=30_000, compare=False)
    initial_delay_ms: int = field(default=10_000, compare=False)
    frame_bytes_max: int | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return the URI without options."""
        host = in_url(self.host)
        return f"{'ssl' if self.is_tls else 'tcp'}://{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeTarget:
    """The broker of one bridge.

    Attributes:
        addresses: the addresses that it may have, which are tried in this order.
        delays: the delays between attempts.
    """

    addresses: tuple[RemoteAddress, ...]
    delays: BridgeDelays

    def __str__(self) -> str:
        """Return the addresses."""
        return ",".join(map(str, self.addresses))


_SCHEMES: Final = {
    "tcp": False,
    "nio": False,
    "auto": False,
    "auto+nio": False,
    "ssl": True,
    "nio+ssl": True,
    "auto+ssl": True,
    "auto+nio+ssl": True,
}
"""The schemes of addresses; True: the connection uses TLS."""

_AUTHORITY: Final = re.compile(r"//(?:\[([0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|([^\s\[\]:/?#@%]+)):([0-9]{1,5})/?")
_UNSUPPORTED: Final = ("multicast", "ldap", "zeroconf", "peer", "fanout", "http", "https", "rendezvous")


def parse(uri: str) -> list[BridgeTarget]:
    """Return the targets of a connector's URI, one for each bridge.

    Raises:
        ValueError: the URI is not valid, or its kind of discovery is not supported.
    """
    scheme, rest = _scheme(uri.strip())
    if scheme in _SCHEMES:
        return [BridgeTarget(addresses=(_address(uri.strip(), {}),), delays=BridgeDelays())]
    if scheme not in ("static", "simple", "masterslave", "failover"):
        raise ValueError(_unknown(scheme))
    parts, options = _composite(rest)
    own = {name: value for name, value in options.items() if not name.startswith(_NESTED)}
    nested = {_bare(name): value for name, value in options.items() if name.startswith(_NESTED)}
    if scheme == "failover":  # its own delays are not those of discovery
        return [_joined(_addresses(parts, nested), BridgeDelays())]
    delays = _delays(own)
    if scheme == "masterslave":
        addresses = _addresses(parts, nested)
        if len(addresses) < 2:
            raise ValueError("masterslave: needs two addresses or more; for one write static:(tcp://HOST:PORT)")
        return [_joined(addresses, delays)]
    if not parts:
        raise ValueError("there is no address: write static:(tcp://HOST:PORT)")
    targets = [_joined(_addresses([part], nested), delays) for part in parts]
    if sum(len(each.addresses) for each in targets) > ADDRESSES_MAX:
        raise ValueError(f"it has more than {ADDRESSES_MAX} addresses")
    for target in targets:
        if targets.count(target) > 1:
            raise ValueError(f"{target} comes twice: the bridges would replace each other at that broker")
    return targets


def _joined(addresses: Iterable[RemoteAddress], delays: BridgeDelays) -> BridgeTarget:
    return BridgeTarget(addresses=tuple(dict.fromkeys(addresses)), delays=delays)


def _addresses(parts: Iterable[str], nested: Mapping[str, str]) -> list[RemoteAddress]:
    """Return addresses; a part that is `failover:` stands for several."""
    found: list[RemoteAddress] = []
    for part in parts:
        scheme, rest = _scheme(part)
        if scheme in ("failover", "masterslave"):
            inner, options = _composite(rest)
            own = {_bare(name): value for name, value in options.items() if name.startswith(_NESTED)}
            found += _addresses(inner, {**own, **nested})
        else:
            found.append(_address(part, nested))
    if not found:
        raise ValueError("there is no address: write static:(tcp://HOST:PORT)")
    return found


# ---------------------------------------------------------------- composites

_NESTED: Final = ("discovered.", "nested.")
"""Prefixes of options that are for each address."""


def _bare(name: str) -> str:
    return name.partition(".")[2]


def _scheme(text: str) -> tuple[str, str]:
    scheme, colon, rest = text.partition(":")
    if not colon:
        raise ValueError(f"{_shown(text)!r} is no URI: write static:(tcp://HOST:PORT)")
    return scheme.strip().lower(), rest


def _unknown(scheme: str) -> str:
    if scheme in _UNSUPPORTED:
        return f"{scheme}: is not supported yet: list the addresses, as in static:(tcp://HOST:PORT)"
    return f"{scheme!r} is no scheme of a network connector: write static:(tcp://HOST:PORT), or masterslave:(…)"


def _composite(rest: str) -> tuple[list[str], dict[str, str]]:
    """Return the parts of a composite URI and its options; without parentheses an option belongs to its part."""
    rest = rest.strip().removeprefix("//")
    if not rest.startswith("("):
        return _split(rest), {}
    depth = 0
    for end, character in enumerate(rest):
        depth += (character == "(") - (character == ")")
        if not depth:
            tail = rest[end + 1 :].strip()
            if tail and not tail.startswith("?"):
                raise ValueError(f"{_shown(tail)!r} follows the list of addresses: only ?options may")
            return _split(rest[1:end]), _options(tail[1:])
    raise ValueError("a parenthesis is not closed")


def _split(text: str) -> list[str]:
    """Split at commas outside of parentheses."""
    parts: list[str] = []
    depth = start = 0
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth < 0:
            raise ValueError("a parenthesis is not opened")
        if character == "," and not depth:
            parts.append(text[start:at].strip())
            start = at + 1
    parts.append(text[start:].strip())
    if parts == [""]:
        return []
    if not all(parts):
        raise ValueError("the list of addresses has an empty entry")
    return parts


def _options(query: str) -> dict[str, str]:
    """Return options by name; of a repeated one the last, as in Java. An ampersand may have XML's form."""
    halves = (part.partition("=") for part in query.replace("&amp;", "&").split("&") if part)
    return {unquote_plus(name).strip(): unquote_plus(value).strip() for name, _, value in halves}


# ---------------------------------------------------------------- addresses, options


def _address(text: str, nested: Mapping[str, str]) -> RemoteAddress:
    before, _, query = text.partition("?")
    scheme, rest = _scheme(before)
    if scheme not in _SCHEMES:
        raise ValueError(_unknown(scheme))
    if "@" in rest:  # it may be a password
        raise ValueError("an address cannot have a user name and password: set user_name and password")
    match = _AUTHORITY.fullmatch(rest.strip())
    if match is None or not 0 < int(match[3]) < 1 << 16:
        raise ValueError(f"{_shown(before)!r} is no address: write {scheme}://HOST:PORT")
    values = _values({**_options(query), **nested}, _TRANSPORT, _TRANSPORT_IGNORED, str(before))
    return RemoteAddress(host=match[1] or match[2], port=int(match[3]), is_tls=_SCHEMES[scheme], **values)


def _delays(options: Mapping[str, str]) -> BridgeDelays:
    return BridgeDelays(**_values(options, _DISCOVERY, _DISCOVERY_IGNORED, "static:"))


def _values(
    given: Mapping[str, str], known: Mapping[str, "_Option"], ignored: Iterable[str], where: str
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name in ignored or (name.startswith("wireFormat.") and name not in known):
            continue
        if name not in known:
            raise ValueError(f"{_shown(where)} has no option {name!r}; known are {', '.join(sorted(known))}")
        attribute, read = known[name]
        try:
            found[attribute] = read(value)
        except ValueError as error:
            raise ValueError(f"{name} = {_shown(value)!r}: {error}") from None
    return found


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("write true or false")
    return text.lower() == "true"


def _whole(text: str, least: int, most: int) -> int:
    if re.fullmatch(r"[+-]?[0-9]{1,18}", text) is None or not least <= int(text) <= most:
        raise ValueError(f"write a whole number from {least} to {most}")
    return int(text)


def _milliseconds(text: str) -> int:
    return _whole(text, 0, _MILLISECONDS_MAX)


def _seconds(text: str) -> float:
    return _milliseconds(text) / 1000


def _time_out(text: str) -> float:
    """Return seconds; 0, which is no limit in Java, is the longest one."""
    return (_milliseconds(text) or _MILLISECONDS_MAX) / 1000


def _factor(text: str) -> float:
    if re.fullmatch(r"[0-9]{1,3}(?:\.[0-9]{1,9})?", text) is None or float(text) < 1:
        raise ValueError("write a number from 1 to 999")
    return float(text)


def _count(text: str) -> int:
    return max(0, _whole(text, -1, _INT_MAX))


def _size(text: str) -> int:
    return _whole(text, 1, _INT_MAX)


_Option = tuple[str, Callable[[str], Any]]
"""The attribute that an option sets, and the reader of its value."""

_DISCOVERY: Final[Mapping[str, _Option]] = {
    "initialReconnectDelay": ("initial_reconnect_delay_seconds", _seconds),
    "maxReconnectDelay": ("max_reconnect_delay_seconds", _seconds),
    "backOffMultiplier": ("back_off_multiplier", _factor),
    "useExponentialBackOff": ("use_exponential_back_off", _boolean),
    "maxReconnectAttempts": ("max_reconnect_attempts", _count),
    "minConnectTime": ("min_connect_seconds", _seconds),
}
_DISCOVERY_IGNORED: Final = ("randomize", "group")

_TRANSPORT: Final[Mapping[str, _Option]] = {
    "connectionTimeout": ("connection_timeout_seconds", _time_out),
    "tcpNoDelay": ("tcp_no_delay", _boolean),
    "keepAlive": ("keep_alive", _boolean),
    "socket.verifyHostName": ("verify_host_name", _boolean),
    "verifyHostName": ("verify_host_name", _boolean),
    "wireFormat.maxInactivityDuration": ("max_inactivity_ms", _milliseconds),
    "wireFormat.maxInactivityDurationInitalDelay": ("initial_delay_ms", _milliseconds),  # codespell:ignore
    "wireFormat.maxFrameSize": ("frame_bytes_max", _size),
}
_TRANSPORT_IGNORED: Final = frozenset(
    (
        *("closeAsync", "daemon", "diffServ", "dynamicManagement", "ioBufferSize", "jmxPort", "logWriterName"),
        *("minmumWireFormatVersion", "soLinger", "soTimeout", "soWriteTimeout", "socketBufferSize", "startLogging"),
        *("threadName", "trace", "typeOfService", "useInactivityMonitor", "useLocalHost"),
    )
)
"""Options of Java's sockets and threads, which have no effect here, nor have other `wireFormat` options."""

_SHOWN_CHARACTERS: Final = 200
_USER: Final = re.compile(r"//[^\s,()?]*@")


def _shown(text: str) -> str:
    """Return a part of a URI for an error, without a password, and shortened."""
    return _USER.sub("//…@", text)[:_SHOWN_CHARACTERS]
