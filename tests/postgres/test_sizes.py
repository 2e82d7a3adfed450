"""Large messages, batches and transactions: what is accepted can be written and read back, in a time by its size."""

from dataclasses import replace
from typing import Any

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.errors import ResourceLimit
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import XATransactionId
from pybroker.store.jdbc import reader as reader_module
from pybroker.store.jdbc import store as store_module
from pybroker.store.jdbc.changes import OPERATION_BYTES, Changes, SubscriptionKey
from pybroker.store.jdbc.fence import CHECK
from pybroker.store.jdbc.limits import MESSAGE_BYTES_MAX
from pybroker.store.jdbc.postgres import DatabaseConnection
from pybroker.store.jdbc.reader import JdbcBodyReader
from pybroker.store.jdbc.statements import statements
from tests.postgres.conftest import JdbcLives
from tests.runtimes import runtime

ORDERS = queue("ORDERS")
PRICES = topic("PRICES")
XA = XATransactionId(1, b"g", b"b")


def test_message_above_the_cap_is_refused(lives: JdbcLives, text_message: Any) -> None:
    """The server accepts up to 1 GB, and does not return what is more than a half of that."""
    large = replace(text_message(ORDERS, 1), data=bytes(MESSAGE_BYTES_MAX + 1))
    for transaction in (None, XA):
        with pytest.raises(ResourceLimit, match="has 268435457 bytes, and a store in a database takes 268435456"):
            lives.store.add(large, transaction)
    lives.store.add(text_message(ORDERS, 2))
    lives.flush()
    assert not lives.failures


def test_page_that_takes_long_gets_more_time(
    lives: JdbcLives, text_message: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "STATEMENT_SECONDS", 0.1)
    lives.store.add(text_message(ORDERS, 1))
    lives.flush()
    slow = "SELECT id, msg FROM activemq_msgs, pg_sleep(1.5) WHERE %s > 0 AND id = ANY(%s)"
    reader = JdbcBodyReader(
        lambda: DatabaseConnection(lives.database.url), runtime(lives.loop.call_soon), lambda: None, slow
    )
    assert set(reader.read([1], seconds=60.0)) == {1}
    reader.close(10.0)


@pytest.mark.parametrize(("mebibytes", "timeout"), [(0, b""), (1, b"13000"), (100, b"409000")])
def test_batch_has_time_by_its_size(lives: JdbcLives, mebibytes: int, timeout: bytes) -> None:
    connection = DatabaseConnection(lives.database.url)
    changes = Changes(byte_count=mebibytes << 20)
    (message,) = statements(connection, CHECK, changes)
    assert message == (b"SET LOCAL statement_timeout = " + timeout + b";" if timeout else b"") + CHECK
    connection.close()


def test_size_of_an_ended_subscription_counts_its_rows() -> None:
    changes = Changes()
    changes.drop(SubscriptionKey("topic://T", "c", "s"), 1000)
    assert changes.byte_count >= 1000 * OPERATION_BYTES


def test_transaction_in_doubt_is_read_page_by_page(
    lives: JdbcLives, text_message: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "SENT_PAGE_MESSAGES", 3)
    monkeypatch.setattr(store_module, "SENT_PAGE_BYTES", 1)
    wanted = DurableSubscription(client_id="c", name="s", destination=PRICES, subscribed_destination=PRICES)
    lives.store.subscribe(wanted)
    sent = [text_message(PRICES, number) for number in range(8)]
    for message in sent:
        lives.store.add(message, XA)
    lives.store.prepare(XA)
    lives.flush()
    lives.crash()
    (prepared,) = lives.open().prepared
    found = [each.message for each in prepared.sent]
    assert [(each.message_id, each.data) for each in found if each] == [(each.message_id, each.data) for each in sent]
    lives.store.rollback(XA)
    lives.flush()
