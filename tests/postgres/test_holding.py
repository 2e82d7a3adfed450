"""Messages that are consumed before they are written, on PostgreSQL: what every store promises, and the fences."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.errors import LockNotHeld, StoreUnavailable
from pybroker.broker.domain.ports import RemovalReason
from pybroker.broker.domain.recovery import Recovery
from pybroker.broker.domain.subscription import DurableSubscription
from tests.conformance.test_store import TestDurability, TestLastSequence, TestQueues, TestTransactions  # noqa: F401
from tests.postgres.conftest import JdbcLives

ORDERS = queue("ORDERS")


class HoldingLives(JdbcLives):
    """A database and stores before which all that may be is held, until it is flushed."""

    def __init__(self, database: Any, **options: Any) -> None:
        self.alarms: list[Callable[[], None]] = []
        super().__init__(database, call_later=lambda _, callback: self.alarms.append(callback), **options)

    def open(self) -> Recovery:
        self.alarms.clear()
        recovery = super().open()
        elision = self.store._elision
        assert elision is not None
        elision.is_open = True
        elision._share = 1e9  # whatever happens, it goes on
        return recovery

    def flush(self) -> None:
        for _ in range(2):  # what came after the clock was wound stays for one more round
            alarms, self.alarms[:] = list(self.alarms), []
            for alarm in alarms:
                alarm()
        self.store.when_durable(lambda: None)  # else acknowledgements wait for the next alarm
        super().flush()


@pytest.fixture
def lives_type() -> type[JdbcLives]:
    """Kind of stores that the adapter makes."""
    return HoldingLives


@pytest.fixture
def lives(adapter: Callable[..., HoldingLives]) -> HoldingLives:
    """A store with a grace, opened for the first time."""
    lives = adapter(grace=20.0)
    lives.open()
    return lives


class Client:
    """Sends and consumes, and records the confirmed sends."""

    def __init__(self, store: Any, text_message: Callable[..., Any]) -> None:
        self.store = store
        self.text_message = text_message
        self.numbers: list[int] = []

    def send(self, *numbers: int) -> None:
        for number in numbers:
            assert self.store.add(self.text_message(ORDERS, number))
            self.store.when_confirmed(lambda number=number: self.numbers.append(number))

    def consume(self, *numbers: int) -> None:
        for number in numbers:
            self.store.remove(ORDERS, self.text_message(ORDERS, number).message_id)


def producer(text_message: Callable[..., Any]) -> str:
    return str(text_message(ORDERS, 1).message_id.rpartition(":")[0])


def run_until_failure(lives: HoldingLives) -> Exception:
    lives.loop.run_until(lambda: bool(lives.failures))
    return lives.failures.pop()


def test_what_is_consumed_at_once_never_gets_into_the_tables(lives: Any, text_message: Any) -> None:
    sender = Client(lives.store, text_message)
    sender.send(*range(1, 6))
    sender.consume(*range(1, 6))
    lives.loop.run_until(lambda: sender.numbers == [1, 2, 3, 4, 5])
    sender.send(6, 7)
    sender.consume(6)
    lives.flush()
    assert lives.database.sql("SELECT string_agg(id || ' ' || msgid_seq, ',') FROM activemq_msgs") == "1 7"


def test_a_later_master_knows_a_consumed_message(lives: Any, text_message: Any) -> None:
    """Its acknowledgement was answered, so it must not be delivered if its producer sends it again."""
    answered: list[int] = []
    sender = Client(lives.store, text_message)
    sender.send(1)
    sender.consume(1)
    lives.store.when_durable(lambda: answered.append(1))
    lives.loop.run_until(lambda: bool(answered))
    sender.store.abandon()
    lives.open()
    assert lives.store.last_sequence(producer(text_message)) == 1


def test_a_stale_master_confirms_no_consumed_message(lives: Any, text_message: Any) -> None:
    """The database is checked although the lock's fence passes and there is nothing to write."""
    sender = Client(lives.store, text_message)
    lives.open()  # the lock has changed hands
    sender.send(1)
    sender.consume(1)
    assert isinstance(run_until_failure(lives), LockNotHeld)
    with pytest.raises(StoreUnavailable, match="stopped"):
        sender.send(2)
    assert not sender.numbers
    sender.store.abandon()


def test_the_locks_fence_is_checked_before_any_confirmation(lives: Any, text_message: Any) -> None:
    sender = Client(lives.store, text_message)
    lives.is_master = False
    sender.send(1)
    sender.consume(1)
    assert isinstance(run_until_failure(lives), LockNotHeld)
    assert not sender.numbers


