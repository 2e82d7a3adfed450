"""The URI of a client: the brokers, the options of their connections, and the options of failover.

The module parses URIs and opens no connection. Source: ActiveMQ 5.17, "Failover Transport" and "TCP Transport"
(`FailoverTransport`, `URISupport`), with its names and defaults:

```text
uri        tcp://host:port?option=value&…                    one broker; a connection that breaks stays broken
           failover:(uri,uri,…)?option=value&…               several; `failover://(…)` and `failover:uri,uri` too
scheme     tcp, ssl: OpenWire     stomp, stomp+ssl: STOMP    nio, nio+ssl, stomp+nio…: the same, for Java brokers
           auto, auto+ssl, auto+nio…: a broker's port for every protocol, on which this client speaks OpenWire
nested.x   among failover's options: option x of every broker, also of announced ones; overrides the broker's own
```

Java rejects an unknown option only sometimes, and reads any word but `true` as false. This client rejects both. The
error has the part of the URI that is wrong, and a suggestion.
"""

import enum
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

from pybroker.client.errors import BadOption, UnknownOption, UnusableURI

URI_CHARACTERS_MAX = 64 * 1024
"""The limit to a URI, and to a list that a broker announces: enough for a thousand brokers with options."""

ADDRESSES_MAX = 1000
"""The limit to the brokers of one URI: a round may try each of them."""

MILLISECONDS_MAX = 7 * 24 * 3600 * 1000
"""The longest time of an option, a week. A longer one is a mistake; Python's locks and selectors have limits, too."""


class WireProtocol(enum.Enum):
    """The protocol of a connection."""

    OPENWIRE = "OpenWire"
    STOMP = "STOMP"


