"""Fair queueing of input: who goes first, how long, and that the clock is not read for little input."""

from collections.abc import Callable

import pytest

from pybroker.broker.domain.effort import EFFORT
from pybroker.transports.fair_queue import (
    DIRECT_SECONDS,
    QUEUED_SECONDS,
    SLICE_SECONDS,
    SPARSE_SECONDS,
    UNMEASURED_BYTES,
    FairQueue,
)

TICK = SLICE_SECONDS / 4


class Clock:
    """A clock that the work of the test moves."""

    def __init__(self) -> None:
        self.now = 50.0
        self.reads = 0

    def __call__(self) -> float:
        self.reads += 1
        return self.now


class Owner:
    """A connection with so many frames of a tick each."""

    def __init__(self, world: "World", name: str, frames: int = 0) -> None:
        self.world = world
        self.name = self.peer = name
        self.frames = frames
        self.virtual_finish = 0.0
        self.is_sparse = True
        self.served_turn = 0
        self.is_dropped = False

    def proceed(self) -> bool:
        while self.frames:
            self.frames -= 1
            self.world.clock.now += TICK
            self.world.log.append(self.name)
            if self.world.queue.is_slice_over():
                return self.frames > 0
        return False

    def drop_input(self) -> None:
        self.is_dropped = True


@pytest.fixture(autouse=True)
def _usual_effort() -> None:
    EFFORT.is_large = False


