"""Reads `plugins`.

Those that check logins and rights are read by `security_plugins`. A plugin that changes what happens to messages, and
that pybroker has nothing for, is refused.

Source: activemq-xml.md, section 8; ActiveMQ 5.17.2, with a file for each of these.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from pybroker.activemq_xml import destination_elements, security_plugins
from pybroker.activemq_xml.core_beans import beans_in
from pybroker.activemq_xml.elements import XmlElement
from pybroker.activemq_xml.entries import Fields, into
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
from pybroker.activemq_xml.redelivery_plugin import read as read_redelivery
from pybroker.activemq_xml.values import duration, flag
from pybroker.broker.domain.destination import Destination, parse
from pybroker.broker.domain.errors import InvalidDestination

_OWN_CLASS: Final = "a plugin of its own class is not run"
_ORDER: Final = "the order of plugins is that of the file"
_TRACE: Final = "log_level and watching are for that"

CHAIN: Final[Rules] = dict.fromkeys(("adminConnectionContext", "next"), ignored(_ORDER))
"""The attributes that a plugin has as a link of ActiveMQ's chain of brokers."""

CHAIN_PROPERTIES: Final[Mapping[str, Handler]] = dict.fromkeys(
    ("adminConnectionContext", "next"), ignored_element(_ORDER)
)


def _statistics(reading: Reading, element: XmlElement) -> None:
    reading.set("statistics", True, element)


# ---------------------------------------------------------------- time stamps


TIME_STAMPING: Final[Fields] = {
    "zeroExpirationOverride": duration,
    "ttlCeiling": duration,
    "futureOnly": flag,
    "processNetworkMessages": flag,
}


def _time_stamping(reading: Reading, element: XmlElement) -> None:
    entry: dict[str, Any] = {}
    read_attributes(reading, element, {**CHAIN, **into(entry, TIME_STAMPING)})
    read_properties(reading, element, CHAIN_PROPERTIES)
    reading.set("time_stamping", entry or True, element)


# ---------------------------------------------------------------- delivery mode


PERSISTENCY: Final[Fields] = {"persistenceFlag": flag}


def _persistency(reading: Reading, element: XmlElement) -> None:
    entry: dict[str, Any] = {"persistence_flag": False}  # ActiveMQ's default
    read_attributes(reading, element, into(entry, PERSISTENCY))
    mode = "persistent" if entry["persistence_flag"] else "non_persistent"
    reading.set("force_persistency_mode", mode, element)


# ---------------------------------------------------------------- dead letters


DISCARDING: Final[Fields] = {
    **dict.fromkeys(("dropAll", "dropTemporaryTopics", "dropTemporaryQueues"), flag),
    "dropOnly": str,
}
DISCARDING_OTHERS: Final[Rules] = {"reportInterval": ignored("how many were dropped is a counter")}


def _discarding(reading: Reading, element: XmlElement) -> None:
    entry: dict[str, Any] = {}
    read_attributes(reading, element, {**DISCARDING_OTHERS, **into(entry, DISCARDING)})
    drops_all = entry.get("drop_all", True)
    if not entry.get("drop_only", "").strip():
        entry.pop("drop_only", None)
    elif drops_all:
        del entry["drop_only"]
        reading.findings.ignore(element, "dropAll drops all, whatever else is set: it must be false", "dropOnly")
    reading.set("discarding_dead_letters", entry or True, element)
    whose = "all destinations" if drops_all else "some destinations"
    reading.findings.warn(element, f"dead letters of {whose} are dropped, as in ActiveMQ")


# ---------------------------------------------------------------- destinations


LOCATION: Final[Rules] = {**CHAIN, "location": silent}  # read by `_destinations`


def _destinations(reading: Reading, element: XmlElement, *, data_directory: Path) -> None:
    """Read the destinations that ActiveMQ has written into a file at its last end."""
    read_attributes(reading, element, LOCATION)
    read_properties(
        reading, element, {**CHAIN_PROPERTIES, "location": refused_element("write it as an attribute: a path")}
    )
    location = element.attributes.get("location")
    path = reading.file.directories.path(location) if location else data_directory / "destinations"
    try:
        text = reading.file.read_file(path).decode("utf-8")
    except FileNotFoundError:
        reading.findings.warn(element, f"there is no file {path}, and pybroker writes none: set destinations")
        return
    except (OSError, UnicodeDecodeError):
        reading.findings.refuse(element, f"the file {path} cannot be read")
        return
    found: list[Destination] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        try:
            found.append(parse(line))
        except InvalidDestination as error:
            reading.findings.refuse(element, f"{path}: {error}")
    destination_elements.add(reading, element, (each for each in found if not each.is_temporary))
    reading.findings.warn(element, f"destinations are read from {path}, and not written there at the end")


# ---------------------------------------------------------------- others


def _warned(why: str) -> Handler:
    def read(reading: Reading, element: XmlElement) -> None:
        reading.findings.warn(element, why)

    return read


def handlers(data_directory: Path) -> Mapping[str, Handler]:
    """Return the readers of plugins by the names of their elements.

    Args:
        data_directory: ActiveMQ's directory of the broker.
    """
    return {
        **security_plugins.HANDLERS,
        "statisticsBrokerPlugin": _statistics,
        "timeStampingBrokerPlugin": _time_stamping,
        "forcePersistencyModeBrokerPlugin": _persistency,
        "discardingDLQBrokerPlugin": _discarding,
        "redeliveryPlugin": read_redelivery,
        "destinationsPlugin": partial(_destinations, data_directory=data_directory),
        **dict.fromkeys(
            (
                *("loggingBrokerPlugin", "traceBrokerPathPlugin", "connectionDotFilePlugin"),
                *("destinationDotFilePlugin", "multicastTraceBrokerPlugin", "udpTraceBrokerPlugin"),
            ),
            ignored_element(_TRACE),
        ),
        "runtimeConfigurationPlugin": _warned("a changed file counts at the next start only"),
        "virtualSelectorCacheBrokerPlugin": _warned("selectors of queues without a consumer are not remembered"),
        "partitionBrokerPlugin": refused_element("clients are not sent to other brokers: all would stay here"),
        "destinationPathSeparatorPlugin": refused_element(
            "destinations have a dot between their levels: clients that write another would use other destinations"
        ),
    }


def read(reading: Reading, element: XmlElement, *, data_directory: Path) -> None:
    """Read the property `plugins` of the broker.

    Args:
        reading: gets the settings.
        element: the property.
        data_directory: ActiveMQ's directory of the broker.
    """
    known = handlers(data_directory)
    for each in beans_in(reading, element, _OWN_CLASS):
        handler = known.get(each.name)
        if handler is not None:
            handler(reading, each)
        elif not reading.findings.is_refused(each):  # the schema refuses a name that ActiveMQ does not have
            reading.findings.refuse(each, _OWN_CLASS)
