"""Messages that a durable's selector excludes are neither delivered nor stored, whichever broker stored them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.core.connection import BrokerConnection
from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import topic
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.recovery import Recovery
from pybroker.broker.domain.subscription import ConsumerRequest, DurableSubscription
from tests.conformance.conftest import text_message
from tests.slow import SlowStore

PRICES = topic("PRICES")
NOW = 1_800_000_000_000
HIGH = "JMSPriority > 4"


class Throttle:
    peer = "127.0.0.1:50000"

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def hold_input(self) -> None: ...
    def give_up(self, error: Exception) -> None:
        """Fail."""
        raise error

    def release_input(self) -> None: ...


def subscription(selector: str | None = HIGH, *, no_local: bool = False) -> DurableSubscription:
    return DurableSubscription(
        client_id="me",
        name="s",
        destination=PRICES,
        subscribed_destination=PRICES,
        selector=selector,
        no_local=no_local,
    )


def leave(lives: Any, info: DurableSubscription, count: int = 6) -> list[Message]:
    """Leave messages, every second one of high priority, of which no refusal is recorded; the master dies."""
    lives.store.subscribe(info)
    messages = [text_message(PRICES, number, priority=4 + number % 2) for number in range(1, count + 1)]
    for message in messages:
        lives.store.add(message)
    lives.flush()
    lives.crash()
    return messages


def begin(lives: Any, recovery: Recovery) -> BrokerCore:
    broker = BrokerCore("b", store=lives.store, clock=lambda: NOW)
    broker.load(recovery)
    return broker


def subscribe(connection: BrokerConnection, info: DurableSubscription) -> list[str]:
    """Return the ids of what the subscription's consumer gets."""
    got: list[str] = []

    def deliver(delivery: Delivery) -> None:
        got.append(delivery.message.message_id)

    request = ConsumerRequest(destination=PRICES, subscription_name="s", selector=info.selector, no_local=info.no_local)
    connection.subscribe(request, deliver).start()
    return got


def until(lives: Any, broker: BrokerCore, condition: Callable[[], bool]) -> None:
    """Let what the store reads come in."""
    for _ in range(100):
        if condition():
            return
        lives.flush()
        broker.remove_expired()
    assert condition()


def ids(messages: list[Message]) -> list[str]:
    return [message.message_id for message in messages]


@pytest.mark.parametrize(("info", "kept"), [(subscription(), slice(0, None, 2)), (subscription(None), slice(None))])
def test_what_a_crash_left_is_filtered_and_acknowledged(lives: Any, info: DurableSubscription, kept: slice) -> None:
    messages = leave(lives, info)
    broker = begin(lives, lives.open())
    got = subscribe(broker.connect("c1", "me", Throttle()), info)
    until(lives, broker, lambda: got == ids(messages[kept]))
    lives.flush()
    lives.crash()
    (backlog,) = lives.open().backlogs
    assert list(backlog.message_ids) == ids(messages[kept])


def test_own_messages_a_crash_left_are_filtered(lives: Any) -> None:
    info = subscription(None, no_local=True)
    (message, *_) = leave(lives, info)
    broker = begin(lives, lives.open())
    assert subscribe(broker.connect(message.connection_id, "me", Throttle()), info) == []
    until(lives, broker, lambda: not broker.durables[info.key].pending.count)


def test_what_a_crash_left_is_acknowledged_without_a_consumer(lives: Any) -> None:
    messages = leave(lives, subscription())
    broker = begin(lives, lives.open())
    until(lives, broker, lambda: broker.durables["me:s"].pending.count == 3)
    lives.flush()
    lives.crash()
    (backlog,) = lives.open().backlogs
    assert list(backlog.message_ids) == ids(messages[::2])


def test_what_is_excluded_pins_no_journal_file(journal_lives: Any) -> None:
    lives = journal_lives()
    lives.open()
    lives.store.subscribe(subscription())
    for number in range(1, 60):
        lives.store.add(text_message(PRICES, number, "x" * 400))
    lives.flush()
    lives.crash()
    directory: Path = lives.directory
    recovery = lives.open()
    before = sorted(path.name for path in directory.glob("db-*.log"))
    broker = begin(lives, recovery)
    until(lives, broker, lambda: not broker.durables["me:s"].pending.count)
    for _ in range(3):
        lives.flush()
        lives.cleanup()
    after = sorted(path.name for path in directory.glob("db-*.log"))
    assert len(before) > 4
    assert len(after) < len(before) / 2


def test_a_kill_before_the_refusal_delivers_nothing_excluded() -> None:
    store = SlowStore()
    broker = BrokerCore("b", store=store, clock=lambda: NOW)
    broker.recover()
    info = subscription()
    subscribe(broker.connect("c1", "me", Throttle()), info)
    sender = broker.connect("c2", "other", Throttle())
    transaction = sender.begin()
    for number in (1, 2):
        sender.send(text_message(PRICES, number, priority=4 + number % 2), transaction)
    sender.commit(transaction)  # on disk; the messages come through the gate, and are refused, only when that is known
    new_master = BrokerCore("b", store=store, clock=lambda: NOW)
    new_master.recover()
    got = subscribe(new_master.connect("c3", "me", Throttle()), info)
    assert got == [text_message(PRICES, 1).message_id]
