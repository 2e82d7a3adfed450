"""A store in a database, and locks in one, of an `activemq.xml`."""

import pytest

from pybroker.activemq_xml import database, schema
from pybroker.activemq_xml.database import with_password
from pybroker.activemq_xml.elements import BEANS
from pybroker.activemq_xml.findings import FindingKind
from pybroker.activemq_xml.reading import Handler, Reading, Rules
from pybroker.broker.app.config import Config
from tests.unit.activemq_xml.reading_bench import distinct_places, read, why_at

REFUSED, WARNING, IGNORED = FindingKind.REFUSED, FindingKind.WARNING, FindingKind.IGNORED


def source(name: str = "pg", database: str = "d") -> str:
    return (
        f'<bean id="{name}" class="org.apache.commons.dbcp2.BasicDataSource">'
        f'<property name="url" value="jdbc:postgresql://h/{database}"/><property name="username" value="u"/>'
        '<property name="password" value="p/w"/></bean>'
    )


def read_adapter(attributes: str = "", body: str = "", broker: str = "", others: str = "") -> Reading:
    element = f'<jdbcPersistenceAdapter dataSource="#pg" {attributes}>{body}</jdbcPersistenceAdapter>'
    text = f"<persistenceAdapter>{element}</persistenceAdapter>"
    return read(text, attributes=broker, beside=source() + others)


def locker(attributes: str = "", kind: str = "lease-database-locker") -> str:
    return f"<locker><{kind} {attributes}/></locker>"


def lock_of(reading: Reading) -> dict[str, object]:
    names = ("lock", "lock_lease", "lock_renew", "lock_url", "name")
    return {name: reading.settings[name] for name in names if name in reading.settings}


def test_members_that_lock_a_row_have_names_of_their_own() -> None:
    row = read_adapter(broker='brokerName="orders"')
    assert (row.settings["broker_name"], row.settings.get("name")) == ("orders", None)
    lease = read_adapter(broker='brokerName="orders"', body=locker())
    assert lease.settings["name"] == "orders"


@pytest.mark.parametrize("body", ["", locker(kind="database-locker")])
def test_store_has_the_lock_of_a_row(body: str) -> None:
    reading = read_adapter('lockKeepAlivePeriod="5000"', body)
    assert reading.settings["store"] == "postgresql://u@h/d"
    assert lock_of(reading) == {"lock": "postgres-row"}
    assert "jdbcPersistenceAdapter@lockKeepAlivePeriod" in distinct_places(reading, IGNORED)
    assert not distinct_places(reading, REFUSED)


@pytest.mark.parametrize(
    ("keep_alive", "attributes", "expected", "warnings"),
    [
        ("5000", 'lockAcquireSleepInterval="10000"', ("10s", "5s"), set[str]()),
        ("5000", "", ("10s", "5s"), set[str]()),
        (None, "", ("10s", None), set[str]()),
        ("30000", "", ("10s", None), {"jdbcPersistenceAdapter@lockKeepAlivePeriod"}),
        ("0", "", ("10s", None), {"jdbcPersistenceAdapter@lockKeepAlivePeriod"}),
        ("200", 'lockAcquireSleepInterval="500"', ("1s", "200ms"), {"lease-database-locker@lockAcquireSleepInterval"}),
    ],
)
def test_lease_has_its_times(
    keep_alive: str | None, attributes: str, expected: tuple[str, str | None], warnings: set[str]
) -> None:
    given = f'lockKeepAlivePeriod="{keep_alive}"' if keep_alive else ""
    reading = read_adapter(given, locker(attributes))
    assert reading.settings["lock"] == "postgres-lease"
    assert (reading.settings["lock_lease"], reading.settings.get("lock_renew")) == expected
    assert distinct_places(reading, WARNING) == {"lease-database-locker", "broker@brokerName"} | warnings
    assert Config(**reading.settings).lock == "postgres-lease"


def test_lease_of_the_adapter_counts_without_one_of_the_locker() -> None:
    assert read_adapter('lockAcquireSleepInterval="4000"', locker()).settings["lock_lease"] == "4s"
    both = read_adapter('lockAcquireSleepInterval="4000"', locker('lockAcquireSleepInterval="6000"'))
    assert both.settings["lock_lease"] == "6s"


def test_holder_of_a_lease_is_the_name_of_the_member() -> None:
    reading = read_adapter("", locker('leaseHolderId="a-1"'), broker='brokerName="b"')
    assert (reading.settings["name"], reading.settings["broker_name"]) == ("a-1", "b")
    other = read_adapter("", locker('leaseHolderId="a 1"'), broker='brokerName="b"')
    assert other.settings["name"] == "b"
    assert "lease-database-locker@leaseHolderId" in distinct_places(other, WARNING)


