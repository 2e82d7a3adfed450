"""Consumers of a large set that are parked: the same choices as without, and few looks at each consumer."""

from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pybroker.broker.core import consumer_set
from pybroker.broker.core.consumer import BrokerConsumer
from tests.compiled import interpreted
from tests.unit.core.backlogs import Client, World
from tests.unit.core.test_consumer_set import CONSUMERS, STEPS, _act, _check

pytestmark = interpreted


def history(steps, *, parking_min: int, passed_max: int, **policy: object) -> list[tuple[int, list[str]]]:
    """Return what each client got, the closed ones included."""
    with (
        mock.patch.object(consumer_set, "PARKING_MIN", parking_min),
        mock.patch.object(consumer_set, "_PASSED_MAX", passed_max),
    ):
        world = World(None, max_redeliveries=-1, **policy)
        everyone: list[Client] = []
        clients: list[Client] = []
        sent = 0
        for what, value in steps:
            if what == "send":
                world.put(str(sent), **value)
                sent += 1
            elif what == "open":
                client = world.consume(**value)
                everyone.append(client)
                clients.append(client)
            elif what == "wait":
                world.now_ms += value
            elif clients:
                _act(clients, what, value)
            _check(world, clients)
        return [(number, client.names) for number, client in enumerate(everyone)]


@settings(max_examples=300)
@given(
    consumers=st.lists(CONSUMERS, max_size=6),
    steps=STEPS,
    prioritized=st.booleans(),
    strict=st.booleans(),
    parking_min=st.integers(0, 6),
)
def test_parked_consumers_keep_their_place_in_every_history(consumers, steps, prioritized, strict, parking_min):
    steps = [*(("open", each) for each in consumers), *steps]
    policy = {"prioritized_messages": prioritized, "strict_order_dispatch": strict}
    expected = history(steps, parking_min=10_000, passed_max=10_000, **policy)
    assert history(steps, parking_min=parking_min, passed_max=0, **policy) == expected


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count how often the capacity of a consumer is computed."""
    count = [0]

    def counted(self: BrokerConsumer) -> bool:
        count[0] += 1
        return len(self.outstanding) < self.window

    monkeypatch.setattr(BrokerConsumer, "has_capacity", property(counted))
    return count


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("selector", [None, "n = 1"])
def test_messages_pass_many_full_windows_once(looks, strict, selector):
    world = World(strict_order_dispatch=strict)
    for number in range(500):
        world.consume(prefetch=number % 2, selector=selector)
    world.put(*map(str, range(250)), properties={"n": 1})
    receiver = world.consume(prefetch=1)
    looks[0] = 0
    for number in range(100):
        world.put(f"x{number}", properties={"n": 1})
        receiver.ack()
    assert len(receiver.names) == 100
    assert looks[0] < 100 * 12 + 1000


def test_consumer_that_pulls_is_found_among_many():
    world = World()
    clients = [world.consume(prefetch=0) for _ in range(200)]
    world.put("a")
    clients[150].consumer.pull()
    clients[17].consumer.pull()
    world.put("b", "c")
    assert [client.names for client in clients if client.names] == [["b"], ["a"]]
    clients[199].consumer.pull()
    assert clients[199].names == ["c"]


def test_set_that_becomes_small_again_parks_no_consumer():
    world = World()
    clients = [world.consume(prefetch=1) for _ in range(100)]
    world.put(*map(str, range(101)))
    consumers = world.queue.consumer_set
    assert consumers.parked
    for client in clients[30:]:
        client.consumer.close(delivered_none=True)
    assert not consumers.parked
    assert len(consumers.eligible) == 30
