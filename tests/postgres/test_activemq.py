"""A real ActiveMQ and pybroker hand a database back and forth: stops and kills, both ways, transactions in doubt."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.openwire.message import view
from pybroker.broker.domain.recovery import PreparedAck
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import XATransactionId
from tests.conftest import JAR_DIRECTORY, JDBC_JARS
from tests.integration.test_activemq_reads_store import (
    BILLS,
    COMMITTED,
    GIANT,
    LEFT_OPEN,
    ORDERS,
    PRICES,
    ROLLED_BACK,
    _grouped,
    facts,
    text,
)
from tests.postgres_cluster import PASSWORD, USER

pytestmark = [pytest.mark.component("activemq-jdbc"), pytest.mark.timeout(180)]

PROGRAM = Path(__file__).parent / "java" / "OpenDatabase.java"
FIRST, SECOND, UNPREPARED = (XATransactionId(4660, name, name) for name in (b"first", b"second", b"third"))

Step = Callable[..., list[str]]


@pytest.fixture
def activemq(java: Any, lives: Any, tmp_path: Path) -> Step:
    """Opens the database with a real broker, performs steps, and returns its view of the contents."""
    class_path = os.pathsep.join([java.class_path, *(str(JAR_DIRECTORY / jar) for jar in JDBC_JARS)])
    tools = replace(java, class_path=class_path)
    database = lives.database
    url = f"jdbc:postgresql://127.0.0.1:{database.cluster.port}/{database.name}?user={USER}&password={PASSWORD}"

    def run(*steps: str) -> list[str]:
        arguments = [url.replace(" ", "%20"), str(tmp_path / "activemq"), *steps]
        return _grouped(tools.run(PROGRAM, *arguments, timeout_seconds=90).splitlines())

    return run


def subscription(name: str, **fields: Any) -> DurableSubscription:
    return DurableSubscription(
        client_id="client", name=name, **{"destination": PRICES, "subscribed_destination": PRICES} | fields
    )


def doubt(*transactions: XATransactionId) -> list[str]:
    return [f"doubt 4660 {each.branch_qualifier.hex()} {each.branch_qualifier.hex()}" for each in transactions]


def orders(*numbers: int) -> list[str]:
    return [f"queue ORDERS {text(ORDERS, number).message_id} order-{number}" for number in numbers]


def prices(key: str, *numbers: int) -> list[str]:
    ids = [text(PRICES, number).message_id for number in numbers]
    return [f"pending PRICES.EU client:{key} null {each}" for each in ids or ["-"]]


def stop(lives: Any) -> None:
    lives.close([text(ORDERS, 5).message_id])


def kill(lives: Any) -> None:
    lives.flush()
    lives.crash()


def opened(lives: Any) -> Any:
    """Open the store again; what `facts` needs."""
    lives.recovery = lives.open()
    return lives


def fill(store: Any) -> None:
    """Queues, two durable subscriptions of which one acknowledges with a gap, transactions of every outcome."""
    store.subscribe(subscription("a", subscribed_destination=PRICES._replace(name="PRICES.*")))
    store.subscribe(subscription("b", selector="price > 5"))
    for number in range(200):
        store.add(text(ORDERS, number, f"order-{number}"))
        store.add(text(BILLS, number, f"bill-{number}"))
        store.add(text(PRICES, number, f"price-{number}"))
    store.add(text(GIANT, 1, "g" * 300_000))
    for number in (0, 1, 7, 150):
        store.remove(ORDERS, text(ORDERS, number).message_id)
    for number in range(200):
        store.remove(BILLS, text(BILLS, number).message_id)
        if number != 42:
            store.acknowledge(PRICES, "client:a", text(PRICES, number).message_id)
    for transaction, first in ((COMMITTED, 1000), (ROLLED_BACK, 2000), (LEFT_OPEN, 3000)):
        store.add(text(ORDERS, first, f"tx-{first}"), transaction)
        store.remove(ORDERS, text(ORDERS, 2 + first // 1000).message_id, transaction)
    store.commit(COMMITTED)
    store.rollback(ROLLED_BACK)


@pytest.mark.parametrize("end", [stop, kill])
def test_activemq_finds_everything_that_was_written(lives: Any, activemq: Step, end: Callable[[Any], None]) -> None:
    fill(lives.store)
    end(lives)
    live = [number for number in range(200) if number not in (0, 1, 7, 150, 3)]
    lines = [*orders(*live), f"queue ORDERS {text(ORDERS, 1000).message_id} tx-1000"]
    lines.append(f"queue GIANT {text(GIANT, 1).message_id} {'g' * 300_000}")
    lines += prices("a", *range(42, 200))  # what is acknowledged beyond a gap comes again: ActiveMQ knows a cursor only
    lines += [line.replace(" null ", " price > 5 ") for line in prices("b", *range(200))]
    assert activemq() == _grouped(lines)


@pytest.mark.alone  # ActiveMQ's acknowledgements reach the database some time after the client has left
@pytest.mark.parametrize("halt", [[], ["halt"]], ids=["stopped", "killed"])
def test_the_database_goes_back_and_forth(lives: Any, activemq: Step, halt: list[str]) -> None:
    fill(lives.store)
    kill(lives)
    seen = activemq("take:ORDERS", "send:ORDERS:from-java", "drain:PRICES.*:client:a", "publish:PRICES.EU:new", *halt)

    node = opened(lives)
    assert facts(node) == seen
    texts = [view(message).text() for message in node.store.read(ORDERS, node.recovery.queues[ORDERS])]
    assert (texts[0], texts[-1]) == ("order-2", "from-java") if "order-2" in texts else ("order-4", "from-java")
    assert node.recovery.delivered is None, "no one knows what an ActiveMQ has delivered"
    assert not node.store.damages

    # Now pybroker consumes nearly everything, and hands over again.
    for message_id in node.recovery.queues[ORDERS][:-1]:
        node.store.remove(ORDERS, message_id)
    node.store.unsubscribe(PRICES, "client:b")
    node.store.add(text(ORDERS, 5000, "last"))
    kill(node)
    left = activemq(*halt)
    assert [line.rpartition(" ")[2] for line in left if line.startswith("queue ORDERS")] == ["from-java", "last"]
    assert [line.split(" ")[2] for line in left if line.startswith("pending")] == ["client:a"]
    assert facts(opened(node)) == left


def test_tables_that_activemq_made(lives: Any, activemq: Step, adapter: Any) -> None:
    """The first to start creates the tables; both find nothing to add to what the other has made."""
    lives.crash()
    lives.database.sql("DROP OWNED BY pybroker; GRANT ALL ON SCHEMA public TO pybroker")
    seen = activemq("send:ORDERS:one", "subscribe:PRICES.EU:client:a", "publish:PRICES.EU:two", "halt")
    made = columns(lives.database)
    node = opened(lives)
    assert facts(node) == seen
    assert len(seen) == 2
    assert columns(node.database) == made
    ours = adapter()
    ours.open()
    assert columns(ours.database) == made


def columns(database: Any) -> str:
    """Return ActiveMQ's tables with their columns, keys and indexes."""
    return database.sql(
        "SELECT table_name, column_name, data_type, character_maximum_length, is_nullable, column_default"
        " FROM information_schema.columns WHERE table_name LIKE 'activemq%' ORDER BY 1, ordinal_position"
    ) + database.sql(
        "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE tablename LIKE 'activemq%' ORDER BY 1, 2"
    )