class Scheme(enum.Enum):
    """The scheme of a broker's URI."""

    TCP = "tcp"
    SSL = "ssl"
    STOMP = "stomp"
    STOMP_SSL = "stomp+ssl"

    @property
    def protocol(self) -> WireProtocol:
        """The protocol of the scheme."""
        return WireProtocol.OPENWIRE if self in (Scheme.TCP, Scheme.SSL) else WireProtocol.STOMP

    @property
    def is_tls(self) -> bool:
        """True when the connection is encrypted."""
        return self in (Scheme.SSL, Scheme.STOMP_SSL)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportOptions:
    """The options of one broker's connection. Defaults are ActiveMQ's.

    Attributes:
        connection_timeout_seconds: `connectionTimeout`, the limit to open TCP and TLS; None for no limit.
        tcp_no_delay: `tcpNoDelay`. On by default, unlike in Java: a small frame must not wait for an earlier TCP ack.
        keep_alive: `keepAlive`, TCP's keep-alive.
        socket_buffer_bytes: `socketBufferSize`, the kernel's buffer in each direction; None for the kernel's default.
        verify_host_name: `socket.verifyHostName`, whether the certificate must be for the host of the URI.
        inactivity_seconds: `wireFormat.maxInactivityDuration`, the silence after which a peer is dead; None for no
            limit. Over STOMP it determines the heart-beat.
        inactivity_initial_seconds: `wireFormat.maxInactivityDurationInitalDelay`, the delay before the first check.
        frame_bytes_max: `wireFormat.maxFrameSize`; a larger frame ends the connection permanently. None: the broker's
            limit.
    """

    connection_timeout_seconds: float | None = 30.0
    tcp_no_delay: bool = True
    keep_alive: bool = False
    socket_buffer_bytes: int | None = None
    verify_host_name: bool = True
    inactivity_seconds: float | None = 30.0
    inactivity_initial_seconds: float = 10.0
    frame_bytes_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of one broker. The comparison ignores the options."""

    scheme: Scheme
    host: str
    port: int
    options: TransportOptions = field(default_factory=TransportOptions, compare=False)

    def __str__(self) -> str:
        """Return the URI without options."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme.value}://{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverOptions:
    """The options of failover. Names and defaults are ActiveMQ's. A round tries every broker once.

    Attributes:
        initial_reconnect_delay_seconds: `initialReconnectDelay`, the pause before the first round after a loss, and
            between the first two rounds.
        max_reconnect_delay_seconds: `maxReconnectDelay`, the longest pause between rounds.
        use_exponential_back_off: `useExponentialBackOff`, whether pauses grow.
        reconnect_delay_exponent: `reconnectDelayExponent` or `backOffMultiplier`, the factor from pause to pause.
        max_reconnect_attempts: `maxReconnectAttempts`, the limit to failed rounds; -1 for no limit. 0: one round at the
            start, and no reconnect after a loss.
        startup_max_reconnect_attempts: `startupMaxReconnectAttempts`, the same for the first connection; -1 for the
            value of `maxReconnectAttempts`.
        randomize: `randomize`, whether each round has a random order instead of the URI's.
        backup: `backup`, whether the client opens backup connections to other brokers.
        backup_pool_size: `backupPoolSize`, the number of backup connections.
        timeout_seconds: `timeout`, the default timeout of every call; None for no limit. In ActiveMQ it applies to
            sends only.
        track_messages: `trackMessages`, whether sends without an answer are kept, and sent again after a break.
        max_cache_bytes: `maxCacheSize`, the limit to their bytes; the oldest are dropped first.
        track_transaction_producers: `trackTransactionProducers`, whether the sends of an open transaction are sent
            again after a break; otherwise the break rolls it back.
        update_uris_supported: `updateURIsSupported`, whether the broker may announce other brokers.
        update_uris_url: `updateURIsURL`, a file with further brokers, read before each round; None for none.
        rebalance_update_uris: `rebalanceUpdateURIs`, whether brokers of that file may make the client move.
        reconnect_supported: `reconnectSupported`, whether the broker may make the client move to another one.
        priority_backup: `priorityBackup`, whether the client returns to a preferred broker when one is available.
        priority_uris: `priorityURIs`, the preferred brokers; by default the first of the URI.
        warn_after_reconnect_attempts: `warnAfterReconnectAttempts`, the failed rounds from one warning to the next,
            besides the warning of the first. 0 or less: no warnings.
        nested: `nested.*`, options of every broker, by names without `nested.`.
    """

    initial_reconnect_delay_seconds: float = 0.01
    max_reconnect_delay_seconds: float = 30.0
    use_exponential_back_off: bool = True
    reconnect_delay_exponent: float = 2.0
    max_reconnect_attempts: int = -1
    startup_max_reconnect_attempts: int = -1
    randomize: bool = True
    backup: bool = False
    backup_pool_size: int = 1
    timeout_seconds: float | None = None
    track_messages: bool = False
    max_cache_bytes: int = 128 * 1024
    track_transaction_producers: bool = True
    update_uris_supported: bool = True
    update_uris_url: str | None = None
    rebalance_update_uris: bool = True
    reconnect_supported: bool = True
    priority_backup: bool = False
    priority_uris: tuple[Address, ...] = ()
    warn_after_reconnect_attempts: int = 10
    nested: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerURI:
    """A parsed URI.

    Attributes:
        addresses: one or more brokers, in the URI's order, all of one protocol.
        failover: the options of failover; None without `failover:`, which means no reconnect.
        warnings: texts to log about parts of the URI that have no effect, or another one than in Java.
    """

    addresses: tuple[Address, ...]
    failover: FailoverOptions | None = None
    warnings: tuple[str, ...] = ()

    @property
    def protocol(self) -> WireProtocol:
        """The protocol of all brokers."""
        return self.addresses[0].scheme.protocol


def parse(text: str) -> BrokerURI:
    """Parse a URI.

    Raises:
        UnusableURI: the grammar, a scheme, a host or a port is wrong, or the brokers speak different protocols.
        UnknownOption: an option does not exist; the hint names the most similar one.
        BadOption: the value of an option is not allowed.
    """
    if len(text) > URI_CHARACTERS_MAX:
        raise UnusableURI(f"the URI has {len(text)} characters, at most {URI_CHARACTERS_MAX} are allowed")
    text = text.strip()
    warnings: list[str] = []
    scheme, colon, rest = text.partition(":")
    if colon and scheme == "failover":
        return _parse_failover(rest, warnings)
    address = _parse_address(text, (), warnings)
    return BrokerURI(addresses=(address,), warnings=tuple(warnings))


