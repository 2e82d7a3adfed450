"""Commands of one chunk in slices: the outcome is that of the whole chunk, and a silent beginning is judged fairly."""

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.openwire.commands import KeepAliveInfo, Response, ShutdownInfo
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
