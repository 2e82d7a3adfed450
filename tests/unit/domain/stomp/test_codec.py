"""Bytes to frames: tolerances, versions, lengths, limits; and frames to bytes."""

import random
import re
import time
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis.strategies import sampled_from, text

from pybroker.broker.domain.errors import ProtocolError
from pybroker.broker.domain.stomp.codec import WHOLE_BYTES_MIN, FrameDecoder, encode_frame
from pybroker.broker.domain.stomp.frames import Frame, StompLimits, Version, unescape

SMALL = StompLimits(command_bytes=8, header_line_bytes=20, header_count=3, head_bytes=60, body_bytes=10)


def decode(data: bytes, version: Version = Version.V1_2, limits: StompLimits | None = None) -> list[Frame]:
    decoder = FrameDecoder(limits or StompLimits())
    decoder.version = version
    return list(decoder.feed(data))


@pytest.mark.parametrize(
    ("data", "frame"),
    [
        (b"SEND\n\n\0", Frame("SEND", {}, b"")),
        (b"SEND\na:1\n\nbody\0", Frame("SEND", {"a": "1"}, b"body")),
        (b"\n\r\n \t\0\0SEND \n\n\0", Frame("SEND", {}, b"")),
        (b"SEND\na:b:c\n\n\0", Frame("SEND", {"a": "b:c"}, b"")),
        (b"SEND\nnothing\nempty:\n\n\0", Frame("SEND", {"nothing": "", "empty": ""}, b"")),
        (b"SEND\na:1\na:2\n\n\0", Frame("SEND", {"a": "1"}, b"")),
        (b"SEND\na: b \n\n\0", Frame("SEND", {"a": " b "}, b"")),
        (b"SEND\r\na:1\r\n\r\nbody\r\n\0", Frame("SEND", {"a": "1"}, b"body\r\n")),
        (b"SEND\r\na:1\n\r\nbody\0", Frame("SEND", {"a": "1"}, b"body")),
        (b"SEND\na:1\n\r\n\n\nbody\0", Frame("SEND", {"a": "1"}, b"\n\nbody")),
        (b"SEND\na:1\r\n\nbody\0", Frame("SEND", {"a": "1"}, b"body")),
        (b"SEND\na:\xc3\xa9\xf0\x9f\x98\x80\n\n\0", Frame("SEND", {"a": "é😀"}, b"")),
        (b"SEND\ncontent-length:3\n\n\0\n\0\0", Frame("SEND", {"content-length": "3"}, b"\0\n\0")),
        (b"SEND\ncontent-length: 3 \n\nabc\0", Frame("SEND", {"content-length": " 3 "}, b"abc")),
        (b"ACK\ncontent-length:3\n\nabc\0", Frame("ACK", {"content-length": "3"}, b"abc")),
    ],
)
def test_frame_is_decoded(data: bytes, frame: Frame) -> None:
    assert decode(data) == [frame]


def test_carriage_return_belongs_to_the_line_in_1_1() -> None:
    assert decode(b"SEND\r\na:1\r\n\r\nbody\0", Version.V1_1) == [Frame("SEND", {"a": "1\r"}, b"body")]


def test_values_are_trimmed_in_1_0_and_names_never() -> None:
    assert decode(b"SEND\n a : 1 \n\n\0", Version.V1_0) == [Frame("SEND", {" a ": "1"}, b"")]


@pytest.mark.parametrize(
    ("version", "value"), [(Version.V1_0, ":\n\\r\\\\t"), (Version.V1_1, ":\n\\r\\\\t"), (Version.V1_2, ":\n\r\\\\t")]
)
def test_values_are_unescaped_and_names_are_not(version: Version, value: str) -> None:
    [frame] = decode(b"SEND\na\\c:\\c\\n\\r\\\\\\t\n\n\0", version)
    assert frame.headers == {"a\\c": value}


@given(value=text(alphabet="\\\\nrc:x", max_size=20), version=sampled_from(Version))
def test_unescaping_replaces_escapes_from_left_to_right(value: str, version: Version) -> None:
    meanings = {r"\n": "\n", r"\c": ":", r"\\": "\\", r"\r": "\r" if version is Version.V1_2 else r"\r"}
    assert unescape(value, version) == re.sub(r"\\[nrc\\]", lambda match: meanings[match[0]], value)


