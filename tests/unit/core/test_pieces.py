"""Searches and deliveries of messages in memory in pieces: other clients wait for one piece, and order is kept."""

from collections.abc import Callable

import pytest

from pybroker.broker.core.gate import Gate
from pybroker.broker.core.paging import PIECE_MAX, PIECE_SECONDS
from pybroker.broker.core.topic import DROPPED_PIECE
from pybroker.broker.domain.message import Message
from tests.unit.core.backlogs import Client, World, message

MANY = 2 * PIECE_MAX + 100


class LoopWorld(World):
    """A world with an event loop whose turns the test runs, and whose clock moves when it is read."""

    def __init__(self, *, seconds_per_read: float = 0.0, **policy: object) -> None:
        super().__init__(None, **policy)
        self.turns: list[Callable[[], None]] = []
        self.seconds = 0.0
        self.seconds_per_read = seconds_per_read
        self.usage.paging.later = self.turns.append
        self.usage.paging.monotonic = self.monotonic

    def monotonic(self) -> float:
        self.seconds += self.seconds_per_read
        return self.seconds

    def turn(self) -> None:
        turns, self.turns[:] = list(self.turns), []
        for callback in turns:
            callback()


def test_wide_window_is_filled_in_pieces_and_in_order() -> None:
    world = LoopWorld()
    world.put(*map(str, range(MANY)))
    client = world.consume(prefetch=5000)
    counts = [len(client.got)]
    world.put("new")
    while world.turns:
        world.turn()
        counts.append(len(client.got))
    assert counts == [PIECE_MAX - 1, 2 * (PIECE_MAX - 1), MANY + 1]
    assert client.names == [*map(str, range(MANY)), "new"]


@pytest.mark.parametrize("group_id", [None, "g"])
def test_new_message_does_not_overtake_a_delivery_in_pieces_that_becomes_a_search(group_id: str | None) -> None:
    world = LoopWorld()
    world.put(*map(str, range(MANY)))
    client = world.consume(prefetch=5000)
    if group_id is None:
        world.consume(selector="n = 1", prefetch=0)
    world.put("new", group_id=group_id)
    while world.turns:
        world.turn()
    assert client.names == [*map(str, range(MANY)), "new"]


def test_search_whose_piece_ends_with_the_last_message_is_over() -> None:
    world = LoopWorld()
    world.put(*map(str, range(PIECE_MAX)), properties={"n": 1})
    client = world.consume(selector="n = 1", prefetch=5000)
    assert len(client.got) == PIECE_MAX
    while world.turns:
        world.turn()
    world.put("refused", properties={"n": 2})
    world.put("wanted", properties={"n": 1})
    assert client.names[PIECE_MAX:] == ["wanted"]


def test_group_whose_owner_leaves_between_two_pieces_keeps_its_order() -> None:
    world = LoopWorld()
    owner = world.consume(selector="n = 1")
    world.put("a", group_id="g", properties={"n": 1})
    owner.pause()
    owner.ack()
    world.put("b", group_id="g", properties={"n": 1})
    world.put(*map(str, range(MANY)), properties={"n": 2})
    other = world.consume(selector="n = 1")
    while world.turns:
        world.turn()
    world.consume(selector="n = 3")
    owner.close()
    world.put("c", group_id="g", properties={"n": 1})
    while world.turns:
        world.turn()
    assert (owner.names, other.names) == (["a"], ["b", "c"])


def test_deliveries_that_take_long_end_a_piece_early() -> None:
    world = LoopWorld(seconds_per_read=PIECE_SECONDS / 2)
    world.put(*map(str, range(MANY)))
    client = world.consume(prefetch=5000)
    assert 16 <= len(client.got) <= 24, "the third reading of the clock ends the piece"


def test_search_of_messages_in_memory_continues_in_later_turns() -> None:
    world = LoopWorld()
    world.put(*map(str, range(MANY)), properties={"n": 1})
    world.put("wanted", properties={"n": 2})
    client = world.consume(selector="n = 2", prefetch=10)
    world.put("new", properties={"n": 2})
    assert client.names == [], "a new message does not overtake one that the search may find"
    count = 0
    while world.turns:
        world.turn()
        count += 1
    assert client.names == ["wanted", "new"]
    assert count == 2


