"""Credit of clients that receive: nothing comes beyond it; it can be taken back, or used up by a drain."""

from typing import Any

import pytest

from pybroker.broker.domain.amqp.frames import AmqpLimits, encode_frame
from pybroker.broker.domain.amqp.performatives import AmqpDetach, AmqpEnd, AmqpFlow, AmqpTransfer
from pybroker.transports.amqp import channel
from tests.compiled import interpreted
from tests.unit.transports.amqp.conversation import BIG, Peer, World, text

LARGEST = (1 << 32) - 1


@pytest.fixture
def world() -> World:
    """A broker."""
    return World()


def fill(world: World, *bodies: str, address: str = "q") -> None:
    sender = world.open("filler")
    sender.sender(address)
    for body in bodies:
        sender.transfer(text(body))
    sender.drop()


def receiving(world: World, **fields: Any) -> Peer:
    peer = world.open("r")
    peer.receiver("q", **fields)
    return peer


def test_no_message_comes_without_credit(world: World) -> None:
    fill(world, "a", "b", "c")
    peer = receiving(world)
    assert peer.messages() == []
    assert peer.take(2) == ["a", "b"]
    assert peer.settle(0) == []
    assert peer.messages() == []
    assert peer.take(1, delivery_count=2) == ["c"]


def test_credit_counts_from_what_the_client_has_seen(world: World) -> None:
    fill(world, *"abcdef")
    peer = receiving(world)
    assert peer.take(3) == ["a", "b", "c"]
    assert peer.take(3, delivery_count=1) == ["d"]


def test_credit_that_is_taken_back_is_not_used(world: World) -> None:
    peer = receiving(world)
    peer.credit(5)
    peer.credit(0)
    fill(world, "a")
    assert peer.messages() == []
    assert peer.take(1) == ["a"]


def test_message_that_comes_later_uses_the_credit(world: World) -> None:
    peer = receiving(world)
    peer.credit(1)
    fill(world, "a", "b")
    assert [each.body for each in peer.messages()] == ["a"]


def test_echo_is_answered_with_the_state_of_the_link(world: World) -> None:
    peer = receiving(world)
    [flow] = peer.credit(5, echo=True)
    assert (flow.handle, flow.delivery_count, flow.link_credit) == (1, 0, 5)


def test_echo_without_link_is_answered_with_the_session(world: World) -> None:
    peer = world.open()
    [flow] = peer.send(
        AmqpFlow(next_incoming_id=0, incoming_window=BIG, next_outgoing_id=0, outgoing_window=BIG, echo=True)
    )
    assert (flow.handle, flow.next_incoming_id, flow.next_outgoing_id) == (None, 0, 0)


@pytest.mark.parametrize("mode", [None, "copy"])
def test_drain_uses_up_the_credit(world: World, mode: str | None) -> None:
    fill(world, "a", "b", "c")
    peer = receiving(world, distribution_mode=mode)
    *transfers, flow = peer.credit(10, drain=True)
    assert len(transfers) == 3
    assert (flow.handle, flow.delivery_count, flow.link_credit, flow.drain) == (1, 10, 0, True)
    fill(world, "d")
    assert peer.messages() == []


def test_drain_without_credit_is_answered(world: World) -> None:
    peer = receiving(world)
    [flow] = peer.credit(0, drain=True)
    assert (flow.delivery_count, flow.link_credit) == (0, 0)


def test_drain_waits_for_what_the_window_holds_up(world: World) -> None:
    fill(world, "a", "b", "c")
    peer = world.open("r")
    peer.begin(1, window=2)
    peer.channel = 1
    peer.receiver("q")
    peer.credit(10, drain=True, incoming_window=2)
    assert [each.body for each in peer.messages(peer.frames)] == ["a", "b"]
    *_, flow = peer.credit(10, drain=True, incoming_window=5, next_incoming_id=2)
    assert [each.body for each in peer.messages(peer.frames)] == ["c"]
    assert (flow.delivery_count, flow.link_credit) == (10, 0)


def test_drain_of_a_client_that_reads_slowly_is_answered_later(world: World) -> None:
    fill(world, "a")
    peer = receiving(world)
    peer.session.pause_writing()
    peer.session.receive(encode_frame(0, AmqpFlow(
        next_incoming_id=0, incoming_window=BIG, next_outgoing_id=0, outgoing_window=BIG, handle=1, link_credit=5,
        delivery_count=0, drain=True,
    )))  # fmt: skip
    assert not peer.link.output
    peer.session.written()
    *_, flow = peer.performatives()
    assert [each.body for each in peer.messages(peer.frames)] == ["a"]
    assert (flow.delivery_count, flow.link_credit) == (5, 0)


