r"""Reads and writes Java properties files, in which a bridge describes its connector to the remote broker.

A line is `key=value`. A backslash precedes what would else have a meaning: `:`, `=`, `#`, `!`, a backslash, a leading
blank; `\t`, `\n`, `\f`, `\r` and `\uXXXX` stand for characters, and a backslash at the end continues the line.
Lines that begin with `#` or `!` are comments.

Source: `java.util.Properties`, `store` and `load`; ActiveMQ 5.17, `BrokerInfo.networkProperties`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pybroker.broker.domain.destination import Destination, parse, parts
from pybroker.broker.domain.network.connector import NetworkConnector

_ESCAPES: Final = {"\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"} | {each: "\\" + each for each in "\\:=#!"}
_UNESCAPES: Final = {"t": "\t", "n": "\n", "f": "\f", "r": "\r"}
_BLANKS: Final = " \t\f"
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_UNIT: Final = re.compile(r"[0-9A-Fa-f]{4}")

_TEXTS: Final = {"name": "name", "destinationFilter": "destination_filter", "clientIdToken": "client_id_token"}
NUMBERS: Final = {
    "consumerTTL": "consumer_ttl",
    "messageTTL": "message_ttl",
    "prefetchSize": "prefetch_size",
    "advisoryPrefetchSize": "advisory_prefetch_size",
    "advisoryAckPercentage": "advisory_ack_percentage",
    "consumerPriorityBase": "consumer_priority_base",
}
FLAGS: Final = {
    "duplex": "duplex",
    "conduitSubscriptions": "conduit_subscriptions",
    "conduitNetworkQueueSubscriptions": "conduit_network_queue_subscriptions",
    "dynamicOnly": "dynamic_only",
    "syncDurableSubs": "sync_durable_subs",
    "decreaseNetworkConsumerPriority": "decrease_network_consumer_priority",
    "suppressDuplicateQueueSubscriptions": "suppress_duplicate_queue_subscriptions",
    "suppressDuplicateTopicSubscriptions": "suppress_duplicate_topic_subscriptions",
    "bridgeTempDestinations": "bridge_temp_destinations",
    "alwaysSyncSend": "always_sync_send",
    "staticBridge": "static_bridge",
    "useCompression": "use_compression",
    "useVirtualDestSubs": "use_virtual_dest_subs",
    "advisoryForFailedForward": "advisory_for_failed_forward",
}
"""ActiveMQ's names of attributes that are numbers, and that are true or false, with those of `NetworkConnector`."""

_OWN_NUMBERS: Final = {"replayDelay": "replay_delay"}
_OWN_FLAGS: Final = {"replayWhenNoConsumers": "replay_when_no_consumers"}
"""Those that ActiveMQ's connectors are without."""

LISTS: Final = {
    "excludedDestinations": "excluded",
    "dynamicallyIncludedDestinations": "dynamically_included",
    "staticallyIncludedDestinations": "statically_included",
}
"""The lists of destinations."""

_INCLUDED: Final = ("dynamicallyIncludedDestinations", "staticallyIncludedDestinations")

FORCED: Final = "forceDurable=true"
"""The option of a topic in one of these lists by which consumers that are not durable are durable demand."""


def encode(pairs: Mapping[str, str]) -> str:
    """Return a properties file with these pairs, in their order. It has no comments."""
    return "".join(f"{_escaped(key, in_key=True)}={_escaped(value, in_key=False)}\n" for key, value in pairs.items())


def decode(text: str) -> dict[str, str]:
    r"""Return the pairs of a properties file; of a key that comes twice, the last value.

    As in Java any text is a file; a `\u` without four hexadecimal digits, which Java refuses, stands for a `u`.
    """
    return dict(_pair(line) for line in _logical_lines(text))


def described(connector: NetworkConnector, broker_name: str) -> dict[str, str]:
    """Return the pairs by which a bridge describes itself: what the remote broker needs, and no credentials.

    It needs `duplex` and `syncDurableSubs`, and for the other half of a duplex bridge what applies to both halves.

    Args:
        connector: the bridge's connector.
        broker_name: the name of the broker that has it.
    """
    pairs = {"name": connector.name, "brokerName": broker_name, "clientIdToken": connector.client_id_token}
    pairs |= {key: str(getattr(connector, name)).lower() for key, name in (FLAGS | _OWN_FLAGS).items()}
    pairs |= {key: str(getattr(connector, name)) for key, name in (NUMBERS | _OWN_NUMBERS).items()}
    if connector.destination_filter:
        pairs["destinationFilter"] = connector.destination_filter
    for key, name in LISTS.items():
        listed: tuple[Destination, ...] = getattr(connector, name)
        if listed:
            pairs[key] = f"[{', '.join(_with_option(each, connector) for each in listed)}]"
    return pairs