def test_backslash_at_the_end_stays() -> None:
    assert decode(b"SEND\na:b\\\n\n\0")[0].headers == {"a": "b\\"}


def test_frame_may_change_version_for_rest_of_chunk() -> None:
    decoder = FrameDecoder(StompLimits())
    frames = decoder.feed(b"CONNECT\n\n\0SEND\na: x \n\n\0")
    assert next(frames).command == "CONNECT"
    decoder.version = Version.V1_2
    assert next(frames).headers == {"a": " x "}


def test_frames_before_a_broken_one_are_not_lost() -> None:
    frames = FrameDecoder(StompLimits()).feed(b"SEND\n\na\0SEND\n:x\n\n\0")
    assert next(frames).body == b"a"
    with pytest.raises(ProtocolError, match="no name"):
        next(frames)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"SEND\ncontent-length:x\n\n", "Specified content-length is not a valid integer"),
        (b"SEND\ncontent-length:\n\n", "Specified content-length is not a valid integer"),
        (b"SEND\ncontent-length:-1\n\n", "Specified content-length is not a valid integer"),
        ("SEND\ncontent-length:٣\n\n".encode(), "Specified content-length is not a valid integer"),
        (b"SEND\ncontent-length:1\n\nab", "content-length bytes were read and there was no trailing null byte"),
        (b"SEND\ncontent-length:11\n\n", "The maximum data length was exceeded"),
        (b"SEND\ncontent-length:" + b"9" * 19 + b"\n\n", "The maximum data length was exceeded"),
        (b"SEND\n\n" + b"x" * 11, "The maximum data length was exceeded"),
        (b"SEND\n\n" + b"x" * 11 + b"\0", "The maximum data length was exceeded"),
        (b"S" * 10, "The maximum command length was exceeded"),
        (b"S" * 9 + b"\n\n\0", "The maximum command length was exceeded"),
        (b"SEND\na:" + b"x" * 19 + b"\n\n\0", "The maximum header length was exceeded"),
        (b"SEND\na:" + b"x" * 60, "The maximum header length was exceeded"),
        (b"SEND\na:1\nb:1\nc:1\nd:1\n\n\0", "The maximum number of headers was exceeded"),
        (b"SEND\na:1\0", "A null byte came before the blank line"),
        (b"SEND\na:\xff\n\n\0", "Headers must be UTF-8"),
        (b"SEND\n:a\n\n\0", "A header has no name"),
    ],
)
def test_invalid_or_oversized_frame_is_refused_early(data: bytes, message: str) -> None:
    limits = StompLimits(
        command_bytes=8, header_line_bytes=40 if b"content-length" in data else 20, header_count=3, head_bytes=60,
        body_bytes=10,
    )  # fmt: skip
    with pytest.raises(ProtocolError, match=message):
        decode(data, limits=limits)


def test_limits_are_inclusive() -> None:
    data = b"SUBSCRIB\na:" + b"x" * 18 + b"\nb:1\nc:1\n\n" + b"x" * 10 + b"\0"
    assert len(decode(data, limits=SMALL)) == 1


@pytest.mark.parametrize("head", [b"SEND\n\n", b"SEND\ncontent-length:20000000\n\n"])
def test_a_body_in_many_chunks_costs_no_more_than_its_length(head: bytes) -> None:
    """A decoder that looked at everything again with each chunk would look at 200 GB here."""
    decoder = FrameDecoder(StompLimits())
    chunk = b"x" * 1000
    begin = time.process_time()
    assert list(decoder.feed(head)) == []
    for _ in range(20_000):
        assert list(decoder.feed(chunk)) == []
    [frame] = decoder.feed(b"\0")
    assert frame.body == chunk * 20_000
    assert time.process_time() - begin < 10


