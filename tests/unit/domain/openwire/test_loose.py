"""Primitives of the loose encoding, and Java's modified UTF-8."""

import pytest

from pybroker.broker.domain.openwire.loose import (
    MalformedOpenWire,
    Reader,
    UnencodableOpenWire,
    byte_sequence,
    decode_mutf8,
    encode_mutf8,
    mutf8,
    string,
)

MODIFIED = [
    pytest.param("", b"", id="empty"),
    pytest.param("queue", b"queue", id="ascii"),
    pytest.param("\x01\x7f", b"\x01\x7f", id="ascii-borders"),
    pytest.param("\x00", b"\xc0\x80", id="null"),
    pytest.param("a\x00b", b"a\xc0\x80b", id="null-inside"),
    pytest.param("\x80\u07ff", b"\xc2\x80\xdf\xbf", id="two-bytes"),
    pytest.param("\u0800\uffff", b"\xe0\xa0\x80\xef\xbf\xbf", id="three-bytes"),
    pytest.param("\U0001f600", b"\xed\xa0\xbd\xed\xb8\x80", id="supplementary"),
    pytest.param(
        "\U00010000\U0010ffff", b"\xed\xa0\x80\xed\xb0\x80\xed\xaf\xbf\xed\xbf\xbf", id="supplementary-borders"
    ),
    pytest.param("\ud83d", b"\xed\xa0\xbd", id="lone-high-surrogate"),
    pytest.param("x\ude00y", b"x\xed\xb8\x80y", id="lone-low-surrogate"),
    pytest.param("\ude00\ud83d", b"\xed\xb8\x80\xed\xa0\xbd", id="surrogates-in-the-wrong-order"),
    pytest.param("é\x00\U0001f600\ud800", b"\xc3\xa9\xc0\x80\xed\xa0\xbd\xed\xb8\x80\xed\xa0\x80", id="all-together"),
]


@pytest.mark.parametrize(("text", "encoded"), MODIFIED)
def test_modified_utf8(text: str, encoded: bytes) -> None:
    assert encode_mutf8(text) == encoded
    assert decode_mutf8(encoded) == text


@pytest.mark.parametrize(
    ("encoded", "text"),
    [
        (b"\xf0\x9f\x98\x80", "\U0001f600"),
        (b"a\x00b", "a\x00b"),
        (b"\xf0\x9f\x98\x80\xc0\x80", "\U0001f600\x00"),
    ],
)
def test_standard_utf8_is_understood(encoded: bytes, text: str) -> None:
    assert decode_mutf8(encoded) == text


@pytest.mark.parametrize("encoded", [b"\x80", b"\xff", b"\xc3", b"\xe2\x82", b"\xc1\x81", b"\xc0", b"\xf5\x80\x80\x80"])
def test_what_is_no_utf8_is_refused(encoded: bytes) -> None:
    with pytest.raises(MalformedOpenWire, match="not UTF-8"):
        decode_mutf8(encoded)


def test_reader_takes_every_kind_in_turn() -> None:
    reader = Reader(
        b"\x01\x00\x02" + b"\xff" + b"\xfe" + b"\xff\xfe" + b"\xff\xfe" + b"\xff\xff\xff\xfd" + b"\x80" + bytes(7)
        + b"\x01\x00\x02hi" + b"\x00" + b"\x01\x00\x00\x00\x03abc" + b"\x00"
    )  # fmt: skip

    assert [reader.boolean(), reader.boolean(), reader.boolean()] == [True, False, True]
    assert reader.unsigned_byte() == 255
    assert reader.byte() == -2
    assert reader.short() == -2
    assert reader.unsigned_short() == 65534
    assert reader.integer() == -3
    assert reader.long() == -(2**63)
    assert reader.string() == "hi"
    assert reader.string() is None
    assert reader.byte_sequence() == b"abc"
    assert reader.byte_sequence() is None
    assert reader.remaining == 0
    reader.end()


@pytest.mark.parametrize(
    ("method", "data"),
    [
        ("boolean", b""),
        ("unsigned_byte", b""),
        ("byte", b""),
        ("short", b"\x00"),
        ("unsigned_short", b"\x00"),
        ("integer", b"\x00\x00\x00"),
        ("long", bytes(7)),
        ("string", b""),
        ("string", b"\x01\x00"),
        ("string", b"\x01\x00\x03ab"),
        ("byte_sequence", b"\x01\x00\x00\x00"),
        ("byte_sequence", b"\x01\x00\x00\x00\x04abc"),
        ("byte_sequence", b"\x01\x7f\xff\xff\xffabc"),
        ("byte_sequence", b"\x01\xff\xff\xff\xffabc"),
    ],
)
def test_reader_never_reads_past_the_end(method: str, data: bytes) -> None:
    with pytest.raises(MalformedOpenWire):
        getattr(Reader(data), method)()


def test_reader_starts_at_the_given_offset() -> None:
    assert Reader(b"\x00\x00\x00\x00\x00\x07", 2).integer() == 7


def test_nulls_are_taken_all_or_none() -> None:
    reader = Reader(b"\x00\x00\x00\x01")

    assert reader.nulls(2)
    assert not reader.nulls(2)
    assert reader.offset == 2


def test_what_is_left_over_is_an_error() -> None:
    with pytest.raises(MalformedOpenWire, match="1 bytes too many at offset 0"):
        Reader(b"x").end()


def test_writers_are_the_readers_inverse() -> None:
    assert string(None) == b"\x00"
    assert string("é") == b"\x01\x00\x02\xc3\xa9"
    assert mutf8("é") == b"\x00\x02\xc3\xa9"
    assert byte_sequence(None) == b"\x00"
    assert byte_sequence(b"") == b"\x01\x00\x00\x00\x00"
    assert byte_sequence(b"xy") == b"\x01\x00\x00\x00\x02xy"


@pytest.mark.parametrize("write", [string, mutf8])
def test_the_longest_string_has_65535_bytes(write) -> None:
    assert Reader(write("x" * 65535)[-65535:]).take(65535) == b"x" * 65535
    with pytest.raises(UnencodableOpenWire, match="65536 bytes"):
        write("x" * 65536)
    with pytest.raises(UnencodableOpenWire):
        write("\x00" * 32768)
