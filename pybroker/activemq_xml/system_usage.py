"""Reads `systemUsage`: the limits of memory and of the store.

Source: activemq-xml.md, section 7.
"""

from typing import Final

from pybroker.activemq_xml.elements import XmlElement
from pybroker.activemq_xml.reading import (
    Reading,
    Rules,
    ignored,
    ignored_element,
    read_attributes,
    read_properties,
    setting,
    silent,
    warned,
)
from pybroker.activemq_xml.values import duration, flag, size, whole

_DEFAULT_PERCENTAGE: Final = "70"
_TUNING: Final = "how ActiveMQ measures its usage"
_BY_REFERENCE: Final = "a reference to a bean of its own class is not followed"

_COMMON: Final[Rules] = {
    **dict.fromkeys(
        ("executor", "name", "parent", "percentUsageMinDelta", "pollingTime", "usagePortion", "portion", "limiter"),
        ignored(_TUNING),
    ),
    **dict.fromkeys(("usage", "percentUsage", "total", "store"), ignored("what is used is measured")),
}


def _memory_limit(reading: Reading, element: XmlElement, name: str) -> None:
    reading.set("memory_limit", size(element.attributes[name]), element, name)


def _memory_percentage(reading: Reading, element: XmlElement, name: str) -> None:
    if element.attributes[name].strip() == _DEFAULT_PERCENTAGE:
        reading.set("memory_limit", "0", element, name)
        reading.findings.warn(
            element,
            "it is 70 % of the machine's or control group's memory, not of a heap: set memory_limit if it is too much",
            name,
        )
    else:
        reading.findings.warn(
            element, "there is no heap: set memory_limit to a size; until then it is 70 % of the machine's memory", name
        )


def _store_limit(reading: Reading, element: XmlElement, name: str) -> None:
    reading.set("store_limit", size(element.attributes[name]), element, name)
    reading.findings.warn(
        element, "persistent messages are refused at the limit, where ActiveMQ has their producers wait", name
    )


def _fails_without_space(reading: Reading, element: XmlElement, name: str) -> None:
    reading.are_full_sends_refused = flag(element.attributes[name])


def _fails_after_a_time(reading: Reading, element: XmlElement, name: str) -> None:
    if whole(element.attributes[name]):
        reading.space_timeout = duration(element.attributes[name])


USAGE: Final[Rules] = {
    "sendFailIfNoSpace": _fails_without_space,
    "sendFailIfNoSpaceAfterTimeout": _fails_after_a_time,
    "sendFailIfNoSpaceExplicitySet": silent,
    "checkLimitsLogLevel": ignored("log_level is one for all"),
    **dict.fromkeys(("executor", "name", "parent"), ignored(_TUNING)),
    **dict.fromkeys(
        ("adapter", "jobSchedulerStore", "jobSchedulerUsage", "memoryUsage", "storeUsage", "tempStore", "tempUsage"),
        warned(_BY_REFERENCE),
    ),
}
TEMPORARY: Final[Rules] = {
    **_COMMON,
    "limit": setting("spool_limit", size),
    "percentLimit": warned("set spool_limit to a size"),
}
MEMORY: Final[Rules] = {**_COMMON, "limit": _memory_limit, "percentOfJvmHeap": _memory_percentage}
STORE: Final[Rules] = {
    **_COMMON,
    "limit": _store_limit,
    "percentLimit": warned("set store_limit to a size; until then the disk is the limit"),
}


def read(reading: Reading, element: XmlElement) -> None:
    """Read the property `systemUsage` of the broker; whether the store is in memory must be known before."""
    for each in element.children:
        read_attributes(reading, each, USAGE)
        read_properties(
            reading,
            each,
            {
                "memoryUsage": _read_memory,
                "storeUsage": _read_store,
                "tempUsage": _read_temporary,
                "jobSchedulerUsage": ignored_element("jobs_max is the limit of scheduled messages"),
                "parent": ignored_element(_TUNING),
                "executor": ignored_element(_TUNING),
            },
        )


def _read_memory(reading: Reading, element: XmlElement) -> None:
    for each in element.children:
        read_attributes(reading, each, MEMORY)


def _read_store(reading: Reading, element: XmlElement) -> None:
    if reading.is_in_memory:
        reading.findings.ignore(element, "there is no store")
        return
    for each in element.children:
        read_attributes(reading, each, STORE)


def _read_temporary(reading: Reading, element: XmlElement) -> None:
    for each in element.children:
        read_attributes(reading, each, TEMPORARY)
