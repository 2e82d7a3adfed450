"""A connection whose client reads again: its consumers go on one after the other, a piece in each turn."""

from collections.abc import Callable

import pytest

from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.core.paging import PIECE_SECONDS
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.store.memory import MemoryStore
from tests.compiled import interpreted
from tests.unit.core.conftest import Client, Inbox, World

CONSUMERS = 5


class Loop:
    """An event loop whose turns the test runs; each delivery takes as long as a piece."""

    def __init__(self) -> None:
        self.world = World(MemoryStore(), DestinationPolicy(pending_message_limit=-1))
        self.turns: list[Callable[[], None]] = []
        self.seconds = 0.0
        paging = self.broker.usage.paging
        paging.later = self.turns.append
        paging.monotonic = lambda: self.seconds
        self.client = self.world.client()
        self.inboxes = [self.client.subscribe(f"topic://T{number}") for number in range(CONSUMERS)]
        self.client.connection.pause()
        self.sender = self.world.client()
        self.send()
        for inbox in self.inboxes:
            self.slow_down(inbox)

    @property
    def broker(self) -> BrokerCore:
        return self.world.broker

    def slow_down(self, inbox: Inbox) -> None:
        deliver = inbox.consumer.deliver

        def slowly(delivery: object) -> None:
            self.seconds += PIECE_SECONDS
            deliver(delivery)  # type: ignore[arg-type]

        inbox.consumer.deliver = slowly

    def send(self) -> None:
        for number in range(CONSUMERS):
            self.sender.send(f"topic://T{number}", "x", persistent=False)

    def counts(self) -> list[int]:
        return [len(inbox.deliveries) for inbox in self.inboxes]

    def turn(self) -> None:
        turns, self.turns[:] = list(self.turns), []
        for callback in turns:
            callback()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def client(loop: Loop) -> Client:
    return loop.client


def test_one_turn_serves_as_many_consumers_as_fit(loop: Loop, client: Client) -> None:
    client.connection.resume()
    seen = [loop.counts()]
    while loop.turns:
        loop.turn()
        seen.append(loop.counts())
    assert seen[:CONSUMERS] == [[1] * done + [0] * (CONSUMERS - done) for done in range(1, CONSUMERS + 1)]
    assert seen[-1] == [1] * CONSUMERS


def test_pause_in_between_ends_it_and_the_next_round_begins_with_the_others(loop: Loop, client: Client) -> None:
    client.connection.resume()
    loop.turn()
    client.connection.pause()
    loop.turn()
    assert loop.counts() == [1, 1, 0, 0, 0]
    assert not loop.turns
    loop.send()
    client.connection.resume()
    assert loop.counts() == [1, 1, 2, 0, 0]
    while loop.turns:
        loop.turn()
    assert loop.counts() == [2] * CONSUMERS


def test_pause_and_resume_in_one_turn_continue_one_round(loop: Loop, client: Client) -> None:
    client.connection.resume()
    client.connection.pause()
    client.connection.resume()
    assert len(loop.turns) == 1
    while loop.turns:
        loop.turn()
    assert loop.counts() == [1] * CONSUMERS


def test_pause_and_resume_within_a_delivery_serve_every_consumer(loop: Loop, client: Client) -> None:
    deliver = loop.inboxes[0].consumer.deliver

    def flowing(delivery: object) -> None:
        deliver(delivery)  # type: ignore[arg-type]
        client.connection.pause()
        client.connection.resume()

    loop.inboxes[0].consumer.deliver = flowing
    client.connection.resume()
    while loop.turns:
        loop.turn()
    assert loop.counts() == [1] * CONSUMERS


def test_consumers_that_close_meanwhile_get_nothing(loop: Loop, client: Client) -> None:
    client.connection.resume()
    loop.inboxes[2].consumer.close()
    while loop.turns:
        loop.turn()
    assert loop.counts() == [1, 1, 0, 1, 1]


def test_closed_connection_delivers_no_more(loop: Loop, client: Client) -> None:
    client.connection.resume()
    client.connection.close()
    while loop.turns:
        loop.turn()
    assert loop.counts() == [1, 0, 0, 0, 0]


@interpreted  # None is no backlog
def test_failing_delivery_does_not_end_the_round(loop: Loop, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    source = loop.inboxes[0].consumer.sources[0]
    loop.inboxes[0].consumer.sources[0] = None  # type: ignore[call-overload]
    client.connection.resume()
    while loop.turns:
        loop.turn()
    assert loop.counts() == [0, 1, 1, 1, 1]
    assert "delivering in pieces" in caplog.text
    loop.inboxes[0].consumer.sources[0] = source


def test_consumer_with_a_selector_gets_its_oldest_message_first() -> None:
    world = World(MemoryStore())
    client, sender = world.client(), world.client()
    blue = client.subscribe("queue://Q", selector="color = 'blue'")
    red = client.subscribe("queue://Q", selector="color = 'red'", prefetch=2)
    sender.send("queue://Q", "blue", properties={"color": "blue"})
    sender.send("queue://Q", "1", "2", "3", properties={"color": "red"})
    blue.ack()  # it searches what waits, and does not look at that again
    client.connection.pause()
    red.ack()
    sender.send("queue://Q", "4", properties={"color": "red"})
    client.connection.resume()
    red.consumer.acknowledge_all(red.deliveries[1:])
    assert red.ids == ["1", "2", "3", "4"]