@pytest.mark.parametrize("seed", range(12))
def test_large_bodies_are_the_same_however_they_are_cut(seed: int) -> None:
    dice = random.Random(seed)
    body, other = b"x" * (WHOLE_BYTES_MIN + dice.randrange(5000)), b"y" * (2 * WHOLE_BYTES_MIN)
    size = len(other)
    data = (
        b"SEND\na:1\n\nsmall\0\nSEND\nb:2\n\n%b\0\n\nSEND\ncontent-length:%d\n\n%b\0ACK\n\n\0SEND\n\n%b\0SEND\n\nend\0"
    ) % (body, size, other.replace(b"yy", b"y\0"), other)
    edges = [
        at + near for at in (40, len(body) + 40, len(data) - len(other) - 30, len(data) - 12) for near in range(-8, 8)
    ]
    cuts = sorted({0, len(data), *dice.sample(edges, 20), *dice.sample(range(len(data)), 5)})
    decoder = FrameDecoder(StompLimits())
    frames = [frame for start, end in pairwise(cuts) for frame in decoder.feed(data[start:end])]
    assert [frame.body for frame in frames] == [b"small", body, other.replace(b"yy", b"y\0"), b"", other, b"end"]
    assert (decoder.received, decoder.unfinished) == (0, 0)


@pytest.mark.parametrize("length", [None, 4 * WHOLE_BYTES_MIN])
def test_large_bodies_are_gathered_without_a_copy(length: int | None) -> None:
    decoder, chunk = FrameDecoder(StompLimits()), b"x" * (WHOLE_BYTES_MIN // 4)
    head = b"SEND\n\n" if length is None else b"SEND\ncontent-length:%d\n\n" % length
    tracemalloc.start()
    try:
        assert list(decoder.feed(head)) == []
        for _ in range(16):
            assert list(decoder.feed(chunk)) == []
        assert decoder.received == len(head) + 4 * WHOLE_BYTES_MIN
        assert decoder.unfinished == (8 * WHOLE_BYTES_MIN if length is None else decoder.received + 1)
        [frame] = decoder.feed(b"\0")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(frame.body) == 4 * WHOLE_BYTES_MIN
    assert peak < 7 * WHOLE_BYTES_MIN


def test_large_bodies_obey_limit_and_length() -> None:
    limits = StompLimits(body_bytes=2 * WHOLE_BYTES_MIN)
    for end in (b"", b"\0"):
        decoder = FrameDecoder(limits)
        assert list(decoder.feed(b"SEND\n\n" + b"x" * (2 * WHOLE_BYTES_MIN))) == []
        with pytest.raises(ProtocolError, match="maximum data length"):
            list(decoder.feed(b"x" + end))
    decoder = FrameDecoder(limits)
    assert list(decoder.feed(b"SEND\ncontent-length:%d\n\n" % (2 * WHOLE_BYTES_MIN) + b"x" * WHOLE_BYTES_MIN)) == []
    with pytest.raises(ProtocolError, match="no trailing null"):
        list(decoder.feed(b"x" * WHOLE_BYTES_MIN + b"y"))


@pytest.mark.parametrize("frame", [b"SEND\r\n\r\n\0", b"SEND\n\r\n\0", b"SEND\n\n\0"])
def test_decoding_many_small_frames_is_linear(frame: bytes) -> None:
    """A search for the end of the headers that did not stop at the frame's end would look at 100 GB here."""
    begin = time.process_time()
    assert len(decode(frame * 200_000)) == 200_000
    assert time.process_time() - begin < 10


def test_server_frame_is_escaped_as_its_version_has_it() -> None:
    headers = {"a": "x:y\\z\n\r"}
    assert encode_frame("ERROR", headers, b"b", Version.V1_0) == b"ERROR\na:x:y\\z \r\n\nb\0\n"
    assert encode_frame("ERROR", headers, b"b", Version.V1_1) == b"ERROR\na:x\\cy\\\\z\\n\r\n\nb\0\n"
    assert encode_frame("ERROR", headers, b"b", Version.V1_2) == b"ERROR\na:x\\cy\\\\z\\n\\r\n\nb\0\n"


@pytest.mark.parametrize("version", list(Version))
def test_nothing_in_a_header_can_end_it_or_the_frame(version: Version) -> None:
    data = encode_frame("MESSAGE", {"a:b\nc\0": "x\0y\nz:\ud800"}, b"", version)
    [frame] = decode(data, version)
    assert list(frame.headers) == ["a_b_c_"]
    assert data.count(b"\0") == 1
