"""Reads `persistenceAdapter`: the store, in a directory by `kahaDB`, in a database by `database`, or in memory.

Source: activemq-xml.md, section 6; ActiveMQ's `KahaDBPersistenceAdapter`, and `BrokerService` for the store of a file
that has none.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from pybroker.activemq_xml import database
from pybroker.activemq_xml.elements import CORE, XmlElement
from pybroker.activemq_xml.reading import (
    FALSE,
    TRUE,
    Handler,
    Reading,
    Rule,
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
from pybroker.activemq_xml.references import given_beans
from pybroker.activemq_xml.values import duration, flag, size, whole
from pybroker.units import format_duration, format_size, parse_size

DEFAULT_NAME: Final = "localhost"
"""ActiveMQ's `brokerName` where the file has none."""
DATA_DIRECTORY: Final = "activemq-data"
"""ActiveMQ's `dataDirectory` where the file has none."""

JOURNAL: Final = "kahadb"
"""The default of `journal_directory`."""

_ITSELF: Final = "."  # `journal_directory` for the store's own directory
_NO_NAMES: Final = ("", "..", "scheduler", "members")  # names that `journal_directory` cannot be
_DEFAULT_DIRECTORY: Final = "KahaDB"
_ARCHIVE: Final = "data-archive"
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._:-]")
_INDEX: Final = "there is no index file: the index is in memory"
_TUNING: Final = "how ActiveMQ writes and cleans up inside"
_WAITING: Final = "the kernel wakes a standby when the lock is free"
_NO_LOCK: Final = "without a lock two masters could write one store: remove the attribute"
_WAY_OUT: Final = (
    "ActiveMQ 5.17 has no such store: export its messages with the broker that wrote them, and send them to a kahaDB"
)
_FILE_MAX: Final = "32mb"  # the default of journal_file_max
_BATCH_MAX: Final = "4mb"  # the default of journal_batch_max
_FILE_BYTES_MIN: Final = 1 << 20
_CLEANUP_MS_MIN: Final = 100
_CLEANUP_MS_MAX: Final = 86_400_000
_SYNC_MS_MIN: Final = 10
_SYNC_MS_MAX: Final = 3_600_000


def _within(least: int, most: int, given: int) -> int:
    return max(least, min(given, most))


def _limited_size(name: str, least: int, most: int) -> Rule:
    """Return the rule of a size that pybroker has within other limits."""

    def read(reading: Reading, element: XmlElement, attribute: str) -> None:
        given = parse_size(size(element.attributes[attribute]))
        used = _within(least, most, given)
        reading.set(name, format_size(used), element, attribute)
        if used != given:
            why = f"{name} is from {format_size(least)} to {format_size(most)}: it is {format_size(used)}"
            reading.findings.warn(element, why, attribute)

    return read


def _limited_time(name: str, least: int, most: int) -> Rule:
    """Return the rule of a time, whose limits are in milliseconds."""

    def read(reading: Reading, element: XmlElement, attribute: str) -> None:
        given = whole(element.attributes[attribute])
        used = _within(least, most, given)
        reading.set(name, duration(str(used)), element, attribute)
        if used != given:
            shown = [format_duration(each / 1000) for each in (least, most, used)]
            why = f"{name} is from {shown[0]} to {shown[1]}: it is {shown[2]}"
            reading.findings.warn(element, why, attribute)

    return read


def _cleanup(reading: Reading, element: XmlElement, name: str) -> None:
    if whole(element.attributes[name]) <= 0:
        reading.findings.warn(element, "journal files without live messages are always removed, or archived", name)
    else:
        _limited_time("cleanup_interval", _CLEANUP_MS_MIN, _CLEANUP_MS_MAX)(reading, element, name)


def _never_synced(reading: Reading, element: XmlElement, name: str) -> None:
    reading.set("sync", "never", element, name)
    reading.findings.warn(element, "a power failure loses messages that were confirmed: sync = always keeps them", name)


def _syncs(reading: Reading, element: XmlElement, name: str) -> None:
    if "journalDiskSyncStrategy" in element.attributes:
        reading.findings.ignore(element, "journalDiskSyncStrategy is there too", name)
    elif flag(element.attributes[name]):
        reading.set("sync", "always", element, name)
    else:
        _never_synced(reading, element, name)


def _sync_strategy(reading: Reading, element: XmlElement, name: str) -> None:
    strategy = element.attributes[name].strip().lower()
    if strategy not in ("always", "periodic", "never"):
        raise ValueError("it must be always, periodic or never")
    if strategy == "never":
        _never_synced(reading, element, name)
    else:
        reading.set("sync", strategy, element, name)


