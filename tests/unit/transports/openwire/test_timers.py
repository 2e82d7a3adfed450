"""Inactivity: silent peers are closed, and idle connections send a KeepAliveInfo."""

import dataclasses
import logging

import pytest

from pybroker.broker.domain.big_endian import INT
from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.inactivity import InactivityMonitor
from pybroker.broker.domain.openwire.commands import (
    ConnectionErrorCommand,
    ConnectionId,
    ConnectionInfo,
    KeepAliveInfo,
    MessagePull,
    Response,
)
from pybroker.broker.domain.openwire.marshal.wireformat import Offer
from tests.unit.transports.openwire.conversation import JAVA, OpenWireClient, World, of_kind, settings, texts

SHORT = dataclasses.replace(JAVA, max_inactivity_ms=900, initial_delay_ms=3000)
ORDERS = queue("ORDERS")


def keep_alives(client: OpenWireClient) -> int:
    return len(of_kind(client.receive(), KeepAliveInfo))


def test_smaller_limit_wins() -> None:
    inactivity = InactivityMonitor(0.9, 3.0, 3.0)
    assert (inactivity.seconds, inactivity.next_check) == (0.9, 3.0)


def test_duration_zero_means_no_checks(world: World) -> None:
    client = world.client(offer=dataclasses.replace(JAVA, max_inactivity_ms=0))
    assert client.link.wakes_at is None
    client.wait(1e6)
    assert client.receive() == []
    assert not client.link.closed


def test_keep_alives_come_when_nothing_else_does(world: World) -> None:
    client = world.client(offer=SHORT)
    client.wait(2.9)
    assert keep_alives(client) == 0
    for _ in range(10):
        client.send_commands(KeepAliveInfo())
        client.wait(0.9)
        assert keep_alives(client) >= 1
    assert not client.link.closed


def test_a_keep_alive_does_not_put_off_the_next_one(world: World) -> None:
    client = world.client(offer=SHORT)
    client.wait(3.0)
    keep_alives(client)
    received = 0
    for _ in range(9):  # a third of the limit each
        client.send_commands(KeepAliveInfo())
        client.wait(0.3)
        received += keep_alives(client)
    assert received == 9


def test_no_keep_alive_where_something_was_sent(world: World) -> None:
    client = world.client(offer=SHORT)
    client.wait(2.9)
    for _ in range(10):
        client.send(ORDERS, "a")
        client.wait(0.25)
        assert keep_alives(client) == 0


def test_silent_peer_is_given_up(world: World, caplog: pytest.LogCaptureFixture) -> None:
    client = world.client(offer=SHORT)
    client.consume(ORDERS)
    caplog.clear()
    client.wait(3.85)
    assert not client.link.closed, "it may be as late as one limit and the delay before the watch"
    client.wait(1.0)
    assert client.link.closed
    assert isinstance(client.receive()[-1], ConnectionErrorCommand)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert not world.broker.queues[ORDERS].is_in_use


def test_peer_with_a_first_keep_alive_in_time_stays(world: World) -> None:
    """Both sides look first when the delay is over: the other's data may come a moment later."""
    client = world.new_client(offer=SHORT)
    client.wait(3.001)
    assert not client.link.closed
    client.send_commands(KeepAliveInfo())
    client.wait(0.9)
    assert not client.link.closed


def test_part_of_a_frame_is_a_sign_of_life(world: World) -> None:
    client = world.client(offer=SHORT)
    client.session.receive(INT.pack(1000))
    for _ in range(20):
        client.wait(0.8)
        client.session.receive(b"x")
    assert not client.link.closed


def test_peer_that_is_not_read_is_not_silent(world: World) -> None:
    client = world.client(offer=SHORT)
    client.link.pause_reading()
    client.wait(20)
    assert not client.link.closed
    client.link.resume_reading()
    client.wait(0.85)
    assert not client.link.closed, "it has the whole limit from here on"
    client.wait(1)
    assert client.link.closed


def test_keep_alive_is_answered_with_one(world: World) -> None:
    client = world.client()
    (answer,) = client.request(KeepAliveInfo(response_required=True, command_id=5))
    assert isinstance(answer, KeepAliveInfo)
    assert not answer.response_required
    assert client.request(KeepAliveInfo()) == []


def test_keep_alive_is_answered_before_the_connection(world: World) -> None:
    client = world.new_client()
    client.receive()
    assert [type(each) for each in client.request(KeepAliveInfo(response_required=True))] == [KeepAliveInfo]


def test_java_client_may_take_its_time_to_connect(world: World) -> None:
    client = world.new_client()
    for _ in range(10):
        client.wait(25)
        client.send_commands(KeepAliveInfo())
    client.receive()
    client.answer(ConnectionInfo(connection_id=ConnectionId("ID:late"), client_id="late"), Response)


def test_a_timer_that_fires_a_moment_early_is_set_again(world: World) -> None:
    """Timers of uvloop are good to a millisecond: it may call before the requested time."""
    client = world.client(offer=SHORT)
    when = client.link.wakes_at
    assert when is not None
    client.link.now, client.link.wakes_at = when - 0.0004, None
    client.session.on_timer()
    assert client.link.wakes_at == when