def test_drain_is_not_held_up_by_the_window_of_another_session(world: World) -> None:
    fill(world, "a", "b")
    peer = world.open("r")
    peer.receiver("empty")
    peer.begin(1)
    peer.channel = 1
    peer.receiver("q")
    assert peer.take(5, incoming_window=1) == ["a"]
    peer.channel = 0
    assert peer.credit(5, drain=True) == []
    peer.link.now = peer.link.wakes_at or 0.0
    peer.session.on_timer()
    [flow] = peer.performatives()
    assert (flow.handle, flow.delivery_count, flow.link_credit) == (1, 5, 0)


def test_limited_window_holds_messages_up(world: World) -> None:
    fill(world, *"abcdef")
    peer = receiving(world)
    assert peer.take(10, incoming_window=2) == ["a", "b"]
    peer.settle(0)
    assert peer.messages(peer.frames) == []
    assert peer.take(8, delivery_count=2, incoming_window=3, next_incoming_id=2) == ["c", "d", "e"]
    assert peer.take(5, delivery_count=5, incoming_window=3, next_incoming_id=5) == ["f"]


def flow(incoming_window: int, next_incoming_id: int) -> AmqpFlow:
    return AmqpFlow(
        next_incoming_id=next_incoming_id, incoming_window=incoming_window, next_outgoing_id=0, outgoing_window=BIG
    )


@pytest.mark.parametrize("is_suspended", [False, True])
def test_window_that_opens_while_the_client_reads_slowly(world: World, is_suspended: bool) -> None:
    fill(world, "a", "b")
    peer = receiving(world)
    assert peer.take(5, incoming_window=1) == ["a"]
    if is_suspended:
        peer.session.on_timer()
    peer.session.pause_writing()
    peer.session.receive(encode_frame(0, flow(5, 1)))
    assert not peer.link.output
    peer.session.written()
    assert [each.body for each in peer.messages()] == ["b"]


def test_widest_window_and_credit_are_open(world: World) -> None:
    fill(world, "a", "b")
    peer = receiving(world)
    assert peer.take(LARGEST, incoming_window=LARGEST) == ["a", "b"]
    assert peer.take(LARGEST, incoming_window=LARGEST, next_incoming_id=2, delivery_count=2) == []
    fill(world, "c")
    assert [each.body for each in peer.messages()] == ["c"]


def test_client_that_is_slow_again_at_once_gets_no_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = world.open("r")
    peer.receiver("p")
    peer.begin(1)
    peer.channel = 1
    peer.receiver("q")
    fill(world, "waits", "x")
    assert peer.take(5, incoming_window=0) == []
    peer.link.now = peer.link.wakes_at or 0.0
    peer.session.on_timer()
    peer.session.pause_writing()
    fill(world, "y", "z", address="p")
    opened = AmqpFlow(
        next_incoming_id=0, incoming_window=9, next_outgoing_id=0, outgoing_window=BIG, handle=1, link_credit=5
    )
    peer.session.receive(encode_frame(1, opened) + encode_frame(0, opened))
    write = peer.link.write

    def write_too_much(data: bytes) -> None:
        write(data)
        peer.session.pause_writing()

    monkeypatch.setattr(peer.link, "write", write_too_much)
    peer.session.written()
    monkeypatch.undo()
    assert peer.link.output.count(b"waits") == 1
    assert not any(each in peer.link.output for each in (b"\xa1\1x", b"\xa1\1y", b"\xa1\1z"))
    assert [each.body for each in peer.messages()] == ["waits"]
    assert sorted(str(each.body) for each in peer.messages()) == ["x", "y", "z"]


def test_session_with_a_closed_window_holds_up_no_other(world: World) -> None:
    fill(world, *"abcdef")
    peer = world.open("r")
    peer.receiver("q")
    peer.begin(1)
    peer.channel = 1
    peer.receiver("q")
    peer.channel = 0
    assert peer.take(10, incoming_window=2) == ["a", "b"]
    peer.channel = 1
    peer.credit(2)
    peer.link.now = peer.link.wakes_at or 0.0
    peer.session.on_timer()
    assert [each.body for each in peer.messages()] == ["c", "d"]
    peer.channel = 0
    peer.credit(8, delivery_count=2, incoming_window=0, next_incoming_id=2)
    assert peer.messages(peer.frames) == []
    assert peer.take(8, delivery_count=2, incoming_window=1, next_incoming_id=2) == ["e"]
    peer.link.now = peer.link.wakes_at or 0.0
    peer.session.on_timer()
    fill(world, "g")
    assert peer.messages() == []
    assert peer.take(7, delivery_count=3, incoming_window=9, next_incoming_id=3) == ["f", "g"]