class World:
    """A queue, its clock, and what was processed."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.requests = 0
        self.queue = FairQueue(self.clock, self._schedule)
        self.log: list[str] = []

    def owner(self, name: str, frames: int = 0) -> Owner:
        return Owner(self, name, frames)

    def waiting(self, name: str, frames: int) -> Owner:
        owner = self.owner(name, frames)
        self.queue.add(owner)
        return owner

    def _schedule(self) -> None:
        self.requests += 1


@pytest.fixture
def world() -> World:
    return World()


def test_connections_that_wait_take_turns_by_slices(world: World) -> None:
    world.waiting("a", 12)
    world.waiting("b", 6)
    while world.queue.run():
        pass
    assert "".join(world.log) == "aaaabbbbaaaabbaaaa"


def test_connection_with_little_input_overtakes_those_with_much(world: World) -> None:
    for name in "abc":
        world.waiting(name, 400)
    for _ in range(20):
        world.queue.run()
    world.log.clear()
    world.waiting("x", 1)
    world.queue.run()
    assert world.log.index("x") <= SLICE_SECONDS / TICK * 3, "behind at most one slice of each that has the same time"
    world.log.clear()
    world.waiting("y", 1)
    world.queue.run()
    assert world.log.index("y") <= SLICE_SECONDS / TICK * 3


def test_idle_connection_saves_no_claim_up(world: World) -> None:
    idle = world.owner("i")
    world.waiting("a", 4000)
    for _ in range(100):
        world.queue.run()
    idle.frames = 4000
    world.queue.add(idle)
    world.log.clear()
    for _ in range(20):
        world.queue.run()
    assert abs(world.log.count("a") - world.log.count("i")) <= 2 * SLICE_SECONDS / TICK


def test_slices_are_shorter_where_many_wait(world: World) -> None:
    """A round of all of them would take 4 s at `SLICE_SECONDS` each; ticks are longer than the shortest slice here."""
    for number in range(4000):
        world.waiting(str(number), 8)
    begun = world.clock.now
    while len(set(world.log)) < 4000:
        world.queue.run()
    assert world.clock.now - begun == pytest.approx(4000 * TICK), "one frame of each"


def test_sparse_connection_is_served_in_each_turn_while_hundreds_flood(world: World) -> None:
    for number in range(900):
        world.waiting(str(number), 400)
    world.queue.run()
    sparse = world.owner("x")
    for _ in range(50):
        assert world.queue.begin(sparse), "whatever it used in the turns before"
        world.clock.now += SLICE_SECONDS / 2
        world.queue.end(sparse)
        assert not world.queue.begin(sparse), "once in a turn"
        world.queue.run()


@pytest.mark.parametrize("way", ["leaves input", "takes long"])
def test_connection_that_is_not_sparse_waits_its_turn(world: World, way: str) -> None:
    for number in range(900):
        world.waiting(str(number), 400)
    world.queue.run()
    heavy = world.owner("x")
    assert world.queue.begin(heavy)
    world.clock.now += 2 * SPARSE_SECONDS if way == "takes long" else SLICE_SECONDS / 2
    world.queue.end(heavy, is_left=way == "leaves input")
    world.queue.run()
    assert not world.queue.begin(heavy)


def test_connection_that_took_long_waits_for_a_round_at_most(world: World) -> None:
    for number in range(900):
        world.waiting(str(number), 400)
    world.queue.run()
    heavy = world.owner("x", 1)
    assert world.queue.begin(heavy)
    world.clock.now += 100 * SLICE_SECONDS
    world.queue.end(heavy)
    world.queue.add(heavy)
    world.log.clear()
    while "x" not in world.log:
        world.queue.run()
    assert len(world.log) <= 2 * 900


def test_turn_has_a_limit_whoever_waits(world: World) -> None:
    for number in range(100):
        world.waiting(str(number), 100)
    begun = world.clock.now
    assert world.queue.run()
    assert world.clock.now - begun < QUEUED_SECONDS + SLICE_SECONDS + TICK


def test_only_the_first_input_of_a_turn_is_measured_if_there_is_little(world: World) -> None:
    assert world.queue.credit == 0
    owner = world.owner("a")
    assert world.queue.begin(owner)
    world.queue.end(owner)
    assert world.queue.credit == UNMEASURED_BYTES
    reads = world.clock.reads
    assert not world.queue.run()
    assert world.queue.credit == 0
    assert world.clock.reads == reads, "and nothing waits"


def test_input_waits_once_the_time_of_its_turn_is_used_up(world: World) -> None:
    served = 0
    for number in range(1000):
        owner = world.owner(str(number))
        if not world.queue.begin(owner):
            break
        world.clock.now += TICK
        world.queue.end(owner)
        served += 1
    assert served == round(DIRECT_SECONDS / TICK)
    assert world.queue.credit == 0, "nothing more is processed unmeasured in this turn"
    assert world.requests, "the next turn begins with the end of this one"
    world.queue.run()
    assert world.queue.begin(owner)


def test_connection_read_many_times_in_a_turn_waits_after_a_slice(world: World) -> None:
    owner = world.owner("a")
    served = 0
    while world.queue.begin(owner):
        world.clock.now += TICK
        world.queue.end(owner)
        served += 1
    assert served <= 1 + SLICE_SECONDS / TICK


def test_connection_that_used_much_does_not_overtake_those_that_wait(world: World) -> None:
    heavy = world.waiting("a", 20)
    world.queue.run()
    heavy.frames = 0
    other = world.waiting("b", 40)
    world.queue.run()
    assert len(world.queue) == 1
    heavy.virtual_finish = other.virtual_finish + SLICE_SECONDS
    assert not world.queue.begin(heavy)
    assert world.queue.begin(world.owner("new"))


def test_first_question_begins_the_slice_of_an_unmeasured_connection(world: World) -> None:
    assert not world.queue.is_slice_over()
    assert world.queue.is_measuring
    world.clock.now += SLICE_SECONDS
    assert world.queue.is_slice_over()
    owner = world.owner("a")
    world.queue.end(owner)
    assert owner.virtual_finish == pytest.approx(SLICE_SECONDS)
    assert not world.queue.is_measuring


def test_closed_queue_drops_what_waits_and_what_comes(world: World) -> None:
    first = world.waiting("a", 10)
    world.queue.close()
    second = world.waiting("b", 10)
    assert first.is_dropped
    assert second.is_dropped
    assert not world.queue.run()
    assert world.log == []


def test_owner_may_add_others_while_it_is_served(world: World) -> None:
    added: list[Callable[[], object]] = [lambda: world.waiting("b", 1)]

    class Adding(Owner):
        def proceed(self) -> bool:
            added.pop()()
            return super().proceed()

    world.queue.add(Adding(world, "a", 1))
    world.queue.run()
    assert world.log == ["a", "b"]


def test_large_effort_has_every_further_chunk_of_the_turn_measured() -> None:
    world = World()
    assert world.queue.begin(Owner(world, "first"))
    world.queue.end(Owner(world, "first"))
    assert world.queue.credit > 0, "what follows is little, and not measured"
    EFFORT.is_large = True
    world.queue.measure_all()
    assert world.queue.credit == 0
    assert not EFFORT.is_large


@pytest.mark.parametrize("ends", [False, True])
def test_large_effort_in_a_slice_ends_the_credit(ends: bool) -> None:
    world = World()
    owner = Owner(world, "first")
    assert world.queue.begin(owner)
    EFFORT.is_large = True
    if ends:
        world.queue.end(owner)
    else:
        assert not world.queue.is_slice_over()
    assert world.queue.credit == 0
    assert not EFFORT.is_large
