"""The memory of unfinished frames: reservations in order, one frame at least, and peers that send too slowly."""

import itertools
from collections.abc import Callable

import pytest

from pybroker.broker.domain.errors import ResourceLimit
from pybroker.transports.frame_memory import PROGRESS_BYTES, PROGRESS_SECONDS, FrameMemory, FrameShare

MB = 1 << 20


_ports = itertools.count(50_000)


class Timers:
    """A clock and the callbacks that wait for it."""

    def __init__(self) -> None:
        self.now = 0.0
        self._calls: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self._calls.append((self.now + seconds, callback))

    def pass_seconds(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [each for each in self._calls if each[0] <= end]:
            first = min(due, key=lambda each: each[0])
            self._calls.remove(first)
            self.now = first[0]
            first[1]()
        self.now = end

    @property
    def is_idle(self) -> bool:
        return not self._calls


class Peer:
    """A connection that sends large frames."""

    def __init__(self, world: "World", address: str = "10.0.0.1") -> None:
        self.world = world
        self.peer = f"{address}:{next(_ports)}"
        self.holds = 0
        self.leaves_unread = False
        self.reading_since: float | None = 0.0
        self.error: ResourceLimit | None = None

    def pause_reading(self) -> None:
        self.holds += 1
        self.reading_since = None

    def resume_reading(self) -> None:
        self.holds -= 1
        if not self.holds:
            self.reading_since = self.world.timers.now

    def give_up(self, error: ResourceLimit) -> None:
        self.error = error
        self.world.memory.end(self)

    def send(self, size: int, received: int) -> None:
        self.world.memory.update(self, size, received)

    def complete(self) -> None:
        self.world.memory.end(self)

    @property
    def is_read(self) -> bool:
        return not self.holds


class World:
    def __init__(self, bytes_max: int = 100 * MB) -> None:
        self.timers = Timers()
        self.counted = 0
        self.memory: FrameMemory | FrameShare = FrameShare(
            bytes_max,
            acquire=self._acquire,
            release=self._release,
            time=lambda: self.timers.now,
            call_later=self.timers.call_later,
        )

    def _acquire(self, size: int) -> None:
        assert size > 0
        self.counted += size

    def _release(self, size: int) -> None:
        assert size > 0
        self.counted -= size

    def peers(self, count: int, address: str = "10.0.0.1") -> list[Peer]:
        return [Peer(self, address) for _ in range(count)]


@pytest.fixture
def world() -> World:
    return World()


def test_announced_length_is_counted_until_the_frame_is_complete(world: World) -> None:
    [peer] = world.peers(1)
    peer.send(60 * MB, 1 * MB)
    peer.send(60 * MB, 2 * MB)
    assert (world.counted, world.memory.reserved_bytes, peer.is_read) == (60 * MB, 60 * MB, True)
    peer.complete()
    peer.complete()
    assert (world.counted, world.memory.reserved_bytes) == (0, 0)


def test_frame_larger_than_the_share_counts_as_the_share(world: World) -> None:
    large, small = world.peers(2)
    large.send(90 * MB, 1 * MB)
    large.send(180 * MB, 90 * MB)
    assert (world.counted, world.memory.reserved_bytes) == (100 * MB, 180 * MB)
    small.send(10 * MB, 1 * MB)
    assert (world.counted, small.is_read) == (101 * MB, False)
    large.complete()
    assert (world.counted, small.is_read) == (10 * MB, True)
    small.complete()
    assert (world.counted, world.memory.reserved_bytes) == (0, 0)


def test_frame_that_does_not_fit_waits_in_order(world: World) -> None:
    first, second, third, fourth = world.peers(4)
    first.send(60 * MB, MB)
    second.send(60 * MB, MB)
    third.send(10 * MB, MB)  # would fit, and yet comes after the second
    fourth.send(60 * MB, MB)
    assert [each.is_read for each in (first, second, third, fourth)] == [True, False, False, False]
    assert world.counted == 63 * MB  # what has come of the frames that wait is in memory, too
    first.complete()
    assert [each.is_read for each in (second, third, fourth)] == [True, True, False]
    second.complete()
    assert fourth.is_read
    third.complete()
    fourth.complete()
    assert (world.counted, world.memory.waiting_count) == (0, 0)


def test_one_frame_proceeds_whatever_its_length(world: World) -> None:
    first, second = world.peers(2)
    first.send(500 * MB, MB)
    second.send(MB, MB // 2)
    assert (first.is_read, second.is_read) == (True, False)
    first.complete()
    assert second.is_read


def test_frame_that_grows_comes_before_those_that_wait(world: World) -> None:
    """A frame without announced length asks for more, although it has a reservation."""
    first, second, third = world.peers(3)
    first.send(40 * MB, 20 * MB)
    second.send(40 * MB, 20 * MB)
    third.send(40 * MB, MB)
    first.send(80 * MB, 40 * MB)
    assert [each.is_read for each in (first, second, third)] == [False, True, False]
    second.send(80 * MB, 40 * MB)
    assert [each.is_read for each in (first, second, third)] == [False, True, False]
    second.complete()
    assert [each.is_read for each in (first, second, third)] == [True, True, False]
    first.complete()
    assert third.is_read
    third.complete()
    assert world.counted == 0


def test_connection_that_ends_while_it_waits_leaves_nothing(world: World) -> None:
    first, second, third = world.peers(3)
    first.send(100 * MB, MB)
    second.send(100 * MB, MB)
    third.send(100 * MB, MB)
    second.complete()
    assert world.memory.waiting_count == 1
    first.complete()
    assert third.is_read
    third.complete()
    assert world.counted == 0


def test_parts_that_wait_are_limited_too(world: World) -> None:
    peers = world.peers(6)
    for peer in peers:
        peer.send(100 * MB, 30 * MB)
    assert [peer.error is not None for peer in peers] == [False, False, False, False, True, True]
    assert world.counted == 190 * MB
    for peer in peers:
        peer.complete()
    assert world.counted == 0


def test_peer_that_stops_sending_is_closed_while_others_wait(world: World) -> None:
    idle, busy, waiting = world.peers(3)
    idle.send(50 * MB, 5 * MB)
    busy.send(50 * MB, 5 * MB)
    world.timers.pass_seconds(1000)
    assert idle.error is None  # it keeps nothing from anybody
    waiting.send(50 * MB, MB)
    busy.send(50 * MB, 5 * MB + PROGRESS_BYTES)
    world.timers.pass_seconds(PROGRESS_SECONDS + 1)
    assert idle.error is not None
    assert (busy.error, waiting.error, waiting.is_read) == (None, None, True)
    assert str(idle.error).startswith(f"{5 * MB} of {50 * MB} bytes of a frame came, too slowly")


def test_peer_that_is_not_read_is_not_judged(world: World) -> None:
    """Flow control stops it, and not its own slowness."""
    throttled, waiting = world.peers(2)
    throttled.send(100 * MB, 5 * MB)
    throttled.pause_reading()
    waiting.send(100 * MB, MB)
    world.timers.pass_seconds(10 * PROGRESS_SECONDS + 1)
    assert throttled.error is None
    throttled.resume_reading()
    world.timers.pass_seconds(PROGRESS_SECONDS)
    assert throttled.error is None  # not read for a whole period yet
    world.timers.pass_seconds(2 * PROGRESS_SECONDS)
    assert throttled.error is not None


def test_peer_that_leaves_its_output_unread_is_closed_while_others_wait(world: World) -> None:
    silent, other = world.peers(2)
    silent.send(90 * MB, MB)
    silent.pause_reading()
    silent.leaves_unread = True
    other.send(90 * MB, MB)
    world.timers.pass_seconds(PROGRESS_SECONDS + 1)
    assert silent.error is not None
    assert other.is_read


def test_no_timer_runs_without_a_frame_that_waits(world: World) -> None:
    first, second = world.peers(2)
    first.send(100 * MB, MB)
    assert world.timers.is_idle
    second.send(100 * MB, MB)
    assert not world.timers.is_idle
    first.complete()
    world.timers.pass_seconds(2 * PROGRESS_SECONDS)
    assert world.timers.is_idle
    assert (first.error, second.error) == (None, None)


def test_without_a_limit_nothing_is_counted() -> None:
    world = World(bytes_max=0)
    for peer in world.peers(3):
        peer.send(1000 * MB, MB)
        assert peer.is_read
    assert world.counted == 0


def test_usual_frames_do_not_wait_for_large_ones(world: World) -> None:
    world.memory = FrameMemory(8 * MB, acquire=world._acquire, release=world._release)
    large, other, usual = world.peers(3)
    large.send(90 * MB, MB)
    other.send(2 * MB, MB)
    usual.send(MB, 100_000)
    assert (large.is_read, other.is_read, usual.is_read) == (True, False, True)
    usual.send(2 * MB, MB)  # without an announced length, it has grown
    assert not usual.is_read
    large.complete()
    assert other.is_read
    assert usual.is_read
    other.complete()
    usual.complete()
    assert world.counted == 0


def test_frame_of_another_address_waits_for_one_that_is_given_up(world: World) -> None:
    stalled = world.peers(300, address="10.0.0.66")
    for peer in stalled:
        peer.send(10 * MB, MB // 4)
    [other] = world.peers(1)
    other.send(10 * MB, MB // 4)
    assert not other.is_read
    world.timers.pass_seconds(PROGRESS_SECONDS)
    assert other.is_read
    assert not stalled[-1].is_read


def test_addresses_take_turns(world: World) -> None:
    one, two = world.peers(4, address="10.0.0.1"), world.peers(4, address="10.0.0.2")
    for peer in (*one, *two):
        peer.send(100 * MB, MB)
    order: list[Peer] = []
    for _ in range(8):
        [proceeds] = [peer for peer in (*one, *two) if peer.is_read and peer not in order]
        order.append(proceeds)
        proceeds.complete()
    assert order == [one[0], one[1], two[0], one[2], two[1], one[3], two[2], two[3]], "the first one did not wait"


def test_parts_that_wait_are_given_up_where_they_are_most(world: World) -> None:
    [first], many = world.peers(1), world.peers(4, address="10.0.0.66")
    first.send(100 * MB, MB)
    for peer in many:
        peer.send(100 * MB, 24 * MB)
    [other] = world.peers(1, address="10.0.0.2")
    other.send(100 * MB, 5 * MB)
    assert other.error is None
    assert [peer.error is not None for peer in many] == [False, False, False, True]
