"""Reads the strategies within a `policyEntry`: dead letters, slow consumers, and what a topic keeps.

Each is written as its type alone if it has no attributes, and otherwise as a table with the type.

Source: activemq-xml.md, section 5; ActiveMQ 5.17's `PolicyEntry` and the beans that it holds.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from pybroker.activemq_xml.core_beans import beans_in, referred
from pybroker.activemq_xml.destination_elements import destinations_of
from pybroker.activemq_xml.elements import CORE, XmlElement
from pybroker.activemq_xml.entries import Fields, between, into
from pybroker.activemq_xml.reading import (
    Handler,
    Reading,
    Rules,
    ignored,
    ignored_element,
    read_attributes,
    read_properties,
)
from pybroker.activemq_xml.values import duration, flag, whole
from pybroker.broker.domain.destination import Destination
from pybroker.units import format_size

OWN_CLASS: Final = "a strategy of its own class is not run"

_BROKER: Final = "a strategy needs no broker of its own"
_DROPPED: Final = "all dead letters are dropped"
_EXPIRED: Final = "expired messages are removed at all times"
_COUNT_MAX: Final = 1_000_000

Read = Callable[[Reading, XmlElement], object]
"""Returns the value of a strategy for a bean; None: that of pybroker's default, since there is none for the bean."""


def strategy(entry: dict[str, Any], field: str, kinds: Mapping[str, Read]) -> Handler:
    """Return the handler of a property that holds a strategy.

    Args:
        entry: gets the field.
        field: its name.
        kinds: the readers of beans by name. Those of other names are warnings.
    """

    def read(reading: Reading, element: XmlElement) -> None:
        for each in beans_in(reading, element, OWN_CLASS):
            if each.name not in kinds:
                reading.findings.warn(each, "pybroker has no such strategy", at=f"{element.name}/{each.name}")
            elif (value := kinds[each.name](reading, each)) is not None:
                entry[field] = value

    return read


def ignored_kinds(why: str, differing: Mapping[str, str] | None = None) -> Handler:
    """Return the handler of a property whose bean is a matter of tuning.

    Args:
        why: the reason why it has no effect.
        differing: beans that mean something else here, with what.
    """

    def read(reading: Reading, element: XmlElement) -> None:
        for each in element.children:
            at = f"{element.name}/{each.name}"
            if differing and each.name in differing:
                reading.findings.warn(each, differing[each.name], at=at)
            else:
                reading.findings.ignore(each, why, at=at)

    return read


def warned_kinds(why: str) -> Handler:
    """Return the handler of a property whose beans are not there, whatever they are."""

    def read(reading: Reading, element: XmlElement) -> None:
        for each in element.children:
            reading.findings.warn(each, why, at=f"{element.name}/{each.name}")

    return read


def _written(kind: str, fields: Mapping[str, Any]) -> object:
    return {"type": kind, **fields} if fields else kind


def _typed(kind: str, fields: Fields, others: Rules, properties: Mapping[str, Handler] | None = None) -> Read:
    """Return the reader of a strategy whose attributes are fields of a table."""

    def read(reading: Reading, element: XmlElement) -> object:
        found: dict[str, Any] = {}
        read_attributes(reading, element, {**others, **into(found, fields)})
        read_properties(reading, element, properties or {})
        return _written(kind, found)

    return read


# ---------------------------------------------------------------- slow consumers


def _rate(value: str) -> float:
    rate = float(value)  # `schema` has checked that it is one
    if not 0 <= rate <= 1000:
        raise ValueError("pybroker allows 0 to 1000")
    return rate


def _constant(reading: Reading, element: XmlElement) -> object:
    found: dict[str, Any] = {"limit": -1}
    read_attributes(reading, element, into(found, CONSTANT))
    return found["limit"]


CONSTANT: Final[Fields] = {"limit": between(-1)}
PREFETCH_RATE: Final[Fields] = {"multiplier": _rate}

PENDING_LIMITS: Final[Mapping[str, Read]] = {
    "constantPendingMessageLimitStrategy": _constant,
    "prefetchRatePendingMessageLimitStrategy": _typed("prefetch_rate", PREFETCH_RATE, {}),
}

EVICTION: Final[Rules] = {
    "evictExpiredMessagesHighWatermark": ignored(_EXPIRED),
    "propertyName": ignored("the strategy is not there"),
}


def _oldest(reading: Reading, element: XmlElement) -> object:
    read_attributes(reading, element, EVICTION)
    reading.findings.warn(element, "messages are evicted by their age", at=f"messageEvictionStrategy/{element.name}")
    return "oldest"


EVICTIONS: Final[Mapping[str, Read]] = {
    "oldestMessageEvictionStrategy": _typed("oldest", {}, EVICTION),
    "oldestMessageWithLowestPriorityEvictionStrategy": _typed("oldest_with_lowest_priority", {}, EVICTION),
    "uniquePropertyMessageEvictionStrategy": _oldest,
}


# ---------------------------------------------------------------- what bridges forward


def _replay_delay(value: str) -> str:
    return duration(str(max(whole(value), 0)))


def _rate_duration(value: str) -> str:
    between(1)(value)
    return duration(value)