def _one_of(values: Mapping[str, bool]) -> Rule:
    """Return the rule of an attribute by which files get their length when they are made."""

    def read(reading: Reading, element: XmlElement, name: str) -> None:
        given = element.attributes[name].strip().lower()
        if given not in values:
            raise ValueError(f"it must be one of {', '.join(values)}")
        if not values[given]:
            reading.set("journal_preallocate", False, element, name)
        else:
            if "journal_preallocate" not in reading.settings:
                reading.set("journal_preallocate", True, element, name)
            reading.findings.ignore(element, "files get their full length when they are made", name)

    return read


def _purge_strategy(reading: Reading, element: XmlElement, name: str) -> None:
    strategy = element.attributes[name].strip().lower()
    if strategy not in ("never", "commit", "rollback"):
        raise ValueError("it must be never, commit or rollback")
    if strategy == "never":
        reading.findings.ignore(element, "this is what pybroker does", name)
    else:
        reading.findings.warn(element, "prepared transactions wait for their manager, or for an operator", name)


def _archive_directory(reading: Reading, element: XmlElement, name: str) -> None:
    if not flag(element.attributes.get("archiveDataLogs", "false")):
        reading.findings.ignore(element, "nothing is archived", name)
    elif _path(reading, element.attributes[name]) != _directory_of(reading, element) / _ARCHIVE:
        reading.findings.warn(element, f"files are archived in the directory {_ARCHIVE} in that of the journal", name)


def _path(reading: Reading, name: str) -> Path:
    return reading.file.directories.path(name)


KAHADB: Final[Rules] = {
    "directory": silent,
    "locker": silent,
    "lockKeepAlivePeriod": silent,
    "useLock": refused(_NO_LOCK, unless=TRUE),
    "journalMaxFileLength": _limited_size("journal_file_max", _FILE_BYTES_MIN, 1 << 30),
    "journalMaxWriteBatchSize": _limited_size("journal_batch_max", 64 << 10, 64 << 20),
    "enableJournalDiskSyncs": _syncs,
    "journalDiskSyncStrategy": _sync_strategy,
    "journalDiskSyncInterval": _limited_time("sync_interval", _SYNC_MS_MIN, _SYNC_MS_MAX),
    "preallocationStrategy": _one_of(
        dict.fromkeys(("sparse_file", "os_kernel_copy", "zeros", "chunked_zeros"), True),
    ),
    "preallocationScope": _one_of({"entire_journal": True, "entire_journal_async": True, "none": False}),
    "archiveDataLogs": setting("archive", flag),
    "directoryArchive": _archive_directory,
    "cleanupInterval": _cleanup,
    "ignoreMissingJournalfiles": refused(
        "it hides that messages are lost: see `pybroker journal check` and `pybroker journal salvage`", unless=FALSE
    ),
    "purgeRecoveredXATransactionStrategy": _purge_strategy,
    "transactionIdTransformer": warned("a bean of its own class is not run"),
    **dict.fromkeys(
        (
            *("archiveCorruptedIndex", "enableIndexDiskSyncs", "enableIndexPageCaching", "enableIndexRecoveryFile"),
            *("enableIndexWriteAsync", "forceRecoverIndex", "indexCacheSize", "indexDirectory"),
            *("indexLFUEvictionFactor", "indexWriteBatchSize", "useIndexLFRUEviction"),
        ),
        ignored(_INDEX),
    ),
    **dict.fromkeys(
        (
            *("brokerName", "brokerService", "checkpointInterval", "cleanupOnStop", "compactAcksAfterNoGC"),
            *("compactAcksIgnoresStoreGrowth", "concurrentStoreAndDispatchQueues", "concurrentStoreAndDispatchTopics"),
            *("databaseLockedWaitDelay", "enableAckCompaction", "enableSubscriptionStatistics"),
            *("failoverProducersAuditDepth", "maxAsyncJobs", "maxFailoverProducersToTrack"),
            *("scheduledThreadPoolExecutor", "stopOnError", "usageManager"),
        ),
        ignored(_TUNING),
    ),
    **dict.fromkeys(
        ("checkForCorruptJournalFiles", "checksumJournalFiles"),
        ignored("batches always have checksums, and are checked"),
    ),
}

KAHADB_PROPERTIES: Final[Mapping[str, Handler]] = {
    "locker": silent_element,
    "directory": refused_element("write the directory as an attribute of kahaDB"),
    "transactionIdTransformer": refused_element("a bean of its own class is not run"),
    **dict.fromkeys(("directoryArchive", "indexDirectory"), ignored_element(_TUNING)),
    **dict.fromkeys(("brokerService", "scheduledThreadPoolExecutor", "usageManager"), ignored_element(_TUNING)),
}