def test_waiters_are_notified_on_the_replaced_connection(lives: Any, text_message: Any) -> None:
    sender = Client(lives.store, text_message)
    lives.database.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pybroker'")
    sender.send(1)
    sender.consume(1)
    lives.loop.run_until(lambda: sender.numbers == [1])


def test_number_without_row_survives_cleanup_and_clean_stop(lives: Any, text_message: Any) -> None:
    """A client's repeated send after a failover is known, though it was consumed before it was written."""
    for end in (lives.close, lives.cleanup):
        last = max(lives.store.last_sequence(producer(text_message)), 0)
        sender = Client(lives.store, text_message)
        sender.send(last + 1)
        sender.consume(last + 1)
        lives.loop.run_until(lambda sender=sender: bool(sender.numbers))
        end()
        lives.crash()
        lives.open()
        assert lives.store.last_sequence(producer(text_message)) == last + 1


def test_cleanup_logs_no_number_of_a_missing_message(lives: Any, text_message: Any) -> None:
    sender = Client(lives.store, text_message)
    sender.send(1)
    lives.cleanup()  # what was held is written in the same transaction
    sender.send(2)
    lives.crash()
    recovery = lives.open()
    assert list(recovery.queues[ORDERS]) == [text_message(ORDERS, 1).message_id]
    assert lives.store.last_sequence(producer(text_message)) == 1
    assert sender.numbers == [1]


def test_held_sends_are_written_with_the_clients_next_ack(lives: Any, text_message: Any) -> None:
    """It waits for no answer, but may have made the one message of the other, which then is gone."""
    news = topic("NEWS")
    subscription = DurableSubscription(client_id="c", name="s", destination=news, subscribed_destination=news)
    lives.store.subscribe(subscription)
    first, held, published = text_message(ORDERS, 1), text_message(ORDERS, 2), text_message(news, 3)
    lives.store.add(first)
    lives.store.add(published)
    lives.flush()
    acknowledge: list[Callable[[str], None]] = [
        lambda client: lives.store.remove(ORDERS, first.message_id, connection_id=client),
        lambda client: lives.store.remove(ORDERS, held.message_id, connection_id=client),
        lambda client: lives.store.acknowledge(news, subscription.key, published.message_id, connection_id=client),
    ]
    for number, done in enumerate(acknowledge, 4):
        lives.store.add(held)
        answer = replace(text_message(queue("ANSWERS"), number), connection_id="ID:server")
        lives.store.add(answer)
        key = (answer.destination, answer.message_id)
        if done is not acknowledge[1]:
            done("ID:another")
        assert key in lives.store._elision
        done("ID:server")
        assert key not in lives.store._elision


def test_what_became_of_a_message_is_written_with_its_removal(lives: Any, text_message: Any) -> None:
    """A message that is dead-lettered is consumed by no one: its copy must be there when it goes."""
    lives.store.add(text_message(ORDERS, 1))
    lives.flush()
    lives.store.add(text_message(queue("ActiveMQ.DLQ"), 2))
    lives.store.remove(ORDERS, text_message(ORDERS, 1).message_id, reason=RemovalReason.DISCARDED)
    lives.store.when_durable(lambda: None)
    lives.loop.run_until(lambda: lives.store.unwritten_bytes == 0)
    lives.crash()
    assert {str(each): len(ids) for each, ids in lives.open().queues.items()} == {"queue://ActiveMQ.DLQ": 1}


def test_message_copies_are_written_with_a_durables_ack(lives: Any, text_message: Any) -> None:
    news = topic("NEWS")
    subscription = DurableSubscription(client_id="c", name="s", destination=news, subscribed_destination=news)
    lives.store.subscribe(subscription)
    message = text_message(news, 1)
    lives.store.add(message)
    lives.flush()
    lives.store.add(text_message(queue("ActiveMQ.DLQ"), 2))
    lives.store.acknowledge(news, subscription.key, message.message_id, reason=RemovalReason.DISCARDED)
    written: list[bool] = []
    lives.store._writer.when_durable(lambda: written.append(True))
    lives.loop.run_until(lambda: bool(written))
    lives.crash()
    recovery = lives.open()
    assert {str(each): len(ids) for each, ids in recovery.queues.items()} == {"queue://ActiveMQ.DLQ": 1}
    assert [list(backlog.message_ids) for backlog in recovery.backlogs] == [[]]
