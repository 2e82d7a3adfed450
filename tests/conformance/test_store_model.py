"""The journal against the memory store as its model: any sequence of operations, clean stops, crashes and cleanups."""

import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import LocalTransactionId, TransactionId, XATransactionId
from pybroker.store.journal.appender import JournalSettings

QUEUES = st.sampled_from([queue("A"), queue("B")])
TOPICS = st.sampled_from([topic("A"), topic("C")])
KEYS = st.sampled_from(["s", "t"])
SETTINGS = JournalSettings(file_bytes_max=1200, batch_bytes_max=700, compact_after_cleanups=1)
"""A file holds a few records, so that a short run has many files for cleanup and compaction to think about."""
NUMBERS = st.integers(0, 15)
SIZES = st.sampled_from([0, 0, 300, 2500])
XA = [XATransactionId(1, b"g", b"1"), XATransactionId(1, b"g", b"2")]
TRANSACTIONS = st.sampled_from(
    [None, None, None, LocalTransactionId("ID:c:1", 1), LocalTransactionId("ID:c:1", 2), *XA, *XA]
)
BRANCHES = st.sampled_from(XA)
ENDED = TRANSACTIONS.filter(lambda transaction: transaction is not None)


class StoreMachine(RuleBasedStateMachine):
    """Does the same to both stores, and compares their recoveries."""

    make_journal: Callable[[Path], Any]
    make_memory: Callable[[], Any]
    make_message: Callable[..., Any]
    snapshot: Callable[[Any], Any]
    bodies: Callable[[Any, Any], Any]

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.journal = type(self).make_journal(self.directory)
        self.memory = type(self).make_memory()
        self.open_both()

    def open_both(self) -> None:
        expected, found = self.memory.open(), self.journal.open()
        assert self.journal.store.damages == []
        assert type(self).snapshot(found) == type(self).snapshot(expected)
        bodies = type(self).bodies
        assert bodies(self.journal.store, found) == bodies(self.memory.store, expected)
        assert self.journal.store.damages == []
        assert found.delivered == expected.delivered
        self.prepared = {each.transaction_id for each in expected.prepared}
        self.audits_agree()

    def both(self, method: str, *arguments: Any) -> None:
        for lives in (self.memory, self.journal):
            getattr(lives.store, method)(*arguments)

    @rule(destination=QUEUES | TOPICS, number=NUMBERS, size=SIZES, transaction=TRANSACTIONS, priority=st.integers(3, 5))
    def add(self, destination: Destination, number: int, size: int, transaction: Any, priority: int) -> None:
        message = type(self).make_message(destination, number, "x" * size, priority=priority)
        if transaction not in self.prepared:
            self.both("add", message, transaction)

    @rule(destination=QUEUES, number=NUMBERS, transaction=TRANSACTIONS)
    def remove(self, destination: Destination, number: int, transaction: Any) -> None:
        if transaction not in self.prepared:
            self.both("remove", destination, type(self).make_message(destination, number).message_id, transaction)

    @rule(destination=TOPICS, key=KEYS, number=NUMBERS, transaction=TRANSACTIONS)
    def acknowledge(self, destination: Destination, key: str, number: int, transaction: Any) -> None:
        message_id = type(self).make_message(destination, number).message_id
        if transaction not in self.prepared:
            self.both("acknowledge", destination, f"client:{key}", message_id, transaction)

    @rule(
        destination=TOPICS,
        key=KEYS,
        selector=st.sampled_from([None, "x = 1"]),
        user=st.sampled_from([None, "ann", "bob"]),
    )
    def subscribe(self, destination: Destination, key: str, selector: str | None, user: str | None) -> None:
        made = DurableSubscription(
            client_id="client", name=key, destination=destination, subscribed_destination=destination, user=user
        )
        self.both("subscribe", replace(made, selector=selector))

    @rule(destination=TOPICS, key=KEYS)
    def unsubscribe(self, destination: Destination, key: str) -> None:
        self.both("unsubscribe", destination, f"client:{key}")

    @rule(transaction=BRANCHES)
    def prepare(self, transaction: XATransactionId) -> None:
        if transaction not in self.prepared:
            self.both("prepare", transaction)
            self.prepared.add(transaction)

    @rule(transaction=ENDED)
    def commit(self, transaction: TransactionId) -> None:
        self.both("commit", transaction)
        self.prepared.discard(transaction)

    @rule(transaction=ENDED)
    def rollback(self, transaction: TransactionId) -> None:
        self.both("rollback", transaction)
        self.prepared.discard(transaction)

    @rule(destination=QUEUES | TOPICS)
    def remove_destination(self, destination: Destination) -> None:
        self.both("remove_destination", destination)

    @rule()
    def let_the_writer_catch_up(self) -> None:
        self.journal.flush()  # to the end, so that what is in which batch does not depend on the threads

    @rule()
    def cleanup(self) -> None:
        self.journal.cleanup()

    @rule(numbers=st.sets(NUMBERS))
    def stop_and_start(self, numbers: set[int]) -> None:
        delivered = [type(self).make_message(queue("A"), number).message_id for number in numbers]
        self.memory.close(delivered)
        self.journal.close(delivered)
        self.journal.loop.turn()
        self.open_both()

    @rule()
    def crash_and_start(self) -> None:
        self.journal.flush()
        self.memory.crash()
        self.journal.crash()
        self.open_both()

    @invariant()
    def audits_agree(self) -> None:
        producer_id = type(self).make_message(queue("A"), 1).message_id.removesuffix(":1")
        assert self.journal.store.last_sequence(producer_id) == self.memory.store.last_sequence(producer_id)

    @invariant()
    def nothing_failed(self) -> None:
        assert self.journal.failures == []

    def teardown(self) -> None:
        self.crash_and_start()
        self.journal.crash()
        shutil.rmtree(self.directory)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("prioritized", [False, True])