def fill_with_doubts(store: Any) -> None:
    """Five orders and three prices; two prepared transactions, and one that is not."""
    for name in ("a", "b"):
        store.subscribe(subscription(name))
    for number in range(5):
        store.add(text(ORDERS, number, f"order-{number}"))
    for number in range(3):
        store.add(text(PRICES, number, f"price-{number}"))
    store.remove(ORDERS, text(ORDERS, 0).message_id, FIRST)
    store.add(text(ORDERS, 10, "order-10"), FIRST)
    store.add(text(BILLS, 11, "bill"), FIRST)
    store.acknowledge(PRICES, "client:a", text(PRICES, 0).message_id, FIRST)
    store.remove(ORDERS, text(ORDERS, 3).message_id, SECOND)
    store.add(text(PRICES, 12, "price-12"), SECOND)
    store.remove(ORDERS, text(ORDERS, 4).message_id, UNPREPARED)
    store.add(text(ORDERS, 13, "order-13"), UNPREPARED)
    store.prepare(FIRST)
    store.prepare(SECOND)


@pytest.mark.parametrize("end", [stop, kill])
@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (
            (),
            # On a queue ActiveMQ hides what is in doubt, both what was sent and what was consumed; not on a topic.
            [*doubt(FIRST, SECOND), *prices("a", 0, 1, 2, 12), *prices("b", 0, 1, 2, 12), *orders(1, 2, 4)],
        ),
        (
            ("rollback:second", "commit:first"),
            [
                *prices("a", 1, 2),
                *prices("b", 0, 1, 2),
                f"queue BILLS {text(BILLS, 11).message_id} bill",
                *orders(1, 2, 3, 4, 10),
            ],
        ),
        (
            ("rollback:first", "commit:second"),
            [*prices("a", 0, 1, 2, 12), *prices("b", 0, 1, 2, 12), *orders(0, 1, 2, 4)],
        ),
    ],
    ids=["in doubt", "first committed", "second committed"],
)
def test_activemq_recovers_what_pybroker_prepared(
    lives: Any, activemq: Step, end: Callable[[Any], None], steps: tuple[str, ...], expected: list[str]
) -> None:
    fill_with_doubts(lives.store)
    end(lives)
    assert activemq(*steps) == _grouped(expected)
    left = opened(lives).recovery.prepared
    assert [each.transaction_id for each in left] == ([] if steps else [FIRST, SECOND])