def _lock_directory(reading: Reading, element: XmlElement, name: str) -> None:
    journal = Path(reading.settings["store"]) / reading.settings.get("journal_directory", JOURNAL)
    if _path(reading, element.attributes[name]) == journal:
        reading.findings.ignore(element, "this is what pybroker does", name)
    else:
        reading.findings.warn(element, "the lock is in the journal's directory: an ActiveMQ is not kept out", name)


FILE_LOCKER: Final[Rules] = {
    "lockAcquireSleepInterval": ignored(_WAITING),
    "failIfLocked": warned("a member waits for the lock, and does not end", unless=FALSE),
    "directory": _lock_directory,
    "name": ignored(_TUNING),
    "lockable": ignored(_TUNING),
}

FILE_LOCKER_PROPERTIES: Final[Mapping[str, Handler]] = {
    "directory": refused_element("write the directory as an attribute of shared-file-locker"),
    "lockable": ignored_element(_TUNING),
}

MEMORY: Final[Rules] = dict.fromkeys(
    ("brokerName", "createTransactionStore", "directory", "usageManager", "useExternalMessageReferences"),
    ignored("nothing is stored"),
)


MEMORY_PROPERTIES: Final[Mapping[str, Handler]] = dict.fromkeys(
    ("directory", "usageManager"), ignored_element("nothing is stored")
)


def broker_name(reading: Reading) -> str:
    """Return the broker's name as ActiveMQ has it, which replaces what cannot be in a name."""
    return _NOT_IN_NAMES.sub("_", reading.file.broker.attributes.get("brokerName", DEFAULT_NAME))


def data_directory(reading: Reading) -> Path:
    """Return ActiveMQ's directory of the broker: `<dataDirectory>/<brokerName>`."""
    name = reading.file.broker.attributes.get("dataDirectory", DATA_DIRECTORY)
    return reading.file.directories.path(name) / broker_name(reading)


def is_in_memory(reading: Reading) -> bool:
    """Return True if the store is memory: the broker is not persistent, or its adapter stores nothing."""
    broker = reading.file.broker
    if broker.attributes.get("persistent", "true").strip() in FALSE:
        return True
    return any(_is(each, "memoryPersistenceAdapter") for each in given_beans(reading, broker, "persistenceAdapter"))


def read(reading: Reading) -> None:
    """Read the store of the broker, whether it has an adapter or not."""
    broker = reading.file.broker
    adapters = given_beans(reading, broker, "persistenceAdapter")
    is_unknown = not adapters and "persistenceAdapter" in broker.attributes
    factories = [each for each in broker.children if each.namespace == CORE and each.name == "persistenceFactory"]
    if broker.attributes.get("persistent", "true").strip() in FALSE:
        reading.set("store", "memory:", broker, "persistent")
        for each in (*adapters, *factories):
            reading.findings.ignore(each, 'the broker has persistent="false"')
        return
    for each in factories:
        reading.findings.refuse(
            each, "a journal in front of a database is not read: use kahaDB or jdbcPersistenceAdapter"
        )
    for each in adapters[1:]:
        reading.findings.refuse(each, "a broker has one store")
    if adapters:
        _read_adapter(reading, adapters[0])
    elif any(_is(each, "persistenceAdapter") for each in broker.children):
        reading.findings.refuse(broker, "it is empty, with which ActiveMQ does not start", at="persistenceAdapter")
    elif is_unknown:
        reading.findings.refuse(broker, "it is not the name of a bean that can be read", "persistenceAdapter")
    elif not factories and "persistenceFactory" not in broker.attributes:
        _set_directory(reading, data_directory(reading) / _DEFAULT_DIRECTORY, broker)
        reading.set("lock", "file", broker)


def _is(element: XmlElement, name: str) -> bool:
    return element.name == name and element.namespace == CORE


def _read_adapter(reading: Reading, element: XmlElement) -> None:
    reader = _ADAPTERS.get(element.name) if element.namespace == CORE else None
    if reader is None:
        reading.findings.refuse(
            element, "a store of its own class is not opened: write kahaDB or jdbcPersistenceAdapter"
        )
    else:
        reader(reading, element)


