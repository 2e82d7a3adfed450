"""Received frames: however they are cut, the payloads are the same; violations have the documented codes."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from pybroker.transports.websocket.receiver import PIECE_BYTES, FrameReceiver
from tests.unit.transports.websocket.conversation import (
    BINARY,
    CLOSE,
    CONTINUATION,
    MESSAGE_BYTES_MAX,
    PING,
    PONG,
    TEXT,
    Conversation,
    close_code,
    cut,
    frame,
    upgraded,
)


def outcome(chunks: list[bytes]) -> tuple[bytes, list[tuple[int, bytes]], bool]:
    """Return what the inner session got, the frames of the answer, and whether the connection is closed."""
    conversation = upgraded()
    answers = conversation.ask(*chunks)
    return conversation.inner.received, answers, conversation.link.is_closed


@pytest.mark.parametrize("opcode", [TEXT, BINARY])
@pytest.mark.parametrize(
    "size", [0, 1, 125, 126, 127, 65535, 65536, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 125]
)
def test_payload_of_every_length_arrives(opcode, size):
    payload = bytes(index % 61 for index in range(size))
    assert outcome([frame(opcode, payload)]) == (payload, [], False)


def test_payloads_are_one_stream():
    frames = frame(TEXT, b"a") + frame(BINARY, b"") + frame(BINARY, b"\xff\xfe") + frame(TEXT, b"d")
    assert outcome([frames]) == (b"a\xff\xfed", [], False)


def test_large_frame_passes_in_pieces_before_its_end():
    conversation = upgraded()
    data = frame(BINARY, b"x" * (4 * PIECE_BYTES))
    conversation.feed(data[: 3 * PIECE_BYTES])
    assert len(conversation.inner.received) == 2 * PIECE_BYTES
    conversation.feed(data[3 * PIECE_BYTES :])
    assert conversation.inner.received == b"x" * (4 * PIECE_BYTES)


@pytest.mark.parametrize("size", [0, 20_000, 40_000])
def test_chunk_that_is_read_is_not_kept(size):
    """A silent connection would keep a quarter of a megabyte."""
    protocol = ServerProtocol(state=State.OPEN, max_size=None)
    receiver = FrameReceiver(protocol, MESSAGE_BYTES_MAX)
    receiver.add(frame(BINARY, b"x" * 50_000) + frame(BINARY, b"x" * size)[: size + 1 or None])
    while receiver.next() is not None:
        pass
    assert len(receiver._data) == 0
    assert len(protocol.reader.buffer) < PIECE_BYTES


def test_fragmented_text_with_a_ping_inside():
    whole = "é€😀".encode()
    frames = [frame(CONTINUATION, whole[at : at + 1], fin=False) for at in range(1, len(whole))]
    frames[0:0] = [frame(TEXT, whole[:1], fin=False)]
    frames.insert(3, frame(PING, b"are you there"))
    frames.append(frame(CONTINUATION, b"", fin=True))
    assert outcome(frames) == (whole, [(PONG, b"are you there")], False)


def test_unsolicited_pong_is_ignored():
    assert outcome([frame(PONG, b"x"), frame(PONG), frame(TEXT, b"a")]) == (b"a", [], False)


def test_empty_ping_has_an_empty_pong():
    assert outcome([frame(PING), frame(PING, b"x" * 125)]) == (b"", [(PONG, b""), (PONG, b"x" * 125)], False)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(TEXT, b"a", mask=b""), 1002),
        (frame(CLOSE, mask=b""), 1002),
        (frame(TEXT, b"x" * (PIECE_BYTES + 1), mask=b""), 1002),
        *((frame(opcode, b"a"), 1002) for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)),
        *((frame(TEXT, b"a", rsv=rsv), 1002) for rsv in range(1, 8)),
        (frame(BINARY, b"x" * (PIECE_BYTES + 1), rsv=4), 1002),
        (frame(3, b"x" * (PIECE_BYTES + 1)), 1002),
        (frame(CONTINUATION, b"a"), 1002),
        (frame(CONTINUATION, b"a", fin=False), 1002),
        (frame(TEXT, b"a", fin=False) + frame(TEXT, b"a"), 1002),
        (frame(TEXT, b"a", fin=False) + frame(BINARY, b"x" * (PIECE_BYTES + 1)), 1002),
        (frame(TEXT, b"a", fin=False) + frame(CLOSE, b"\x03\xe8"), 1002),
        (frame(PING, b"x" * 126), 1002),
        (frame(PING, b"x" * 70000), 1002),
        (frame(PING, b"x", fin=False), 1002),
        (frame(CLOSE, b"x"), 1002),
        (frame(CLOSE, (1005).to_bytes(2)), 1002),
        (frame(CLOSE, (999).to_bytes(2)), 1002),
        (frame(CLOSE, b"\x03\xe8\xff"), 1007),
        (frame(TEXT, b"a", form=126), 1002),
        (frame(TEXT, b"a", form=127), 1002),
        (frame(TEXT, b"x" * 300, form=127), 1002),
        (bytes((0x81, 0xFF)) + b"\xff" * 8 + b"mask", 1002),
        (frame(TEXT, b"\xff"), 1007),
        (frame(TEXT, "é".encode()[:1]), 1007),
        (frame(TEXT, b"\xed\xa0\x80"), 1007),
        (frame(TEXT, b"ok", fin=False) + frame(CONTINUATION, b"\xc3"), 1007),
        (frame(TEXT, b"x" * (2 * PIECE_BYTES) + b"\xff"), 1007),
        (frame(BINARY, b"x" * (MESSAGE_BYTES_MAX + 1)), 1009),
        (frame(BINARY, b"x" * MESSAGE_BYTES_MAX, fin=False) + frame(CONTINUATION, b"x"), 1009),
        (bytes((0x82, 0xFF)) + (1 << 62).to_bytes(8) + b"mask", 1009),
    ],
)
def test_violation_is_closed_with_its_code(data, code, caplog):
    for chunks in ([data], [bytes([byte]) for byte in data]):
        received, answers, is_closed = outcome(chunks)
        (opcode, payload) = answers[-1]
        assert len(answers) == 1
        assert opcode == CLOSE
        assert close_code(payload) == code
        assert is_closed
        assert "E" not in received.decode("latin-1")
    assert caplog.messages[0].startswith("10.0.0.1:5 closed: WebSocket: ")


def test_message_of_the_limit_passes_and_counts_anew():
    payload = b"x" * MESSAGE_BYTES_MAX
    halves = frame(BINARY, payload[:1000], fin=False) + frame(CONTINUATION, payload[1000:])
    assert outcome([halves, frame(TEXT, payload)]) == (payload * 2, [], False)


def test_violation_drops_what_is_behind():
    received, answers, _ = outcome([frame(TEXT, b"a") + frame(TEXT, b"b", mask=b"") + frame(TEXT, b"c") + b"junk"])
    assert received == b"a"
    assert [opcode for opcode, _ in answers] == [CLOSE]


@pytest.mark.parametrize("payload", [b"", b"\x03\xe8", b"\x03\xe9going away", b"\x0f\xa0own"])
def test_close_frame_is_echoed(payload):
    conversation = upgraded()
    assert conversation.ask(frame(TEXT, b"a") + frame(CLOSE, payload) + frame(TEXT, b"b")) == [(CLOSE, payload)]
    assert conversation.inner.received == b"a"
    assert conversation.link.is_closed
    assert conversation.inner.link.ending.startswith("closed by the client (close frame ")


FRAMES = st.one_of(
    st.binary(max_size=300).map(lambda payload: [frame(BINARY, payload)]),
    st.text(max_size=100).map(lambda text: [frame(TEXT, text.encode())]),
    st.lists(st.binary(max_size=40), min_size=2, max_size=5).map(
        lambda parts: (
            [frame(BINARY, parts[0], fin=False)]
            + [frame(CONTINUATION, each, fin=False) for each in parts[1:-1]]
            + [frame(PING, b"inside"), frame(CONTINUATION, parts[-1])]
        )
    ),
    st.integers(PIECE_BYTES - 2, 3 * PIECE_BYTES).map(
        lambda size: [frame(BINARY, random.Random(size).randbytes(size))]
    ),
    st.binary(max_size=125).map(lambda payload: [frame(PING, payload)]),
    st.just([frame(CLOSE, b"\x03\xe8")]),
    st.just([frame(TEXT, b"\xff")]),
    st.just([frame(TEXT, b"a", mask=b"")]),
)


@settings(max_examples=60)
@given(st.lists(FRAMES, max_size=6), st.lists(st.integers(0, 60_000), max_size=12))
def test_whole_is_as_random_chunks(groups, cuts):
    data = b"".join(itertools.chain.from_iterable(groups))
    assert outcome([data]) == outcome(cut(data, cuts))


@settings(max_examples=30)
@given(st.lists(FRAMES, max_size=3))
def test_whole_is_as_single_bytes(groups):
    data = b"".join(itertools.chain.from_iterable(groups))[:20_000]
    assert outcome([data]) == outcome([bytes([byte]) for byte in data])


def test_random_input_has_documented_ends():
    """Ten thousand inputs of random bytes, some of them behind a plausible header."""
    chance = random.Random(61614)
    codes = set()
    for number in range(10_000):
        data = chance.randbytes(chance.randrange(40))
        if number % 2:
            data = (
                bytes((chance.choice((0x81, 0x82, 0x01, 0x00, 0x80, 0x88, 0x89)), 0x80 | chance.randrange(128))) + data
            )
        received, answers, is_closed = outcome([data])
        assert len(received) <= len(data)
        closes = [payload for opcode, payload in answers if opcode == CLOSE]
        assert len(closes) == is_closed or b"E" in received or b"C" in received
        codes |= {close_code(payload) for payload in closes if payload}
    assert codes <= {*range(1000, 1004), *range(1007, 1015), *range(3000, 5000)}
    assert {1002, 1007, 1009} <= codes


@given(st.lists(st.tuples(st.sampled_from([TEXT, BINARY]), st.binary(max_size=2000)), max_size=5))
def test_frames_of_the_library_as_client_are_read(messages):
    client = ClientProtocol(parse_uri("ws://b.example/"), state=State.OPEN)
    for opcode, payload in messages:
        if opcode == TEXT:
            payload = payload.hex().encode()
        client.send_frame(Frame(Opcode(opcode), payload))
    sent = b"".join(client.data_to_send())
    received, answers, is_closed = outcome([sent])
    # The inner session ends at a C or an E, and is held at an H.
    expected = b"".join(payload.hex().encode() if opcode == TEXT else payload for opcode, payload in messages)
    assert expected.startswith(received)
    assert received == expected or received[-1:] in (b"C", b"E", b"H")
    assert is_closed == (received[-1:] in (b"C", b"E"))
    assert len(answers) == (received[-1:] == b"C") + 2 * (received[-1:] == b"E")


def test_input_that_stays_unprocessed_is_kept_in_order():
    conversation = Conversation()
    assert conversation.session.proceed() is False
    conversation = upgraded()
    conversation.link.is_slice_spent = True
    assert conversation.session.receive(b"".join(frame(TEXT, b"%d" % number) for number in range(10)))
    assert conversation.inner.received == b"01234567"
    assert conversation.session.proceed() is False
    assert conversation.inner.received == b"0123456789"