@pytest.mark.parametrize("halt", [[], ["halt"]], ids=["stopped", "killed"])
@pytest.mark.parametrize("outcome", ["commit", "rollback"])
def test_branches_prepared_by_activemq_survive_both_take_overs(
    lives: Any, activemq: Step, halt: list[str], outcome: str
) -> None:
    lives.store.subscribe(subscription("a"))
    for number in range(3):
        lives.store.add(text(ORDERS, number, f"order-{number}"))
        lives.store.add(text(PRICES, number, f"price-{number}"))
    stop(lives)
    activemq("prepare:first:ORDERS:from-java", "prepare:second:PRICES.EU:client:a", *halt)

    node = opened(lives)
    found = {each.transaction_id: each for each in node.recovery.prepared}
    assert set(found) == {FIRST, SECOND}
    assert [each.destination for each in found[FIRST].sent] == [ORDERS]
    assert list(found[FIRST].acknowledged) == [PreparedAck(ORDERS, text(ORDERS, 0).message_id)]
    assert list(found[SECOND].acknowledged) == [PreparedAck(PRICES, text(PRICES, 0).message_id, "client:a")]
    assert not found[SECOND].sent
    assert len(node.recovery.queues[ORDERS]) == 3
    # ActiveMQ's transaction lives through another life of pybroker; then pybroker decides one, and ActiveMQ the other.
    kill(node)
    node = opened(node)
    getattr(node.store, outcome)(FIRST)
    stop(node)

    seen = activemq(*halt)
    assert [line for line in seen if line.startswith("doubt")] == doubt(SECOND)
    kept = orders(1, 2) if outcome == "commit" else orders(0, 1, 2)
    assert [line for line in seen if line.startswith("queue")][: len(kept)] == kept
    assert any(line.endswith("from-java") for line in seen) is (outcome == "commit")

    seen = activemq(f"{outcome}:second")
    left = (1, 2) if outcome == "commit" else (0, 1, 2)
    assert [line for line in seen if line.startswith("pending")] == prices("a", *left)
    assert not any(line.startswith("doubt") for line in seen)
    assert facts(opened(node)) == seen
