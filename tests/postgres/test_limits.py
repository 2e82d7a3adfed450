"""Names that a database's tables cannot hold are refused when they arrive, and harm no one else."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.errors import RequestError
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import XATransactionId
from pybroker.store.jdbc.store import JdbcStore
from tests.conformance.conftest import text_message
from tests.postgres.conftest import JdbcLives
from tests.postgres_cluster import USER, PostgresDatabase

ORDERS = queue("ORDERS")
XA = XATransactionId(1, b"g" * 64, b"b" * 64)

Use = Callable[[JdbcStore], object]


def emoji(count: int, seed: int = 0) -> str:
    """Return a text that the server cannot compress, of four bytes a character."""
    return "".join(chr(0x1F300 + (seed * 7919 + number * 104_729) % 1500) for number in range(count))


def subscription(**fields: Any) -> DurableSubscription:
    prices = topic("PRICES")
    given: dict[str, Any] = {
        "client_id": "c",
        "name": "n",
        "destination": prices,
        "subscribed_destination": prices,
    } | fields
    return DurableSubscription(**given)


def send(name: str, message_id: str = "ID:p:1:1:1:1") -> Use:
    return lambda store: store.add(replace(text_message(queue(name), 1), message_id=message_id))


def prepare(store: JdbcStore) -> None:
    store.add(text_message(ORDERS, 1), XA)
    store.prepare(XA)


def three_long_names() -> DurableSubscription:
    """Names that fit their columns, and not one index row together."""
    prices = topic(emoji(242))
    return subscription(client_id=emoji(250, 1), name=emoji(250, 2), destination=prices, subscribed_destination=prices)


def assert_refused(lives: JdbcLives, use: Use) -> None:
    """Check that something is refused, again and again, and that others are served."""
    for number in range(2, 4):
        with pytest.raises(RequestError):
            use(lives.store)
        lives.store.add(text_message(ORDERS, number))
        lives.flush()
        assert not lives.failures
    lives.crash()
    assert len(lives.open().queues[ORDERS]) == 2
    assert not lives.store.damages


@pytest.fixture
def ascii_lives(postgres_cluster: Any) -> Iterator[JdbcLives]:
    """A store in a database that knows no characters."""
    cluster: Any = postgres_cluster
    name = f"ascii_{cluster.create_database().name}"
    options = "ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    cluster.sql(f"CREATE DATABASE {name} OWNER {USER} {options}")
    lives = JdbcLives(PostgresDatabase(cluster, name))
    lives.open()
    yield lives
    lives.crash()
    lives.database.drop()


LONG = "é" * 200
IN_BYTES: dict[str, Use] = {
    "queue": send(LONG),
    "message id": send("ORDERS", f"ID:{LONG}:1:1:1"),
    "client id": lambda store: store.subscribe(subscription(client_id=LONG)),
    "name": lambda store: store.subscribe(subscription(name=LONG)),
    "selector": lambda store: store.subscribe(subscription(selector=f"a = '{LONG}'")),
    "kept queue": lambda store: store.declare(queue(LONG)),
}


@pytest.mark.parametrize("what", IN_BYTES)
def test_names_are_counted_in_bytes_in_sql_ascii(ascii_lives: JdbcLives, what: str) -> None:
    assert_refused(ascii_lives, IN_BYTES[what])


def test_names_of_250_bytes_fit_in_sql_ascii(ascii_lives: JdbcLives) -> None:
    name = "é" * 121
    ascii_lives.store.add(text_message(queue(name), 1))
    ascii_lives.flush()
    ascii_lives.crash()
    assert list(ascii_lives.open().queues) == [queue(name)]


NARROW: dict[str, tuple[str, Use]] = {
    "queue": ("activemq_msgs ALTER container TYPE varchar(20)", send("A.QUEUE.OF.MORE.THAN.20")),
    "message id": ("activemq_msgs ALTER msgid_prod TYPE varchar(40)", send("ORDERS", f"ID:{'x' * 40}:1:1:1")),
    "transaction": ("activemq_msgs ALTER xid TYPE varchar(100)", prepare),
    "client id": (
        "activemq_acks ALTER client_id TYPE varchar(10)",
        lambda store: store.subscribe(subscription(client_id="a client of 10")),
    ),
    "name": (
        "activemq_acks ALTER sub_name TYPE varchar(10)",
        lambda store: store.subscribe(subscription(name="a name of more than 10")),
    ),
    "selector": (
        "activemq_acks ALTER selector TYPE varchar(10)",
        lambda store: store.subscribe(subscription(selector="price > 1000")),
    ),
    "topic": (
        "activemq_acks ALTER sub_dest TYPE varchar(10)",
        lambda store: store.subscribe(subscription()),
    ),
}


@pytest.mark.parametrize("what", NARROW)
def test_narrower_columns_of_the_tables_are_minded(lives: JdbcLives, what: str) -> None:
    alter, use = NARROW[what]
    lives.crash()
    lives.database.sql(f"ALTER TABLE {alter}")
    lives.open()
    assert_refused(lives, use)


WIDE = (
    "ALTER TABLE activemq_msgs ALTER container TYPE varchar(4000), ALTER msgid_prod TYPE varchar(4000);"
    "ALTER TABLE activemq_acks ALTER container TYPE varchar(4000), ALTER client_id TYPE varchar(4000),"
    " ALTER sub_name TYPE varchar(4000); ALTER TABLE pybroker_acked ALTER container TYPE varchar(4000),"
    " ALTER client_id TYPE varchar(4000), ALTER sub_name TYPE varchar(4000);"
    "ALTER TABLE pybroker_no_local ALTER container TYPE varchar(4000), ALTER client_id TYPE varchar(4000),"
    " ALTER sub_name TYPE varchar(4000);"
    "ALTER TABLE pybroker_owners ALTER container TYPE varchar(4000), ALTER client_id TYPE varchar(4000),"
    " ALTER sub_name TYPE varchar(4000)"
)
IN_INDEX: dict[str, Use] = {
    "subscription": lambda store: store.subscribe(three_long_names()),
    "kept queue": lambda store: store.declare(queue(emoji(240))),
}
IN_WIDE_INDEX: dict[str, Use] = {
    "queue": send(emoji(700)),
    "message id": send("ORDERS", f"ID:{emoji(700)}:1:1:1"),
    "client id": lambda store: store.subscribe(subscription(client_id=emoji(700))),
}


@pytest.mark.parametrize("what", IN_INDEX)
def test_names_too_long_for_an_index_row_are_refused(lives: JdbcLives, what: str) -> None:
    assert_refused(lives, IN_INDEX[what])


@pytest.mark.parametrize("what", IN_WIDE_INDEX)
def test_wider_columns_are_bound_by_their_indexes(lives: JdbcLives, what: str) -> None:
    lives.crash()
    lives.database.sql(WIDE)
    lives.open()
    assert_refused(lives, IN_WIDE_INDEX[what])


def test_names_at_the_limit_of_an_index_row_are_stored(lives: JdbcLives) -> None:
    prices = topic(emoji(190))
    made = subscription(
        client_id=emoji(197, 1),
        name=emoji(203, 2),
        destination=prices,
        subscribed_destination=prices,
        no_local=True,
        user="ann",
    )
    lives.store.subscribe(made)
    message = text_message(prices, 1)
    other = text_message(prices, 2)
    lives.store.add(message)
    lives.store.add(other)
    transaction = XATransactionId(1, b"g" * 64, b"b" * 64)
    lives.store.acknowledge(prices, made.key, other.message_id, transaction)
    lives.store.prepare(transaction)
    lives.flush()
    lives.crash()
    assert [each.subscription for each in lives.open().backlogs] == [made]
    lives.store.rollback(transaction)
    lives.flush()
