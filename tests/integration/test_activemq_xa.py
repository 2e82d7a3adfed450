"""Transactions in doubt change hands between pybroker and a real ActiveMQ, both ways, and end as requested."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pybroker.broker.core.scheduling_queue import SCHEDULING_QUEUE, SchedulingQueue, to_scheduling_queue
from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.openwire.message import to_message, view
from pybroker.broker.domain.recovery import PreparedAck
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import XATransactionId
from tests.integration.test_activemq_reads_store import (
    BILLS,
    ONE_FILE,
    ORDERS,
    PRICES,
    PROGRAM,
    SMALL_FILES,
    Node,
    _grouped,
    facts,
    text,
)

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(180)]

FIRST, SECOND, UNPREPARED = (XATransactionId(4660, name, name) for name in (b"first", b"second", b"third"))


@pytest.fixture
def activemq(java: Any, tmp_path: Path) -> Callable[..., list[str]]:
    """Opens the directory with a real broker, performs steps, and returns its view of the contents."""

    def run(*steps: str) -> list[str]:
        return _grouped(java.run(PROGRAM, str(tmp_path / "kahadb"), *steps, timeout_seconds=90).splitlines())

    return run


def doubt(*transactions: XATransactionId) -> list[str]:
    return [f"doubt 4660 {each.branch_qualifier.hex()} {each.branch_qualifier.hex()}" for each in transactions]


def orders(*numbers: int) -> list[str]:
    return [f"queue ORDERS {text(ORDERS, number).message_id} order-{number}" for number in numbers]


def prices(key: str, *numbers: int) -> list[str]:
    ids = [text(PRICES, number).message_id for number in numbers]
    return [f"pending PRICES.EU client:{key} null {each}" for each in ids or ["-"]]


def fill(node: Node) -> None:
    """Five orders and three prices; two prepared transactions, and one that is not."""
    store = node.store
    for name in ("a", "b"):
        store.subscribe(
            DurableSubscription(client_id="client", name=name, destination=PRICES, subscribed_destination=PRICES)
        )
    for number in range(5):
        store.add(text(ORDERS, number, f"order-{number}"))
    for number in range(3):
        store.add(text(PRICES, number, f"price-{number}"))
    store.remove(ORDERS, text(ORDERS, 0).message_id, FIRST)
    store.add(text(ORDERS, 10, "order-10"), FIRST)
    store.add(text(BILLS, 11, "bill"), FIRST)
    store.acknowledge(PRICES, "client:a", text(PRICES, 1).message_id, FIRST)
    store.remove(ORDERS, text(ORDERS, 3).message_id, SECOND)
    store.add(text(PRICES, 12, "price-12"), SECOND)
    store.remove(ORDERS, text(ORDERS, 4).message_id, UNPREPARED)
    store.add(text(ORDERS, 13, "order-13"), UNPREPARED)
    store.prepare(FIRST)
    store.prepare(SECOND)


@pytest.mark.parametrize("end", [Node.stop, Node.kill])
@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((), [*doubt(FIRST, SECOND), *prices("a", 0, 2), *prices("b", 0, 1, 2), *orders(1, 2, 4)]),
        (
            ("rollback:second", "commit:first"),  # what is rolled back later comes later, until a restart
            [
                *prices("a", 0, 2),
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
    tmp_path: Path,
    activemq: Callable[..., list[str]],
    end: Callable[[Node], None],
    steps: tuple[str, ...],
    expected: list[str],
) -> None:
    node = Node(tmp_path / "kahadb", ONE_FILE)
    fill(node)
    end(node)
    assert activemq(*steps) == _grouped(expected)


@pytest.mark.parametrize("halt", [[], ["halt"]], ids=["stopped", "killed"])
@pytest.mark.parametrize("outcome", ["commit", "rollback"])
def test_branches_prepared_by_activemq_survive_both_take_overs(
    tmp_path: Path, activemq: Callable[..., list[str]], halt: list[str], outcome: str
) -> None:
    directory = tmp_path / "kahadb"
    node = Node(directory, SMALL_FILES)
    store = node.store
    store.subscribe(
        DurableSubscription(client_id="client", name="a", destination=PRICES, subscribed_destination=PRICES)
    )
    for number in range(3):
        store.add(text(ORDERS, number, f"order-{number}"))
        store.add(text(PRICES, number, f"price-{number}"))
    node.stop()
    activemq("prepare:first:ORDERS:from-java", "prepare:second:PRICES.EU:client:a", *halt)

    node = Node(directory, SMALL_FILES)
    first, second = node.recovery.prepared
    assert (first.transaction_id, second.transaction_id) == (FIRST, SECOND)
    assert [each.destination for each in first.sent] == [ORDERS]
    assert list(first.acknowledged) == [PreparedAck(ORDERS, text(ORDERS, 0).message_id)]
    assert (list(second.sent), list(second.acknowledged)) == (
        [],
        [PreparedAck(PRICES, text(PRICES, 0).message_id, "client:a")],
    )
    assert len(node.recovery.queues[ORDERS]) == 3
    # ActiveMQ's transaction lives through another life of pybroker; then pybroker decides one, and ActiveMQ the other.
    node.kill()
    node = Node(directory, SMALL_FILES)
    getattr(node.store, outcome)(FIRST)
    node.stop()

    seen = activemq(*halt)
    assert [line for line in seen if line.startswith("doubt")] == doubt(SECOND)
    kept = orders(1, 2) if outcome == "commit" else orders(0, 1, 2)
    assert [line for line in seen if line.startswith("queue")][: len(kept)] == kept
    assert any(line.endswith("from-java") for line in seen) is (outcome == "commit")
    assert [line for line in seen if line.startswith("pending")] == prices("a", 1, 2)

    seen = activemq(f"{outcome}:second")
    left = (1, 2) if outcome == "commit" else (0, 1, 2)
    assert [line for line in seen if line.startswith("pending")] == prices("a", *left)
    assert not any(line.startswith("doubt") for line in seen)

    node = Node(directory, SMALL_FILES)
    assert facts(node) == seen
    node.kill()


def test_job_of_a_branch_survives_activemqs_commit(tmp_path: Path, activemq: Callable[..., list[str]]) -> None:
    directory = tmp_path / "kahadb"
    node = Node(directory, ONE_FILE)
    fields = view(text(ORDERS, 10, "later"))
    fields.set_properties({"AMQ_SCHEDULED_DELAY": 500})
    sent = to_message(fields)
    node.store.add(to_scheduling_queue(sent), FIRST)
    node.store.prepare(FIRST)
    node.kill()
    assert activemq("commit:first") == [f"queue {SCHEDULING_QUEUE.name} {sent.message_id} later"]

    node = Node(directory, ONE_FILE)
    (kept,) = node.store.read(SCHEDULING_QUEUE, node.recovery.queues[SCHEDULING_QUEUE])
    scheduler, jobs = Mock(), Mock()
    scheduling_queue = SchedulingQueue(node.store, Usage(), Mock())
    scheduling_queue.recover([kept.message_id])
    scheduling_queue.open(scheduler, jobs)
    (scheduled,) = scheduler.schedule.call_args.args
    assert (scheduled.destination, scheduled.data) == (ORDERS, sent.data)
    jobs.when_durable.call_args_list[0].args[0]()
    node.stop()
    node = Node(directory, ONE_FILE)
    assert not node.recovery.queues.get(SCHEDULING_QUEUE)
    node.kill()