def _read_kahadb(reading: Reading, element: XmlElement) -> None:
    if not element.attributes.get("directory", _DEFAULT_DIRECTORY).strip():
        reading.findings.refuse(element, "it is empty, with which ActiveMQ does not start", "directory")
    _set_directory(reading, _directory_of(reading, element), element, "directory")
    read_attributes(reading, element, KAHADB)
    read_properties(reading, element, KAHADB_PROPERTIES)
    _fit_batch(reading, element)
    _read_lock(reading, element)


def _directory_of(reading: Reading, element: XmlElement) -> Path:
    return _path(reading, element.attributes.get("directory", _DEFAULT_DIRECTORY))


def _set_directory(reading: Reading, journal: Path, element: XmlElement, attribute: str = "") -> None:
    """Set the directories of a store whose journal is in a directory; the default's name is left out."""
    is_named = journal.name not in _NO_NAMES
    reading.set("store", str(journal.parent if is_named else journal), element, attribute)
    name = journal.name if is_named else _ITSELF
    if name != JOURNAL:
        reading.set("journal_directory", name, element, attribute)


def _fit_batch(reading: Reading, element: XmlElement) -> None:
    """Have no batch longer than a file."""
    file_max = parse_size(reading.settings.get("journal_file_max", _FILE_MAX))
    if parse_size(reading.settings.get("journal_batch_max", _BATCH_MAX)) > file_max:
        reading.set("journal_batch_max", format_size(file_max), element, "journalMaxFileLength")
        reading.findings.warn(element, "journal_batch_max is as large as a file", "journalMaxFileLength")


def fit_limit(reading: Reading) -> None:
    """Reduce the length of journal files to half of a small store limit, since whole files are removed."""
    limit = parse_size(reading.settings.get("store_limit", "0"))
    file_max = parse_size(reading.settings.get("journal_file_max", _FILE_MAX))
    if not limit or limit >= 2 * file_max:
        return
    element, at = reading.file.broker, reading.origins["store_limit"].at
    if limit < 2 * _FILE_BYTES_MIN:
        why = f"store_limit is {format_size(2 * _FILE_BYTES_MIN)} or more, since journal files are removed as a whole"
        reading.findings.refuse(element, why, at=at)
        del reading.settings["store_limit"]
        return
    for name, default in (("journal_file_max", _FILE_MAX), ("journal_batch_max", _BATCH_MAX)):
        if parse_size(reading.settings.get(name, default)) > limit // 2:
            reading.set(name, format_size(limit // 2), element, at=at)
    why = f"the store has room for two journal files: journal_file_max is {format_size(limit // 2)}"
    reading.findings.warn(element, why, at=at)


def _read_lock(reading: Reading, element: XmlElement) -> None:
    """Read the locker of a journal: a file in its directory, unless it is a lock in a database."""
    lockers = given_beans(reading, element, "locker")
    if not lockers and "locker" in element.attributes:
        reading.findings.refuse(element, "it is not the name of a locker that can be read", "locker")
        return
    if not lockers or _is(lockers[0], "shared-file-locker"):
        reading.set("lock", "file", *((lockers[0],) if lockers else (element,)))
        if "lockKeepAlivePeriod" in element.attributes:
            reading.findings.ignore(element, "the lock is checked every lock_check", "lockKeepAlivePeriod")
        for each in lockers[:1]:
            read_attributes(reading, each, FILE_LOCKER)
            read_properties(reading, each, FILE_LOCKER_PROPERTIES)
    else:
        database.read_locker_of_journal(reading, lockers[0], element)


def _read_memory(reading: Reading, element: XmlElement) -> None:
    reading.set("store", "memory:", element)
    read_attributes(reading, element, MEMORY)
    read_properties(reading, element, MEMORY_PROPERTIES)


def _refused(why: str) -> Callable[[Reading, XmlElement], None]:
    return lambda reading, element: reading.findings.refuse(element, why)


_ADAPTERS: Final[Mapping[str, Handler]] = {
    "kahaDB": _read_kahadb,
    "jdbcPersistenceAdapter": database.read,
    "memoryPersistenceAdapter": _read_memory,
    "mKahaDB": _refused(
        "several journals are not served: send all messages to a broker with one kahaDB, or run a broker for each"
    ),
    "journalPersistenceAdapter": _refused(
        "a journal in front of a database is not read: let ActiveMQ empty it into the database, and name that by "
        "jdbcPersistenceAdapter"
    ),
    "journaledJDBC": _refused(
        "a journal in front of a database is not read: name the database by jdbcPersistenceAdapter"
    ),
    **dict.fromkeys(
        ("amqPersistenceAdapter", "kahaPersistenceAdapter", "levelDB", "replicatedLevelDB"), _refused(_WAY_OUT)
    ),
}
