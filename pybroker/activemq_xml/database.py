"""Reads `jdbcPersistenceAdapter`: a store in a database, and the lockers in one.

Source: activemq-xml.md, section 6; ActiveMQ's `JDBCPersistenceAdapter`, `DatabaseLocker` and `LeaseDatabaseLocker`.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from pybroker.activemq_xml import data_source, references
from pybroker.activemq_xml.data_source import DataSource
from pybroker.activemq_xml.elements import CORE, XmlElement
from pybroker.activemq_xml.findings import Findings
from pybroker.activemq_xml.reading import (
    FALSE,
    TRUE,
    Handler,
    Reading,
    Rules,
    ignored,
    ignored_element,
    read_attributes,
    read_properties,
    refused,
    refused_element,
    setting,
    silent,
    silent_element,
    warned,
)
from pybroker.activemq_xml.values import duration, flag, is_member_name, whole

_INTERNAL: Final = "how ActiveMQ runs inside"
_LEASE_MS: Final = 10_000
"""ActiveMQ's default of a lease."""
_LEASE_MS_MIN: Final = 1_000
_LEASE_MS_MAX: Final = 3_600_000
_NO_LOCK: Final = "without a lock two masters could write one store: remove the attribute"
_TABLES: Final = "tables have ActiveMQ's own names and columns: pybroker does not use others"
_BY_REFERENCE: Final = "it is not the name of a bean that can be read"
_NO_DATA_SOURCE: Final = f"without a data source the store is in an embedded Derby. {data_source.OTHER_DATABASE}"
_ONE_NAME: Final = (
    "the lease is held in this name, and two ActiveMQs of one name would both be master: the names on the two "
    'machines must differ, as with leaseHolderId or brokerName="${HOSTNAME}"; so must those of members (--name)'
)
_FAILS: Final = "a member waits for the lock, and does not end"
_LOCK_SETTINGS: Final = ("lock", "lock_lease", "lock_renew", "create_tables")

ADAPTER: Final[Rules] = {
    **dict.fromkeys(
        ("adapter", "dataSource", "ds", "lockDataSource", "locker", "databaseLocker", "statements"), silent
    ),
    "lockKeepAlivePeriod": silent,
    "lockAcquireSleepInterval": silent,
    "createTablesOnStartup": setting("create_tables", flag),
    "useDatabaseLock": refused(_NO_LOCK, unless=TRUE),
    "useLock": refused(_NO_LOCK, unless=TRUE),
    "useExternalMessageReferences": refused("messages must be in the table itself", unless=FALSE),
    "wireFormat": refused("messages that a bean of its own class has written are not read"),
    "cleanupPeriod": ignored("rows go as soon as they are acknowledged"),
    "transactionIsolation": ignored("the isolation of transactions is fixed"),
    **dict.fromkeys(("networkTimeout", "queryTimeout"), ignored("time-outs are fixed")),
    **dict.fromkeys(("dataDirectory", "dataDirectoryFile", "directory"), ignored("the store is in the database alone")),
    **dict.fromkeys(
        (
            *("auditRecoveryDepth", "brokerName", "brokerService", "changeAutoCommitAllowed", "enableAudit"),
            *("maxAuditDepth", "maxProducersToAudit", "maxRows", "scheduledThreadPoolExecutor", "stopOnError"),
            "usageManager",
        ),
        ignored(_INTERNAL),
    ),
}

ADAPTER_PROPERTIES: Final[Mapping[str, Handler]] = {
    **dict.fromkeys(
        ("adapter", "dataSource", "ds", "lockDataSource", "locker", "databaseLocker", "statements"), silent_element
    ),
    "wireFormat": refused_element("messages that a bean of its own class has written are not read"),
    **dict.fromkeys(
        ("brokerService", "dataDirectoryFile", "directory", "scheduledThreadPoolExecutor", "usageManager"),
        ignored_element(_INTERNAL),
    ),
}

JDBC_ADAPTER: Final[Rules] = {
    "statements": silent,
    "useExternalMessageReferences": refused("messages must be in the table itself", unless=FALSE),
    **dict.fromkeys(("acksPkName", "batchStatements", "batchStatments", "maxRows"), ignored(_INTERNAL)),
}
"""The rules of `postgresql-jdbc-adapter`."""

_LOCKER: Final[Rules] = {
    **dict.fromkeys(("dataSource", "statements"), silent),
    "failIfLocked": warned(_FAILS, unless=FALSE),
    "createTablesOnStartup": ignored("create_tables is for all tables"),
    "queryTimeout": ignored("time-outs are fixed"),
    **dict.fromkeys(("lockable", "name"), ignored(_INTERNAL)),
}

