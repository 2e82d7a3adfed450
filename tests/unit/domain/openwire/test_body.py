"""Bodies: text framing, compression, and the limit on what a compressed body may become."""

import tracemalloc
import zlib

import pytest

from pybroker.broker.domain.openwire.body import decode_text, decode_text_utf8, encode_text, encode_text_utf8, inflate
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage
from pybroker.broker.domain.openwire.values import encode_map, encode_stream


@pytest.mark.parametrize("text", ["", "plain", "grün", "\x00", "\U0001f600"])
def test_both_ways_to_write_a_text_agree(text: str) -> None:
    content = encode_text(text)

    assert encode_text_utf8(text.encode()) == content
    assert decode_text(content) == text
    assert decode_text_utf8(content) == text.encode()


def test_text_that_is_no_utf8_is_the_callers_to_handle() -> None:
    with pytest.raises(UnicodeDecodeError):
        encode_text_utf8(b"\xff")


def test_half_a_surrogate_pair_cannot_be_standard_utf8() -> None:
    assert decode_text(encode_text("a\ud83d")) == "a\ud83d"
    assert decode_text_utf8(encode_text("a\ud83d")) == b"a?"


@pytest.mark.parametrize(
    "content", [b"", b"\x00\x00\x00", b"\x00\x00\x00\x02a", b"\x00\x00\x00\x01ab", b"\xff\xff\xff\xff"]
)
def test_damaged_text_is_refused(content: bytes) -> None:
    with pytest.raises(MalformedOpenWire):
        decode_text(content)


@pytest.mark.parametrize("kind", [MessageType.TEXT, MessageType.MAP, MessageType.STREAM, MessageType.OBJECT])
def test_compressed_bodies_are_one_zlib_stream(kind: MessageType) -> None:
    body = encode_text("abc" * 100)

    fields = OpenWireMessage(type=kind, content=zlib.compress(body), compressed=True)

    assert fields.body_bytes() == body


def test_compressed_bytes_have_a_length_and_may_have_slack() -> None:
    body = bytes(range(256)) * 4
    slack = b"left in the buffer"
    content = len(body).to_bytes(4) + zlib.compress(body + slack) + b"more"

    fields = OpenWireMessage(type=MessageType.BYTES, content=content, compressed=True)

    assert fields.body_bytes() == body


def test_an_empty_compressed_bytes_message() -> None:
    fields = OpenWireMessage(type=MessageType.BYTES, content=bytes(4) + zlib.compress(b"slack"), compressed=True)

    assert fields.body_bytes() == b""


@pytest.mark.parametrize("kind", [MessageType.TEXT, MessageType.BYTES])
@pytest.mark.parametrize("content", [None, b""])
def test_without_content_the_body_is_empty(kind: MessageType, content: bytes | None) -> None:
    assert OpenWireMessage(type=kind, content=content, compressed=True).body_bytes() == b""


def test_what_inflates_beyond_the_limit_is_refused() -> None:
    bomb = zlib.compress(bytes(1_000_001))
    text = OpenWireMessage(type=MessageType.TEXT, content=bomb, compressed=True)
    binary = OpenWireMessage(type=MessageType.BYTES, content=(1_000_001).to_bytes(4) + bomb, compressed=True)

    for fields in (text, binary):
        with pytest.raises(MalformedOpenWire, match="1000000"):
            fields.body_bytes(limit=1_000_000)
        assert len(fields.body_bytes(limit=1_000_001)) == 1_000_001


@pytest.mark.parametrize("kind", [MessageType.TEXT, MessageType.BYTES])
def test_a_large_body_is_in_memory_once(kind: MessageType) -> None:
    size = 8 << 20
    content = zlib.compress(bytes(size))
    length = size.to_bytes(4) if kind is MessageType.BYTES else b""
    fields = OpenWireMessage(type=kind, content=length + content, compressed=True)
    tracemalloc.start()
    try:
        fields.body_bytes()
        assert tracemalloc.get_traced_memory()[1] < 1.4 * size
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        pytest.param(MessageType.TEXT, b"no zlib", id="text-not-compressed"),
        pytest.param(MessageType.TEXT, zlib.compress(b"x" * 100)[:-5], id="text-cut-short"),
        pytest.param(MessageType.BYTES, b"\x00", id="bytes-without-length"),
        pytest.param(MessageType.BYTES, b"\x00\x00\x00\x05no zlib", id="bytes-not-compressed"),
        pytest.param(MessageType.BYTES, b"\x00\x00\x00\x05" + zlib.compress(b"four"), id="bytes-fewer-than-announced"),
        pytest.param(MessageType.BYTES, b"\xff\xff\xff\xff" + zlib.compress(b"x"), id="bytes-negative"),
    ],
)
def test_damaged_compressed_bodies_are_refused(kind: MessageType, content: bytes) -> None:
    with pytest.raises(MalformedOpenWire):
        OpenWireMessage(type=kind, content=content, compressed=True).body_bytes()


def test_compressed_maps_streams_and_texts_read_like_others() -> None:
    a_map = OpenWireMessage(type=MessageType.MAP, content=zlib.compress(encode_map({"a": 1})), compressed=True)
    a_stream = OpenWireMessage(type=MessageType.STREAM, content=zlib.compress(encode_stream([1, "x"])), compressed=True)
    a_text = OpenWireMessage(type=MessageType.TEXT, content=zlib.compress(encode_text("grün")), compressed=True)

    assert a_map.map() == {"a": 1}
    assert a_stream.stream() == [1, "x"]
    assert a_text.text() == "grün"
    assert a_text.text_utf8() == "grün".encode()


def test_error_of_a_body_over_the_limit_keeps_no_body() -> None:
    limit = 10_000
    with pytest.raises(MalformedOpenWire, match="more than 10000 bytes") as caught:
        inflate(zlib.compress(b"a" * (2 * limit)), limit)
    traceback = caught.value.__traceback__
    assert traceback is not None
    while traceback is not None:
        kept = [value for value in traceback.tb_frame.f_locals.values() if isinstance(value, bytes)]
        assert all(len(value) < limit for value in kept), "an error that is kept would keep the body"
        traceback = traceback.tb_next
