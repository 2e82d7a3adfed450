"""Reads `destinationInterceptors`: virtual topics, composite queues and topics, mirrored queues.

With the element, those in it are all there are: ActiveMQ has no virtual topics of its own then, and `useMirroredQueues`
has no effect. An empty element turns virtual topics off.

Source: activemq-xml.md, section 5; ActiveMQ 5.17.2, with a file for each of these.
"""

from functools import partial
from typing import Any, Final

from pybroker.activemq_xml.core_beans import beans_in, referred
from pybroker.activemq_xml.destination_elements import KINDS, destinations_of, names
from pybroker.activemq_xml.elements import XmlElement
from pybroker.activemq_xml.entries import Fields, into
from pybroker.activemq_xml.reading import (
    FALSE,
    TRUE,
    Reading,
    Rules,
    ignored,
    ignored_element,
    read_attributes,
    read_properties,
    refused,
    refused_element,
    silent,
    warned,
)
from pybroker.activemq_xml.values import flag
from pybroker.broker.domain.destination import Destination, DestinationType, matches

_OWN_CLASS: Final = "an interceptor of its own class is not run: messages would go elsewhere"
_FILTER: Final = "a filter of its own class is not run: write a selector"
_THREADS: Final = "how ActiveMQ makes the copies"
_MIRROR_PREFIX: Final = "VirtualTopic.Mirror."
_TARGETS_MAX: Final = 256

VIRTUAL_TOPIC_FIELDS: Final[Fields] = {"prefix": str, "postfix": str, "selectorAware": flag, "local": flag}
VIRTUAL_TOPIC: Final[Rules] = {
    "name": silent,  # read by `_read_virtual_topic`
    "concurrentSend": ignored(_THREADS),
    "transactedSend": ignored("all copies of a message are stored together"),
    "dropOnResourceLimit": warned("a copy for which there is no space has its sender wait", unless=FALSE),
    "setOriginalDestination": warned("copies have the topic as their original destination", unless=TRUE),
}

COMPOSITE_FIELDS: Final[Fields] = {"forwardOnly": flag, "sendWhenNotMatched": flag}
COMPOSITE: Final[Rules] = {
    "name": silent,  # read by `_read_composite`
    "concurrentSend": ignored(_THREADS),
    "copyMessage": warned("each target gets a copy", unless=TRUE),
}

FILTERED_FIELDS: Final[Fields] = {"selector": str}
FILTERED: Final[Rules] = {
    **dict.fromkeys(("queue", "topic"), silent),  # read by `_filtered`
    "filter": refused(_FILTER),
}

MIRRORED_FIELDS: Final[Fields] = {"prefix": str, "postfix": str}
MIRRORED: Final[Rules] = {
    "copyMessage": ignored(_THREADS),
    "brokerService": ignored("there is one broker"),
}


def read(reading: Reading, element: XmlElement) -> None:
    """Read the property `destinationInterceptors` of the broker, after the broker's attributes."""
    broker = reading.file.broker
    reading.set("virtual_topics", [], element)
    for name in ("useMirroredQueues", "useVirtualTopics"):
        if name in broker.attributes:
            reading.findings.ignore(broker, "it has no effect with destinationInterceptors", name)
    reading.settings.pop("mirrored_queues", None)
    for each in beans_in(reading, element, _OWN_CLASS):
        if each.name == "mirroredQueue":
            _read_mirrored(reading, each)
        else:
            read_properties(reading, each, {"virtualDestinations": _read_virtual_destinations})


def _read_mirrored(reading: Reading, element: XmlElement) -> None:
    entry: dict[str, Any] = {}
    read_attributes(reading, element, {**MIRRORED, **into(entry, MIRRORED_FIELDS)})
    read_properties(reading, element, {"brokerService": ignored_element("there is one broker")})
    if "mirrored_queues" in reading.settings:
        reading.findings.refuse(element, "queues have one mirror only")
    reading.set("mirrored_queues", entry or {"prefix": _MIRROR_PREFIX}, element)


