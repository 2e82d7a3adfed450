# mypy: disable-error-code="arg-type"
"""Retained messages for retroactive consumers, and messages dropped for a slow one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.core import retained_history
from pybroker.broker.core.broker import Limits
from pybroker.broker.core.overflow import overflow
from pybroker.broker.core.policy import (
    Eviction,
    FixedCountRecovery,
    FixedSizeRecovery,
    LastImageRecovery,
    TimedRecovery,
)
from pybroker.broker.core.retained_messages import RetainedMessages
from pybroker.broker.domain.destination import parse
from pybroker.broker.domain.errors import InvalidDestination
from pybroker.broker.domain.openwire.message import view
from tests.unit.core.backlogs import World, message


class TestRecentPast:
    def test_by_default_there_is_none(self):
        world = World()
        world.publish("a")
        assert world.listen(retroactive=True).names == []

    @pytest.mark.parametrize(
        ("policy", "expected"),
        [
            (FixedCountRecovery(3), ["m2", "m3", "m4"]),
            (FixedSizeRecovery(2 * 1026 + 1025), ["m3", "m4"]),
            (FixedSizeRecovery(100), []),
            (LastImageRecovery(), ["m4"]),
        ],
    )
    def test_it_is_bounded(self, policy, expected):
        world = World(subscription_recovery_policy=policy)
        world.publish(*(f"m{number}" for number in range(5)))
        assert world.listen(retroactive=True).names == expected
        assert world.listen().names == []

    def test_by_time(self):
        world = World(subscription_recovery_policy=TimedRecovery(1000))
        for name in "abc":
            world.publish(name)
            world.now_ms += 600
        assert world.listen(retroactive=True).names == ["c"]
        world.now_ms += 600
        assert world.listen(retroactive=True).names == []

    def test_by_time_but_not_without_end(self, monkeypatch):
        monkeypatch.setattr(retained_history, "TIMED_BYTES_MAX", 3000)
        world = World(subscription_recovery_policy=TimedRecovery(1000))
        world.publish(*"abc")
        assert world.listen(retroactive=True).names == ["b", "c"]

    def test_everyone_gets_it_under_the_policy(self):
        world = World(subscription_recovery_policy=LastImageRecovery(), always_retroactive=True)
        world.publish("a", "b")
        assert world.listen().names == ["b"]

    def test_it_comes_before_what_is_sent_later_and_selectors_apply(self):
        world = World(subscription_recovery_policy=FixedCountRecovery(10))
        for number in range(4):
            world.publish(str(number), properties={"n": number % 2})
        client = world.listen(retroactive=True, selector="n = 1")
        world.publish("5", properties={"n": 1})
        assert client.names == ["1", "3", "5"]

    def test_what_has_expired_is_left_out(self):
        world = World(subscription_recovery_policy=FixedCountRecovery(10))
        world.publish("a", expiration=world.now_ms + 1)
        world.now_ms += 2
        assert world.listen(retroactive=True).names == []


class TestDurable:
    def test_one_with_nothing_waiting_gets_the_past(self):
        world = World(subscription_recovery_policy=FixedCountRecovery(2))
        world.publish(*"abc")
        durable = world.durable()
        client = world.activate(durable, retroactive=True)
        client.ack(2)
        assert client.names == ["b", "c"]
        assert durable.pending.count == 0

    def test_one_with_a_backlog_gets_its_backlog(self):
        world = World(subscription_recovery_policy=FixedCountRecovery(2))
        durable = world.durable()
        world.publish(*"abc")
        assert world.activate(durable, retroactive=True).names == ["a", "b", "c"]

    def test_the_store_knows_nothing_of_it(self):
        world = World(subscription_recovery_policy=FixedCountRecovery(2))
        world.publish("a")
        durable = world.durable()
        world.activate(durable, retroactive=True).close()
        (backlog,) = world.store.recover().backlogs
        assert list(backlog.message_ids) == []
        assert durable.pending.count == 1


class TestRetained:
    def test_retained_message_reaches_retroactive_consumers(self):
        world = World()
        live = world.listen()
        world.publish("old", properties={"ActiveMQ.Retain": True})
        world.publish("kept", properties={"ActiveMQ.Retain": True, "colour": "red"})
        world.publish("plain")
        plain, retroactive = world.listen(), world.listen(retroactive=True)
        assert (live.names, plain.names, retroactive.names) == (["old", "kept", "plain"], [], ["kept"])
        assert view(live.got[1].message).properties == {"colour": "red"}
        assert view(retroactive.got[0].message).properties == {"colour": "red", "ActiveMQ.Retained": True}
        assert live.got[1].message.message_id == retroactive.got[0].message.message_id

    def test_one_without_content_takes_it_away(self):
        world = World()
        live = world.listen()
        world.publish("kept", properties={"ActiveMQ.Retain": "true"})
        world.publish("", properties={"ActiveMQ.Retain": "true"})
        assert len(live.names) == 2
        assert world.listen(retroactive=True).names == []

    @pytest.mark.parametrize("properties", [{"ActiveMQ.Retain": False}, {"x": "ActiveMQ.Retain"}])
    def test_others_only_look_like_it(self, properties):
        world = World()
        live = world.listen()
        world.publish("a", properties=properties)
        assert world.listen(retroactive=True).names == []
        assert view(live.got[0].message).properties == properties

    def test_one_that_does_not_decode_goes_out_as_it_is(self):
        world = World()
        live = world.listen()
        broken = message("ActiveMQ.Retain", "topic://T")
        broken.decoded = None
        broken.data = broken.data[:-3]
        world.topic.send(broken)
        assert [delivery.message for delivery in live.got] == [broken]


class TestOverflow:
    def test_the_oldest_goes(self):
        world = World(pending_message_limit=2)
        client = world.listen(prefetch=1)
        for number, priority in enumerate((4, 9, 1, 5)):
            world.publish(str(number), priority=priority)
        client.ack(1)
        client.ack(1)
        assert client.names == ["0", "2", "3"]
        assert [view(letter).content for letter in world.letters] == [b"1"]

    def test_the_oldest_of_the_lowest_priority_goes(self):
        world = World(pending_message_limit=2, message_eviction_strategy=Eviction.OLDEST_WITH_LOWEST_PRIORITY)
        client = world.listen(prefetch=1)
        for number, priority in enumerate((4, 9, 1, 1, 5)):
            world.publish(str(number), priority=priority)
        client.ack(1)
        client.ack(1)
        assert client.names == ["0", "1", "4"]
        assert [view(letter).content for letter in world.letters] == [b"2", b"3"]

    @pytest.mark.parametrize(("wanted", "kept"), [(None, 3), (2, 2), (9, 3), (-1, 3)])
    def test_a_client_may_lower_the_limit(self, wanted, kept):
        world = World(pending_message_limit=3)
        client = world.listen(prefetch=1, pending_limit=wanted)
        world.publish(*"0123456", persistent=False)
        client.ack()
        for _ in range(kept - 1):
            client.ack()
        assert len(client.names) == 1 + kept

    @given(st.lists(st.tuples(st.sampled_from(["append", "append", "pop", "evict"]), st.integers(0, 9))))
    def test_lowest_priority_against_a_plain_list(self, operations):
        waiting, expected = overflow(Eviction.OLDEST_WITH_LOWEST_PRIORITY), []
        for operation, priority in operations:
            if operation == "append":
                newest = message("m", priority=priority)
                waiting.append(newest)
                expected.append(newest)
            elif operation == "pop" and expected:
                assert waiting.popleft() is expected.pop(0)
            elif operation == "evict" and expected:
                goes = min(expected, key=lambda each: each.priority)
                expected = [each for each in expected if each is not goes]
                assert waiting.evict() is goes
            assert len(waiting) == len(expected)

    def test_those_of_all_topics_take_a_share_of_the_memory(self, make_world, caplog, monkeypatch):
        def refuse(*_):
            raise InvalidDestination("the name is too long for the tables")

        world = make_world(limits=Limits(memory_bytes_max=8 << 20))
        monkeypatch.setattr(RetainedMessages, "put", refuse)
        client = world.client()
        keep = {"ActiveMQ.Retain": True}
        large = "x" * 400_000
        for name in "abc":
            client.send(f"topic://{name}", large, properties=keep)
        kept = [client.subscribe(f"topic://{name}", retroactive=True) for name in "abc"]
        assert [len(inbox.deliveries) for inbox in kept] == [1, 1, 0]
        assert "on topic://a is retained in memory only: the name is too long" in caplog.text
        assert "on topic://c is not retained" in caplog.text
        for inbox in kept:
            inbox.consumer.close()
        client.send("topic://a", "small", properties=keep)
        client.connection.remove_destination(parse("topic://b"))
        assert world.broker.usage.retained < 100_000
        client.send("topic://c", large, properties=keep)
        assert len(client.subscribe("topic://c", retroactive=True).deliveries) == 1

    def test_policies_keep_within_the_same_share(self, make_world, caplog):
        world = make_world(
            limits=Limits(memory_bytes_max=8 << 20), subscription_recovery_policy=FixedCountRecovery(maximum_size=4)
        )
        client = world.client()
        large = "x" * 200_000
        for number in range(6):
            client.send("topic://a", f"{number}{large}")
        kept = client.subscribe("topic://a", retroactive=True)
        assert [text[0] for text in kept.ids] == list("2345")
        client.send("topic://b", *[f"{number}{large}" for number in range(6)])
        assert caplog.text.count("keeps fewer messages for retroactive consumers") == 1
        assert 800_000 < world.broker.usage.retained <= 1 << 20
        kept.consumer.close()
        client.connection.remove_destination(parse("topic://a"))
        client.send("topic://b", *[f"{number}{large}" for number in range(6)])
        assert [text[0] for text in client.subscribe("topic://b", retroactive=True).ids] == list("2345")
        client.send("topic://c", "x" * 1_100_000)
        assert client.subscribe("topic://c", retroactive=True).ids == []