ROW_LOCKER: Final[Rules] = {
    **_LOCKER,
    "lockAcquireSleepInterval": ignored("the database wakes a standby when the lock is free"),
    "exceptionHandler": warned("a bean of its own class is not run"),
}


def _holder(reading: Reading, element: XmlElement, name: str) -> None:
    holder = element.attributes[name].strip()
    if is_member_name(holder):
        reading.set("name", holder, element, name)
    else:
        reading.findings.warn(
            element, "it cannot be a member's name, which has letters, digits, `.`, `_` and `-`: set name", name
        )


LEASE_LOCKER: Final[Rules] = {
    **_LOCKER,
    "lockAcquireSleepInterval": silent,
    "leaseHolderId": _holder,
    "maxAllowableDiffFromDBTime": ignored("the database's clock counts, and no member's"),
    "handleStartException": ignored(_INTERNAL),
}

LOCKER_PROPERTIES: Final[Mapping[str, Handler]] = {
    **dict.fromkeys(("dataSource", "statements"), silent_element),
    "exceptionHandler": refused_element("a bean of its own class is not run"),
    "lockable": ignored_element(_INTERNAL),
}
"""The properties of both lockers."""

STATEMENTS: Final[Rules] = {
    "useLockCreateWhereClause": ignored(_INTERNAL),
    "useExternalMessageReferences": refused("messages must be in the table itself", unless=FALSE),
    "tablePrefix": refused(_TABLES, unless=("",)),
}
"""The rules of `statements`; all others are refused."""


def read(reading: Reading, element: XmlElement) -> None:
    """Read `jdbcPersistenceAdapter`."""
    read_attributes(reading, element, ADAPTER)
    read_properties(reading, element, ADAPTER_PROPERTIES)
    _read_adapters(reading, element)
    _read_statements(reading, element)
    name = "ds" if "ds" in element.attributes else "dataSource"
    source = _source(reading, element, name)
    if source is None and name not in element.attributes and not references.given_beans(reading, element, name):
        reading.findings.refuse(element, _NO_DATA_SOURCE)
    if source is not None:
        reading.set("store", source.url, element, name)
    lockers = references.given_beans(reading, element, "locker")
    lockers += references.given_beans(reading, element, "databaseLocker")
    for attribute in ("locker", "databaseLocker"):
        if attribute in element.attributes and references.referred(reading, element, attribute) is None:
            reading.findings.refuse(element, _BY_REFERENCE, attribute)
    if lockers and lockers[0].name == "shared-file-locker":
        reading.findings.refuse(lockers[0], "a lock in a directory does not guard a database from those who lock there")
    elif lockers:
        _read_locker(reading, lockers[0], element)
        _compare(reading, lockers[0], "dataSource", source)
    else:
        reading.set("lock", "postgres-row", element)
        _ignore_times(reading, element)
    _compare(reading, element, "lockDataSource", source)
    if source is None:  # then there is no database for them
        for each in _LOCK_SETTINGS:
            reading.settings.pop(each, None)
            reading.origins.pop(each, None)


def read_locker_of_journal(reading: Reading, locker: XmlElement, adapter: XmlElement) -> None:
    """Read a locker in a database that guards a journal in a directory."""
    if locker.name not in ("database-locker", "lease-database-locker", "transact-database-locker"):
        reading.findings.refuse(locker, "a locker of its own class is not run")
        return
    source = _source(reading, locker, "dataSource")
    if source is None:
        if "dataSource" not in locker.attributes:
            reading.findings.refuse(locker, "it has no data source")
        return
    reading.set("lock_url", source.url, locker, "dataSource")
    _read_locker(reading, locker, adapter)


def with_password(settings: Mapping[str, Any], password: str) -> dict[str, Any]:
    """Return settings with a password in the URL of the database, to be kept in memory alone."""
    found = dict(settings)
    for name in ("store", "lock_url"):
        scheme, separator, rest = str(found.get(name, "")).partition("://")
        if separator:
            user, _, place = rest.rpartition("@")
            found[name] = f"{scheme}://{user}:{quote(password, safe='')}@{place}"
    return found


def _source(reading: Reading, element: XmlElement, name: str) -> DataSource | None:
    """Return the data source of an element; None if it has none that can be used, which is a finding."""
    beans = references.given_beans(reading, element, name)
    if not beans:
        if name in element.attributes:
            reading.findings.refuse(element, _BY_REFERENCE, name)
        return None
    source = data_source.read(reading, beans[0])
    if source is not None and source.password:
        reading.secrets[data_source.PASSWORD] = source.password
    return source


def _compare(reading: Reading, element: XmlElement, name: str, store: DataSource | None) -> None:
    """Compare the database of a lock with the store's, which has the lock here."""
    beans = references.given_beans(reading, element, name)
    if not beans:
        return
    other = data_source.read(Reading(reading.file, Findings()), beans[0])
    if other is None or store is None or other.url != store.url:
        reading.findings.warn(element, "the lock is in the store's database: an ActiveMQ is not kept out", name)
    else:
        reading.findings.ignore(element, "the lock is in the store's database", name)


