"""Reads `destinationPolicy` into `[[policies]]`: an entry for each `policyEntry`; the default one has no target.

An entry has the fields that the file decides. ActiveMQ's defaults are pybroker's but for these:

* Slow topic consumers have no limit without a `pendingMessageLimitStrategy`: the setting `topic_pending_limit`.
* Clients count redeliveries, and the broker has no limit. `max_redeliveries` keeps its limit all the same, since STOMP
  clients do not count: a message that kills its consumer would come back for ever.
* Inactive destinations stay: `gc_inactive_destinations`. It is not written. One that is removed is made again by the
  next send or consumer, which sees no difference; queues of virtual topics and those of `destinations` stay in any
  case. Only operators, and clients that ask for statistics, do not see it meanwhile. With an `authorizationPlugin`
  there is a difference, and `complete` has destinations stay: a client without the right to create a queue would be
  refused once it is gone.

Source: activemq-xml.md, section 5; ActiveMQ 5.17's `PolicyEntry` and `PolicyMap`.
"""

from collections.abc import Mapping
from functools import partial
from itertools import chain
from typing import Any, Final

from pybroker.activemq_xml.core_beans import beans_in, referred
from pybroker.activemq_xml.destination_elements import KINDS, destinations_of, names
from pybroker.activemq_xml.elements import XmlElement
from pybroker.activemq_xml.entries import Fields, between, into, snake_case
from pybroker.activemq_xml.policy_strategies import (
    BRIDGE_FILTERS,
    DEAD_LETTERS,
    EVICTIONS,
    PENDING_LIMITS,
    RECOVERIES,
    ignored_kinds,
    strategy,
    warned_kinds,
)
from pybroker.activemq_xml.reading import (
    FALSE,
    TRUE,
    Handler,
    Reading,
    Rules,
    ignored,
    read_attributes,
    read_properties,
    refused_element,
    silent,
    warned,
)
from pybroker.activemq_xml.values import duration, flag, size, whole
from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.units import format_duration

_TUNING: Final = "how ActiveMQ keeps and hands out messages inside"
_PAGES: Final = "there are no pages of a fixed size"
_CURSOR: Final = "messages leave memory, and come back, by themselves"
_DUPLICATES: Final = "a store has each message once"
_NETWORK: Final = "it is for networks of brokers"
_ENTRIES: Final = "ActiveMQ cannot set it: write policyEntries"
_PERIOD_MS_MIN: Final = 1000
_SPACE_TIMEOUT: Final = "sendFailIfNoSpaceAfterTimeout"
_INHERITED: Final = -1
_GC: Final = "gcInactiveDestinations"
_GC_TIMEOUTS: Final = ("inactiveTimeoutBeforeGC", "inactiveTimoutBeforeGC")
_GC_TIMEOUT_MS: Final = 60_000  # ActiveMQ's; pybroker's is five times as long
_GC_TIMEOUT_MS_MIN: Final = 1000
_SLOW: Final = "slow consumers stay connected: set advisoryForSlowConsumers to hear of them"
_PURGE_PERIOD: Final = "schedulePeriodForDestinationPurge"

_prefetch = between(0)


def _time_before_dispatch(value: str) -> str:
    return duration(str(max(whole(value), 0)))


def _space_timeout(value: str) -> str | None:
    """Return how long a send waits for space; None for -1: that of `systemUsage`."""
    return None if whole(value) == _INHERITED else duration(value)


def _browse_page(value: str) -> int:
    return max(whole(value), 0)  # a negative one is no limit either


def _expire_period(value: str) -> str:
    milliseconds = max(whole(value), 0)  # a negative one is never too
    if 0 < milliseconds < _PERIOD_MS_MIN:
        raise ValueError(
            "pybroker looks for expired messages once a second at most: write 1000 or more, or 0 for never"
        )
    return duration(str(milliseconds))


FIELDS: Final[Fields] = {
    "memoryLimit": size,
    "expireMessagesPeriod": _expire_period,
    "maxBrowsePageSize": _browse_page,
    _SPACE_TIMEOUT: _space_timeout,
    "consumersBeforeDispatchStarts": between(0),
    "timeBeforeDispatchStarts": _time_before_dispatch,
    **dict.fromkeys(("queuePrefetch", "queueBrowserPrefetch", "topicPrefetch", "durableTopicPrefetch"), _prefetch),
    **dict.fromkeys(
        (
            *("producerFlowControl", "sendFailIfNoSpace", "prioritizedMessages", "strictOrderDispatch"),
            *("allConsumersExclusiveByDefault", "useConsumerPriority", "alwaysRetroactive"),
            *("sendAdvisoryIfNoConsumers", "advisoryForSlowConsumers", "advisoryForDiscardingMessages"),
            *("advisoryForFastProducers", "advisoryWhenFull", "advisoryForDelivery", "advisoryForConsumed"),
            "includeBodyForAdvisory",
        ),
        flag,
    ),
}
"""The attributes that are fields of an entry."""

