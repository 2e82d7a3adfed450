"""Frames out of chunks: however the bytes are cut, within the limit, and never twice the work."""

import random
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise

import pytest

from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.marshal.framing import FRAME_BYTES_MAX, WHOLE_BYTES_MIN, FrameReader

NULL_COMMAND = b"\x00\x00\x00\x01\x00"


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4) + body for body in bodies)


def frames(reader: FrameReader) -> Iterator[bytes]:
    while reader.advance():
        yield reader.data[reader.start : reader.stop]


def frames_of(reader: FrameReader, chunk: bytes) -> list[bytes]:
    reader.feed(chunk)
    whole, reader.whole = reader.whole, None
    return [*(() if whole is None else (whole.getvalue(),)), *frames(reader)]


BODIES = [b"\x0a", b"\x1e" + bytes(9), b"\x1c" + b"x" * 300, b"\x0b", b"\x04" * 70]


def test_a_chunk_of_whole_frames_is_walked_in_place() -> None:
    chunk = framed(*BODIES)
    reader = FrameReader()
    reader.feed(chunk)
    for body in BODIES:
        assert reader.advance()
        assert reader.data is chunk
        assert chunk[reader.start : reader.stop] == body
    assert not reader.advance()
    assert not reader.advance()


def test_bytes_that_come_one_by_one_are_the_same_frames() -> None:
    reader = FrameReader()
    assert [body for byte in framed(*BODIES) for body in frames_of(reader, bytes((byte,)))] == BODIES


@pytest.mark.parametrize("seed", range(20))
def test_bytes_that_come_in_random_chunks_are_the_same_frames(seed: int) -> None:
    dice = random.Random(seed)
    data = framed(*BODIES) + NULL_COMMAND + framed(*BODIES)
    cuts = [0, *sorted(dice.sample(range(len(data)), 6)), len(data)]
    reader = FrameReader()
    found: list[bytes] = []
    for start, end in pairwise(cuts):
        found += frames_of(reader, data[start:end])
    assert found == BODIES * 2


@pytest.mark.parametrize("size", [WHOLE_BYTES_MIN - 5, WHOLE_BYTES_MIN - 4, WHOLE_BYTES_MIN - 3, 2 * WHOLE_BYTES_MIN])
@pytest.mark.parametrize("cut", [1, 4, 5, 1000, -1])
def test_large_frames_are_the_same_however_they_are_cut(size: int, cut: int) -> None:
    body = bytes(range(1, 250)) * (size // 249) + b"x" * (size % 249)
    data = framed(b"\x0a", body, b"\x0b", body, b"\x0c", b"\x0d")
    reader, found, start = FrameReader(), [], 0
    for end in (5 + cut if cut > 0 else size, len(data) // 2, len(data) - 7, len(data) - 1, len(data)):
        found += frames_of(reader, data[start:end])
        start = end
    assert found == [b"\x0a", body, b"\x0b", body, b"\x0c", b"\x0d"]
    assert (reader.unfinished, reader.received) == (0, 0)


def test_a_large_frame_is_gathered_without_a_copy() -> None:
    size = 16 << 20
    chunk = bytes(256 << 10)
    reader = FrameReader()
    tracemalloc.start()
    try:
        reader.feed(b"\x01\x00\x00\x00")
        assert not reader.advance()
        for _ in range(size // len(chunk)):
            reader.feed(chunk)
            assert not reader.advance()
        assert reader.whole is not None
        assert len(reader.whole.getvalue()) == size
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < size * 5 // 4, "a buffer that grows has an eighth to spare"


def test_the_null_command_means_nothing() -> None:
    assert frames_of(FrameReader(), NULL_COMMAND + framed(b"\x0a") + NULL_COMMAND) == [b"\x0a"]


def test_a_large_frame_is_gathered_once() -> None:
    """A frame in many chunks: the work grows with its bytes, not with their square."""
    body = bytes(range(256)) * 40_000
    data = framed(body, b"\x0a")
    reader = FrameReader()
    found: list[bytes] = []
    for start in range(0, len(data), 1000):
        found += frames_of(reader, data[start : start + 1000])
    assert found == [body, b"\x0a"]


@pytest.mark.parametrize("prefix", ["00000000", "ffffffff", "80000000", "00000065", "7fffffff"])
def test_frame_size_above_limit_is_refused_before_its_bytes(prefix: str) -> None:
    reader = FrameReader(100)
    reader.feed(framed(bytes([10]) * 100) + bytes.fromhex(prefix))
    assert reader.advance()
    with pytest.raises(MalformedOpenWire, match="1 to 100"):
        reader.advance()


def test_the_limit_may_change_between_two_frames() -> None:
    reader = FrameReader()
    reader.feed(framed(b"\x01" * 200, b"\x01" * 200))
    assert reader.advance()
    reader.frame_bytes_max = 100
    with pytest.raises(MalformedOpenWire, match="200 bytes"):
        reader.advance()


def test_a_stopped_reader_resumes_where_it_stopped() -> None:
    reader = FrameReader()
    reader.feed(framed(b"\x0a", b"\x0b"))
    assert next(frames(reader)) == b"\x0a"

    assert frames_of(reader, framed(b"\x0f")[:3]) == [b"\x0b"]
    assert frames_of(reader, framed(b"\x0f")[3:]) == [b"\x0f"]


def test_held_reader_finds_the_rest_after_its_release() -> None:
    whole = b"".join((3).to_bytes(4) + bytes([number] * 3) for number in range(1, 5))
    reader = FrameReader()
    reader.feed(whole + whole[:5])
    assert reader.advance()
    reader.hold()
    assert not reader.advance()
    reader.release()
    found = []
    while reader.advance():
        found.append(reader.data[reader.start : reader.stop])
    assert found == [bytes([number] * 3) for number in range(2, 5)]
    reader.feed(whole[5:7])
    assert reader.advance(), "also the part of a frame behind them"


def test_frames_of_one_length_can_be_gone_over() -> None:
    reader = FrameReader()
    reader.feed(framed(b"\x16one", b"\x16two", b"\x16six", b"\x0a"))
    assert reader.advance()
    reader.skip(1)
    assert reader.data[reader.start : reader.stop] == b"\x16two"
    assert list(frames(reader)) == [b"\x16six", b"\x0a"]
    assert frames_of(reader, framed(b"\x0b")) == [b"\x0b"]


def test_the_limit_is_activemqs_unless_another_is_given() -> None:
    assert FrameReader().frame_bytes_max == FRAME_BYTES_MAX == 100 * 1024 * 1024


def test_reader_reports_the_frame_of_which_a_part_has_come() -> None:
    reader = FrameReader()
    assert frames_of(reader, framed(b"a") + framed(b"b" * 96)[:50]) == [b"a"]
    assert (reader.unfinished, reader.received) == (100, 50)
    assert frames_of(reader, framed(b"b" * 96)[50:]) == [b"b" * 96]
    assert (reader.unfinished, reader.received) == (0, 0)


def test_reader_keeps_no_frame_that_was_read() -> None:
    reader = FrameReader()
    assert len(frames_of(reader, framed(b"a" * 1000))) == 1
    assert reader.data == b""
    assert frames_of(reader, framed(b"b")) == [b"b"]
