"""Selectors of many consumers for one message: asked in pieces, so that no turn lasts for all of them."""

from types import SimpleNamespace
from typing import cast

import pytest

from pybroker.broker.core.consumer import BrokerConsumer
from pybroker.broker.core.consumer_set import PREPARED_FACTOR, Answers
from pybroker.broker.core.paging import PIECE_SECONDS
from pybroker.broker.core.reference import Reference
from pybroker.broker.domain.effort import EFFORT
from tests.compiled import interpreted
from tests.unit.core.backlogs import Client
from tests.unit.core.test_pieces import LoopWorld

COUNT = 20


class Refusing:
    """A consumer that accepts no message."""

    def accepts(self, message: object, redelivery_count: int) -> bool:
        return False


@pytest.fixture
def world() -> LoopWorld:
    """A world whose pieces end when one selector has been evaluated."""
    return LoopWorld(seconds_per_read=PIECE_SECONDS)


def turns(world: LoopWorld) -> int:
    count = 0
    while world.turns:
        world.turn()
        count += 1
    return count


def others(world: LoopWorld) -> list[Client]:
    return [world.consume(selector=f"n = {number}") for number in range(2, 2 + COUNT)]


class TestAnswers:
    @interpreted
    def test_further_piece_asks_longer_than_it_passed_known_answers(self):
        now = 0.0
        answers = Answers(lambda: now)
        reference = cast("Reference", SimpleNamespace(sequence=1, redelivery_count=0, message=None))
        consumers = [cast("BrokerConsumer", Refusing()) for _ in range(10)]
        answers.begin(reference, ends_at=1.0)
        for consumer in consumers[:5]:
            answers.ask(consumer, reference)
        now = 10.0
        answers.begin(reference, ends_at=11.0)
        now = 10.5  # when the first is asked that has not answered: two more seconds are granted
        asked = 0
        for consumer in consumers[5:]:
            answers.ask(consumer, reference)
            asked += 1
            now += 1.0
            if answers.is_over:
                break
        assert asked == 3, "asked at 10.5, 11.5 and 12.5 seconds"
        assert len(answers.known) == 8


class TestQueue:
    def test_message_finds_its_consumer_in_later_turns(self, world):
        refusing, wanting = others(world), world.consume(selector="n = 1")
        world.put("a", properties={"n": 1})
        assert wanting.names == []
        assert turns(world) >= COUNT // (1 + PREPARED_FACTOR)
        assert wanting.names == ["a"]
        assert not any(client.got for client in refusing)

    def test_message_that_all_refuse_waits_and_is_asked_once(self, world, monkeypatch):
        clients = others(world)
        asked: list[object] = []
        for client in clients:
            accepts = client.consumer._matches
            monkeypatch.setattr(
                client.consumer, "_matches", lambda *args, accepts=accepts: (asked.append(accepts), accepts(*args))[1]
            )
        world.put("a", properties={"n": 1})
        turns(world)
        assert len(asked) == len(set(asked)) == COUNT
        assert world.queue.pending.count == 1

    def test_messages_keep_their_order(self, world):
        others(world)
        wanting = world.consume(selector="n = 1")
        for name in "abc":
            world.put(name, properties={"n": 1})
        turns(world)
        assert wanting.names == ["a", "b", "c"]

    def test_consumer_that_closes_meanwhile_gets_nothing(self, world):
        others(world)
        closing, wanting = world.consume(selector="n = 1"), world.consume(selector="n = 1")
        world.put("a", properties={"n": 1})
        world.turn()
        closing.close()
        turns(world)
        assert (closing.names, wanting.names) == ([], ["a"])

    def test_consumer_that_comes_meanwhile_is_asked(self, world):
        others(world)
        world.put("a", properties={"n": 1})
        world.turn()
        wanting = world.consume(selector="n = 1")
        turns(world)
        assert wanting.names == ["a"]

    def test_redelivered_message_is_asked_again(self, world):
        others(world)
        first = world.consume(selector="n = 1 AND NOT JMSRedelivered")
        world.put("a", properties={"n": 1})
        turns(world)
        second = world.consume(selector="n = 1 AND JMSRedelivered")
        first.close()
        turns(world)
        assert (first.names, second.names) == (["a"], ["a"])

    def test_message_of_a_group_goes_to_the_consumer_with_the_fewest_groups(self, world):
        busy = world.consume(selector="n = 1")
        world.put("a", group_id="g1", properties={"n": 1})
        turns(world)
        others(world)
        idle = world.consume(selector="n = 1")
        world.put("b", group_id="g2", properties={"n": 1})
        turns(world)
        assert (busy.names, idle.names) == (["a"], ["b"])

    def test_all_are_asked_at_once_without_an_event_loop(self, world):
        world.usage.paging.later = None
        others(world)
        wanting = world.consume(selector="n = 1")
        world.put("a", properties={"n": 1})
        assert wanting.names == ["a"]


class TestTopic:
    def listeners(self, world: LoopWorld) -> list[Client]:
        return [world.listen(selector="n = 1") for _ in range(COUNT)]

    def test_one_selector_is_evaluated_in_a_piece(self, world):
        clients = self.listeners(world)
        world.publish("a", properties={"n": 1})
        assert sum(len(client.names) for client in clients) == 1
        assert turns(world) == COUNT - 1
        assert [client.names for client in clients] == [["a"]] * COUNT

    def test_messages_keep_their_order(self, world):
        clients = self.listeners(world)
        world.publish("a", "b", properties={"n": 1})
        world.turn()
        world.publish("c", properties={"n": 1})
        turns(world)
        assert [client.names for client in clients] == [["a", "b", "c"]] * COUNT
        assert not world.usage.used

    def test_messages_under_way_share_the_pieces(self, world):
        first, second, *others = self.listeners(world)
        for client in others:
            client.close()
        clients = [first, second]
        names = [str(number) for number in range(100)]
        world.publish(*names, properties={"n": 1})
        world.seconds_per_read = PIECE_SECONDS / 100
        assert turns(world) < 10
        assert [client.names for client in clients] == [names, names]
        assert not world.usage.used

    def test_piece_ends_after_its_subscriptions_in_sum(self, world):
        clients = self.listeners(world)
        names = [str(number) for number in range(100)]
        world.publish(*names, properties={"n": 1})
        world.seconds_per_read = 0.0
        counts = [sum(len(client.names) for client in clients)]
        while world.turns:
            world.turn()
            counts.append(sum(len(client.names) for client in clients))
        assert counts == [1, 501, 1001, 1501, 2000]
        assert [client.names for client in clients] == [names] * COUNT

    def test_one_subscription_gets_a_message_at_once(self, world):
        client = world.listen(selector="n = 1")
        world.publish("a", "b", properties={"n": 1})
        assert client.names == ["a", "b"]
        assert not world.turns

    def test_the_session_is_asked_to_look_at_the_clock(self, world):
        EFFORT.is_large = False
        plain = world.listen()
        world.publish("a")
        assert (plain.names, EFFORT.is_large) == (["a"], False)
        self.listeners(world)
        world.publish("b", properties={"n": 1})
        assert EFFORT.is_large
