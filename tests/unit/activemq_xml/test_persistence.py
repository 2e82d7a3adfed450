"""The store of an `activemq.xml`: kahaDB, its lock, and stores that are not opened."""

from pathlib import Path

import pytest

from pybroker.activemq_xml import persistence, schema
from pybroker.activemq_xml.elements import BEANS
from pybroker.activemq_xml.findings import FindingKind
from pybroker.activemq_xml.reading import Handler, Rules
from pybroker.activemq_xml.store_directories import check
from pybroker.broker.app.config import Config
from pybroker.store.directories import JOURNAL, differing_in_case, has_data_files, is_journal_name
from tests.unit.activemq_xml.reading_bench import distinct_places, read, why_at

REFUSED, WARNING, IGNORED = FindingKind.REFUSED, FindingKind.WARNING, FindingKind.IGNORED


def adapter(element: str) -> str:
    return f"<persistenceAdapter>{element}</persistenceAdapter>"


@pytest.mark.parametrize(
    ("directory", "store", "name"),
    [
        ("/mnt/amq/kahadb", "/mnt/amq", None),
        ("/mnt/amq/kahadb/", "/mnt/amq", None),
        ("file:/mnt/amq/KahaDB", "/mnt/amq", "KahaDB"),
        ("file:///mnt/amq/db", "/mnt/amq", "db"),
        ("${activemq.data}/kahadb", "/opt/amq/data", None),
        ("data/../other/kahadb", "/opt/amq/data/../other", None),
        ("db", "/opt/amq", "db"),
        ("/mnt/amq/..", "/mnt/amq/..", "."),
        ("/", "/", "."),
        ("/mnt/scheduler", "/mnt/scheduler", "."),
        ("/mnt/members", "/mnt/members", "."),
    ],
)
def test_directory_becomes_store_and_journal(directory: str, store: str, name: str | None) -> None:
    settings = read(adapter(f'<kahaDB directory="{directory}"/>')).settings
    assert (settings["store"], settings.get("journal_directory"), settings["lock"]) == (store, name, "file")


def test_kahadb_without_directory_is_in_the_base() -> None:
    settings = read(adapter("<kahaDB/>")).settings
    assert (settings["store"], settings["journal_directory"]) == ("/opt/amq", "KahaDB")


@pytest.mark.parametrize(
    ("attributes", "store"),
    [
        ("", "/opt/amq/activemq-data/localhost"),
        ('dataDirectory="/mnt/amq" brokerName="a b"', "/mnt/amq/a_b"),
        ('dataDirectory="${activemq.data}"', "/opt/amq/data/localhost"),
    ],
)
def test_broker_without_adapter_has_its_default(attributes: str, store: str) -> None:
    reading = read("", attributes=attributes)
    assert (reading.settings["store"], reading.settings["journal_directory"]) == (store, "KahaDB")
    assert not distinct_places(reading, REFUSED)


def test_scheduler_beside_the_default_store_is_left_out() -> None:
    attributes = 'schedulerSupport="true" dataDirectory="/mnt/amq" brokerName="${HOSTNAME}"'
    reading = read("", attributes=attributes, HOSTNAME="amq-1")
    assert "scheduler_store" not in reading.settings
    assert "broker@schedulerSupport" not in distinct_places(reading, WARNING)


def test_empty_adapter_is_refused() -> None:
    reading = read("<persistenceAdapter/>")
    assert distinct_places(reading, REFUSED) == {"persistenceAdapter"}
    assert "store" not in reading.settings


def test_scheduler_of_a_store_of_its_own_is_set() -> None:
    kind = "org.apache.activemq.store.kahadb.scheduler.JobSchedulerStoreImpl"
    bean = f'<bean xmlns="{BEANS}" class="{kind}"><property name="directory" value="/mnt/jobs"/></bean>'
    body = adapter('<kahaDB directory="/mnt/amq/kahadb"/>') + "<jobSchedulerStore>{}</jobSchedulerStore>"
    reading = read(body.format(bean), attributes='schedulerSupport="true"')
    assert reading.settings["scheduler_store"] == "/mnt/jobs"
    assert not distinct_places(reading, REFUSED)
    other = read(body.format(bean.replace("JobSchedulerStoreImpl", "Own")), attributes='schedulerSupport="true"')
    assert "bean" in distinct_places(other, REFUSED)