CONDITIONAL: Final[Fields] = {
    "replayWhenNoConsumers": flag,
    "replayDelay": _replay_delay,
    "rateLimit": between(0),
    "rateDuration": _rate_duration,
    "selectorAware": flag,
}

BRIDGE_FILTERS: Final[Mapping[str, Read]] = {
    "conditionalNetworkBridgeFilterFactory": _typed("conditional", CONDITIONAL, {}),
    "defaultNetworkBridgeFilterFactory": _typed("default", {}, {}),
}


# ---------------------------------------------------------------- what a topic keeps


def _bytes(value: str) -> str:
    return format_size(between(1)(value))


def _period(value: str) -> str:
    between(1)(value)
    return duration(value)


RECOVERY: Final[Rules] = {
    "broker": ignored(_BROKER),
    "useSharedBuffer": ignored("each topic keeps its own messages"),
    "buffer": ignored("each topic keeps its own messages"),
}
_RECOVERY_PROPERTIES: Final[Mapping[str, Handler]] = {
    "broker": ignored_element(_BROKER),
    "buffer": ignored_element("each topic keeps its own messages"),
}
RECOVERY_FIELDS: Final[Mapping[str, tuple[str, Fields]]] = {
    "noSubscriptionRecoveryPolicy": ("no", {}),
    "lastImageSubscriptionRecoveryPolicy": ("last_image", {}),
    "fixedCountSubscriptionRecoveryPolicy": ("fixed_count", {"maximumSize": between(1, _COUNT_MAX)}),
    "fixedSizedSubscriptionRecoveryPolicy": ("fixed_sized", {"maximumSize": _bytes}),
    "timedSubscriptionRecoveryPolicy": ("timed", {"recoverDuration": _period}),
}
"""The types of recovery, with their fields, by the names of the beans."""


def _retained(reading: Reading, element: XmlElement) -> object:
    """Read the policy that a policy for retained messages wraps; every topic keeps its retained message in any case."""
    for each in element.children:
        if each.namespace == CORE and each.name == "wrapped":
            for held in each.children:
                if held.name in RECOVERIES:
                    return RECOVERIES[held.name](reading, held)
    if element.children or "wrapped" in element.attributes:
        reading.findings.warn(element, "what it wraps is not read: write that policy itself")
    return None


RECOVERIES: Final[Mapping[str, Read]] = {
    **{name: _typed(kind, fields, RECOVERY, _RECOVERY_PROPERTIES) for name, (kind, fields) in RECOVERY_FIELDS.items()},
    "retainedMessageSubscriptionRecoveryPolicy": _retained,
}


# ---------------------------------------------------------------- dead letters


DEAD_LETTER_FIELDS: Final[Fields] = {
    "processExpired": flag,
    "processNonPersistent": flag,
    "enableAudit": flag,
    "maxAuditDepth": between(1, _COUNT_MAX),
    "maxProducersToAudit": between(1, 100_000),
    "expiration": duration,
}
INDIVIDUAL_FIELDS: Final[Fields] = {
    **DEAD_LETTER_FIELDS,
    **dict.fromkeys(("queuePrefix", "queueSuffix", "topicPrefix", "topicSuffix"), str),
    **dict.fromkeys(("useQueueForQueueMessages", "useQueueForTopicMessages", "destinationPerDurableSubscriber"), flag),
}
DISCARDING: Final[Rules] = dict.fromkeys((*DEAD_LETTER_FIELDS, "deadLetterQueue"), ignored(_DROPPED))


def _individual(reading: Reading, element: XmlElement) -> object:
    found: dict[str, Any] = {}
    read_attributes(reading, element, into(found, INDIVIDUAL_FIELDS))
    for kind in ("queue", "topic"):
        if found.get(f"{kind}_prefix") == "" and not found.get(f"{kind}_suffix"):
            reading.findings.refuse(
                element, f"a {kind} would be its own dead letter queue: write a prefix or a suffix", f"{kind}Prefix"
            )
    return _written("individual", found)


def _shared(reading: Reading, element: XmlElement) -> object:
    found: dict[str, Any] = {}

    def read_queue(reading: Reading, element: XmlElement) -> None:
        for each in beans_in(reading, element, "it is no destination"):
            for destination in destinations_of(reading, each):
                if destination.is_temporary or destination.is_pattern or "dead_letter_queue" in found:
                    reading.findings.refuse(each, "dead letters need one queue or topic that stays")
                else:
                    found["dead_letter_queue"] = _short(destination)

    rules = {**into(found, DEAD_LETTER_FIELDS), "deadLetterQueue": referred(read_queue)}
    read_attributes(reading, element, rules)
    read_properties(reading, element, {"deadLetterQueue": read_queue})
    return _written("shared", found)


def _short(destination: Destination) -> str:
    return destination.name if destination.is_queue else str(destination)


DEAD_LETTERS: Final[Mapping[str, Read]] = {
    "sharedDeadLetterStrategy": _shared,
    "individualDeadLetterStrategy": _individual,
    "discarding": _typed("discarding", {}, DISCARDING, {"deadLetterQueue": ignored_element(_DROPPED)}),
}