def test_one_name_for_the_holders_of_a_lease_is_a_warning() -> None:
    """ActiveMQ renews a lease in its name, whoever took it: two of one name are both master."""
    reading = read_adapter("", locker(), broker='brokerName="b"')
    assert "two ActiveMQs of one name would both be master" in why_at(reading, "broker@brokerName")
    assert "broker@brokerName" in distinct_places(read_adapter("", locker()), WARNING)
    own = read_adapter("", locker('leaseHolderId="a-1"'), broker='brokerName="b"')
    row = read_adapter("", locker(kind="database-locker"), broker='brokerName="b"')
    for each in (own, row):
        assert "broker@brokerName" not in distinct_places(each, WARNING)


@pytest.mark.parametrize("name", ["useDatabaseLock", "useLock"])
def test_store_without_a_lock_is_refused(name: str) -> None:
    place = f"jdbcPersistenceAdapter@{name}"
    assert place in distinct_places(read_adapter(f'{name}="false"'), REFUSED)
    assert place in distinct_places(read_adapter(f'{name}="true"'), FindingKind.SAME)


@pytest.mark.parametrize("kind", ["transact-database-locker", "shared-file-locker"])
def test_other_locker_is_refused(kind: str) -> None:
    assert kind in distinct_places(read_adapter("", locker(kind=kind)), REFUSED)


def test_locker_beside_the_broker_is_followed() -> None:
    element = '<a:lease-database-locker xmlns:a="http://activemq.apache.org/schema/core" id="l"/>'
    body = '<persistenceAdapter><jdbcPersistenceAdapter dataSource="#pg" locker="#l"/></persistenceAdapter>'
    assert read(body, beside=source() + element).settings["lock"] == "postgres-lease"
    assert "jdbcPersistenceAdapter@locker" in distinct_places(read(body, beside=source()), REFUSED)


def test_tables_are_created_unless_the_file_says_no() -> None:
    assert read_adapter('createTablesOnStartup="false"').settings["create_tables"] is False
    assert "create_tables" not in read_adapter().settings


@pytest.mark.parametrize("element", ["postgresql-jdbc-adapter", "oracleJDBCAdapter", "mysql-jdbc-adapter"])
def test_adapter_of_another_database_is_refused(element: str) -> None:
    reading = read_adapter("", f"<adapter><{element}/></adapter>")
    assert (element in distinct_places(reading, REFUSED)) == (element != "postgresql-jdbc-adapter")


@pytest.mark.parametrize("name", sorted(schema.beans()["statements"]["attributes"]))
def test_statements_of_its_own_are_refused(name: str) -> None:
    reading = read_adapter("", f'<statements><statements {name}="true"/></statements>')
    assert (f"statements@{name}" in distinct_places(reading, REFUSED)) == (name != "useLockCreateWhereClause")


def test_lock_in_another_database_is_a_warning() -> None:
    place = "jdbcPersistenceAdapter@lockDataSource"
    assert place in distinct_places(read_adapter('lockDataSource="#other"', others=source("other", "e")), WARNING)
    assert place in distinct_places(read_adapter('lockDataSource="#pg2"', others=source("pg2")), IGNORED)


def test_adapter_without_a_data_source_is_refused_with_the_way_out() -> None:
    reading = read("<persistenceAdapter><jdbcPersistenceAdapter useLock='true'/></persistenceAdapter>")
    assert "Derby" in why_at(reading, "jdbcPersistenceAdapter")
    assert lock_of(reading) == {}
    assert Config(**reading.settings).is_in_directory


def test_scheduled_messages_of_a_directory_are_a_warning() -> None:
    reading = read_adapter(broker='schedulerSupport="true"')
    assert "broker@schedulerSupport" in distinct_places(reading, WARNING)
    assert "scheduler_store" not in reading.settings


def test_settings_load_with_the_password_in_memory() -> None:
    reading = read_adapter("", locker())
    assert reading.secrets == {"PGPASSWORD": "p/w"}
    settings = with_password(reading.settings, reading.secrets["PGPASSWORD"])
    config = Config(**settings)
    assert config.store == "postgresql://u:p%2Fw@h/d"
    assert config.lock_url == config.store
    assert "p%2Fw" not in repr(config)
    assert with_password({"store": "postgresql://h/d"}, "p") == {"store": "postgresql://:p@h/d"}
    assert with_password({"store": "data"}, "p") == {"store": "data"}


