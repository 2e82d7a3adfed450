"""Commands of one chunk in slices: the outcome is that of the whole chunk, and a silent beginning is judged fairly."""

import dataclasses

import pytest

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.openwire.commands import (
    ActiveMQMessage,
    DataStructure,
    ExceptionResponse,
    KeepAliveInfo,
    OpenWireMessageId,
    ProducerId,
    Response,
    ShutdownInfo,
)
from pybroker.broker.domain.openwire.marshal.wireformat import Offer, broker_offer
from pybroker.broker.domain.transaction import LocalTransactionId
from pybroker.transports.fair_queue import FRAMES_PER_CLOCK
from pybroker.transports.openwire.states import OpenWireState
from tests.unit.transports.openwire.conversation import OpenWireClient, new_broker, of_kind, settings, texts


def connected() -> OpenWireClient:
    client = OpenWireClient(new_broker())
    client.connect()
    client.open_session()
    return client


def send_in_slices(client: OpenWireClient, chunk: bytes) -> int:
    """Send a chunk whose slice is always over, and return how many slices it took."""
    client.link.is_slice_spent = True
    slices = 1
    is_left = client.session.receive(chunk)
    while is_left:
        slices += 1
        is_left = client.session.proceed()
    client.link.is_slice_spent = False
    return slices


def test_messages_of_a_chunk_are_sent_in_slices_and_in_order() -> None:
    client = connected()
    sent = [client.message(queue("Q"), str(number)) for number in range(50)]
    chunk = b"".join(map(client.wire.encode_frame, sent))
    # The first message creates the queue, and has a slice of its own.
    assert send_in_slices(client, chunk + chunk[:10]) == 1 + 1 + 49 // FRAMES_PER_CLOCK
    client.session.receive(chunk[10 : len(chunk) // 50])
    answered = [each.correlation_id for each in of_kind(client.receive(), Response)]
    assert answered[:50] == [each.command_id for each in sent]
    got = client.consume(queue("Q"), prefetch_size=100)
    assert texts(got)[:50] == [str(number) for number in range(50)]


def test_messages_that_take_effort_are_one_to_a_slice() -> None:
    client = connected()
    sent = [client.message(queue(f"Q.{number}"), "x") for number in range(20)]
    assert send_in_slices(client, b"".join(map(client.wire.encode_frame, sent))) == 20, "each creates a queue"


def send_in_chunks(client: OpenWireClient, *commands: DataStructure) -> None:
    """Send commands in chunks, as a socket gives them."""
    data = b"".join(map(client.wire.encode_frame, commands))
    for start in range(0, len(data), 100_000):
        client.session.receive(data[start : start + 100_000])


GENEROUS = dataclasses.replace(broker_offer(), tight_encoding_enabled=True, cache_enabled=True, cache_size=1024)


@pytest.mark.parametrize("ours", [None, GENEROUS], ids=["verbatim", "tight"])
def test_large_messages_keep_their_place_among_others(ours: Offer | None) -> None:
    client = OpenWireClient(new_broker(), of_broker=settings(ours))
    client.connect()
    client.open_session()
    expected = ["a", "b" * (2 << 20), "c", "d" * (1 << 20), "e" * (3 << 20), "f"]
    sent = [client.message(queue("Q"), text) for text in expected]
    send_in_chunks(client, *sent)
    assert [each.correlation_id for each in of_kind(client.receive(), Response)] == [each.command_id for each in sent]
    assert not client.link.reserved
    got = client.consume(queue("Q"))
    assert texts(got) == expected
    numbers = [
        each.message.message_id.broker_sequence_id
        for each in got
        if isinstance(each.message, ActiveMQMessage) and each.message.message_id is not None
    ]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == len(expected)


def test_large_messages_are_refused_as_others_are() -> None:
    client = connected()
    text = "x" * (1 << 20)
    foreign = OpenWireMessageId(None, ProducerId("ID:other", 1, 1), 1)
    bad = [
        client.message(None, text),
        client.message(queue("Q"), text, message_id=foreign),
        client.message(queue("Q"), text, transaction_id=LocalTransactionId("ID:c1", 9)),
    ]
    good = client.message(queue("Q"), "good")
    send_in_chunks(client, *bad, good)
    answers = client.receive()
    assert [each.correlation_id for each in of_kind(answers, ExceptionResponse)] == [each.command_id for each in bad]
    assert [each.correlation_id for each in of_kind(answers, Response)][-1] == good.command_id
    assert texts(client.consume(queue("Q"))) == ["good"]


def test_a_large_frame_that_is_no_message_closes_the_connection() -> None:
    client = connected()
    client.session.receive((2 << 20).to_bytes(4))
    for _ in range(2 << 10):
        client.session.receive(b"\x7f" * 1024)
    assert client.link.closed
    assert client.session.state is OpenWireState.CLOSED


def test_slow_commands_are_one_to_a_slice() -> None:
    client = connected()
    chunk = client.wire.encode_frame(KeepAliveInfo(response_required=True)) * 5
    assert send_in_slices(client, chunk) == 5
    assert len(of_kind(client.receive(), KeepAliveInfo)) == 5


def test_frames_behind_the_end_are_not_carried_out() -> None:
    client = connected()
    keep_alive = client.wire.encode_frame(KeepAliveInfo(response_required=True))
    assert send_in_slices(client, keep_alive + client.wire.encode_frame(ShutdownInfo()) + keep_alive) == 2
    assert client.link.closed
    assert not client.session.proceed()
    assert len(of_kind(client.receive(), KeepAliveInfo)) == 1


def test_peer_whose_offer_waits_for_a_slice_is_not_timed_out() -> None:
    client = OpenWireClient(new_broker(), sends_offer=False)
    client.link.now = settings().connect_seconds
    client.link.is_input_waiting = True
    client.session.on_timer()
    assert not client.link.closed
    assert client.link.wakes_at == client.link.now + 1
    client.link.is_input_waiting = False
    client.session.on_timer()
    assert client.link.closed
    assert client.session.state is OpenWireState.CLOSED
