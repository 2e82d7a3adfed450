"""A server's frames have the shortest length, and text frames are UTF-8."""

import pytest

from pybroker.transports.websocket.frames import (
    UTF8_CHECKED_BYTES,
    FrameOpcode,
    WebSocketClose,
    encode_close,
    encode_header,
    is_text,
)
from tests.unit.transports.websocket.conversation import BINARY, CLOSE, TEXT, server_frames


@pytest.mark.parametrize(
    ("length", "header"),
    [
        (0, "8100"),
        (125, "817d"),
        (126, "817e007e"),
        (65535, "817effff"),
        (65536, "817f0000000000010000"),
        (100 << 20, "817f0000000006400000"),
    ],
)
def test_length_has_its_shortest_form(length, header):
    assert encode_header(FrameOpcode.TEXT, length).hex() == header


def test_opcode_is_in_the_first_byte():
    assert encode_header(FrameOpcode.BINARY, 1)[0] == 0x80 | BINARY
    assert encode_header(FrameOpcode.TEXT, 1)[0] == 0x80 | TEXT


@pytest.mark.parametrize("reason", ["", "the broker stops", "x" * 200, "é" * 100, "€" * 100, "😀" * 60])
def test_close_frame_is_a_control_frame_with_whole_characters(reason):
    ((opcode, payload),) = server_frames(encode_close(WebSocketClose.GOING_AWAY, reason))
    assert opcode == CLOSE
    assert payload[:2] == (1001).to_bytes(2)
    assert len(payload) <= 125
    assert reason.startswith(payload[2:].decode())
    assert len(payload[2:]) == min(len(reason.encode()), len(payload[2:]))


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ((b"ascii",), True),
        (("é€😀".encode(),), True),
        ((b"\xe2\x82", b"\xac"), True),
        ((b"\xe2\x82",), False),
        ((b"\xff",), False),
        ((b"\xed\xa0\x80",), False),
        ((b"\xc0\x80",), False),
        ((b"a" * (UTF8_CHECKED_BYTES + 1),), True),
        (("é".encode(), b"a" * UTF8_CHECKED_BYTES), False),
    ],
)
def test_text_is_utf8_that_takes_little_time_to_check(pieces, expected):
    assert is_text(pieces) is expected
