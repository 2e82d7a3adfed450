"""Reads `redeliveryPlugin` into `[redelivery]`.

Source: ActiveMQ 5.17's `RedeliveryPlugin`, `RedeliveryPolicyMap` and `RedeliveryPolicy`.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from pybroker.activemq_xml.core_beans import beans_in, referred
from pybroker.activemq_xml.destination_elements import KINDS, destinations_of, names
from pybroker.activemq_xml.elements import XmlElement
from pybroker.activemq_xml.entries import Fields, between, into
from pybroker.activemq_xml.reading import (
    FALSE,
    Handler,
    Reading,
    Rules,
    ignored,
    ignored_element,
    read_attributes,
    read_properties,
    refused_element,
    silent,
)
from pybroker.activemq_xml.values import duration, flag, whole
from pybroker.broker.domain.destination import Destination, DestinationType

_DELAY_MS_MIN: Final = 1000
_COUNT_MAX: Final = 1_000_000
_MULTIPLIER_MAX: Final = 1000
_ORDER: Final = "the order of plugins is that of the file"


def _delay(value: str) -> str:
    between(_DELAY_MS_MIN)(value)
    return duration(value)


def _multiplier(value: str) -> float:
    number = float(value)  # `schema` has checked that it is one
    if number > _MULTIPLIER_MAX:
        raise ValueError(f"pybroker allows at most {_MULTIPLIER_MAX}")
    return max(number, 1.0)  # below 1, ActiveMQ does not multiply


PLUGIN_FIELDS: Final[Fields] = {"sendToDlqIfMaxRetriesExceeded": flag, "fallbackToDeadLetter": flag}
PLUGIN: Final[Rules] = dict.fromkeys(("adminConnectionContext", "next"), ignored(_ORDER))
PLUGIN_PROPERTIES: Final[Mapping[str, Handler]] = dict.fromkeys(
    ("adminConnectionContext", "next"), ignored_element(_ORDER)
)

POLICY_FIELDS: Final[Fields] = {
    "maximumRedeliveries": between(-1, _COUNT_MAX),
    "initialRedeliveryDelay": _delay,
    "redeliveryDelay": _delay,
    "useExponentialBackOff": flag,
    "backOffMultiplier": _multiplier,
    "useCollisionAvoidance": flag,
    "collisionAvoidancePercent": between(0, 100),
}
POLICY: Final[Rules] = {
    **dict.fromkeys(KINDS, silent),  # read by `_targets`
    "preDispatchCheck": ignored("it is for clients"),
}


def read(reading: Reading, element: XmlElement) -> None:
    """Read the plugin."""
    found: dict[str, Any] = {}
    policies: list[dict[str, Any]] = []

    def read_map(reading: Reading, element: XmlElement) -> None:
        for each in beans_in(reading, element, "a map of its own class is not read"):
            _read_map(reading, each, policies)

    rules = {**PLUGIN, **into(found, PLUGIN_FIELDS), "redeliveryPolicyMap": referred(read_map)}
    read_attributes(reading, element, rules)
    read_properties(reading, element, {**PLUGIN_PROPERTIES, "redeliveryPolicyMap": read_map})
    if policies:
        found["policies"] = policies
    if not flag(reading.file.broker.attributes.get("schedulerSupport", "false")):
        reading.findings.refuse(element, "it needs schedulerSupport: ActiveMQ does not start without it")
    elif found:
        reading.set("redelivery", found, element)
    else:
        reading.findings.ignore(element, "it has no policies, and so no effect")


def _read_map(reading: Reading, element: XmlElement, policies: list[dict[str, Any]]) -> None:
    default = partial(_read_policies, policies=policies, is_default=True)
    read_attributes(reading, element, {"defaultEntry": referred(default)})
    read_properties(
        reading,
        element,
        {
            "redeliveryPolicyEntries": partial(_read_policies, policies=policies),
            "defaultEntry": default,
            "entries": refused_element("ActiveMQ cannot set it: write redeliveryPolicyEntries"),
        },
    )


def _read_policies(
    reading: Reading, element: XmlElement, *, policies: list[dict[str, Any]], is_default: bool = False
) -> None:
    for each in beans_in(reading, element, "a policy of its own class is not read"):
        entry: dict[str, Any] = {}
        targets = _read_policy(reading, each, entry)
        if is_default:
            policies.append(entry)
            reading.findings.warn(each, "messages of topics are not redelivered by the broker", at="defaultEntry")
            continue
        if not targets:
            reading.findings.refuse(each, "it names no queue: ActiveMQ does not start with it")
        for target in targets:
            if target.type is not DestinationType.QUEUE:
                reading.findings.refuse(each, "the broker redelivers messages of queues that stay, and no others")
            policies.append({"queue": target.name, **entry})


def _read_policy(reading: Reading, element: XmlElement, entry: dict[str, Any]) -> list[Destination]:
    """Read one policy; return its targets, which are several if there is a comma in the name."""
    targets: list[Destination] = []
    for name, kind in KINDS.items():
        if element.attributes.get(name, "false").strip() in FALSE:
            continue
        is_named = kind in (DestinationType.QUEUE, DestinationType.TOPIC)
        targets.extend(names(reading, element, name, kind) if is_named else [Destination(kind, ">")])

    def read_target(reading: Reading, element: XmlElement) -> None:
        for each in beans_in(reading, element, "it is no destination"):
            targets.extend(destinations_of(reading, each))

    def read_maximum(_reading: Reading, element: XmlElement, name: str) -> None:
        if whole(element.attributes[name]) != -1:  # there is no limit otherwise
            entry["maximum_redelivery_delay"] = _delay(element.attributes[name])

    rules = {
        **POLICY,
        **into(entry, POLICY_FIELDS),
        "maximumRedeliveryDelay": read_maximum,
        "destination": referred(read_target),
    }
    read_attributes(reading, element, rules)
    read_properties(reading, element, {"destination": read_target})
    return targets
