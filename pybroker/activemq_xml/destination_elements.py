"""Reads the elements `queue`, `topic`, `tempQueue` and `tempTopic`, and `destinations`, which has those from the start.

Source: activemq-xml.md, section 5; ActiveMQ 5.17.2, with a file for each of these.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from pybroker.activemq_xml.core_beans import beans_in
from pybroker.activemq_xml.elements import XmlElement
from pybroker.activemq_xml.reading import (
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
from pybroker.broker.domain.destination import Destination, DestinationType, is_advisory, parts
from pybroker.broker.domain.errors import InvalidDestination

KINDS: Final[Mapping[str, DestinationType]] = {
    "queue": DestinationType.QUEUE,
    "topic": DestinationType.TOPIC,
    "tempQueue": DestinationType.TEMP_QUEUE,
    "tempTopic": DestinationType.TEMP_TOPIC,
}
"""The elements that are destinations."""

_OF_CONNECTION: Final = "a temporary destination belongs to the connection that makes it"
_OPTIONS: Final = "options of destinations are for consumers"

ATTRIBUTES: Final[Rules] = {
    "physicalName": silent,  # read by `destinations_of`
    "name": ignored("physicalName is the name of a destination"),
    "DLQ": ignored("a dead letter queue is known by the strategies that name it"),
    "properties": ignored(_OPTIONS),
    **dict.fromkeys(("connection", "connectionId", "sequenceId"), ignored(_OF_CONNECTION)),
}
PROPERTIES: Final[Mapping[str, Handler]] = {
    "properties": ignored_element(_OPTIONS),
    "connection": ignored_element(_OF_CONNECTION),
    "compositeDestinations": refused_element("write the names into physicalName, with commas"),
}


def destinations_of(reading: Reading, element: XmlElement) -> list[Destination]:
    """Return the destinations that an element stands for: several if its name has commas.

    An element that is no destination, or has no name, stands for none, which is a finding.
    """
    if element.name not in KINDS:
        reading.findings.refuse(element, "it is no destination")
        return []
    read_attributes(reading, element, ATTRIBUTES)
    read_properties(reading, element, PROPERTIES)
    if "physicalName" not in element.attributes:
        reading.findings.refuse(element, "it has no physicalName: ActiveMQ does not start with it")
        return []
    return names(reading, element, "physicalName", KINDS[element.name])


def names(reading: Reading, element: XmlElement, attribute: str, kind: DestinationType) -> list[Destination]:
    """Return the destinations that an attribute names, with commas between them, without options behind a `?`."""
    name = element.attributes[attribute].partition("?")[0].strip()
    try:
        if not name:
            raise InvalidDestination("the destination's name is empty: write one, such as ORDERS")
        return [*parts(Destination(kind, name))]
    except InvalidDestination as error:
        reading.findings.refuse(element, str(error), attribute)
        return []


def read(reading: Reading, element: XmlElement) -> None:
    """Read the property `destinations` of the broker."""
    for each in beans_in(reading, element, "it is no destination"):
        for destination in destinations_of(reading, each):
            if destination.is_temporary:
                reading.findings.warn(each, _OF_CONNECTION)
            elif destination.is_pattern:
                reading.findings.warn(each, "a pattern is no destination: name those that match it")
            else:
                add(reading, each, (destination,))


def add(reading: Reading, element: XmlElement, destinations: Iterable[Destination]) -> None:
    """Have destinations exist from the start; the broker's own advisory topics do anyway."""
    known = reading.settings.get("destinations", ())
    for each in dict.fromkeys(map(str, (one for one in destinations if not is_advisory(one)))):
        if each not in known:
            reading.append("destinations", each, element)