GARBAGE: Final[Fields] = {_GC: flag, **dict.fromkeys(_GC_TIMEOUTS, whole)}
"""The attributes about inactive destinations."""

OTHERS: Final[Rules] = {
    **dict.fromkeys(KINDS, silent),  # read by `_targets`
    "gcWithNetworkConsumers": ignored(_NETWORK),
    "storeUsageHighWaterMark": warned("the whole of store_limit counts", unless=("100",)),
    "persistJMSRedelivered": warned(
        "whether a message was delivered before is not stored: after a restart it counts as new", unless=FALSE
    ),
    "usePrefetchExtension": warned("the window grows by what a transaction has acknowledged", unless=TRUE),
    "maxDestinations": warned(
        "there is no limit of an entry: destinations_max is for all queues and topics together", unless=("-1",)
    ),
    "slowConsumerStrategy": warned(_SLOW),
    "sendDuplicateFromStoreToDLQ": ignored(_DUPLICATES),
    "enableAudit": ignored(_DUPLICATES),
    "dispatchPolicy": ignored("all consumers of a topic get each message"),
    "blockedProducerWarningInterval": ignored("a producer that waits is logged once"),
    **dict.fromkeys(("maxPageSize", "maxExpirePageSize"), ignored(_PAGES)),
    **dict.fromkeys(("maxAuditDepth", "maxProducersToAudit", "maxQueueAuditDepth"), ignored(_DUPLICATES)),
    **dict.fromkeys(
        (
            "pendingQueuePolicy",
            "pendingSubscriberPolicy",
            "pendingDurableSubscriberPolicy",
            "cursorMemoryHighWaterMark",
        ),
        ignored(_CURSOR),
    ),
    **dict.fromkeys(("messageGroupMapFactory", "messageGroupMapFactoryType"), ignored("groups are kept one by one")),
    **dict.fromkeys(
        (
            *("optimizedDispatch", "lazyDispatch", "useCache", "reduceMemoryFootprint", "minimumMessageSize"),
            *("doOptimzeMessageStorage", "optimizeMessageStoreInFlightLimit", "useTopicSubscriptionInflightStats"),
        ),
        ignored(_TUNING),
    ),
}
"""The other attributes, but for those that refer to a strategy."""


def _strategies(entry: dict[str, Any]) -> Mapping[str, Handler]:
    """Return the readers of properties that hold a strategy, which an attribute may refer to as well."""
    return {
        "deadLetterStrategy": strategy(entry, "dead_letter_strategy", DEAD_LETTERS),
        "pendingMessageLimitStrategy": strategy(entry, "pending_message_limit_strategy", PENDING_LIMITS),
        "messageEvictionStrategy": strategy(entry, "message_eviction_strategy", EVICTIONS),
        "subscriptionRecoveryPolicy": strategy(entry, "subscription_recovery_policy", RECOVERIES),
        "networkBridgeFilterFactory": strategy(entry, "network_bridge_filter_factory", BRIDGE_FILTERS),
    }


PROPERTIES: Final[Mapping[str, Handler]] = {
    "pendingQueuePolicy": ignored_kinds(_CURSOR),
    "pendingSubscriberPolicy": ignored_kinds(_CURSOR),
    "pendingDurableSubscriberPolicy": ignored_kinds(_CURSOR),
    "messageGroupMapFactory": ignored_kinds("groups are kept one by one"),
    "dispatchPolicy": ignored_kinds(
        "all consumers of a topic get each message",
        {
            "priorityNetworkDispatchPolicy": "a message goes to all consumers of a topic, whatever their priority",
            "clientIdFilterDispatchPolicy": "a message goes to all consumers of a topic, whatever their client id",
        },
    ),
    "slowConsumerStrategy": warned_kinds(_SLOW),
}
"""The properties that hold no strategy of pybroker's."""


def read(reading: Reading, element: XmlElement) -> None:
    """Read the property `destinationPolicy` of the broker."""
    for each in beans_in(reading, element, "a policy map of its own class is not read"):
        default = partial(_read_entries, is_default=True)
        read_attributes(reading, each, {"defaultEntry": referred(default)})
        read_properties(
            reading,
            each,
            {
                "policyEntries": _read_entries,
                "defaultEntry": default,
                "entries": refused_element(_ENTRIES),
            },
        )