@pytest.mark.parametrize(
    ("kind", "lock"), [("lease-database-locker", "postgres-lease"), ("database-locker", "postgres-row")]
)
def test_journal_has_a_lock_in_a_database(kind: str, lock: str) -> None:
    lease = locker('dataSource="#pg"', kind)
    element = f'<kahaDB directory="/mnt/kahadb" lockKeepAlivePeriod="2000">{lease}</kahaDB>'
    reading = read(f"<persistenceAdapter>{element}</persistenceAdapter>", beside=source())
    assert (reading.settings["lock"], reading.settings["lock_url"]) == (lock, "postgresql://u@h/d")
    assert reading.settings.get("lock_renew") == ("2s" if lock == "postgres-lease" else None)
    assert not distinct_places(reading, REFUSED)
    assert Config(**reading.settings).lock == lock


@pytest.mark.parametrize("attributes", ["", "dataSource='#none'"])
def test_journal_without_a_database_for_its_lock_is_refused(attributes: str) -> None:
    element = f'<kahaDB directory="/mnt/kahadb">{locker(attributes)}</kahaDB>'
    reading = read(f"<persistenceAdapter>{element}</persistenceAdapter>")
    assert any(at.startswith("lease-database-locker") for at in distinct_places(reading, REFUSED))
    assert "lock" not in reading.settings


def test_journal_with_a_locker_of_its_own_class_is_refused() -> None:
    own = f'<kahaDB directory="/mnt/kahadb"><locker><bean xmlns="{BEANS}" class="own.Locker"/></locker></kahaDB>'
    reading = read(f"<persistenceAdapter>{own}</persistenceAdapter>")
    assert "bean" in distinct_places(reading, REFUSED)
    assert "lock" not in reading.settings


@pytest.mark.parametrize("element", ["postgresql-jdbc-adapter", "db2JDBCAdapter"])
def test_adapter_beside_the_broker_is_followed(element: str) -> None:
    given = (
        f'<a:{element} xmlns:a="http://activemq.apache.org/schema/core" id="a" useExternalMessageReferences="true"/>'
    )
    reading = read_adapter('adapter="#a"', others=given)
    expected = f"{element}@useExternalMessageReferences" if element.startswith("postgresql") else element
    assert distinct_places(reading, REFUSED) == {expected}


def test_statements_of_an_adapter_or_a_locker_are_refused() -> None:
    own = '<statements><statements tablePrefix="x_"/></statements>'
    adapter = f"<adapter><postgresql-jdbc-adapter>{own}</postgresql-jdbc-adapter></adapter>"
    lease = f"<locker><lease-database-locker>{own}</lease-database-locker></locker>"
    for body in (adapter, lease):
        assert distinct_places(read_adapter("", body), REFUSED) == {"statements@tablePrefix"}


VALUES = ("true", "false", "0", "-1", "1000", "99999999999", "x y", "#none", "#pg", "")


@pytest.mark.parametrize("name", sorted(set(schema.beans()["jdbcPersistenceAdapter"]["attributes"]) - {"dataSource"}))
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("body", ["", locker()])
def test_any_value_loads_or_is_refused(name: str, value: str, body: str) -> None:
    reading = read_adapter(f'{name}="{value}"', body)
    if not distinct_places(reading, REFUSED):
        assert Config(**reading.settings).store == "postgresql://u@h/d"
    assert "does not support it" not in why_at(reading, f"jdbcPersistenceAdapter@{name}")


@pytest.mark.parametrize("kind", ["database-locker", "lease-database-locker"])
@pytest.mark.parametrize("value", VALUES)
def test_any_value_of_a_locker_loads_or_is_refused(kind: str, value: str) -> None:
    for name in schema.beans()[kind]["attributes"]:
        reading = read_adapter("", locker(f'{name}="{value}"', kind))
        if not distinct_places(reading, REFUSED):
            assert Config(**reading.settings).store == "postgresql://u@h/d"


@pytest.mark.parametrize(
    ("bean", "attributes", "properties"),
    [
        ("jdbcPersistenceAdapter", database.ADAPTER, database.ADAPTER_PROPERTIES),
        ("database-locker", database.ROW_LOCKER, database.LOCKER_PROPERTIES),
        ("lease-database-locker", database.LEASE_LOCKER, database.LOCKER_PROPERTIES),
        ("postgresql-jdbc-adapter", database.JDBC_ADAPTER, {"statements": None}),
    ],
)
def test_each_attribute_of_the_schema_is_classified(
    bean: str, attributes: Rules, properties: dict[str, Handler]
) -> None:
    known = schema.beans()[bean]
    assert set(attributes) == set(known["attributes"])
    assert set(properties) >= set(known["properties"])
