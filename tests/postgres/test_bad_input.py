"""Unusable input gets one clear line with the remedy, leaves no tables half made, and never logs the password."""

import logging
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg2  # type: ignore[import-untyped]
import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.errors import BrokerError, ConfigError, RequestError, StoreUnavailable
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import XATransactionId
from pybroker.store.jdbc.postgres import describe
from tests.postgres.conftest import JdbcLives
from tests.postgres_cluster import PASSWORD, PASSWORD_IN_URL, USER

ORDERS = queue("ORDERS")


@pytest.fixture
def opened(postgres_database: Any) -> Callable[..., BrokerError]:
    """Opens a store that must not open, and returns why."""

    def opened(**options: Any) -> BrokerError:
        with pytest.raises((StoreUnavailable, ConfigError)) as caught:
            JdbcLives(postgres_database).make(**options).recover()
        assert "\n" not in str(caught.value)
        return caught.value

    return opened


def tables(database: Any) -> str:
    return database.sql("SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace")


def test_a_wrong_password_is_not_logged(postgres_database: Any, opened: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    error = opened(url=postgres_database.url.replace(PASSWORD_IN_URL, "s3cret-too"))
    assert "password authentication failed" in str(error)
    assert "check host, port, database, user and password" in str(error)
    shown = "".join(traceback.format_exception(error)) + repr(error) + caplog.text
    assert "s3cret" not in shown
    assert describe(postgres_database.url) in str(error)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:s3cret@h:port/db",
        "postgresql://u:s3cret@h/db?nonsense=1",
        "postgresql//u:s3cret@h/db",
        "postgresql://u:s3cret%zz@h/db",
        "host=h password=s3cret x",
        "postgresql://u:s3cret@127.0.0.1:1/db",
        "host=127.0.0.1 port=1 password=s3cret",
        "postgresql://127.0.0.1:1/db?password=s3cret",
        "postgresql://u:s3cret@/db?host=/nowhere/s3cret",
    ],
)
def test_the_password_in_any_url_is_not_logged(opened: Any, url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    error = opened(url=url)
    shown = "".join(traceback.format_exception(error)) + caplog.text
    assert "s3cret" not in shown.replace("/nowhere/s3cret", "")


def test_no_one_there(postgres_database: Any, opened: Any) -> None:
    error = opened(url=postgres_database.through(1))
    assert "Connection refused" in str(error)


def test_a_role_without_rights(postgres_database: Any, opened: Any) -> None:
    postgres_database.sql("ALTER DATABASE " + postgres_database.name + " OWNER TO postgres")
    error = opened()
    assert "permission denied for schema public" in str(error)
    assert "grant" in str(error)
    assert not tables(postgres_database)


def test_tables_may_not_be_created(postgres_database: Any, opened: Any) -> None:
    error = opened(may_create=False)
    assert "there is no table activemq_msgs" in str(error)
    assert not tables(postgres_database)


def test_creating_fails_in_the_middle(postgres_database: Any, opened: Any) -> None:
    """All tables or none: here a name is taken."""
    postgres_database.sql("CREATE VIEW pybroker_no_local AS SELECT 1")
    before = tables(postgres_database)
    opened()
    assert tables(postgres_database) == before


def test_a_database_that_takes_no_writes(postgres_database: Any, opened: Any) -> None:
    postgres_database.sql(f"ALTER DATABASE {postgres_database.name} SET default_transaction_read_only = on")
    assert "name the primary server" in str(opened())


def test_an_encoding_that_cannot_hold_names(postgres_database: Any, opened: Any) -> None:
    sql = postgres_database.cluster.sql
    sql(f"CREATE DATABASE latin OWNER {USER} ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    assert "ENCODING 'UTF8'" in str(opened(url=postgres_database.cluster.url("latin")))
    sql("DROP DATABASE latin")


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("ALTER TABLE activemq_msgs DROP COLUMN xid", "activemq_msgs is not ActiveMQ 5.17's for PostgreSQL: xid is"),
        ("ALTER TABLE activemq_msgs ALTER msg TYPE oid USING NULL", "msg is oid instead of bytea"),
        ("DROP TABLE activemq_acks; CREATE TABLE activemq_acks (a int)", "activemq_acks is not ActiveMQ"),
        ("UPDATE pybroker_epoch SET version = 2", "run the newer pybroker"),
        ("DELETE FROM pybroker_epoch", "pybroker_epoch is empty"),
    ],
)
def test_tables_that_are_others(postgres_database: Any, opened: Any, sql: str, message: str) -> None:
    lives = JdbcLives(postgres_database)
    lives.open()
    lives.close()
    postgres_database.sql(sql)
    assert message in str(opened())


