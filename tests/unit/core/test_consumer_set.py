"""Dispatch of a queue's messages: turns, priorities, exclusive consumers, message groups, priorities of messages."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pybroker.broker.core import groups as groups_module
from pybroker.broker.core.reference import ReferenceState
from pybroker.broker.domain.openwire.message import view
from tests.unit.core.backlogs import Client, World, message


@pytest.fixture
def world():
    return World()


class TestTurns:
    def test_equal_consumers_take_turns(self, world):
        first, second, third = world.consume(), world.consume(), world.consume()
        world.put(*"012345")
        assert (first.names, second.names, third.names) == (["0", "3"], ["1", "4"], ["2", "5"])

    def test_a_backlog_that_comes_back_is_shared_too(self, world):
        first, second, third = world.consume(prefetch=4), world.consume(prefetch=0), world.consume(prefetch=0)
        world.put(*"0123")
        second.consumer.set_prefetch(2)
        third.consumer.set_prefetch(2)
        first.close()
        assert (second.names, third.names) == (["0", "2"], ["1", "3"])

    def test_strict_order_fills_the_first_consumer_first(self):
        world = World(strict_order_dispatch=True)
        first, second = world.consume(prefetch=3), world.consume(prefetch=3)
        world.put(*"01234")
        assert (first.names, second.names) == (["0", "1", "2"], ["3", "4"])

    def test_higher_priorities_first_and_equal_ones_take_turns(self, world):
        low = world.consume(prefetch=2, priority=-5)
        high = [world.consume(prefetch=2, priority=7) for _ in range(2)]
        middle = world.consume(prefetch=1)
        world.put(*"0123456")
        assert [client.names for client in (*high, middle, low)] == [["0", "2"], ["1", "3"], ["4"], ["5", "6"]]

    def test_capacity_of_a_lower_priority_is_used_at_once(self, world):
        world.consume(prefetch=1, priority=1)
        low = world.consume(prefetch=1)
        world.put(*"0123")
        low.ack()
        assert low.names == ["1", "2"]

    @pytest.mark.parametrize("count", [3, 100])
    def test_priorities_need_not_count(self, count):
        world = World(use_consumer_priority=False)
        clients = [world.consume(prefetch=2, priority=number % 10) for number in range(count)]
        names = [str(number) for number in range(count + 1)]
        world.put(*names)
        assert [client.names for client in clients] == [["0", str(count)], *([name] for name in names[1:-1])]

    def test_many_without_priorities_return_to_their_turn(self):
        world = World(use_consumer_priority=False)
        clients = [world.consume(prefetch=1, priority=number % 10) for number in range(100)]
        world.put(*[str(number) for number in range(110)])
        for number in (57, 9):
            clients[number].ack()
        assert (clients[57].names, clients[9].names) == (["57", "100"], ["9", "101"])

    def test_exclusive_consumers_are_chosen_by_priority_all_the_same(self):
        world = World(use_consumer_priority=False)
        plain, low, high, higher = (
            world.consume(),
            world.consume(exclusive=True),
            world.consume(exclusive=True, priority=5),
            world.consume(exclusive=True, priority=9),
        )
        world.put("0")
        higher.ack()
        higher.close()
        world.put("1")
        high.ack()
        high.close()
        world.put("2")
        assert [client.names for client in (plain, low, high, higher)] == [[], ["2"], ["1"], ["0"]]


class TestExclusive:
    def test_only_the_first_exclusive_consumer_gets_anything(self, world):
        plain, first, second = world.consume(), world.consume(exclusive=True), world.consume(exclusive=True)
        world.put(*"012")
        assert (plain.names, first.names, second.names) == ([], ["0", "1", "2"], [])

    def test_what_does_not_fit_into_its_window_waits_for_it(self, world):
        first, other = world.consume(exclusive=True, prefetch=1), world.consume()
        world.put(*"01")
        assert other.names == []
        first.ack()
        assert first.names == ["0", "1"]

    def test_higher_priority_takes_over_except_in_flight_messages(self, world):
        old = world.consume(exclusive=True, priority=1)
        world.put("0")
        equal = world.consume(exclusive=True, priority=1)
        new = world.consume(exclusive=True, priority=2)
        world.put("1")
        assert (old.names, equal.names, new.names) == (["0"], [], ["1"])

    def test_highest_priority_takes_over_from_its_equal(self, world):
        old, new = (world.consume(exclusive=True, priority=127) for _ in range(2))
        world.put("0")
        assert (old.names, new.names) == ([], ["0"])

    def test_the_next_is_the_highest_and_then_the_earliest(self, world):
        leader = world.consume(exclusive=True, priority=9)
        world.consume()
        first, second = (world.consume(exclusive=True, priority=3) for _ in range(2))
        world.put("0")
        leader.close()
        world.put("1")
        assert (first.names, second.names) == (["0", "1"], [])

    def test_without_any_left_everyone_gets_messages_again(self, world):
        plain, leader = world.consume(), world.consume(exclusive=True)
        world.put("0")
        leader.close()
        world.put("1")
        assert plain.names == ["0", "1"]

    def test_idle_consumer_that_leaves_frees_waiting_messages(self, world):
        leader, plain = world.consume(exclusive=True), world.consume()
        leader.pause()
        world.put("0")
        leader.close()
        assert plain.names == ["0"]

    def test_all_are_exclusive_by_default_under_the_policy(self):
        world = World(all_consumers_exclusive_by_default=True)
        first, second = world.consume(), world.consume()
        world.put(*"01")
        assert (first.names, second.names) == (["0", "1"], [])

    def test_exclusive_consumer_takes_over_the_groups_of_others(self, world):
        owner = world.consume()
        world.put("0", group_id="g")
        leader = world.consume(exclusive=True)
        world.put("1", group_id="g")
        assert (owner.names, leader.names, leader.firsts) == (["0"], ["1"], ["1"])


class TestGroups:
    def test_a_group_stays_with_its_first_consumer(self, world):
        first, second = world.consume(), world.consume()
        for number in range(3):
            world.put(f"a{number}", group_id="a")
            world.put(f"b{number}", group_id="b")
        assert (first.names, second.names) == (["a0", "a1", "a2"], ["b0", "b1", "b2"])
        assert (first.firsts, second.firsts) == (["a0"], ["b0"])

    def test_message_waiting_for_its_owner_blocks_no_other(self, world):
        owner, other = world.consume(prefetch=1), world.consume()
        world.put("a0", "a1", group_id="a")
        world.put("b0", group_id="b")
        world.put("none")
        assert (owner.names, other.names) == (["a0"], ["b0", "none"])
        owner.ack()
        assert owner.names == ["a0", "a1"]

    def test_new_group_goes_to_the_consumer_with_fewest_groups(self, world):
        busy = world.consume()
        for group in "abc":
            world.put(group, group_id=group)
        idle = world.consume()
        for group in "defg":
            world.put(group, group_id=group)
        world.put("a again", group_id="a")
        assert busy.names == ["a", "b", "c", "g", "a again"]
        assert idle.names == ["d", "e", "f"]

    def test_fewest_counts_among_the_highest_priority_only(self, world):
        high, low = world.consume(priority=1, prefetch=2), world.consume()
        for group in "abc":
            world.put(group, group_id=group)
        assert (high.names, low.names) == (["a", "b"], ["c"])

    def test_a_negative_sequence_closes_the_group_behind_it(self, world):
        first, second = world.consume(), world.consume()
        world.put("a0", group_id="a")
        world.put("a1", group_id="a", group_sequence=-1)
        world.put("b", group_id="b")
        world.put("a2", group_id="a")
        assert first.names[:2] == ["a0", "a1"]
        assert sorted(first.names + second.names) == ["a0", "a1", "a2", "b"]
        assert "a2" in first.firsts + second.firsts

    def test_negative_sequence_opens_a_group_without_owner(self, world):
        first, second = world.consume(), world.consume()
        world.put("a0", group_id="a", group_sequence=-1)
        world.put("x", "a1", group_id="a")
        assert (first.names, second.names) == (["a0", "x", "a1"], [])

    def test_closing_a_group_frees_what_others_have_passed_over(self, world):
        owner, other = world.consume(prefetch=1), world.consume()
        world.put("a0", group_id="a")
        world.put("a1", group_id="a", group_sequence=-1)
        world.put("a2", "a3", group_id="a")
        world.put("b", group_id="b")
        assert (owner.names, other.names) == (["a0"], ["b"])
        owner.ack()
        assert (owner.names, other.names) == (["a0", "a1"], ["b", "a2", "a3"])
        assert other.firsts == ["b", "a2"]

    def test_sequence_1_starts_the_group_again(self, world):
        first, second = world.consume(), world.consume()
        world.put("a0", group_id="a")
        world.put("b0", group_id="b")
        world.put("c0", group_id="c")
        world.put("a1", group_id="a", group_sequence=1)
        world.put("a2", group_id="a")
        assert first.names == ["a0", "c0"]
        assert (second.names, second.firsts) == (["b0", "a1", "a2"], ["b0", "a1"])

    def test_new_owner_of_a_group_gets_its_waiting_messages(self, world):
        owner, other = world.consume(prefetch=1), world.consume()
        world.put("a0", "a1", group_id="a")
        world.put("a2", group_id="a", group_sequence=1)
        assert (owner.names, other.names) == (["a0"], ["a2", "a1"])

    def test_new_owner_gets_all_messages_and_the_flag(self, world):
        owner, other = world.consume(prefetch=2), world.consume()
        world.put("a0", "a1", "a2", group_id="a")
        owner.close()
        assert (other.names, other.firsts) == (["a0", "a1", "a2"], ["a0"])
        assert [delivery.redelivery_count for delivery in other.got] == [1, 1, 0]

    def test_a_message_that_comes_back_is_as_it_was_sent(self, world):
        owner = world.consume()
        world.put("a0", group_id="a")
        (sent,) = world.store.read(world.queue.destination, world.store.recover().queues[world.queue.destination])
        owner.close()
        (waiting,) = world.queue.pending
        assert waiting.message.data == sent.data
        assert not view(waiting.message).group_first_for_consumer

    def test_idle_owner_that_leaves_frees_its_groups(self, world):
        owner, other = world.consume(prefetch=1), world.consume()
        world.put("a0", group_id="a")
        owner.pause()
        owner.ack()
        world.put("a1", group_id="a")
        assert other.names == []
        owner.close()
        assert other.names == ["a1"]

    def test_message_the_owner_refuses_leaves_its_group_owned(self, world):
        owner, other = world.consume(selector="n = 1"), world.consume()
        world.put("a0", group_id="a", properties={"n": 1})
        world.put("a1", group_id="a", properties={"n": 2})
        world.put("a2", group_id="a", properties={"n": 1})
        assert (owner.names, other.names, other.firsts) == (["a0", "a2"], ["a1"], [])

    def test_only_so_many_groups_are_remembered(self, world, monkeypatch):
        monkeypatch.setattr(groups_module, "GROUPS_MAX", 2)
        first, second = world.consume(prefetch=3), world.consume()
        for group in "abca":
            world.put(group, group_id=group)
        assert (first.names, second.names) == (["a", "c"], ["b", "a"])
        groups = world.queue.consumer_set.groups
        assert len(groups._owners) == sum(groups._counts.values()) == 2

    def test_a_rejected_message_is_buried_without_the_flag(self, world):
        owner = world.consume()
        world.put("a0", group_id="a")
        owner.consumer.reject(owner.got[0], "NACK")
        assert not view(world.letters[0]).group_first_for_consumer

    def test_one_that_does_not_decode_is_delivered_all_the_same(self, world):
        owner = world.consume()
        broken = message("a", group_id="a", persistent=False)
        broken.decoded = None
        broken.data = broken.data[:-3]
        world.queue.send(broken)
        assert [delivery.message.message_id for delivery in owner.got] == [broken.message_id]
        owner.close()
        (waiting,) = world.queue.pending
        assert waiting.message.data == broken.data

    def test_a_large_backlog_of_one_group_is_passed_over_once(self, world, monkeypatch):
        _, other = world.consume(prefetch=1), world.consume(prefetch=1)
        world.put(*(f"a{number}" for number in range(1000)), group_id="a")
        world.put(*(f"b{number}" for number in range(1000)), group_id="b")
        looks = 0
        choose = world.queue.consumer_set.__class__.choose

        def counted(self, reference):
            nonlocal looks
            looks += 1
            return choose(self, reference)

        monkeypatch.setattr(world.queue.consumer_set.__class__, "choose", counted)
        for _ in range(999):
            other.ack()
        assert other.names == [f"b{number}" for number in range(1000)]
        assert looks < 5000


class TestSelectors:
    def test_returned_message_is_offered_to_consumer_at_the_end(self, world):
        first = world.consume(selector="n = 1", prefetch=1)
        world.put("1", properties={"n": 1})
        world.put("other")
        second = world.consume(selector="n = 1")
        first.close()
        assert second.names == ["1"]

    def test_a_full_consumer_goes_on_where_it_was(self, world):
        odd, even = world.consume(selector="n = 1", prefetch=1), world.consume(selector="n = 0", prefetch=2)
        for number in range(8):
            world.put(str(number), properties={"n": number % 2})
        odd.ack()
        even.ack(2)
        odd.ack()
        assert (odd.names, even.names) == (["1", "3", "5"], ["0", "2", "4", "6"])

    def test_capacity_that_a_delivery_frees_elsewhere_is_used(self, world):
        first, second = (world.consume(selector=f"n = {number}", prefetch=1) for number in (1, 2))
        for number in (1, 2, 1, 2):
            world.put(str(number), properties={"n": number})
        deliver = first.consumer.deliver

        def deliver_and_acknowledge_for_the_other(delivery):
            deliver(delivery)
            second.ack()

        first.consumer.deliver = deliver_and_acknowledge_for_the_other
        first.ack()
        assert (first.names, second.names) == (["1", "1"], ["2", "2"])


class TestMessagePriorities:
    def test_the_highest_comes_first_and_then_the_oldest(self):
        world = World(prioritized_messages=True)
        for priority in (0, 9, 4, 5, 9, 3, 4):
            world.put(f"{priority}", priority=priority)
        client = world.consume()
        assert client.names == ["9", "9", "5", "4", "4", "3", "0"]

    def test_without_the_policy_the_oldest_comes_first(self, world):
        for priority in (0, 9, 4):
            world.put(f"{priority}", priority=priority)
        assert world.consume().names == ["0", "9", "4"]

    def test_what_comes_back_goes_to_its_place_among_its_equals(self):
        world = World(prioritized_messages=True)
        first = world.consume(prefetch=2)
        for number, priority in enumerate((4, 8, 4, 8)):
            world.put(f"{priority}-{number}", priority=priority)
        assert first.names == ["4-0", "8-1"]
        first.close()
        again = world.consume()
        assert again.names == ["8-1", "8-3", "4-0", "4-2"]
        assert [delivery.redelivery_count for delivery in again.got] == [1, 0, 1, 0]

    def test_durable_subscriptions_have_them_too(self):
        world = World(prioritized_messages=True)
        durable = world.durable()
        for priority in (1, 7, 4):
            world.publish(f"{priority}", priority=priority)
        assert world.activate(durable).names == ["7", "4", "1"]

    def test_selectors_look_through_all_levels_once(self):
        world = World(prioritized_messages=True)
        picky = world.consume(selector="n = 1", prefetch=1)
        for number in range(50):
            world.put(f"x{number}", priority=number % 10)
        world.put("low", "low too", priority=0, properties={"n": 1})
        picky.ack()
        world.put("high", priority=9, properties={"n": 1})
        picky.ack()
        assert picky.names == ["low", "low too", "high"]


# ---------------------------------------------------------------- any history

CONSUMERS = st.fixed_dictionaries(
    {
        "prefetch": st.integers(1, 3),
        "priority": st.integers(0, 1),
        "exclusive": st.sampled_from([False, False, False, True]),
        "selector": st.sampled_from([None, None, "n = 1", "n <> 1"]),
    }
)
MESSAGES = st.fixed_dictionaries(
    {
        "group_id": st.sampled_from([None, "a", "b", "c"]),
        "group_sequence": st.sampled_from([0, 0, 0, -1, 1]),
        "priority": st.integers(3, 5),
        "properties": st.sampled_from([{"n": 1}, {"n": 2}]),
        "expiration": st.sampled_from([0, 0, 0, 1_000_005]),
    }
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), MESSAGES),
        st.tuples(st.just("send"), MESSAGES),
        st.tuples(st.just("open"), CONSUMERS),
        st.tuples(st.sampled_from(["ack", "ack", "reject", "close", "pause", "resume"]), st.integers(0, 9)),
        st.tuples(st.just("wait"), st.integers(1, 3)),
    ),
    max_size=60,
)


@settings(max_examples=300)
@given(steps=STEPS, prioritized=st.booleans(), grouped=st.booleans(), strict=st.booleans())
def test_no_message_waits_that_a_consumer_with_capacity_accepts(steps, prioritized, grouped, strict):
    world = World(prioritized_messages=prioritized, strict_order_dispatch=strict, max_redeliveries=-1)
    clients: list[Client] = []
    sent = 0
    for what, value in steps:
        if what == "send":
            fields = value if grouped else value | {"group_id": None, "group_sequence": 0}
            world.put(str(sent), **fields)
            sent += 1
        elif what == "open":
            clients.append(_checked(world, world.consume(**value)))
        elif what == "wait":
            world.now_ms += value
        elif clients:
            _act(clients, what, value)
        _check(world, clients)


def _checked(world: World, client: Client) -> Client:
    deliver = client.consumer.deliver

    def check(delivery):
        older = (
            reference
            for reference in world.queue.pending
            if reference.sequence < delivery.sequence
            and (not world.policy.prioritized_messages or reference.message.priority >= delivery.message.priority)
            and not reference.message.is_expired(world.now_ms)
            and reference.message.group_id is None
        )
        assert not any(client.consumer.accepts(reference.message) for reference in older), "out of order"
        deliver(delivery)

    client.consumer.deliver = check
    return client


def _act(clients: list[Client], what: str, value: int) -> None:
    client = clients[value % len(clients)]
    match what:
        case "ack" if client.unsettled:
            client.ack()
        case "reject" if client.unsettled:
            client.consumer.reject(client.unsettled.pop(0), "NACK")
        case "close":
            clients.remove(client)
            client.close()
        case "pause":
            client.pause()
        case "resume":
            client.resume()


def _check(world: World, clients: list[Client]) -> None:
    queue = world.queue
    waiting = list(queue.pending)
    held = [reference for client in clients for reference in client.consumer.outstanding]
    assert queue.pending.count == len(waiting)
    assert all(reference.state is ReferenceState.PENDING for reference in waiting)
    assert all(reference.state is ReferenceState.DISPATCHED for reference in held)
    assert all(len(client.consumer.outstanding) <= max(client.consumer.window, 3) for client in clients)
    for reference in waiting:
        if not reference.message.is_expired(world.now_ms):
            assert queue.consumer_set.choose(reference) is None
    kept = world.store.recover().queues.get(queue.destination, ())
    assert set(kept) == {ref.message.message_id for ref in (*waiting, *held)}
    assert queue.usage.used == world.usage.used == sum(ref.message.size for ref in (*waiting, *held))