def test_the_journal_agrees_with_its_model(
    prioritized: bool, text_message: Any, snapshot: Any, bodies: Any, memory_lives_type: Any, journal_lives_type: Any
) -> None:
    class Machine(StoreMachine):
        make_journal = staticmethod(
            lambda directory: journal_lives_type(directory, prioritized=prioritized, settings=SETTINGS)
        )
        make_memory = staticmethod(lambda: memory_lives_type(prioritized=prioritized))
        make_message = staticmethod(text_message)

    Machine.snapshot = staticmethod(snapshot)
    Machine.bodies = staticmethod(bodies)
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=60,
            stateful_step_count=60,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


class Soak:
    """Realistic traffic: mostly first in, first out, with stragglers that no one consumes.

    That is what grows the chains of files that only compaction breaks; Hypothesis finds them too rarely.
    """

    def __init__(self, stores: list[Any], make_message: Callable[..., Any], seed: int) -> None:
        self.stores = stores
        self.make_message = make_message
        self.random = random.Random(seed)
        self.sequence = 0
        self.waiting: list[tuple[Destination, int]] = []
        self.transaction: LocalTransactionId | XATransactionId | None = None
        self.in_transaction: list[tuple[Destination, int]] = []
        self.prepared: list[Any] = []

    def all(self, method: str, *arguments: Any) -> None:
        for store in self.stores:
            getattr(store, method)(*arguments)

    def subscribe(self) -> None:
        for key in ("s", "t"):
            self.all(
                "subscribe",
                DurableSubscription(
                    client_id="client", name=key, destination=topic("T"), subscribed_destination=topic("T")
                ),
            )

    def step(self) -> None:
        choice = self.random.random()
        if choice < 0.4:
            self.send()
        elif choice < 0.9 and len(self.waiting) > 6:
            self.consume()
        elif choice < 0.96:
            self.begin_or_end()
        elif choice < 0.97:
            self.decide()
        elif choice > 0.995:
            self.all("unsubscribe", topic("T"), "client:t")

    def send(self) -> None:
        self.sequence += 1
        destination = self.random.choice([queue("A"), queue("B"), topic("T")])
        transaction = self.random.choice([None, None, self.transaction])
        self.all("add", self.make_message(destination, self.sequence, "x" * 80), transaction)
        if self.random.random() < 0.98:  # the rest is never consumed
            (self.waiting if transaction is None else self.in_transaction).append((destination, self.sequence))

    def consume(self) -> None:
        destination, number = self.waiting.pop(self.random.choice((0, 0, 0, 3)))
        transaction = self.random.choice([None, None, self.transaction])
        message_id = self.make_message(destination, number).message_id
        if destination.is_queue:
            self.all("remove", destination, message_id, transaction)
        else:
            for key in ("client:s", "client:t"):
                self.all("acknowledge", destination, key, message_id, transaction)

    def begin_or_end(self) -> None:
        if self.transaction is None:
            self.transaction = (
                LocalTransactionId("ID:c:1", self.sequence)
                if self.random.random() < 0.5
                else XATransactionId(1, str(self.sequence).encode(), b"b")
            )
            return
        ends = ["commit", "commit", "rollback"]
        if isinstance(self.transaction, XATransactionId):
            ends.append("prepare")
        end = self.random.choice(ends)
        self.all(end, self.transaction)
        if end == "commit":
            self.waiting += self.in_transaction
        elif end == "prepare":
            self.prepared.append(self.transaction)  # What it sends is not consumed: more stragglers.
        self.forget_transaction()

    def decide(self) -> None:
        if self.prepared:
            transaction = self.prepared.pop(self.random.randrange(len(self.prepared)))
            self.all(self.random.choice(["commit", "rollback"]), transaction)

    def forget_transaction(self) -> None:
        self.transaction = None
        self.in_transaction = []


@pytest.mark.parametrize("seed", range(8))
def test_a_long_life_with_compactions(
    seed: int,
    tmp_path: Path,
    text_message: Any,
    snapshot: Any,
    bodies: Any,
    memory_lives_type: Any,
    journal_lives_type: Any,
) -> None:
    memory, journal = memory_lives_type(), journal_lives_type(tmp_path, settings=SETTINGS)
    memory.open()
    journal.open()
    soak = Soak([memory.store, journal.store], text_message, seed)
    soak.subscribe()
    for step in range(1, 1201):
        soak.step()
        if step % 15 == 0:
            journal.flush()
            journal.cleanup()
        if step % 150 == 0:
            journal.flush()
            memory.crash()
            journal.crash()
            soak.forget_transaction()
            assert snapshot(journal.open()) == snapshot(memory.open())
            assert journal.store.damages == []
            soak.stores[1] = journal.store
    journal.crash()