LONG = "x" * 251
REFUSED = [
    lambda store, make: store.add(make(queue("Q" * 245), 1)),
    lambda store, make: store.add(make(queue("nul\0"), 1)),
    lambda store, make: store.add(replace(make(ORDERS, 1), message_id=f"{LONG}:1")),
    lambda store, make: store.add(replace(make(ORDERS, 1), message_id="ID:a\0:1:1:1")),
    lambda store, make: store.add(replace(make(ORDERS, 1), message_id="ID:a:1:1:one")),
    lambda store, make: store.add(replace(make(ORDERS, 1), message_id=f"ID:a:1:1:{2**63}")),
    lambda store, make: store.declare(queue("Q" * 245)),
    lambda store, make: store.declare(queue("half \ud800")),
    lambda store, make: store.subscribe(subscription(client_id=LONG)),
    lambda store, make: store.subscribe(subscription(name=LONG)),
    lambda store, make: store.subscribe(subscription(name="\0")),
    lambda store, make: store.subscribe(subscription(selector=f"a = '{LONG}'")),
    lambda store, make: (
        store.add(make(ORDERS, 1), XATransactionId(1, b"g" * 200, b"b")),
        store.prepare(XATransactionId(1, b"g" * 200, b"b")),
    ),
]


def subscription(**fields: Any) -> DurableSubscription:
    prices = topic("PRICES")
    given = {"client_id": "c", "name": "n", "destination": prices, "subscribed_destination": prices} | fields
    return DurableSubscription(**given)


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_value_too_large_for_a_column_fails_only_its_sender(lives: Any, text_message: Any, number: int) -> None:
    with pytest.raises(RequestError):
        REFUSED[number](lives.store, text_message)
    message = text_message(ORDERS, 7)
    lives.store.add(message)
    lives.flush()
    lives.crash()
    assert list(lives.open().queues[ORDERS]) == [message.message_id]


def test_names_may_have_every_character_that_sql_knows(lives: Any, text_message: Any) -> None:
    odd = queue('it\'s "quoted" \\ %s {} 100% ; DROP TABLE activemq_msgs; -- 世界')
    message = replace(text_message(odd, 1), message_id="ID:o'hara\\-%s-1:1:1:1")
    lives.store.add(message)
    made = subscription(client_id="o'hara", name="%s", selector="name LIKE '100\\%%'")
    lives.store.subscribe(made)
    lives.flush()
    lives.crash()
    recovery = lives.open()
    assert recovery.queues == {odd: [message.message_id]}
    assert recovery.backlogs[0].subscription == made
    lives.store.remove(odd, message.message_id)  # its bytes name another destination
    lives.flush()


class TestReading:
    def test_a_lost_connection_is_opened_again(self, lives: Any, text_message: Any) -> None:
        message = text_message(ORDERS, 1)
        lives.store.add(message)
        lives.flush()
        assert lives.store.read(ORDERS, [message.message_id])[0].data == message.data
        lives.database.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'pybroker' AND query LIKE 'SELECT id, msg%'"
        )
        assert lives.store.read(ORDERS, [message.message_id])[0].data == message.data

    def test_rows_without_message_or_sense_are_skipped_and_logged(self, lives: Any, text_message: Any) -> None:
        sent = [text_message(ORDERS, number) for number in range(4)]
        for message in sent:
            lives.store.add(message)
        lives.flush()
        lives.database.sql(
            "DELETE FROM activemq_msgs WHERE msgid_seq = 0;UPDATE activemq_msgs SET msg = '\\x1234' WHERE msgid_seq = 1"
        )
        found = lives.store.read(ORDERS, [message.message_id for message in sent])
        assert [message.message_id for message in found] == [message.message_id for message in sent[2:]]
        first, second = lives.store.damages
        assert "id 1: there is no message" in first
        assert "does not decode" in second
        lives.store.remove(ORDERS, sent[1].message_id)
        lives.flush()

    def test_rows_that_make_no_sense_stay_and_are_logged(self, lives: Any, text_message: Any) -> None:
        lives.store.add(text_message(ORDERS, 1))
        lives.close()
        with psycopg2.connect(lives.database.url) as session, session.cursor() as cursor:
            cursor.execute(
                "INSERT INTO activemq_msgs (id, container, msgid_prod, msgid_seq, xid) VALUES"
                " (11, 'nonsense', 'p', 1, NULL), (12, 'queue://ORDERS', 'p', 2, '?'),"
                " (13, 'queue://ORDERS', NULL, NULL, NULL), (14, 'queue://ORDERS', 'p', 3, 'AAAA')"
            )
        session.close()
        assert len(lives.open().queues[ORDERS]) == 1
        assert len(lives.store.damages) == 4
        lives.database.sql("DELETE FROM activemq_msgs WHERE id > 10")


def test_only_the_url_holds_the_password(lives: Any) -> None:
    assert PASSWORD not in lives.store.name
    assert USER not in lives.store.name.removeprefix("postgresql")
