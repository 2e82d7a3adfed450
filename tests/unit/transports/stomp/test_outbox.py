# mypy: disable-error-code="arg-type, comparison-overlap"
"""Frames retain their order behind a receipt, and only so many wait there."""

from dataclasses import dataclass

import pytest

from pybroker.transports.stomp.flow import Flow
from pybroker.transports.stomp.outbox import WAITING_BYTES_MAX, Outbox
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


@pytest.fixture
def box() -> Box:
    written: list[bytes] = []
    flow, connection = Flow(), Connection()
    flow.attach(connection)
    return Box(Outbox(written.append, flow), written, connection, Subscription())


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