def test_scheduler_elsewhere_is_set() -> None:
    body = adapter('<kahaDB directory="/mnt/amq/kahadb"/>')
    attributes = 'schedulerSupport="true" dataDirectory="/mnt/amq" brokerName="x"'
    assert read(body, attributes=attributes).settings["scheduler_store"] == "/mnt/amq/x/scheduler"
    own = f'{attributes} schedulerDirectory="/mnt/amq/scheduler"'
    assert "scheduler_store" not in read(body, attributes=own).settings


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ('journalMaxFileLength="64mb"', {"journal_file_max": "64mb"}),
        ('journalMaxFileLength="2 gb"', {"journal_file_max": "1gb"}),
        ('journalMaxFileLength="1mb"', {"journal_file_max": "1mb", "journal_batch_max": "1mb"}),
        ('journalMaxWriteBatchSize="16k"', {"journal_batch_max": "64kb"}),
        ('journalMaxWriteBatchSize="8mb"', {"journal_batch_max": "8mb"}),
        ('enableJournalDiskSyncs="false"', {"sync": "never"}),
        ('enableJournalDiskSyncs="true"', {"sync": "always"}),
        (
            'journalDiskSyncStrategy="PERIODIC" journalDiskSyncInterval="500"',
            {"sync": "periodic", "sync_interval": "500ms"},
        ),
        ('journalDiskSyncStrategy="always" enableJournalDiskSyncs="false"', {"sync": "always"}),
        ('journalDiskSyncStrategy="never"', {"sync": "never"}),
        ('journalDiskSyncInterval="1"', {"sync_interval": "10ms"}),
        ('preallocationStrategy="zeros" preallocationScope="none"', {"journal_preallocate": False}),
        ('preallocationScope="none" preallocationStrategy="zeros"', {"journal_preallocate": False}),
        ('preallocationScope="entire_journal_async"', {"journal_preallocate": True}),
        ('archiveDataLogs="true"', {"archive": True}),
        ('cleanupInterval="5000"', {"cleanup_interval": "5s"}),
        ('cleanupInterval="10"', {"cleanup_interval": "100ms"}),
        ('cleanupInterval="0"', {}),
    ],
)
def test_attribute_becomes_a_setting(attribute: str, expected: dict[str, object]) -> None:
    reading = read(adapter(f'<kahaDB directory="/mnt/amq/kahadb" {attribute}/>'))
    settings = reading.settings
    assert reading.settings.keys() == reading.origins.keys()
    names = ("journal_file_max", "journal_batch_max", "sync", "sync_interval", "journal_preallocate", "archive")
    found = {name: settings[name] for name in (*names, "cleanup_interval") if name in settings}
    assert found == expected
    assert Config(**settings).store == "/mnt/amq"


@pytest.mark.parametrize(
    ("attribute", "kind"),
    [
        ("ignoreMissingJournalfiles='true'", REFUSED),
        ("ignoreMissingJournalfiles='false'", FindingKind.SAME),
        ("useLock='false'", REFUSED),
        ("useLock='true'", FindingKind.SAME),
        ("journalDiskSyncStrategy='never'", WARNING),
        ("enableJournalDiskSyncs='false'", WARNING),
        ("journalDiskSyncStrategy='sometimes'", REFUSED),
        ("preallocationStrategy='ones'", REFUSED),
        ("cleanupInterval='0'", WARNING),
        ("cleanupInterval='10'", WARNING),
        ("journalMaxFileLength='2gb'", WARNING),
        ("journalMaxFileLength='1.5 gb'", REFUSED),
        ("purgeRecoveredXATransactionStrategy='COMMIT'", WARNING),
        ("purgeRecoveredXATransactionStrategy='Never'", IGNORED),
        ("purgeRecoveredXATransactionStrategy='x'", REFUSED),
        ("directory='  '", REFUSED),
        ("indexDirectory='/var/index'", IGNORED),
        ("checkpointInterval='1000'", IGNORED),
        ("lockKeepAlivePeriod='5000'", IGNORED),
        ("directoryArchive='/var/archive'", IGNORED),
        ("locker='none'", REFUSED),
    ],
)
def test_attribute_is_a_finding(attribute: str, kind: FindingKind) -> None:
    directory = "" if attribute.startswith("directory=") else 'directory="/mnt/amq/kahadb"'
    reading = read(adapter(f"<kahaDB {directory} {attribute}/>"))
    assert f"kahaDB@{attribute.partition('=')[0]}" in distinct_places(reading, kind)


def test_archive_elsewhere_is_a_warning() -> None:
    one = '<kahaDB directory="/mnt/amq/kahadb" archiveDataLogs="true" directoryArchive="/mnt/amq/{}"/>'
    assert "kahaDB@directoryArchive" in distinct_places(read(adapter(one.format("old"))), WARNING)
    assert "kahaDB@directoryArchive" not in distinct_places(read(adapter(one.format("kahadb/data-archive"))), WARNING)