def asking(connector: NetworkConnector, broker_name: str) -> dict[str, str]:
    """Return the pairs of a bridge that goes one way, which asks for the remote broker's durable subscriptions.

    Of such a bridge the remote broker reads only what it needs for that list. The list shows which durable
    subscriptions were deleted while the bridge was down; the attribute `sync_durable_subs` adds the local list to it.

    Args:
        connector: the bridge's connector.
        broker_name: the name of the broker that has it.
    """
    pairs = described(connector, broker_name)
    if asks_for_durables(connector):
        pairs |= {"syncDurableSubs": "true", "dynamicallyIncludedDestinations": "[topic://>]"}
    return pairs


def asks_for_durables(connector: NetworkConnector) -> bool:
    """Return True if a bridge has use for the remote broker's durable subscriptions: it may serve topics on demand."""
    listed = connector.dynamically_included
    serves_topics = not listed or any(each.is_topic for each in (*listed, *connector.statically_included))
    return connector.conduit_subscriptions and not connector.static_bridge and serves_topics


def connector_of(pairs: Mapping[str, str]) -> NetworkConnector:
    """Return the connector that a bridge has described. Unknown keys are ignored, absent ones have their defaults.

    Raises:
        ValueError: a number is none.
        InvalidDestination: a destination of a list has no name.
    """
    values: dict[str, Any] = {
        name: pairs[key].strip().lower() == "true" for key, name in (FLAGS | _OWN_FLAGS).items() if key in pairs
    }
    values |= {name: int(pairs[key]) for key, name in (NUMBERS | _OWN_NUMBERS).items() if key in pairs}
    values |= {name: destinations(pairs[key]) for key, name in LISTS.items() if key in pairs}
    values |= {name: pairs[key] for key, name in _TEXTS.items() if key in pairs}
    values["forced_durable"] = tuple(each for key in _INCLUDED for each in _forced(pairs.get(key, "")))
    return NetworkConnector(**values)


def destinations(text: str) -> tuple[Destination, ...]:
    """Return the destinations of a list as Java writes it, `[queue://A, topic://B]`.

    Raises:
        InvalidDestination: one has no name.
    """
    return tuple(map(parse, _entries(text)))


def is_forced_durable(entry: str) -> bool:
    """Return True for a topic of a list whose option says that all demand for it is durable."""
    options = entry.partition("?")[2].lower().split("&")
    return FORCED.lower() in options


def _entries(text: str) -> list[str]:
    return [each.strip() for each in text.strip().strip("[]").split(", ") if each.strip()]


def _forced(text: str) -> list[Destination]:
    marked = [parse(each) for each in _entries(text) if is_forced_durable(each)]
    return [part for each in marked for part in parts(each) if part.is_topic]


def _with_option(destination: Destination, connector: NetworkConnector) -> str:
    is_forced = any(part in connector.forced_durable for part in parts(destination))
    return f"{destination}?{FORCED}" if is_forced else str(destination)


def _escaped(text: str, *, in_key: bool) -> str:
    out: list[str] = []
    for place, char in enumerate(text):
        if char == " " and (in_key or place == 0):
            out.append("\\ ")
        elif char in _ESCAPES:
            out.append(_ESCAPES[char])
        elif " " <= char <= "~":
            out.append(char)
        else:
            units = char.encode("utf-16-be", "surrogatepass")
            out += [f"\\u{units[at]:02X}{units[at + 1]:02X}" for at in range(0, len(units), 2)]
    return "".join(out)


def _logical_lines(text: str) -> Iterator[str]:
    """Yield the lines that are neither blank nor comments, each with those that continue it."""
    begun: list[str] = []
    is_continued = False
    for natural in _LINE_END.split(text):
        line = natural.lstrip(_BLANKS)
        if not is_continued and (not line or line[0] in "#!"):
            continue
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        begun.append(line[:-1] if is_continued else line)
        if not is_continued:
            yield "".join(begun)
            begun.clear()
    if begun:
        yield "".join(begun)


def _pair(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    value = line[end:].lstrip(_BLANKS)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(_BLANKS)
    return _unescaped(line[:end]), _unescaped(value)


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    place = 0
    while place < len(text):
        char = text[place]
        place += 1
        if char == "\\" and place < len(text):
            char = text[place]
            place += 1
            unit = _UNIT.match(text, place) if char == "u" else None
            if unit:
                char = chr(int(unit[0], 16))
                place = unit.end()
            else:
                char = _UNESCAPES.get(char, char)
        out.append(char)
    joined = "".join(out)
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
