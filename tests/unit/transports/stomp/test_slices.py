"""Frames of one chunk in slices: the outcome is that of the whole chunk, and a silent beginning is judged fairly."""

from typing import Any

from pybroker.broker.domain.stomp.frames import StompLimits
from pybroker.transports.fair_queue import FRAMES_PER_CLOCK

SEND = "SEND\ndestination:/queue/Q\n\n{}\0\n"


def send_in_slices(peer: Any, text: str) -> int:
    """Send a chunk whose slice is always over, and return how many slices it took."""
    peer.link.is_slice_spent = True
    slices = 1
    is_left = peer.session.receive(text.encode())
    while is_left:
        slices += 1
        is_left = peer.session.proceed()
    return slices


def test_frames_of_a_chunk_are_carried_out_in_slices_and_in_order(connect: Any, broker: Any) -> None:
    peer = connect("1.2")
    unfinished = SEND.format("last")
    chunk = "".join(SEND.format(number) for number in range(50))
    assert send_in_slices(peer, chunk + unfinished[:9]) == 1 + 50 // FRAMES_PER_CLOCK
    send_in_slices(peer, unfinished[9:])
    assert len(broker.received) == 51
    bodies = [bytes(message.data) for message in broker.received]
    assert all(str(number).encode() in body for number, body in enumerate(bodies[:50]))
    assert b"last" in bodies[50]


def test_frames_behind_the_end_are_not_carried_out(connect: Any, broker: Any) -> None:
    peer = connect("1.2")
    chunk = SEND.format(0) * FRAMES_PER_CLOCK + "DISCONNECT\n\n\0" + SEND.format(1)
    assert send_in_slices(peer, chunk) == 2
    assert len(broker.received) == FRAMES_PER_CLOCK
    assert not peer.session.proceed()


def test_broken_frame_in_a_later_slice_is_answered_and_ends_the_connection(connect: Any, broker: Any) -> None:
    peer = connect("1.2")
    assert (
        send_in_slices(peer, SEND.format(0) * FRAMES_PER_CLOCK + "SEND\ncontent-length:x\n\n\0" + SEND.format(1)) == 2
    )
    assert peer.link.closed
    assert b"ERROR" in peer.link.output
    assert len(broker.received) == FRAMES_PER_CLOCK


def test_peer_whose_connect_waits_for_a_slice_is_not_timed_out(connect: Any) -> None:
    peer = connect(None)
    peer.link.now += StompLimits().connect_seconds
    peer.link.is_input_waiting = True
    peer.session.on_timer()
    assert not peer.link.closed
    assert peer.link.wake == peer.link.now + 1
    peer.link.is_input_waiting = False
    peer.session.on_timer()
    assert peer.link.closed
