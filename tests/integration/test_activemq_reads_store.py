# mypy: disable-error-code="arg-type"
"""A real ActiveMQ opens what pybroker wrote, goes on with it, and hands it back: clean stops and kills, both ways."""

import shutil
import threading
from collections.abc import Callable
from itertools import count, groupby
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.body import encode_text
from pybroker.broker.domain.openwire.message import (
    MessageType,
    OpenWireMessage,
    OpenWireMessageId,
    ProducerId,
    to_message,
    view,
)
from pybroker.broker.domain.recovery import Recovery
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import LocalTransactionId
from pybroker.store.journal.appender import JournalSettings, Preallocation
from pybroker.store.journal.format import Location
from pybroker.store.journal.reader import data_files
from pybroker.store.journal.store import JournalStore
from tests.runtimes import runtime

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(180)]

PROGRAM = Path(__file__).parent / "java" / "OpenStore.java"
PRODUCER = ProducerId("ID:testhost-40001-1700000000000-3:1", 1, 1)
ORDERS, BILLS, IN_TX, GIANT = queue("ORDERS"), queue("BILLS"), queue("IN.TX"), queue("GIANT")
PRICES = topic("PRICES.EU")
COMMITTED, ROLLED_BACK, LEFT_OPEN = (LocalTransactionId(PRODUCER.connection_id, number) for number in (1, 2, 3))

SMALL_FILES = JournalSettings(file_bytes_max=64 * 1024)
GROWING_FILES = JournalSettings(file_bytes_max=64 * 1024, preallocation=Preallocation.NONE)
ONE_FILE = JournalSettings()


def text(destination: Destination, sequence: int, body: str = "") -> Message:
    fields = OpenWireMessage(
        type=MessageType.TEXT,
        producer_id=PRODUCER,
        destination=destination,
        message_id=OpenWireMessageId(None, PRODUCER, sequence),
        persistent=True,
        timestamp=1_700_000_000_000,
    )
    fields.content = encode_text(body)
    return to_message(fields)