def test_file_locker_is_the_lock_in_the_journal() -> None:
    locker = '<shared-file-locker lockAcquireSleepInterval="2000" failIfLocked="true" directory="{}"/>'
    body = adapter(f'<kahaDB directory="/mnt/amq/kahadb"><locker>{locker}</locker></kahaDB>')
    elsewhere, same = read(body.format("/var/lock")), read(body.format("/mnt/amq/kahadb"))
    assert elsewhere.settings["lock"] == "file"
    assert {"shared-file-locker@failIfLocked", "shared-file-locker@directory"} <= distinct_places(elsewhere, WARNING)
    assert "shared-file-locker@directory" not in distinct_places(same, WARNING)


@pytest.mark.parametrize("value", ["false", "0"])
def test_broker_that_is_not_persistent_has_no_adapter(value: str) -> None:
    reading = read(adapter("<mKahaDB/>"), attributes=f'persistent="{value}"')
    assert reading.settings["store"] == "memory:"
    assert "mKahaDB" in distinct_places(reading, IGNORED)
    assert "lock" not in reading.settings
    assert Config(**reading.settings).store == "memory:"


def test_memory_adapter_is_a_store_in_memory() -> None:
    reading = read(adapter('<memoryPersistenceAdapter directory="x"/>'), attributes='deleteAllMessagesOnStartup="true"')
    assert reading.is_in_memory
    assert reading.settings["store"] == "memory:"
    assert not distinct_places(reading, REFUSED)


@pytest.mark.parametrize(
    "element",
    [
        '<mKahaDB directory="d"/>',
        "<journalPersistenceAdapter/>",
        "<journaledJDBC/>",
        '<levelDB directory="d"/>',
        '<replicatedLevelDB directory="d"/>',
        "<amqPersistenceAdapter/>",
        f'<bean xmlns="{BEANS}" class="own.Store"/>',
    ],
)
def test_other_store_is_refused(element: str) -> None:
    reading = read(adapter(element))
    assert element.strip("</>").split()[0] in distinct_places(reading, REFUSED)
    assert "store" not in reading.settings


def test_store_of_a_factory_is_refused() -> None:
    reading = read("<persistenceFactory><journalPersistenceAdapterFactory/></persistenceFactory>")
    assert "persistenceFactory" in distinct_places(reading, REFUSED)
    assert "store" not in reading.settings


def test_adapter_beside_the_broker_is_followed() -> None:
    kaha = '<a:kahaDB xmlns:a="http://activemq.apache.org/schema/core" id="k" directory="/mnt/amq/kahadb"/>'
    reading = read("", attributes='persistenceAdapter="#k"', beside=kaha)
    assert reading.settings["store"] == "/mnt/amq"
    assert not distinct_places(reading, REFUSED) | distinct_places(reading, WARNING)
    inner = f'<ref xmlns="{BEANS}" bean="k"/>'
    assert read(adapter(inner), beside=kaha).settings["store"] == "/mnt/amq"


def test_adapter_that_is_nowhere_is_refused() -> None:
    reading = read("", attributes='persistenceAdapter="#k"')
    assert "broker@persistenceAdapter" in distinct_places(reading, REFUSED)
    assert "store" not in reading.settings


def test_second_adapter_is_refused() -> None:
    reading = read(adapter('<kahaDB directory="/a/kahadb"/><memoryPersistenceAdapter/>'))
    assert "memoryPersistenceAdapter" in distinct_places(reading, REFUSED)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("100 gb", ("100gb", "64mb", None)),
        ("128 mb", ("128mb", "64mb", None)),
        ("100 mb", ("100mb", "50mb", None)),
        ("4 mb", ("4mb", "2mb", "2mb")),
        ("1 mb", (None, "64mb", None)),
        ("0", ("0", "64mb", None)),
    ],
)
def test_limit_of_the_store_holds_two_files(limit: str, expected: tuple[str | None, ...]) -> None:
    usage = f'<storeUsage><storeUsage limit="{limit}"/></storeUsage>'
    body = adapter('<kahaDB directory="/mnt/kahadb" journalMaxFileLength="64mb"/>')
    reading = read(f"{body}<systemUsage><systemUsage>{usage}</systemUsage></systemUsage>")
    names = ("store_limit", "journal_file_max", "journal_batch_max")
    assert tuple(reading.settings.get(name) for name in names) == expected
    assert ("storeUsage@limit" in distinct_places(reading, REFUSED)) == (limit == "1 mb")
    assert Config(**reading.settings).store == "/mnt"