def _read_adapters(reading: Reading, element: XmlElement) -> None:
    for each in references.given_beans(reading, element, "adapter"):
        if each.name == "postgresql-jdbc-adapter" and each.namespace == CORE:
            reading.findings.ignore(each, "PostgreSQL is implied")
            read_attributes(reading, each, JDBC_ADAPTER)
            _read_statements(reading, each)
        else:
            reading.findings.refuse(each, "the tables are those that postgresql-jdbc-adapter makes")
    if "adapter" in element.attributes and references.referred(reading, element, "adapter") is None:
        reading.findings.refuse(element, _BY_REFERENCE, "adapter")


def _read_statements(reading: Reading, element: XmlElement) -> None:
    for each in references.given_beans(reading, element, "statements"):
        if each.name == "statements" and each.namespace == CORE:
            rules = dict.fromkeys(each.attributes, refused(_TABLES)) | dict(STATEMENTS)
            read_attributes(reading, each, rules)
            for held in each.children:
                reading.findings.refuse(held, _TABLES)
        else:
            reading.findings.refuse(each, _TABLES)
    if "statements" in element.attributes and references.referred(reading, element, "statements") is None:
        reading.findings.refuse(element, _BY_REFERENCE, "statements")


def _ignore_times(reading: Reading, adapter: XmlElement) -> None:
    """Ignore the times of a lock that is held as long as its session."""
    times = {
        "lockKeepAlivePeriod": "the lock is confirmed every lock_renew",
        "lockAcquireSleepInterval": "the database wakes a standby when the lock is free",
    }
    for name, why in times.items():
        if name in adapter.attributes:
            reading.findings.ignore(adapter, why, name)


def _read_locker(reading: Reading, locker: XmlElement, adapter: XmlElement) -> None:
    """Read the locker of an adapter, which has the time between renewals."""
    if locker.namespace == CORE and locker.name == "lease-database-locker":
        _read_lease(reading, locker, adapter)
    elif locker.namespace == CORE and locker.name == "database-locker":
        reading.set("lock", "postgres-row", locker)
        read_attributes(reading, locker, ROW_LOCKER)
        _ignore_times(reading, adapter)
    else:
        reading.findings.refuse(locker, "it is not for PostgreSQL: use database-locker or lease-database-locker")
        return
    read_properties(reading, locker, LOCKER_PROPERTIES)
    _read_statements(reading, locker)


def _read_lease(reading: Reading, locker: XmlElement, adapter: XmlElement) -> None:
    reading.set("lock", "postgres-lease", locker)
    read_attributes(reading, locker, LEASE_LOCKER)
    reading.findings.warn(
        locker, "a standby asks for the lease every lock_poll, 250ms by default, which is more often than ActiveMQ does"
    )
    broker = reading.file.broker
    if "leaseHolderId" not in locker.attributes and not reading.file.may_differ(broker, "brokerName"):
        reading.findings.warn(broker, _ONE_NAME, "brokerName")
    given = [each for each in (locker, adapter) if "lockAcquireSleepInterval" in each.attributes]
    for each in given[1:]:
        reading.findings.ignore(each, "that of the locker counts", "lockAcquireSleepInterval")
    lease = _milliseconds(reading, given[0], "lockAcquireSleepInterval") if given else _LEASE_MS
    if lease is None:
        return
    used = max(_LEASE_MS_MIN, min(lease, _LEASE_MS_MAX))
    place = (given[0], "lockAcquireSleepInterval") if given else (locker, "")
    reading.set("lock_lease", duration(str(used)), *place)
    if used != lease:
        reading.findings.warn(place[0], f"a lease is from 1s to 1h: it is {duration(str(used))}", place[1])
    _read_renewal(reading, adapter, used)


def _read_renewal(reading: Reading, adapter: XmlElement, lease: int) -> None:
    if "lockKeepAlivePeriod" not in adapter.attributes:
        return
    renewal = _milliseconds(reading, adapter, "lockKeepAlivePeriod")
    if renewal is None:
        return
    if 0 < renewal <= lease // 2:
        reading.set("lock_renew", duration(str(renewal)), adapter, "lockKeepAlivePeriod")
    else:
        reading.findings.warn(
            adapter,
            "a lease must be renewed twice in its length at least: it is renewed every third",
            "lockKeepAlivePeriod",
        )


def _milliseconds(reading: Reading, element: XmlElement, name: str) -> int | None:
    try:
        return whole(element.attributes[name])
    except ValueError as error:
        reading.findings.refuse(element, f"{name}: {error}", name)
        return None