def test_long_message_comes_in_frames_of_the_clients_size(world: World) -> None:
    fill(world, "x" * 3000)
    peer = world.open("r", max_frame_size=512)
    peer.receiver("q")
    peer.credit(1, incoming_window=3)
    assert len(peer.frames) == 3
    assert all(isinstance(each.performative, AmqpTransfer) and each.performative.more for each in peer.frames)
    started = peer.frames
    peer.credit(1, incoming_window=100, next_incoming_id=3)
    [found] = peer.messages(started + peer.frames)
    assert found.body == "x" * 3000
    peer.settle(0)
    assert not world.broker.queues[next(iter(world.broker.queues))].counters().size


def test_message_above_the_clients_limit_is_a_dead_letter(world: World) -> None:
    fill(world, "x" * 3000, "b")
    peer = world.open("r")
    peer.receiver("q", max_message_size=1000)
    assert peer.take(1) == []
    peer.link.now = peer.link.wakes_at or 0.0
    peer.session.on_timer()
    assert [each.body for each in peer.messages()] == ["b"]
    names = {each.name: found.counters().size for each, found in world.broker.queues.items()}
    assert names["ActiveMQ.DLQ"] == 1


@interpreted
def test_unsettled_messages_of_a_connection_are_limited(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "UNSETTLED_MAX", 3)
    fill(world, *"abcdef")
    peer = receiving(world)
    assert peer.take(10) == ["a", "b", "c"]
    peer.begin(1)
    peer.channel = 1
    peer.receiver("q")
    assert peer.take(1) == []
    peer.channel = 0
    peer.settle(0, last=1)
    assert [each.body for each in peer.messages(peer.frames)] == ["d", "e"]
    peer.detach(1)
    assert [each.body for each in peer.messages(peer.frames)] == ["c"]


@interpreted
@pytest.mark.parametrize("is_aside", [False, True])
@pytest.mark.parametrize("ending", [AmqpDetach(handle=1), AmqpEnd()])
def test_end_of_a_link_makes_room_for_another_session(
    world: World, monkeypatch: pytest.MonkeyPatch, ending: AmqpDetach | AmqpEnd, *, is_aside: bool
) -> None:
    monkeypatch.setattr(channel, "UNSETTLED_MAX", 3)
    fill(world, "a", "b", "c")
    peer = world.open("r")
    peer.receiver("q")
    assert peer.take(2) == ["a", "b"]
    peer.begin(1)
    peer.channel = 1
    peer.receiver("q")
    assert peer.take(10) == ["c"]
    if is_aside:
        peer.link.now = peer.link.wakes_at or 0.0
        peer.session.on_timer()
    peer.send(ending, channel=0)
    found = peer.messages(peer.frames)
    assert [each.body for each in [*found, *peer.messages()]] == ["a", "b"]


# ---------------------------------------------------------------- the client sends


def test_transfer_without_credit_ends_the_link() -> None:
    world = World(limits=AmqpLimits(producer_credit=3))
    peer = world.open()
    _, flow = peer.sender("q")
    assert flow.link_credit == 3
    world.store.is_slow = True
    for _ in range(3):
        assert peer.transfer(text("m")) == []
    [detached] = peer.transfer(text("m"))
    assert detached.closed
    assert detached.error.condition == "amqp:link:transfer-limit-exceeded"
    assert peer.transfer(text("m")) == []
    world.store.sync()
    peer.receive()
    assert peer.detach(0) == []
    assert len(peer.sender("q")) == 2


def test_credit_comes_with_the_answers() -> None:
    world = World(limits=AmqpLimits(producer_credit=10))
    peer = world.open()
    peer.sender("q")
    world.store.is_slow = True
    for _ in range(10):
        assert peer.transfer(text("m")) == []
    world.store.sync()
    answers = peer.performatives()
    flows = [each for each in answers if isinstance(each, AmqpFlow)]
    assert flows[-1].link_credit == 7  # as little was left when three had no answer
    assert flows[-1].delivery_count == 10


def test_window_of_the_session_is_opened_again(world: World) -> None:
    peer = world.open()
    peer.sender("q")
    flows = [
        each
        for number in range(9000)
        for each in peer.transfer(text("m", durable=False), settled=True)
        if isinstance(each, AmqpFlow) and each.handle is None
    ]
    assert [each.incoming_window for each in flows] == [16383]