def directories_beside(path: Path) -> list[Path]:
    return [] if has_data_files(path) else differing_in_case(path)


@pytest.mark.parametrize(("name", "is_warning"), [("kahadb", True), ("KahaDB", False), ("other", False)])
def test_journal_beside_an_empty_directory_is_a_warning(tmp_path: Path, name: str, is_warning: bool) -> None:
    filled = tmp_path / "KahaDB"
    filled.mkdir()
    (filled / "db-1.log").touch()
    (tmp_path / name).mkdir(exist_ok=True)
    reading = read(adapter(f'<kahaDB directory="{tmp_path / name}"/>'))
    check(reading, directories_beside)
    assert ("kahaDB@directory" in distinct_places(reading, WARNING)) == is_warning
    if is_warning:
        assert str(filled) in why_at(reading, "kahaDB@directory")


def test_directory_that_cannot_be_listed_is_a_warning() -> None:
    def fail(_path: Path) -> list[Path]:
        raise PermissionError(13, "Permission denied")

    reading = read(adapter('<kahaDB directory="/mnt/kahadb"/>'))
    check(reading, fail)
    assert "Permission denied" in why_at(reading, "kahaDB@directory")


def test_store_without_a_directory_is_not_looked_for() -> None:
    def fail(path: Path) -> list[Path]:
        raise AssertionError(path)

    check(read("", attributes='persistent="false"'), fail)


@pytest.mark.parametrize("name", ["scheduler", "members", "kahadb", "KahaDB", "a b"])
def test_name_of_a_journal_is_as_the_store_has_it(name: str) -> None:
    settings = read(adapter(f'<kahaDB directory="/mnt/{name}"/>')).settings
    assert is_journal_name(name) == (settings.get("journal_directory", JOURNAL) == name)


VALUES = ("true", "false", "0", "1", "-1", "1000", "64mb", "99999999999", "always", "x y", "#none", "")


@pytest.mark.parametrize("name", sorted(schema.beans()["kahaDB"]["attributes"]))
@pytest.mark.parametrize("value", VALUES)
def test_any_value_loads_or_is_refused(name: str, value: str) -> None:
    attributes = {"directory": "/mnt/amq/kahadb"} | {name: value}
    reading = read(adapter(f"<kahaDB {' '.join(f'{key}={given!r}' for key, given in attributes.items())}/>"))
    if not distinct_places(reading, REFUSED):
        assert Config(**reading.settings).is_in_directory
    assert "does not support it" not in why_at(reading, f"kahaDB@{name}")


def test_every_attribute_at_once_loads() -> None:
    given = dict.fromkeys(schema.beans()["kahaDB"]["attributes"], "1") | {
        "directory": "/mnt/amq/KahaDB",
        "indexCacheSize": "10000",
        "journalDiskSyncStrategy": "periodic",
        "journalDiskSyncInterval": "250",
        "journalMaxFileLength": "16 mb",
        "journalMaxWriteBatchSize": "512k",
        "preallocationScope": "entire_journal",
        "preallocationStrategy": "sparse_file",
        "cleanupInterval": "10000",
        "ignoreMissingJournalfiles": "false",
        "purgeRecoveredXATransactionStrategy": "NEVER",
    }
    del given["locker"]
    reading = read(adapter(f"<kahaDB {' '.join(f'{key}={value!r}' for key, value in given.items())}/>"))
    assert not distinct_places(reading, REFUSED)
    config = Config(**reading.settings)
    assert (config.store, config.journal_directory, config.sync, config.sync_interval) == (
        "/mnt/amq",
        "KahaDB",
        "periodic",
        0.25,
    )


@pytest.mark.parametrize(
    ("bean", "attributes", "properties"),
    [
        ("kahaDB", persistence.KAHADB, persistence.KAHADB_PROPERTIES),
        ("shared-file-locker", persistence.FILE_LOCKER, persistence.FILE_LOCKER_PROPERTIES),
        ("memoryPersistenceAdapter", persistence.MEMORY, persistence.MEMORY_PROPERTIES),
    ],
)
def test_each_attribute_of_the_schema_is_classified(
    bean: str, attributes: Rules, properties: dict[str, Handler]
) -> None:
    known = schema.beans()[bean]
    assert set(attributes) == set(known["attributes"])
    assert set(properties) == set(known["properties"])