def parse_list(text: str, nested: tuple[tuple[str, str], ...] = ()) -> tuple[tuple[Address, ...], tuple[str, ...]]:
    """Return the usable brokers of a list from a broker or a file, and the errors of the others.

    Errors are returned and not raised, because a broker's announcement must not break its clients.

    Args:
        text: URIs, separated by commas.
        nested: further options of each broker.
    """
    addresses: dict[Address, None] = {}
    errors: list[str] = []
    if len(text) > URI_CHARACTERS_MAX:
        return (), (f"a list of brokers of {len(text)} characters, at most {URI_CHARACTERS_MAX} are allowed",)
    for part in filter(None, map(str.strip, text.split(","))):
        try:
            addresses[_parse_address(part, nested, errors)] = None
        except UnusableURI as error:
            errors.append(str(error))
    return tuple(addresses)[:ADDRESSES_MAX], tuple(errors)


# ---------------------------------------------------------------- composites


def _parse_failover(rest: str, warnings: list[str]) -> BrokerURI:
    listed, query = _parts(rest.strip().removeprefix("//").strip())
    pairs = _pairs(query)
    nested = tuple((name.removeprefix("nested."), value) for name, value in pairs if name.startswith("nested."))
    _transport_options(nested, "failover:", [], "nested.")  # an error names the option as written
    if len(listed) > ADDRESSES_MAX:
        raise UnusableURI(f"the URI lists {len(listed)} brokers, at most {ADDRESSES_MAX} are allowed")
    addresses = tuple(dict.fromkeys(_parse_address(part, nested, warnings) for part in listed))
    own = [(name, value) for name, value in pairs if not name.startswith("nested.")]
    values = _values(own, FAILOVER_OPTIONS, "failover:", "")
    if preferred := values.pop("priority_uris", ""):
        values["priority_uris"] = tuple(_parse_address(part, nested, warnings) for part in _split(preferred))
    options = FailoverOptions(nested=nested, **values)
    _check_one_protocol((*addresses, *options.priority_uris))
    return BrokerURI(addresses=addresses, failover=options, warnings=tuple(dict.fromkeys(warnings)))


def _parts(text: str) -> tuple[list[str], str]:
    """Return the URIs of a composite, and its query. Without parentheses a query belongs to the URI in front of it."""
    if not text.startswith("("):
        return _split(text), ""
    end = _matching_parenthesis(text)
    tail = text[end + 1 :].strip()
    if tail and not tail.startswith("?"):
        raise UnusableURI("only options may follow the list of brokers, after a question mark", part=_shown(tail))
    return _split(text[1:end]), tail[1:]


def _matching_parenthesis(text: str) -> int:
    depth = 0
    for match in re.finditer(r"[()]", text):
        depth += 1 if match[0] == "(" else -1
        if not depth:
            return match.start()
    raise UnusableURI("a parenthesis is not closed", part=_shown(text))


def _split(text: str) -> list[str]:
    if any(mark in text for mark in "()"):
        raise UnusableURI(
            "a list of brokers has no parentheses inside",
            part=_shown(text),
            hint="write failover:(tcp://a:1,tcp://b:2)?…",
        )
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise UnusableURI(
            "the list of brokers is empty, or has an empty entry",
            part=_shown(text),
            hint="write failover:(tcp://host:61616)",
        )
    return parts


def _check_one_protocol(addresses: Iterable[Address]) -> None:
    first, *others = addresses
    for other in others:
        if other.scheme.protocol is not first.scheme.protocol:
            raise UnusableURI(
                f"{first} speaks {first.scheme.protocol.value}, but this one speaks {other.scheme.protocol.value}",
                part=str(other),
                hint="the state of a connection can be restored over the same protocol only",
            )


# ---------------------------------------------------------------- one broker

_SCHEMES: Mapping[str, Scheme] = {scheme.value: scheme for scheme in Scheme}

