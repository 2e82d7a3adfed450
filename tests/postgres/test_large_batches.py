"""Batches of very many changes, which a database must apply in one transaction."""

from typing import Any

import pytest

from pybroker.broker.domain.destination import topic
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.store.jdbc.changes import ApartKey, Changes, SubscriptionKey, SubscriptionRows
from pybroker.store.jdbc.fence import CHECK
from pybroker.store.jdbc.postgres import DatabaseConnection
from pybroker.store.jdbc.statements import statements
from tests.postgres.conftest import JdbcLives

PRICES = topic("PRICES")
AHEAD = 10_001
"""PostgreSQL's parser nests a list of row tuples, and fails at about 10,000 of them."""


def subscription(client_id: str) -> DurableSubscription:
    return DurableSubscription(client_id=client_id, name="s", destination=PRICES, subscribed_destination=PRICES)


def test_subscription_ahead_by_10001_catches_up_at_once(lives: JdbcLives, text_message: Any) -> None:
    fast, slow = subscription("fast"), subscription("slow")
    for each in (fast, slow):
        lives.store.subscribe(each)
    ids: list[str] = []
    for number in range(AHEAD + 1):
        message = text_message(PRICES, number)
        lives.store.add(message)
        ids.append(message.message_id)
    lives.flush()
    for message_id in ids[1:]:
        lives.store.acknowledge(PRICES, fast.key, message_id)
    lives.flush()
    assert lives.database.sql("SELECT count(*) FROM pybroker_acked") == str(AHEAD)
    lives.store.acknowledge(PRICES, fast.key, ids[0])
    lives.flush()
    assert not lives.failures
    assert lives.database.sql("SELECT count(*) FROM pybroker_acked") == "0"
    lives.crash()
    backlogs = {each.subscription.client_id: list(each.message_ids) for each in lives.open().backlogs}
    assert backlogs == {"fast": [], "slow": ids}


@pytest.mark.parametrize("count", [10_001, 100_000])
def test_batch_of_many_keys_fits_the_servers_stack(lives: JdbcLives, count: int) -> None:
    """Every kind of statement that names rows by several columns."""
    changes = Changes()
    for number in range(count):
        key = SubscriptionKey("topic://PRICES", f"client {number}", "s")
        changes.delete_apart(ApartKey(key, number, ""))
        changes.dropped.add(key)
        changes.declared[f"queue://{number}"] = False
        changes.cleared[f"topic://{number}"] = 0
        changes.deleted.append(-number)
        changes.marked[-number] = None
        changes.renumbered[-number] = (-number, "queue://ORDERS")
        changes.prepared[f"x{number}"] = None
        changes.subscriptions[key] = SubscriptionRows((), ("topic://PRICES", None, False, "ann"))
    connection = DatabaseConnection(lives.database.url)
    connection.execute("PREPARE fence AS SELECT 1")
    for message in statements(connection, CHECK, changes):
        connection.execute(message, seconds=None)
    connection.close()
