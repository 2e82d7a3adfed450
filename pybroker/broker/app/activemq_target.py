"""The ActiveMQ that is to open a store: what each version reads, and the lines of its activemq.xml.

Source: ActiveMQ 5.17.2, tried. From 5.15.0 to 6.3.1 the sources have the same `journal-data.proto`, and the same
version of OpenWire in `CommandTypes`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from pybroker.broker.domain.errors import ConfigError

OPENWIRE_STORED: Final = 11
"""The version of OpenWire in which both brokers store messages; since 5.12 ActiveMQ's default."""

FRAME_BYTES: Final = 104_857_600
"""`wireFormat.maxFrameSize` in the file that ActiveMQ comes with; without the option there is no limit."""

JOURNAL_FILE_BYTES: Final = 32 << 20
"""`journalMaxFileLength` of ActiveMQ by default."""

_NAMESPACE: Final = "http://activemq.apache.org/schema/core"
_DATA_SOURCE: Final = "store-database"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveMQVersion:
    """A release line of ActiveMQ Classic.

    Attributes:
        name: as `5.17`.
        java: the oldest Java that runs it.
        tried: the release that has opened stores of pybroker in tests; empty: none has.
    """

    name: str
    java: int
    tried: str = ""


VERSIONS: Final[Mapping[str, ActiveMQVersion]] = {
    each.name: each
    for each in (
        ActiveMQVersion(name="5.15", java=8),
        ActiveMQVersion(name="5.16", java=8),
        ActiveMQVersion(name="5.17", java=11, tried="5.17.2"),
        ActiveMQVersion(name="5.18", java=11),
        ActiveMQVersion(name="5.19", java=11),
        ActiveMQVersion(name="6.0", java=17),
        ActiveMQVersion(name="6.1", java=17),
        ActiveMQVersion(name="6.2", java=17),
        ActiveMQVersion(name="6.3", java=17),
    )
}


def version(text: str) -> ActiveMQVersion:
    """Return a version; `5.17.2` is of the line 5.17.

    Raises:
        ConfigError: nothing is known of it.
    """
    known = VERSIONS.get(".".join(text.split(".")[:2]))
    if known is None:
        raise ConfigError(
            f"nothing is known of ActiveMQ {text}",
            setting="--activemq-version",
            hint=f"known are {', '.join(VERSIONS)}; take the nearest, and try it on a copy of the store",
        )
    return known


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerElement:
    """The values that the `broker` element of activemq.xml needs for a store.

    Attributes:
        broker_name: the broker's name to clients and bridges.
        scheduler: the directory of scheduled messages; None: there are none.
        journal: the directory of the journal; None for a store in a database.
        journal_attributes: further attributes of `kahaDB`.
        database: the database, `HOST:PORT/NAME`; None for a journal.
        has_lease: the members of a store in a database had a lease for their lock.
        lease_ms: the length of the lease, in milliseconds.
        is_prioritized: queues deliver by priority.
        queues: names of queues to create while they are empty.
        frame_bytes: the least limit of a frame; 0: that of ActiveMQ is enough.
    """

    broker_name: str
    scheduler: Path | None = None
    journal: Path | None = None
    journal_attributes: Mapping[str, str] = field(default_factory=dict[str, str])
    database: str | None = None
    has_lease: bool = False
    lease_ms: int = 0
    is_prioritized: bool = False
    queues: Sequence[str] = ()
    frame_bytes: int = 0


def xml_lines(element: BrokerElement) -> list[str]:
    """Return the lines: a `broker` element with what follows from a store, and the bean that it refers to.

    The operator's file has the rest: listeners, policies, users.
    """
    broker = Element("broker", {"xmlns": _NAMESPACE, "brokerName": element.broker_name})
    if element.scheduler is not None:
        broker.attrib |= {"schedulerSupport": "true", "schedulerDirectory": str(element.scheduler)}
    if element.is_prioritized:
        _nested(broker, "destinationPolicy", "policyMap", "policyEntries").append(
            Element("policyEntry", {"queue": ">", "prioritizedMessages": "true"})
        )
    if element.queues:
        _nested(broker, "destinations").extend(Element("queue", {"physicalName": name}) for name in element.queues)
    _nested(broker, "persistenceAdapter").append(_journal(element) if element.database is None else _database(element))
    if element.frame_bytes:
        uri = f"tcp://0.0.0.0:61616?wireFormat.maxFrameSize={element.frame_bytes}"
        _nested(broker, "transportConnectors").append(Element("transportConnector", {"name": "openwire", "uri": uri}))
    beans = [] if element.database is None else [_data_source(element.database)]
    return [line for each in (*beans, broker) for line in _text(each)]


def _nested(parent: Element, *names: str) -> Element:
    """Return the innermost of elements that are one within the other."""
    for name in names:
        parent = SubElement(parent, name)
    return parent


def _journal(element: BrokerElement) -> Element:
    return Element("kahaDB", {"directory": str(element.journal), **element.journal_attributes})


def _database(element: BrokerElement) -> Element:
    adapter = Element("jdbcPersistenceAdapter", {"dataSource": f"#{_DATA_SOURCE}"})
    if element.has_lease:
        adapter.attrib["lockKeepAlivePeriod"] = str(element.lease_ms // 2)
        attributes = {"lockAcquireSleepInterval": str(element.lease_ms)}
        _nested(adapter, "locker").append(Element("lease-database-locker", attributes))
    return adapter


def _data_source(database: str) -> Element:
    bean = Element("bean", {"id": _DATA_SOURCE, "class": "org.apache.commons.dbcp2.BasicDataSource"})
    bean.attrib["destroy-method"] = "close"
    values = {
        "driverClassName": "org.postgresql.Driver",
        "url": f"jdbc:postgresql://{database}",
        "username": "${database.user}",
        "password": "${database.password}",
    }
    bean.extend(Element("property", {"name": name, "value": value}) for name, value in values.items())
    return bean


def _text(element: Element) -> list[str]:
    indent(element)
    return tostring(element, encoding="unicode").splitlines()