def test_search_with_an_expensive_selector_ends_a_piece_early() -> None:
    world = LoopWorld(seconds_per_read=PIECE_SECONDS)
    world.put(*map(str, range(80)), properties={"n": 1})
    client = world.consume(selector="n = 1", prefetch=100)
    assert 0 < len(client.got) < 20
    while world.turns:
        world.turn()
    assert client.names == [*map(str, range(80))]


def test_many_small_windows_share_one_piece() -> None:
    world = LoopWorld()
    world.put(*map(str, range(MANY)), properties={"n": 1})
    clients = [world._client("queue://Q", {"selector": "n = 1", "prefetch": 1}) for _ in range(MANY)]
    for client in clients:
        client.consumer.started = True
        client.consumer.resize()
        world.queue.attach(client.consumer)
    world.queue.dispatch()
    assert sum(len(client.got) for client in clients) == PIECE_MAX
    while world.turns:
        world.turn()
    assert sum(len(client.got) for client in clients) == MANY


def test_durable_subscription_with_a_wide_window_gets_its_backlog_in_pieces() -> None:
    world = LoopWorld()
    durable = world.durable()
    world.publish(*map(str, range(MANY)))
    client = world.activate(durable, prefetch=5000)
    assert len(client.got) == PIECE_MAX - 1
    world.publish("new")
    _assert_all(world, client)


def test_topic_consumer_that_resumes_gets_its_backlog_in_pieces() -> None:
    world = LoopWorld(pending_message_limit=-1)
    client = world.listen(prefetch=5000)
    client.pause()
    world.publish(*map(str, range(MANY)))
    client.resume()
    assert len(client.got) == PIECE_MAX - 1
    client.consumer.dispatch()
    assert len(world.turns) == 1, "it continues once, however often it is asked"
    world.publish("new")
    _assert_all(world, client)


def test_topic_consumer_that_closes_within_its_backlog_gets_no_more() -> None:
    world = LoopWorld(pending_message_limit=-1)
    client = world.listen(prefetch=5000)
    client.pause()
    world.publish(*map(str, range(MANY)))
    client.resume()
    client.close()
    world.turn()
    assert len(client.got) == PIECE_MAX - 1
    assert not world.turns


def test_commit_of_a_long_transaction_is_delivered_in_pieces() -> None:
    world, got = LoopWorld(), list[Message]()
    gate = Gate(got.append, world.store, world.usage)
    gate.close()
    sent = [message(str(number)) for number in range(MANY)]
    for each in sent:
        gate.admit(each)
    gate.close()
    gate.open()
    assert len(got) == PIECE_MAX - 1
    gate.open()
    sent.append(message("new"))
    gate.admit(sent[-1])
    assert len(got) == PIECE_MAX - 1, "another commit does not begin another piece"
    while world.turns:
        world.turn()
    assert got == sent
    assert gate.is_open


def test_gate_of_a_deleted_destination_drops_the_rest_of_a_commit() -> None:
    world, got = LoopWorld(), list[Message]()
    gate = Gate(got.append, world.store, world.usage)
    gate.close()
    for number in range(MANY):
        gate.admit(message(str(number)))
    gate.open()
    gate.redirect(lambda: None)
    while world.turns:
        world.turn()
    assert len(got) == PIECE_MAX - 1
    assert gate.is_open


@pytest.mark.parametrize("selector", [None, "n = 1"])
def test_without_an_event_loop_all_is_done_at_once(selector: str | None) -> None:
    world = World()
    world.put(*map(str, range(MANY)), properties={"n": 1})
    assert len(world.consume(selector=selector, prefetch=5000).got) == MANY


def _assert_all(world: LoopWorld, client: Client) -> None:
    while world.turns:
        world.turn()
    assert client.names == [*map(str, range(MANY)), "new"]


def test_waiting_messages_of_a_closed_subscription_are_dropped_in_pieces() -> None:
    world = LoopWorld(pending_message_limit=100_000)
    client = world.listen(prefetch=1)
    names = [str(number) for number in range(2 * DROPPED_PIECE + 100)]
    world.publish(*names)
    used = world.usage.used
    client.close()
    assert 0 < world.usage.used < used
    world.publish("late")
    turns = 0
    while world.turns:
        world.turn()
        turns += 1
    assert turns == 2
    assert (client.names, world.usage.used) == (["0"], 0)
