# mypy: disable-error-code="arg-type"
"""Acknowledgements in other threads, and errors in the midst of several: each message is counted and settled once."""

import threading
from collections.abc import Iterable
from typing import Any

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.client import (
    ClientError,
    ConnectionClosed,
    ConnectionLost,
    DestinationRefused,
    Message,
    TransactionRolledBack,
)
from pybroker.client.messages import DeliveryState
from pybroker.kombu.subscriptions import KombuSource
from pybroker.kombu.unacknowledged import UnacknowledgedMessages


class FakeConsumer:
    """A client's consumer. `before` is called before each use, as if another thread came first."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.refused: dict[str, ClientError] = {}
        self.before: Any = lambda _: None
        self._error: ClientError | None = None

    @property
    def error(self) -> ClientError | None:
        self.before("error")
        return self._error

    @property
    def has_message(self) -> bool:
        return False

    def receive_no_wait(self) -> Message | None:
        self._check()
        return None

    def call_when_ready(self, callback: Any) -> None:
        pass

    def set_prefetch(self, prefetch: int) -> None:
        self.before("set_prefetch")
        self._check()
        self.done.append(("prefetch", prefetch))

    def stop(self, unused: Iterable[Message] = ()) -> None:
        self.before("stop")
        self._check()
        self.done.append("stop")

    def close(self) -> None:
        self._error = ConnectionClosed("closed")
        self.done.append("close")

    def give_back(self, message: Message) -> None:
        self.ack(message)

    def ack(self, message: Message) -> None:
        if message.id in self.refused:
            raise self.refused[message.id]
        message.delivery_state = DeliveryState.ACKNOWLEDGED
        self.done.append(message.id)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error


def delivered(consumer: FakeConsumer, number: int) -> Message:
    return Message(
        id=str(number),
        destination=queue("q"),
        read_body=lambda: "",
        read_properties=dict,
        delivery_state=DeliveryState.DELIVERED,
        on_ack=consumer.ack,
    )


@pytest.fixture
def consumer() -> FakeConsumer:
    return FakeConsumer()


@pytest.fixture
def source(consumer: FakeConsumer) -> KombuSource:
    return KombuSource(consumer, queue("q"), lambda: None, [])


@pytest.fixture
def held(consumer: FakeConsumer, source: KombuSource) -> UnacknowledgedMessages:
    """Five messages that the application has."""
    messages = UnacknowledgedMessages(lambda: None)
    for number in range(1, 6):
        messages.append(number, delivered(consumer, number), source)
    return messages


class Interrupted(int):
    """A number; while one is subtracted from it for the first time, another thread does the same with the count."""

    def __new__(cls, value: int, source: KombuSource) -> "Interrupted":
        self = super().__new__(cls, value)
        self.thread = threading.Thread(target=source.acknowledged)
        return self

    thread: threading.Thread

    def __sub__(self, other: int) -> int:
        self.thread.start()
        self.thread.join(0.2)  # the lock keeps it waiting
        return int(self) - other


def test_two_threads_count_each_acknowledgement(source):
    number = Interrupted(2, source)
    source._unacknowledged = number
    source.acknowledged()
    number.thread.join()
    assert source.unacknowledged == 0


def test_channels_that_share_a_source_count_together(consumer):
    """The consumer of a topic is the connection's: two channels have locks of their own."""
    source = KombuSource(consumer, topic("t"), lambda: None, [])
    channels = [UnacknowledgedMessages(lambda: None) for _ in range(2)]
    for number, channel in enumerate(channels):
        channel.append(1, delivered(consumer, number), source)
    threads = [threading.Thread(target=channel.ack, args=[1]) for channel in channels]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert source.unacknowledged == 0


@pytest.mark.parametrize("when", ["error", "set_prefetch", "stop"])
def test_a_cancel_while_the_last_message_is_acknowledged(consumer, source, when):
    messages = UnacknowledgedMessages(lambda: None)
    messages.append(1, delivered(consumer, 1), source)
    threads: list[threading.Thread] = []

    def acknowledge(what: str) -> None:
        if what == when and not threads:
            threads.append(threading.Thread(target=messages.ack, args=[1]))
            threads[0].start()
            threads[0].join(0.2)

    consumer.before = acknowledge
    source.cancel()
    for thread in threads:
        thread.join()
    messages.ack(1)
    assert source.unacknowledged == 0
    assert consumer.done.count("1") == 1
    assert "close" in consumer.done


def test_one_that_cannot_be_acknowledged_does_not_keep_the_others(held, consumer, source):
    consumer.refused["2"] = ConnectionClosed("it will be redelivered")
    with pytest.raises(ConnectionClosed, match="redelivered"):
        held.ack(4, multiple=True)
    assert consumer.done == ["1", "3", "4"]
    assert (len(held), source.unacknowledged) == (1, 1)


def test_recover_returns_the_others_after_an_error(held, consumer, source):
    consumer.refused["2"] = TransactionRolledBack("not allowed to write")
    with pytest.raises(TransactionRolledBack):
        held.recover()
    assert consumer.done == ["1", "3", "4", "5"]
    assert (len(held), source.unacknowledged) == (1, 1)
    del consumer.refused["2"]
    held.ack(2)
    assert (len(held), source.unacknowledged) == (0, 0)


def test_room_is_reported_after_an_error(consumer, source):
    rooms: list[int] = []
    messages = UnacknowledgedMessages(lambda: rooms.append(len(messages)))
    messages.append(1, delivered(consumer, 1), source)
    consumer.refused["1"] = ConnectionClosed("it will be redelivered")
    with pytest.raises(ConnectionClosed):
        messages.ack(1)
    assert rooms == [0]


def test_room_is_counted(held):
    for limit, expected in ((0, (None, True)), (7, (2, True)), (5, (0, False)), (3, (0, False))):
        held.prefetch_count = limit
        assert (held.room, held.can_consume()) == expected


@pytest.mark.parametrize("what", ["cancel", "ack"])
def test_a_handler_of_a_signal_does_not_wait_for_its_own_thread(consumer, source, held, what):
    """Celery's for a cold shutdown cancels and acknowledges, while the thread may be in the same."""
    handled = list[str]()

    def handle(_: str) -> None:
        consumer.before = lambda _: None
        if what == "cancel":
            source.cancel()
        else:
            held.ack(1)
        handled.append(what)

    consumer.before = handle
    thread = threading.Thread(target=source.cancel, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert handled == [what]


@pytest.mark.parametrize("error", [ConnectionClosed("closed"), ConnectionLost("lost"), DestinationRefused("deleted")])
def test_what_a_consumer_had_that_has_ended_need_not_be_returned(consumer, source, held, error):
    """The broker redelivers it. An error would end the shutdown of Celery's worker, which still has tasks to finish."""
    source.cancel()
    consumer._error = error
    held.return_unused([1, 2])
    assert len(held) == 3
    assert source.unacknowledged == 3