_NON_BLOCKING: Mapping[str, Scheme] = {
    "nio": Scheme.TCP,
    "nio+ssl": Scheme.SSL,
    "stomp+nio": Scheme.STOMP,
    "stomp+nio+ssl": Scheme.STOMP_SSL,
}
"""Schemes of Java's non-blocking sockets, which do not change the protocol."""

_AUTO: Mapping[str, Scheme] = {
    "auto": Scheme.TCP,
    "auto+ssl": Scheme.SSL,
    "auto+nio": Scheme.TCP,
    "auto+nio+ssl": Scheme.SSL,
}
"""Schemes of a broker's port that detects the client's protocol."""

_AUTHORITY = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<host>[^\s\[\]:/?#@%]+))(?::(?P<port>[0-9]{1,5}))?/?"
)
"""Host and port as in RFC 3986, without user information; an IPv6 address may have a zone."""

_USUAL_PORTS = {Scheme.TCP: 61616, Scheme.SSL: 61617, Scheme.STOMP: 61613, Scheme.STOMP_SSL: 61612}


def _parse_address(text: str, nested: tuple[tuple[str, str], ...], warnings: list[str]) -> Address:
    before, _, query = text.partition("?")
    scheme, authority = _scheme(before, warnings)
    if "@" in authority:
        # The part is not shown: it may be a password.
        raise UnusableURI("a URI cannot have user name and password", hint="pass them as user and password")
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        raise UnusableURI("host and port are not valid", part=_shown(before), hint=f"write {scheme.value}://host:port")
    if match["port"] is None or not 0 < int(match["port"]) < 1 << 16:
        usual = _USUAL_PORTS[scheme]
        raise UnusableURI(
            "the port is missing or not valid", part=_shown(before), hint=f"write 1 to 65535, usually {usual}"
        )
    bare = Address(scheme=scheme, host=match["six"] or match["host"], port=int(match["port"]))
    pairs = (*_pairs(query), *nested)
    if not pairs:
        return bare
    options = _transport_options(pairs, str(bare), warnings)
    return Address(scheme=scheme, host=bare.host, port=bare.port, options=options)


def _scheme(text: str, warnings: list[str]) -> tuple[Scheme, str]:
    """Return a URI's scheme, and the text after it."""
    name, colon, rest = text.partition(":")
    known = name.lower()
    if colon and known in _NON_BLOCKING:
        scheme = _NON_BLOCKING[known]
        warnings.append(f"{name}: is for Java's brokers, which serve the same protocol; taken as {scheme.value}:")
    elif colon and known in _AUTO:
        scheme = _AUTO[known]
    elif colon and known in _SCHEMES:
        scheme = _SCHEMES[known]
    else:
        raise _unknown_scheme(text, known if colon else "")
    if not rest.startswith("//"):
        raise UnusableURI("two slashes follow the scheme", part=_shown(text), hint=f"write {scheme.value}://host:port")
    return scheme, rest[2:]


def _unknown_scheme(text: str, name: str) -> UnusableURI:
    if name == "failover":
        return UnusableURI("failover: is allowed once, at the beginning of a URI", part=_shown(text))
    names = [*_SCHEMES, *(name for name in _AUTO if "nio" not in name)]
    close = get_close_matches(name, [*names, "failover"], n=1) if name else []
    hint = f"did you mean {close[0]}:?" if close else f"there are {', '.join(names)} and failover:"
    return UnusableURI("unknown scheme", part=_shown(text.rpartition("@")[2]), hint=hint)


# ---------------------------------------------------------------- options


def _pairs(query: str) -> tuple[tuple[str, str], ...]:
    """Return the names and values of a query, in order; an ampersand may have XML's form."""
    halves = (part.partition("=") for part in query.replace("&amp;", "&").split("&") if part)
    return tuple((unquote_plus(name).strip(), unquote_plus(value).strip()) for name, _, value in halves)