def test_the_timer_of_an_early_pull_is_set_again(world: World) -> None:
    client = world.client(offer=dataclasses.replace(JAVA, max_inactivity_ms=0))
    client.consume(ORDERS, prefetch_size=0)
    client.send_commands(MessagePull(consumer_id=client.consumer(), timeout=300))
    client.link.now, client.link.wakes_at = 0.2996, None
    client.session.on_timer()
    assert client.link.wakes_at == 0.3
    client.wait(0.001)
    assert texts(client.receive()) == [None]
    assert client.link.wakes_at is None


def test_pull_of_a_closed_consumer_has_no_timer(world: World) -> None:
    client = world.client(offer=dataclasses.replace(JAVA, max_inactivity_ms=0))
    client.consume(ORDERS, prefetch_size=0)
    client.send_commands(MessagePull(consumer_id=client.consumer(), timeout=300))
    assert client.link.wakes_at == 0.3
    client.remove(client.consumer())
    assert client.link.wakes_at is None


def test_slow_reader_gets_nothing_until_it_reads_again(world: World) -> None:
    client, other = world.client("c1"), world.client("c2")
    client.consume(ORDERS)
    client.session.pause_writing()
    other.send(ORDERS, "a")
    assert client.read_frames() == []
    client.session.written()
    assert texts(client.receive()) == ["a"]


def test_what_never_left_the_process_was_not_seen(world: World) -> None:
    client, other = world.client("c1"), world.client("c2")
    client.consume(ORDERS)
    other.send(ORDERS, "a")
    assert texts(client.receive()) == ["a"]  # `receive` reports to the session that it left
    other.send(ORDERS, "b")
    client.session.lost()
    again = other.consume(ORDERS)
    assert [(each.redelivery_counter) for each in again] == [1, 0]


def test_what_the_kernel_was_handed_may_have_been_seen(world: World) -> None:
    client, other = world.client("c1"), world.client("c2")
    client.consume(ORDERS)
    other.send(ORDERS, "a")
    client.session.handed_over()  # and took only a part of it, or has it still when the connection ends
    other.send(ORDERS, "b")
    client.session.lost()
    again = other.consume(ORDERS)
    assert [each.redelivery_counter for each in again] == [1, 0]


def test_timer_after_the_end_does_nothing(world: World) -> None:
    client = world.client()
    client.session.lost()
    client.session.on_timer()
    client.session.written()
    client.session.pause_writing()
    assert client.read_frames() == []


def test_peer_before_negotiation_has_the_set_time(world: World) -> None:
    client = world.new_client(of_broker=dataclasses.replace(settings(), connect_seconds=2.0), sends_offer=False)
    client.wait(1.9)
    assert not client.link.closed
    client.wait(0.2)
    assert client.link.closed


@pytest.mark.parametrize(
    "offer", [JAVA, dataclasses.replace(JAVA, max_inactivity_ms=0)], ids=["monitored", "unmonitored"]
)
def test_peer_without_connection_has_ten_times_the_set_time(world: World, offer: Offer) -> None:
    client = world.new_client(of_broker=dataclasses.replace(settings(), connect_seconds=2.0), offer=offer)
    for _ in range(19):
        client.wait(1.0)
        client.send_commands(KeepAliveInfo())
    assert not client.link.closed
    client.wait(1.1)
    assert client.link.closed
    [error] = of_kind(client.receive(), ConnectionErrorCommand)
    assert error.exception is not None
    assert error.exception.message == "no ConnectionInfo within 20 seconds"


def test_connected_client_without_consumers_may_stay(world: World) -> None:
    client = world.client(session=False, of_broker=dataclasses.replace(settings(), connect_seconds=2.0))
    for _ in range(100):
        client.wait(1.0)
        client.send_commands(KeepAliveInfo())
    assert not client.link.closed


def test_peer_that_removed_its_connection_has_the_time_again(world: World) -> None:
    client = world.client(session=False, of_broker=dataclasses.replace(settings(), connect_seconds=2.0))
    for _ in range(50):
        client.wait(1.0)
        client.send_commands(KeepAliveInfo())
    client.remove(ConnectionId(client.id))
    for _ in range(19):
        client.wait(1.0)
        client.send_commands(KeepAliveInfo())
    assert not client.link.closed
    client.wait(1.1)
    assert client.link.closed


def test_long_work_does_not_end_the_keep_alives(world: World) -> None:
    """The client's own thread may be blocked in a receive: its transport's is not, and neither are we."""
    client = world.client(offer=SHORT)
    client.consume(ORDERS, prefetch_size=0)
    client.send_commands(MessagePull(consumer_id=client.consumer(), timeout=0))
    client.wait(2.9)
    for _ in range(20):
        client.send_commands(KeepAliveInfo())
        client.wait(0.7)
        assert keep_alives(client) >= 1
    assert [type(each) for each in client.send(ORDERS, "a")][-1:] == [Response]