def _read_virtual_destinations(reading: Reading, element: XmlElement) -> None:
    for each in beans_in(reading, element, _OWN_CLASS):
        match each.name:
            case "virtualTopic":
                _read_virtual_topic(reading, each)
            case "compositeQueue":
                _read_composite(reading, each, DestinationType.QUEUE)
            case "compositeTopic":
                _read_composite(reading, each, DestinationType.TOPIC)
            case _:
                reading.findings.refuse(each, _OWN_CLASS)


def _read_virtual_topic(reading: Reading, element: XmlElement) -> None:
    entry: dict[str, Any] = {}
    read_attributes(reading, element, {**VIRTUAL_TOPIC, **into(entry, VIRTUAL_TOPIC_FIELDS)})
    if entry.get("prefix") == "" and not entry.get("postfix"):
        reading.findings.refuse(element, "queues need a prefix or a postfix to be told from others", "prefix")
    topics = [Destination(DestinationType.TOPIC, ">")]  # ActiveMQ's default
    if "name" in element.attributes:
        topics = names(reading, element, "name", DestinationType.TOPIC)
    for each in topics:
        reading.append("virtual_topics", {"name": each.name, **entry}, element)


def _read_composite(reading: Reading, element: XmlElement, kind: DestinationType) -> None:
    entry: dict[str, Any] = {}
    targets: list[tuple[Destination, str | None]] = []
    read_attributes(reading, element, {**COMPOSITE, **into(entry, COMPOSITE_FIELDS)})
    read_properties(reading, element, {"forwardTo": partial(_read_targets, targets=targets)})
    if "name" not in element.attributes:
        reading.findings.refuse(element, "it has no name: ActiveMQ does not start with it")
        return
    if not 1 <= len(targets) <= _TARGETS_MAX:
        reading.findings.refuse(element, f"it forwards to {len(targets)} destinations, not to 1 to {_TARGETS_MAX}")
    table = "composite_queues" if kind is DestinationType.QUEUE else "composite_topics"
    for each in names(reading, element, "name", kind):
        if any(target.type is kind and matches(each.name, target.name) for target, _ in targets):
            reading.findings.refuse(element, "it forwards to itself: write forwardOnly=false to have it keep messages")
        forwards = [_written(target, selector) for target, selector in targets]
        reading.append(table, {"name": each.name, "forward_to": forwards, **entry}, element)


def _read_targets(reading: Reading, element: XmlElement, *, targets: list[tuple[Destination, str | None]]) -> None:
    for each in beans_in(reading, element, "it is no destination"):
        selector: str | None = None
        if each.name == "filteredDestination":
            found, selector = _filtered(reading, each)
        else:
            found = destinations_of(reading, each)
        for target in found:
            if target.is_pattern or target.is_temporary:
                reading.findings.refuse(each, "a target is one queue or topic that stays")
            else:
                targets.append((target, selector))


def _filtered(reading: Reading, element: XmlElement) -> tuple[list[Destination], str | None]:
    """Return the destinations of a `filteredDestination`, and its selector; none if that is not valid."""
    found: list[Destination] = []
    given: dict[str, Any] = {}

    def read_destination(reading: Reading, element: XmlElement) -> None:
        for each in beans_in(reading, element, "it is no destination"):
            found.extend(destinations_of(reading, each))

    rules = {**FILTERED, **into(given, FILTERED_FIELDS), "destination": referred(read_destination)}
    read_attributes(reading, element, rules)
    read_properties(reading, element, {"destination": read_destination, "filter": refused_element(_FILTER)})
    named = [name for name in ("queue", "topic") if name in element.attributes]
    for name in named:
        found.extend(names(reading, element, name, KINDS[name]))
    if not found or len(named) > 1:
        reading.findings.refuse(element, "it must have one destination: write queue or topic")
    selector = given.get("selector")
    try:
        if selector is not None:
            reading.check_selector(selector)
    except ValueError as error:
        reading.findings.refuse(element, str(error), "selector")
        return [], None
    return found, selector


def _written(target: Destination, selector: str | None) -> object:
    if selector is None:
        return str(target)
    return {"queue" if target.is_queue else "topic": target.name, "selector": selector}
