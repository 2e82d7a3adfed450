"""A session within WebSocket sees the link of a connection, and its frames are messages."""

import pytest

from pybroker.broker.domain.errors import BrokerError, ResourceLimit
from pybroker.transports.websocket.frames import UTF8_CHECKED_BYTES
from tests.unit.transports.websocket.conversation import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    Conversation,
    close_code,
    frame,
    request,
    server_frames,
    upgraded,
)


def sent(conversation: Conversation) -> list[tuple[int, bytes]]:
    return server_frames(conversation.link.sent())


def codes(frames: list[tuple[int, bytes]]) -> list[int]:
    return [close_code(payload) for opcode, payload in frames if opcode == CLOSE]


@pytest.mark.parametrize("size", [0, 1, 200, 20_000, 70_000])
def test_each_write_is_a_message(size):
    conversation = upgraded()
    link = conversation.inner.link
    link.write(b"m" * size + b"\0\n")
    link.write(b"\n")
    assert sent(conversation) == [(TEXT, b"m" * size + b"\0\n"), (TEXT, b"\n")]


def test_frame_in_pieces_is_one_message_and_shares_them():
    conversation = upgraded()
    body = b"b" * 1_000_000
    conversation.inner.link.write_pieces((b"MESSAGE\n\n", body, b"\0\n"))
    assert any(each is body for each in conversation.link.output)
    assert sent(conversation) == [(TEXT, b"MESSAGE\n\n" + body + b"\0\n")]


def test_frame_that_is_no_utf8_is_binary():
    conversation = upgraded()
    link = conversation.inner.link
    link.write(b"\xff\0\n")
    link.write("é\0\n".encode())
    link.write_pieces((b"\xc3", b"\xa9", b"\0\n"))
    link.write_pieces((b"\xc3", b"\0\n"))
    link.write_pieces(("é".encode(), b"a" * UTF8_CHECKED_BYTES))
    assert [opcode for opcode, _ in sent(conversation)] == [BINARY, TEXT, TEXT, BINARY, BINARY]


def test_client_with_binary_messages_gets_binary_ones():
    conversation = upgraded()
    link = conversation.inner.link
    link.write(b"1")
    conversation.feed(frame(BINARY, b"x"))
    link.write(b"2")
    conversation.feed(frame(TEXT, b"\n"))
    link.write(b"3")
    assert [opcode for opcode, _ in sent(conversation)] == [TEXT, BINARY, BINARY]


@pytest.mark.parametrize(("byte", "code"), [(b"C", 1000), (b"E", 1002)])
def test_close_of_the_inner_session_has_a_code(byte, code):
    conversation = upgraded()
    assert codes(conversation.ask(frame(TEXT, b"a" + byte + b"b") + frame(TEXT, b"c"))) == [code]
    assert conversation.link.is_closed
    assert conversation.inner.received == b"a" + byte
    conversation.inner.link.write(b"late")
    conversation.inner.link.send_close(1000)
    assert conversation.link.output == []


def test_error_that_the_client_outlives_is_forgotten():
    conversation = upgraded()
    conversation.inner.link.write(b"ERROR\nmessage:m\n\n\0\n")
    assert codes(conversation.ask(frame(TEXT, b"C"))) == [1000]


@pytest.mark.parametrize(("error", "code"), [(ResourceLimit("too many"), 1008), (BrokerError("a bug"), 1011)])
def test_connection_that_is_given_up_has_a_code(error, code):
    conversation = upgraded()
    conversation.inner.link.give_up(error)
    assert codes(sent(conversation)) == [code]
    assert conversation.link.is_closed


def test_request_that_is_given_up_is_answered():
    conversation = Conversation()
    conversation.session.give_up(ResourceLimit("it makes way"))
    assert conversation.link.sent().startswith(b"HTTP/1.1 503 ")
    assert conversation.link.is_closed
    conversation.session.give_up(ResourceLimit("again"))
    assert conversation.session.receive(request()) is False
    assert conversation.link.output == []


def test_broker_that_stops_says_so():
    conversation = upgraded()
    conversation.session.stopping()
    assert sent(conversation) == [(CLOSE, (1001).to_bytes(2) + b"the broker stops")]
    conversation.inner.link.write(b"late")
    assert conversation.link.output == []
    before = Conversation()
    before.session.stopping()
    assert before.link.output == []


def test_slices_of_the_inner_session_are_finished_first():
    conversation = upgraded()
    assert conversation.session.receive(frame(TEXT, b"aSbS") + frame(TEXT, b"c"))
    assert conversation.inner.received == b"aS"
    assert conversation.session.proceed()
    assert conversation.inner.received == b"aSbS"
    assert not conversation.session.proceed()
    assert conversation.inner.received == b"aSbSc"


def test_pings_are_counted_in_a_slice():
    conversation = upgraded()
    conversation.link.is_slice_spent = True
    assert conversation.session.receive(frame(PING, b"p") * 20)
    assert sent(conversation) == [(PONG, b"p")] * 8
    assert conversation.session.proceed()
    assert not conversation.session.proceed()
    assert sent(conversation) == [(PONG, b"p")] * 12


def test_held_input_waits_within_and_behind_the_frame():
    conversation = upgraded()
    conversation.feed(frame(TEXT, b"aHb") + frame(TEXT, b"c"))
    assert conversation.inner.received == b"aH"
    assert conversation.session.proceed() is False
    conversation.inner.link.release_input()
    assert conversation.session.proceed() is False
    assert conversation.inner.received == b"aHbc"


def test_events_of_the_connection_reach_the_inner_session():
    conversation = upgraded()
    conversation.session.written()
    conversation.session.handed_over()
    conversation.session.pause_writing()
    conversation.session.on_timer()
    conversation.session.lost()
    assert conversation.inner.events == ["written", "handed over", "pause writing", "timer", "lost"]


def test_events_before_the_handshake_have_no_effect():
    conversation = Conversation()
    conversation.session.written()
    conversation.session.handed_over()
    conversation.session.pause_writing()
    conversation.session.hold()
    conversation.session.release()
    assert not conversation.session.is_connected
    conversation.session.lost()
    assert conversation.made == []


def test_connected_is_the_inner_session():
    conversation = upgraded()
    assert not conversation.session.is_connected
    conversation.inner.is_connected = True
    assert conversation.session.is_connected


def test_inner_link_is_that_of_the_connection():
    conversation = upgraded()
    outer, link = conversation.link, conversation.inner.link
    assert (link.peer, link.certificate, link.reading_since, link.ending) == ("10.0.0.1:5", None, 100.0, "")
    outer.certificate, outer.ending, outer.is_input_waiting, outer.is_slice_spent = "CN=a", "broken", True, True
    assert (link.certificate, link.ending, link.is_input_waiting, link.is_slice_over()) == (
        "CN=a",
        "broken",
        True,
        True,
    )
    assert link.time() == 100.0
    link.wake_at(7.0)
    assert outer.wake == 7.0
    link.pause_reading()
    link.resume_reading()
    link.reserve_frame(10, 5)
    link.release_frame()
    done: list[str] = []
    link.in_thread(lambda: done.append("work"), lambda: done.append("done"))
    assert outer.calls == [("pause",), ("resume",), ("reserve", 10, 5), ("release frame",)]
    assert done == ["work", "done"]


def test_timer_of_the_handshake_ends_with_it():
    conversation = upgraded()
    conversation.session.on_timer()
    assert conversation.inner.events == ["timer"]
    assert not conversation.link.is_closed