def _read_entries(reading: Reading, element: XmlElement, *, is_default: bool = False) -> None:
    for each in beans_in(reading, element, "a policy of its own class is not read"):
        entry: dict[str, Any] = {}
        targets = _read_entry(reading, each, entry)
        if is_default:
            reading.append("policies", entry, each)
            continue
        if not targets:
            reading.findings.refuse(each, "it names no queue or topic: ActiveMQ does not start with it")
        for target in targets:
            reading.append("policies", {_kind(target): target.name, **entry}, each)


def _kind(target: Destination) -> str:
    return next(snake_case(name) for name, kind in KINDS.items() if kind is target.type)


def _read_entry(reading: Reading, element: XmlElement, entry: dict[str, Any]) -> list[Destination]:
    """Read one entry; return its targets, which are several if there is a comma in the name."""
    targets = _targets(reading, element)

    def read_target(reading: Reading, element: XmlElement) -> None:
        for each in beans_in(reading, element, "it is no destination"):
            targets.extend(destinations_of(reading, each))

    strategies = _strategies(entry)
    garbage: dict[str, Any] = {}
    rules = {
        **OTHERS,
        **into(entry, FIELDS),
        **into(garbage, GARBAGE),
        **{name: referred(handler) for name, handler in strategies.items()},
        "destination": referred(read_target),
    }
    read_attributes(reading, element, rules)
    read_properties(reading, element, {**PROPERTIES, **strategies, "destination": read_target})
    _read_garbage(reading, element, entry, garbage)
    if entry.get(snake_case(_SPACE_TIMEOUT), "") is None:
        del entry[snake_case(_SPACE_TIMEOUT)]
    return targets


def _targets(reading: Reading, element: XmlElement) -> list[Destination]:
    named = [name for name in KINDS if element.attributes.get(name, "false").strip() not in FALSE]
    if len(named) > 1:
        reading.findings.refuse(element, f"{' and '.join(named)} are both there: write an entry for each", named[1])
    found: list[Destination] = []
    for name in named:
        kind = KINDS[name]
        if kind in (DestinationType.QUEUE, DestinationType.TOPIC):
            found.extend(names(reading, element, name, kind))
        else:
            found.append(Destination(kind, ">"))
    return found


def _read_garbage(reading: Reading, element: XmlElement, entry: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Read whether inactive destinations are removed; they are not if nothing looks for them."""
    is_removed = given.get(snake_case(_GC))
    if is_removed and purge_period(reading) > 0:
        entry["gc_inactive_destinations"] = True
        timeouts = [given[name] for name in map(snake_case, _GC_TIMEOUTS) if name in given] or [_GC_TIMEOUT_MS]
        entry["inactive_timeout_before_gc"] = format_duration(max(timeouts[-1], _GC_TIMEOUT_MS_MIN) / 1000)
        return
    if is_removed is False:
        entry["gc_inactive_destinations"] = False
    why = f"it has no effect without {_GC}"
    if is_removed:
        why = f"the broker has no {_PURGE_PERIOD}, without which ActiveMQ removes no destination"
        reading.findings.ignore(element, why, _GC)
    for name in _GC_TIMEOUTS:
        if name in element.attributes:
            reading.findings.ignore(element, why, name)


def purge_period(reading: Reading) -> int:
    """Return the milliseconds between two of ActiveMQ's sweeps for inactive destinations; 0 or less: it has none."""
    try:
        return whole(reading.file.broker.attributes.get(_PURGE_PERIOD, "0"))
    except ValueError:
        return 0  # it is refused where the attribute is read


def complete(reading: Reading) -> None:
    """Write down what the rest of a file means for all destinations; to be called when all of it was read."""
    broker = reading.file.broker
    if reading.are_full_sends_refused:
        _set_everywhere(reading, "send_fail_if_no_space", True)
    if reading.space_timeout:
        _set_everywhere(reading, snake_case(_SPACE_TIMEOUT), reading.space_timeout)
    if any(each.name == "authorizationPlugin" for each in chain(broker, *reading.file.beans.values())):
        if purge_period(reading) > 0:
            _set_everywhere(reading, "gc_inactive_destinations", False)
        else:
            reading.set("destination_purge_interval", "0s", broker, _PURGE_PERIOD)


def _set_everywhere(reading: Reading, field: str, value: object) -> None:
    """Set a field of all entries that do not have it, and of a default entry."""
    entries: list[dict[str, Any]] = reading.settings.get("policies", [])
    if all(any(snake_case(kind) in entry for kind in KINDS) for entry in entries):
        reading.append("policies", {}, reading.file.broker)
    for entry in reading.settings["policies"]:
        entry.setdefault(field, value)
