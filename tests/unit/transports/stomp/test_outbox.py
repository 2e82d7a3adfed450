# mypy: disable-error-code="arg-type, comparison-overlap"
"""Frames retain their order behind a receipt, and only so many wait there."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pytest

from pybroker.transports.stomp.flow import BackpressureReason, Flow
from pybroker.transports.stomp.outbox import WAITING_BYTES_MAX, MessageSlot, Outbox
from tests.compiled import interpreted

pytestmark = interpreted


class Connection:
    paused = False

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False


@dataclass(eq=False)
class Subscription:
    closed: bool = False


@dataclass(eq=False)
class Box:
    outbox: Outbox
    written: list[bytes]
    connection: Connection
    subscription: Subscription
    flow: Flow


@pytest.fixture
def box() -> Box:
    written: list[bytes] = []
    flow, connection = Flow(), Connection()
    flow.attach(connection)
    return Box(Outbox(written.append, written.extend, flow), written, connection, Subscription(), flow)


def test_messages_stand_behind_each_receipt_before_them(box: Box) -> None:
    first = box.outbox.reserve()
    box.outbox.message(b"1", box.subscription)
    second = box.outbox.reserve()
    box.outbox.message(b"2", box.subscription)
    box.outbox.fill(second, b"second")
    assert box.written == []
    box.outbox.fill(first, b"first")
    assert box.written == [b"first", b"1", b"second", b"2"]


def test_deliveries_pause_while_much_waits(box: Box) -> None:
    place = box.outbox.reserve()
    box.outbox.message(bytes(WAITING_BYTES_MAX), box.subscription)
    assert not box.connection.paused
    box.outbox.message(b"x", box.subscription)
    assert box.connection.paused
    box.outbox.fill(place, b"")
    assert not box.connection.paused


def test_deliveries_stay_paused_behind_the_next_receipt(box: Box) -> None:
    first, second = box.outbox.reserve(), box.outbox.reserve()
    box.outbox.message(bytes(WAITING_BYTES_MAX + 1), box.subscription)
    box.outbox.fill(first, b"first")
    assert box.connection.paused
    box.outbox.fill(second, b"second")
    assert not box.connection.paused


def test_messages_of_an_ended_subscription_free_space_too(box: Box) -> None:
    for _ in range(3):
        place = box.outbox.reserve()
        box.outbox.message(bytes(WAITING_BYTES_MAX // 2 + 1), Subscription(closed=True))
        box.outbox.fill(place, b"r")
    assert not box.connection.paused
    assert box.written == [b"r"] * 3


def test_only_what_was_written_is_acknowledged_once(box: Box) -> None:
    place = box.outbox.reserve()
    box.outbox.message(b"1", box.subscription, "delivery")
    assert box.outbox.take_sent() == {}
    box.outbox.fill(place, b"r")
    assert box.outbox.take_sent() == {box.subscription: "delivery"}
    assert box.outbox.take_sent() == {}


def test_a_slow_message_is_started_once_the_peer_has_read(box: Box) -> None:
    """One long body is in memory at a time: the next one is rendered when the one before it has left."""
    started: list[MessageSlot] = []
    box.outbox.reserve_message(box.subscription, None, started.append)
    box.outbox.reserve_message(box.subscription, None, started.append)
    box.outbox.message(b"3", box.subscription)
    assert box.connection.paused
    assert len(started) == 1
    box.flow.pause(BackpressureReason.LINK)
    box.outbox.complete(started[0], (b"1", b"one"))
    assert (box.written, len(started)) == ([b"1", b"one"], 1)
    box.flow.resume(BackpressureReason.LINK)
    box.outbox.advance()
    assert len(started) == 2
    assert box.connection.paused
    box.outbox.complete(started[1], ())
    assert box.written == [b"1", b"one", b"3"]
    assert not box.connection.paused


def test_a_slow_message_of_an_ended_subscription_is_not_started(box: Box) -> None:
    started: list[MessageSlot] = []
    receipt = box.outbox.reserve()
    box.outbox.reserve_message(box.subscription, None, started.append)
    box.subscription.closed = True
    box.outbox.fill(receipt, b"receipt")
    assert (box.written, started) == ([b"receipt"], [])
    assert not box.connection.paused


def test_a_frame_in_pieces_is_written_as_one() -> None:
    """What makes a message of each frame has to know where it ends."""
    frames: list[Sequence[bytes]] = []
    flow, connection = Flow(), Connection()
    flow.attach(connection)
    outbox = Outbox(lambda frame: frames.append([frame]), frames.append, flow)
    outbox.message(b"1", Subscription())
    outbox.reserve_message(Subscription(), None, lambda slot: outbox.complete(slot, (b"head", b"body", b"end")))
    assert frames == [[b"1"], (b"head", b"body", b"end")]


def complete_with(outbox: Outbox, piece: bytes, slot: MessageSlot) -> None:
    outbox.complete(slot, (piece,))


def test_a_slow_message_may_be_complete_at_once(box: Box) -> None:
    for name in (b"1", b"2"):
        box.outbox.reserve_message(box.subscription, None, partial(complete_with, box.outbox, name))
    assert box.written == [b"1", b"2"]
    assert not box.connection.paused
