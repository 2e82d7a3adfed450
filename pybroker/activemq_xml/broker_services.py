"""Reads the sections of the broker for what runs beside the handling of messages: services, handlers of errors.

Source: activemq-xml.md, section 8; ActiveMQ 5.17's `BrokerService`.
"""

from collections.abc import Mapping
from typing import Final

from pybroker.activemq_xml.elements import CORE, XmlElement
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
    warned,
)

_OWN_RULE: Final = "a store that fails ends the master, and another member takes over"

IO_EXCEPTION_HANDLER: Final[Rules] = {
    "ignoreAllErrors": warned(_OWN_RULE, unless=FALSE),
    **dict.fromkeys(
        (
            *("brokerService", "ignoreNoSpaceErrors", "ignoreSQLExceptions", "noSpaceMessage"),
            *("resumeCheckSleepPeriod", "sqlExceptionMessage", "stopStartConnectors", "systemExitOnShutdown"),
        ),
        ignored(_OWN_RULE),
    ),
}


def _read_io_exception_handler(reading: Reading, element: XmlElement) -> None:
    for each in element.children:
        if each.namespace == CORE:
            reading.findings.ignore(each, _OWN_RULE)
            read_attributes(reading, each, IO_EXCEPTION_HANDLER)
            read_properties(reading, each, {"brokerService": ignored_element(_OWN_RULE)})
        else:
            reading.findings.warn(each, _OWN_RULE, at=f"{element.name}/{each.name}")


HANDLERS: Final[Mapping[str, Handler]] = {
    "ioExceptionHandler": _read_io_exception_handler,
    "messageAuthorizationPolicy": refused_element(
        "a policy of its own class is not run: messages would not be protected"
    ),
    "services": refused_element("services within the broker are not run"),
    "regionBroker": refused_element("a broker of its own class is not run"),
    "transportConnectorURIs": refused_element("write transportConnectors"),
    "tempDataStore": ignored_element("spool_directory is the place of what is not in a store"),
}
"""The readers of these sections by name."""