class Node:
    """pybroker's store on a directory, without a loop: what would run on it gathers in `posted`."""

    def __init__(self, directory: Path, settings: JournalSettings) -> None:
        self.posted: list[Callable[[], None]] = []
        self.store = JournalStore(
            directory,
            settings=settings,
            runtime=runtime(self.posted.append),
        )
        self.recovery: Recovery = self.store.recover()

    def fill(self) -> None:
        store = self.store
        for name, selector in (("a", None), ("b", "price > 5")):
            store.subscribe(
                DurableSubscription(
                    client_id="client",
                    name=name,
                    destination=PRICES,
                    subscribed_destination=topic("PRICES.*"),
                    selector=selector,
                    user="ann",
                )
            )
        for number in range(200):
            store.add(text(ORDERS, number, f"order-{number}-{'x' * 1000}"))
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
            store.add(text(IN_TX, first, f"tx-{first}"), transaction)
            store.add(text(IN_TX, first + 1, f"tx-{first + 1}"), transaction)
            store.remove(ORDERS, text(ORDERS, 2 + first // 1000).message_id, transaction)
        store.commit(COMMITTED)
        store.rollback(ROLLED_BACK)

    def clean(self, times: int) -> None:
        """Clean up as often as an application does in that many intervals."""
        for _ in range(times):
            self.store.cleanup()
            flush(self.store)
            while self.posted:
                self.posted.pop(0)()

    def stop(self) -> None:
        self.store.close(delivered=[text(ORDERS, 5).message_id])

    def kill(self) -> None:
        """Stop where only what is on disk counts, which everything is."""
        flush(self.store)
        self.store.abandon()


def flush(store: JournalStore) -> None:
    """Wait until the writer's thread has written everything."""
    done = threading.Event()
    store._writer.submit(done.set)
    assert done.wait(30)


def facts(node: Node) -> list[str]:
    """Return what a node recovered, in the Java program's format."""
    lines = []
    recovery = node.recovery
    for destination, message_ids in sorted(recovery.queues.items()):
        messages = node.store.read(destination, message_ids)
        lines += [f"queue {destination.name} {m.message_id} {view(m).text()}" for m in messages]
    for prepared in recovery.prepared:
        format_id, global_id, branch = prepared.transaction_id
        lines.append(f"doubt {format_id} {global_id.hex()} {branch.hex()}")
    for backlog in recovery.backlogs:
        made = backlog.subscription
        prefix = f"pending {made.destination.name} {made.key} {_java(made.selector)} "
        lines += [prefix + message_id for message_id in backlog.message_ids or ["-"]]
    return _grouped(lines)


def _java(value: str | None) -> str:
    return "null" if value is None else value


def _grouped(lines: list[str]) -> list[str]:
    """Sort by destination and subscription, keeping the order of messages within."""
    return sorted(lines, key=lambda line: line.split(" ID:")[0].removesuffix(" -"))


def expected_after_fill() -> list[str]:
    live = [number for number in range(200) if number not in (0, 1, 7, 150, 3)]
    lines = [f"queue ORDERS {text(ORDERS, n).message_id} order-{n}-{'x' * 1000}" for n in live]
    lines += [f"queue IN.TX {text(IN_TX, n).message_id} tx-{n}" for n in (1000, 1001)]
    lines.append(f"queue GIANT {text(GIANT, 1).message_id} {'g' * 300_000}")
    lines.append(f"pending PRICES.EU client:a null {text(PRICES, 42).message_id}")
    lines += [f"pending PRICES.EU client:b price > 5 {text(PRICES, n).message_id}" for n in range(200)]
    return _grouped(lines)


@pytest.fixture
def activemq(java: Any, tmp_path: Path) -> Callable[..., list[str]]:
    """Opens the directory with a real broker, performs steps, and returns its view of the contents."""

    def run(*steps: str) -> list[str]:
        return _grouped(java.run(PROGRAM, str(tmp_path / "kahadb"), *steps, timeout_seconds=90).splitlines())

    return run


@pytest.mark.parametrize("end", [Node.stop, Node.kill])
@pytest.mark.parametrize("settings", [SMALL_FILES, GROWING_FILES, ONE_FILE], ids=["small", "growing", "default"])
def test_activemq_finds_everything_that_was_written(
    tmp_path: Path, activemq: Callable[..., list[str]], settings: JournalSettings, end: Callable[[Node], None]
) -> None:
    node = Node(tmp_path / "kahadb", settings)
    node.fill()
    end(node)
    assert activemq() == expected_after_fill()


@pytest.mark.parametrize("halt", [[], ["halt"]], ids=["stopped", "killed"])
def test_the_store_goes_back_and_forth(tmp_path: Path, activemq: Callable[..., list[str]], halt: list[str]) -> None:
    directory = tmp_path / "kahadb"
    node = Node(directory, SMALL_FILES)
    node.fill()
    node.kill()

    steps = ["take:ORDERS", "send:ORDERS:from-java", "drain:PRICES.*:client:a", *halt]
    seen_by_java = activemq(*steps)

    node = Node(directory, SMALL_FILES)
    assert facts(node) == seen_by_java
    orders = [view(message).text() or "" for message in node.store.read(ORDERS, node.recovery.queues[ORDERS])]
    assert orders[0].startswith("order-4-")
    assert orders[-1] == "from-java"
    assert node.recovery.delivered == (None if halt else frozenset()), "an ActiveMQ that stopped in order marks nothing"
    assert not node.store.damages

    # Now pybroker consumes nearly everything, removes files below ActiveMQ's index, and hands over again.
    for destination, message_ids in node.recovery.queues.items():
        for message_id in message_ids[:-1] if destination == ORDERS else message_ids:
            node.store.remove(destination, message_id)
    node.store.unsubscribe(PRICES, "client:b")
    flush(node.store)
    node.store.cleanup()
    flush(node.store)
    kept = {path.name for path in directory.glob("db-*.log")}
    assert "db-1.log" not in kept
    node.stop()

    last_order, subscription = sorted(activemq(*halt), reverse=True)
    assert {last_order.rpartition(" ")[2], subscription.rpartition(" ")[2]} == {"from-java", "-"}


def test_activemq_opens_a_compacted_journal(tmp_path: Path, activemq: Callable[..., list[str]]) -> None:
    directory = tmp_path / "kahadb"
    node = Node(directory, JournalSettings(file_bytes_max=16 * 1024, compact_after_cleanups=1))
    node.store.add(text(ORDERS, 0, "straggler"))
    for number in range(1, 150):
        node.store.add(text(ORDERS, number, "x" * 1000))
        if number > 3:
            transaction = LocalTransactionId(PRODUCER.connection_id, number) if number % 5 == 0 else None
            node.store.remove(ORDERS, text(ORDERS, number - 3).message_id, transaction)
            if transaction:
                node.store.commit(transaction)
    flush(node.store)
    grown = len(list(directory.glob("db-*.log")))
    node.clean(40)
    assert len(list(directory.glob("db-*.log"))) < grown
    node.kill()
    live = [f"ORDERS {text(ORDERS, number).message_id}" for number in (0, 147, 148, 149)]
    assert [" ".join(line.split()[1:3]) for line in activemq()] == live


def test_activemq_delivers_what_waits_when_records_were_moved(
    tmp_path: Path, activemq: Callable[..., list[str]]
) -> None:
    """To ActiveMQ a subscription's record acknowledges the topic's newest message, if that is all there is for it.

    So a subscription that has pending messages is not written again; one without is, whatever comes for it later.
    """
    node = Node(tmp_path / "kahadb", JournalSettings(file_bytes_max=32 * 1024, compact_after_cleanups=0))
    keys = ["few:s", "newest:s", "none:s"]
    for key in reversed(keys):
        name = key.partition(":")[0]
        node.store.subscribe(
            DurableSubscription(client_id=name, name="s", destination=PRICES, subscribed_destination=PRICES)
        )
        if key == "none:s":  # the others' records are in another file
            for number in range(40):
                node.store.add(text(BILLS, number, "x" * 1000))
                node.store.remove(BILLS, text(BILLS, number).message_id)
    created = places(node)
    pending: dict[str, list[str]] = {key: [] for key in keys}
    numbers = count()

    def publish(message_count: int, few: int, newest: int) -> None:
        """Publish messages, and leave the two subscriptions that many."""
        for _ in range(message_count):
            message = text(PRICES, next(numbers), "x" * 1000)
            node.store.add(message)
            for key, left in zip(keys, (few, newest, 0), strict=True):
                pending[key].append(message.message_id)
                while len(pending[key]) > left:
                    node.store.acknowledge(PRICES, key, pending[key].pop(0))

    def heard() -> list[str]:
        """Return what ActiveMQ delivers from a copy, index and all."""
        node.kill()
        shutil.copytree(tmp_path / "kahadb", tmp_path / "copy")
        lines = activemq(*(f"hear:{PRICES.name}:{key}" for key in keys))
        shutil.rmtree(tmp_path / "kahadb")
        (tmp_path / "copy").rename(tmp_path / "kahadb")
        return [line for line in lines if line.startswith("heard")]

    def expected() -> list[str]:
        return [f"heard {PRICES.name} {key} {message_id}" for key in keys for message_id in pending[key]]

    publish(120, few=3, newest=1)
    node.clean(3)
    assert [key for key in keys if places(node)[key] != created[key]] == ["none:s"]
    assert heard() == expected()

    node = Node(tmp_path / "kahadb", JournalSettings(file_bytes_max=32 * 1024, compact_after_cleanups=0))
    publish(60, few=0, newest=0)
    node.clean(3)
    assert min(data_files(tmp_path / "kahadb")) > created[keys[0]].file_id
    moved = places(node)
    assert all(moved[key].file_id > created[key].file_id for key in keys)
    publish(60, few=2, newest=1)
    node.clean(3)
    assert heard() == expected()


def places(node: Node) -> dict[str, Location]:
    """Return where the latest record of each subscription is."""
    return {key: each.location for key, each in node.store._state.destinations[PRICES].subscriptions.items()}


def test_a_torn_tail_is_cut_and_activemq_opens_the_rest(tmp_path: Path, activemq: Callable[..., list[str]]) -> None:
    directory = tmp_path / "kahadb"
    node = Node(directory, ONE_FILE)
    node.store.add(text(ORDERS, 1, "whole"))
    flush(node.store)
    node.store.add(text(ORDERS, 2, "torn"))
    node.kill()
    path = directory / "db-1.log"
    data = path.read_bytes()
    torn_at = data.rindex(b"torn")
    path.write_bytes(data[: torn_at + 2] + bytes(len(data) - torn_at - 2))

    node = Node(directory, ONE_FILE)
    node.store.add(text(ORDERS, 3, "later"))
    node.kill()

    assert [line.rpartition(" ")[2] for line in activemq()] == ["whole", "later"]


def test_groups_are_compared_in_order() -> None:
    """The comparison itself keeps the order of messages, or it would prove less than it claims."""
    lines = ["queue B ID:2 x", "queue A ID:2 x", "queue A ID:1 x"]
    assert [name for name, _ in groupby(_grouped(lines), key=lambda line: line[:7])] == ["queue A", "queue B"]
    assert _grouped(lines)[:2] == ["queue A ID:2 x", "queue A ID:1 x"]