class _Option(NamedTuple):
    """The attribute that an option sets, and the function that parses its value.

    The function raises ValueError with the values that are allowed.
    """

    attribute: str
    read: Callable[[str], object]


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _integer(text: str, least: int, most: int) -> int:
    if re.fullmatch(r"[+-]?[0-9]{1,18}", text) is None or not least <= int(text) <= most:
        raise ValueError(f"a whole number from {least} to {most}")
    return int(text)


def _factor(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 1 <= value <= _FACTOR_MAX:
        raise ValueError(f"a number from 1 to {_FACTOR_MAX}")
    return value


_FACTOR_MAX = 1000

_INT_MAX = (1 << 31) - 1
_LONG_MAX = (1 << 63) - 1


def _milliseconds(text: str) -> float:
    try:
        return _integer(text, 0, MILLISECONDS_MAX) / 1000
    except ValueError as error:
        raise ValueError(f"milliseconds, {error}") from None


def _milliseconds_or_none(text: str) -> float | None:
    """Return seconds; None for -1 and 0, which both mean no limit in ActiveMQ."""
    try:
        return _integer(text, -1, MILLISECONDS_MAX) / 1000 if _integer(text, -1, MILLISECONDS_MAX) > 0 else None
    except ValueError as error:
        raise ValueError(f"milliseconds, {error}") from None


def _text(text: str) -> str:
    if not text:
        raise ValueError("not empty")
    return text


_attempts = partial(_integer, least=-1, most=_INT_MAX)
_count = partial(_integer, least=0, most=_INT_MAX)

FAILOVER_OPTIONS: Mapping[str, _Option] = {
    "initialReconnectDelay": _Option("initial_reconnect_delay_seconds", _milliseconds),
    "maxReconnectDelay": _Option("max_reconnect_delay_seconds", _milliseconds),
    "useExponentialBackOff": _Option("use_exponential_back_off", _boolean),
    "reconnectDelayExponent": _Option("reconnect_delay_exponent", _factor),
    "backOffMultiplier": _Option("reconnect_delay_exponent", _factor),
    "maxReconnectAttempts": _Option("max_reconnect_attempts", _attempts),
    "startupMaxReconnectAttempts": _Option("startup_max_reconnect_attempts", _attempts),
    "randomize": _Option("randomize", _boolean),
    "backup": _Option("backup", _boolean),
    "backupPoolSize": _Option("backup_pool_size", partial(_integer, least=1, most=ADDRESSES_MAX)),
    "timeout": _Option("timeout_seconds", _milliseconds_or_none),
    "trackMessages": _Option("track_messages", _boolean),
    "maxCacheSize": _Option("max_cache_bytes", _count),
    "trackTransactionProducers": _Option("track_transaction_producers", _boolean),
    "updateURIsSupported": _Option("update_uris_supported", _boolean),
    "updateURIsURL": _Option("update_uris_url", _text),
    "rebalanceUpdateURIs": _Option("rebalance_update_uris", _boolean),
    "reconnectSupported": _Option("reconnect_supported", _boolean),
    "priorityBackup": _Option("priority_backup", _boolean),
    "priorityURIs": _Option("priority_uris", _text),
    "warnAfterReconnectAttempts": _Option("warn_after_reconnect_attempts", _attempts),
}

_MONITORED = "use_inactivity_monitor"
"""The option has no attribute: without the monitor, `inactivity_seconds` is None."""

TRANSPORT_OPTIONS: Mapping[str, _Option] = {
    "connectionTimeout": _Option("connection_timeout_seconds", _milliseconds_or_none),
    "tcpNoDelay": _Option("tcp_no_delay", _boolean),
    "keepAlive": _Option("keep_alive", _boolean),
    "socketBufferSize": _Option("socket_buffer_bytes", partial(_integer, least=1, most=_INT_MAX)),
    "socket.verifyHostName": _Option("verify_host_name", _boolean),
    "verifyHostName": _Option("verify_host_name", _boolean),
    "wireFormat.maxInactivityDuration": _Option("inactivity_seconds", _milliseconds_or_none),
    "wireFormat.maxInactivityDurationInitalDelay": _Option("inactivity_initial_seconds", _milliseconds),
    "wireFormat.maxFrameSize": _Option("frame_bytes_max", partial(_integer, least=1, most=_LONG_MAX)),
    "useInactivityMonitor": _Option(_MONITORED, _boolean),
}

_WITHOUT_EFFECT = frozenset(
    (
        *("closeAsync", "daemon", "diffServ", "dynamicManagement", "ioBufferSize", "jmxPort", "logWriterName"),
        *("minmumWireFormatVersion", "soLinger", "soTimeout", "soWriteTimeout", "startLogging", "threadName", "trace"),
        *("typeOfService", "useLocalHost", "wireFormat.cacheEnabled", "wireFormat.cacheSize", "wireFormat.host"),
        *("wireFormat.includePlatformDetails", "wireFormat.maxFrameSizeEnabled", "wireFormat.platformDetails"),
        *("wireFormat.providerName", "wireFormat.providerVersion", "wireFormat.sizePrefixDisabled"),
        *("wireFormat.stackTraceEnabled", "wireFormat.tcpNoDelayEnabled", "wireFormat.tightEncodingEnabled"),
        "wireFormat.version",
    )
)
"""Options of Java's sockets, threads and encoding, which this client accepts with a warning."""


def _transport_options(
    pairs: Iterable[tuple[str, str]], where: str, warnings: list[str], prefix: str = ""
) -> TransportOptions:
    effective: list[tuple[str, str]] = []
    for name, value in pairs:
        if name in _WITHOUT_EFFECT:
            warnings.append(f"{name} of {where} is for Java and has no effect here")
        else:
            effective.append((name, value))
    values = _values(effective, TRANSPORT_OPTIONS, where, prefix, _WITHOUT_EFFECT)
    if not values.pop(_MONITORED, True):
        values["inactivity_seconds"] = None
    return TransportOptions(**values)


def _values(
    pairs: Iterable[tuple[str, str]],
    known: Mapping[str, _Option],
    where: str,
    prefix: str,
    also: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the attributes by name; the last one of a repeated option applies, as in Java."""
    values: dict[str, Any] = {}
    for name, value in pairs:
        option = known.get(name)
        if option is None:
            raise UnknownOption(
                f"{where} has no such option",
                part=_shown(prefix + name),
                hint=_suggestion(name, known, prefix, also),
            )
        try:
            values[option.attribute] = option.read(value)
        except ValueError as error:
            raise BadOption(
                f"{prefix}{name} is wrong", part=_shown(f"{prefix}{name}={value}"), hint=f"write {error}"
            ) from None
    return values


def _suggestion(name: str, known: Mapping[str, _Option], prefix: str, also: Iterable[str]) -> str:
    """Return the hint for an unknown option: a similar name, or the right place."""
    if name.startswith("jms."):
        return "jms.* configure Java's connections; here they are arguments of connect()"
    elsewhere = FAILOVER_OPTIONS if known is TRANSPORT_OPTIONS else {*TRANSPORT_OPTIONS, *_WITHOUT_EFFECT}
    there = name if name in elsewhere else None  # the right name in the wrong place
    if there is None and (here := _closest(name, {*known, *also})):
        return f"did you mean {prefix}{here}?"
    if there := there or _closest(name, elsewhere):
        if known is FAILOVER_OPTIONS:
            return f"{there} is each broker's: write nested.{there}"
        return f"{there} is failover's: write it behind the list's parentheses, failover:(…)?{there}=…"
    return f"there are {', '.join(sorted(known))}"


def _closest(name: str, names: Iterable[str]) -> str | None:
    """Return the most similar name, ignoring case; None if none is similar."""
    by_lower = {each.lower(): each for each in names}
    close = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.75)
    return by_lower[close[0]] if close else None


# ---------------------------------------------------------------- errors

_USER = re.compile(r"//[^\s,()?]*@")
"""User name and password in a URI, which an error must not show."""

_SHOWN_CHARACTERS = 200


def _shown(text: str) -> str:
    """Return a part of a URI for an error: without credentials, and shortened."""
    text = _USER.sub("//…@", text)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
