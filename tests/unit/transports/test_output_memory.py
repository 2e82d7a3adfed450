"""The memory of unread output: counted once, and above a share the slowest readers are closed."""

import logging
from collections.abc import Callable

import pytest

from pybroker.transports.output_memory import STALLED_SECONDS, STALLED_SECONDS_MIN, OutputMemory

MB = 1 << 20


class Timers:
    """The callbacks that wait, run by the test."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.calls.append((seconds, callback))

    def run(self, seconds: int) -> None:
        """Let so many seconds pass, in each of which no more than one callback is due."""
        for _ in range(seconds):
            due, self.calls = self.calls, []
            for _, callback in due:
                callback()


class Reader:
    """A connection whose peer is slow."""

    peer = "127.0.0.1:50312"

    def __init__(self, world: "World") -> None:
        self.world = world
        self.unsent_bytes = 0
        self.is_aborted = False

    def leave(self, size: int, *pieces: bytes) -> None:
        self.unsent_bytes = size
        self.world.memory.update(self, size, pieces)

    def abort(self) -> None:
        self.is_aborted = True
        self.world.memory.end(self)


class World:
    def __init__(self, bytes_max: int = 10 * MB) -> None:
        self.timers = Timers()
        self.counted = 0
        self.memory = OutputMemory(
            bytes_max, acquire=self._acquire, release=self._release, call_later=self.timers.call_later
        )

    def _acquire(self, size: int) -> None:
        self.counted += size

    def _release(self, size: int) -> None:
        self.counted -= size

    def readers(self, count: int) -> list[Reader]:
        return [Reader(self) for _ in range(count)]


@pytest.fixture
def world() -> World:
    return World()


def test_unread_output_is_counted_until_it_has_left(world: World) -> None:
    [reader] = world.readers(1)
    reader.leave(2 * MB)
    reader.leave(3 * MB)
    assert (world.counted, world.memory.total) == (3 * MB, 3 * MB)
    world.memory.end(reader)
    world.memory.end(reader)
    assert (world.counted, world.memory.total) == (0, 0)


def test_piece_that_many_connections_write_is_counted_once(world: World) -> None:
    message = bytes(MB)
    readers = world.readers(3)
    for reader in readers:
        reader.leave(MB + 100, message)
    assert world.counted == MB + 300
    readers[0].leave(MB + 500)
    assert world.counted == MB + 700
    for reader in readers[:2]:
        world.memory.end(reader)
    assert world.counted == MB + 100
    world.memory.end(readers[2])
    assert world.counted == 0


def test_below_the_share_the_slowest_reader_stays(world: World) -> None:
    [reader] = world.readers(1)
    reader.leave(10 * MB)
    assert not world.memory.is_full
    assert world.timers.calls == []


def test_reader_that_takes_nothing_is_closed_above_the_share(world: World, caplog: pytest.LogCaptureFixture) -> None:
    stalled, moving = world.readers(2)
    stalled.leave(6 * MB)
    moving.leave(6 * MB)
    assert world.memory.is_full
    world.timers.run(STALLED_SECONDS)
    assert not stalled.is_aborted  # not for the whole time yet
    moving.unsent_bytes -= 1
    with caplog.at_level(logging.WARNING):
        world.timers.run(1)
    assert (stalled.is_aborted, moving.is_aborted) == (True, False)
    assert caplog.messages == [
        f"127.0.0.1:50312 closed: it leaves {6 * MB} bytes unread, and all such connections together {12 * MB} of the "
        f"{10 * MB} that are allowed"
    ]
    assert not world.memory.is_full
    assert world.timers.calls == []


def test_only_as_many_are_closed_as_exceed_the_share(world: World) -> None:
    readers = world.readers(4)
    for reader in readers:
        reader.leave(4 * MB)
    world.timers.run(STALLED_SECONDS + 1)
    assert [reader.is_aborted for reader in readers] == [True, True, False, False]


def test_above_twice_the_share_stalled_readers_are_closed_sooner(world: World) -> None:
    readers = world.readers(4)
    for reader in readers:
        reader.leave(6 * MB)
    world.timers.run(1)
    readers[0].unsent_bytes -= 1  # takes something
    world.timers.run(STALLED_SECONDS_MIN)
    assert [reader.is_aborted for reader in readers] == [False, True, False, False]
    assert world.counted == 18 * MB


def test_only_reader_that_leaves_output_unread_is_not_closed(world: World) -> None:
    [reader] = world.readers(1)
    reader.leave(30 * MB)
    world.timers.run(2 * STALLED_SECONDS)
    assert not reader.is_aborted


def test_reader_that_takes_something_is_never_closed(world: World) -> None:
    reader, _ = readers = world.readers(2)
    for each in readers:
        each.leave(30 * MB)
    for _ in range(2 * STALLED_SECONDS):
        reader.unsent_bytes -= 1
        world.timers.run(1)
    assert not reader.is_aborted


def test_without_a_limit_nothing_is_counted() -> None:
    world = World(bytes_max=0)
    [reader] = world.readers(1)
    reader.leave(1000 * MB)
    assert (world.counted, world.memory.is_full, world.timers.calls) == (0, False, [])
