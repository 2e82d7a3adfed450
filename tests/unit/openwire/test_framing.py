"""Frames out of chunks: however the bytes are cut, within the limit, and never twice the work."""

import random
from itertools import pairwise

import pytest

from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.marshal.framing import FRAME_BYTES_MAX, FrameReader

NULL_COMMAND = b"\x00\x00\x00\x01\x00"


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4) + body for body in bodies)


def taken(reader: FrameReader, chunk: bytes) -> list[bytes]:
    reader.feed(chunk)
    return [data[start:end] for data, start, end in reader.frames()]


BODIES = [b"\x0a", b"\x1e" + bytes(9), b"\x1c" + b"x" * 300, b"\x0b", b"\x04" * 70]


def test_a_chunk_of_whole_frames_is_walked_in_place() -> None:
    chunk = framed(*BODIES)
    reader = FrameReader()
    reader.feed(chunk)
    found = list(reader.frames())

    assert [data[start:end] for data, start, end in found] == BODIES
    assert all(data is chunk for data, _, _ in found)
    assert list(reader.frames()) == []


def test_bytes_that_come_one_by_one_are_the_same_frames() -> None:
    reader = FrameReader()
    assert [body for byte in framed(*BODIES) for body in taken(reader, bytes((byte,)))] == BODIES


@pytest.mark.parametrize("seed", range(20))
def test_bytes_that_come_in_random_chunks_are_the_same_frames(seed: int) -> None:
    dice = random.Random(seed)
    data = framed(*BODIES) + NULL_COMMAND + framed(*BODIES)
    cuts = [0, *sorted(dice.sample(range(len(data)), 6)), len(data)]
    reader = FrameReader()
    found: list[bytes] = []
    for start, end in pairwise(cuts):
        found += taken(reader, data[start:end])
    assert found == BODIES * 2


def test_the_null_command_means_nothing() -> None:
    assert taken(FrameReader(), NULL_COMMAND + framed(b"\x0a") + NULL_COMMAND) == [b"\x0a"]


def test_a_large_frame_is_gathered_once() -> None:
    """A frame in many chunks: the work grows with its bytes, not with their square."""
    body = bytes(range(256)) * 40_000
    data = framed(body, b"\x0a")
    reader = FrameReader()
    found: list[bytes] = []
    for start in range(0, len(data), 1000):
        found += taken(reader, data[start : start + 1000])
    assert found == [body, b"\x0a"]


@pytest.mark.parametrize("prefix", ["00000000", "ffffffff", "80000000", "00000065", "7fffffff"])
def test_a_size_that_is_not_allowed_is_refused_before_its_bytes_come(prefix: str) -> None:
    reader = FrameReader(100)
    reader.feed(framed(bytes([10]) * 100) + bytes.fromhex(prefix))
    frames = reader.frames()
    assert next(frames)
    with pytest.raises(MalformedOpenWire, match="1 to 100"):
        next(frames)


def test_the_limit_may_change_between_two_frames() -> None:
    reader = FrameReader()
    reader.feed(framed(b"\x01" * 200, b"\x01" * 200))
    frames = reader.frames()
    assert next(frames)
    reader.frame_bytes_max = 100
    with pytest.raises(MalformedOpenWire, match="200 bytes"):
        next(frames)


def test_who_stops_half_way_goes_on_where_it_stopped() -> None:
    reader = FrameReader()
    reader.feed(framed(b"\x0a", b"\x0b"))
    data, start, end = next(reader.frames())
    assert data[start:end] == b"\x0a"

    assert taken(reader, framed(b"\x0f")[:3]) == [b"\x0b"]
    assert taken(reader, framed(b"\x0f")[3:]) == [b"\x0f"]


def test_the_limit_is_activemqs_unless_another_is_given() -> None:
    assert FrameReader().frame_bytes_max == FRAME_BYTES_MAX == 100 * 1024 * 1024
