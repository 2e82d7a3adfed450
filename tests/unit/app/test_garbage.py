"""Garbage collections: what survives is frozen, and full collections wait for an idle process, up to a limit."""

import asyncio
import gc
import weakref
from typing import Any

import pytest

from pybroker.broker.app.garbage import (
    FORCED_GROWTH,
    GARBAGE_SHARE,
    IDLE_FACTOR,
    IDLE_GROWTH,
    PATIENCE_MAX,
    TICK_SECONDS,
    YOUNG_COLLECTIONS,
    YOUNG_MAX,
    GarbageCollections,
)


class FakeCollector:
    """Records what is asked of it, and has collections begin on request."""

    def __init__(self) -> None:
        self.callbacks: list[Any] = []
        self.log: list[str] = []
        self.thresholds: tuple[int, ...] = ()
        self.freed = 10_000_000
        self.on_collect = lambda: None

    def set_threshold(self, *thresholds: int) -> None:
        self.thresholds = thresholds

    def freeze(self) -> None:
        self.log.append("freeze")

    def unfreeze(self) -> None:
        self.log.append("unfreeze")

    def collect(self) -> int:
        self.log.append("collect")
        self.on_collect()
        return self.freed

    def run(self, generation: int, collected: int = 0) -> None:
        info = {"generation": generation, "collected": collected, "uncollectable": 0}
        for phase in ("start", "stop"):
            for callback in self.callbacks:
                callback(phase, info)


class World:
    """Collections, and clocks that the test moves."""

    def __init__(self) -> None:
        self.now = self.used = 0.0
        self.collector = FakeCollector()
        self.collections = GarbageCollections(self.collector, lambda: self.now, lambda: self.used)
        self.collections.begin()

    def grow(self, objects: int) -> None:
        while self.collections.growth < objects:
            for generation in (*[0] * YOUNG_COLLECTIONS, 1):
                self.collector.run(generation)
        self.collector.log.clear()

    def tick(self, *, busy: float, seconds: float = TICK_SECONDS) -> bool:
        self.now += seconds
        self.used += busy * seconds
        self.collections.tick()
        done, self.collector.log[:] = list(self.collector.log), []
        assert done in ([], ["unfreeze", "collect", "freeze"])
        return bool(done)


@pytest.fixture
def world() -> World:
    return World()


def test_survivors_of_generation_1_are_frozen(world: World) -> None:
    for generation in (0, 0, 0, 0):
        world.collector.run(generation)
    assert world.collector.log == []
    world.collector.run(1)
    assert world.collector.log == ["freeze"]
    assert world.collections.growth == 5 * YOUNG_MAX
    assert world.collector.thresholds[:2] == (YOUNG_MAX, YOUNG_COLLECTIONS)


def test_collected_objects_are_no_growth(world: World) -> None:
    for generation in (0, 0, 0, 0, 1):
        world.collector.run(generation, collected=YOUNG_MAX)
    assert world.collections.growth == 0


def test_idle_process_collects_after_some_growth(world: World) -> None:
    assert not world.tick(busy=0.0)
    world.grow(IDLE_GROWTH)
    assert not world.tick(busy=0.5)
    assert world.tick(busy=0.0)
    assert not world.tick(busy=0.0)


def test_very_much_growth_does_not_wait(world: World) -> None:
    world.grow(FORCED_GROWTH - 5 * YOUNG_MAX)
    assert not world.tick(busy=1.0)
    world.grow(FORCED_GROWTH)
    assert world.tick(busy=1.0)


def test_long_collection_waits_for_a_long_idle_time(world: World) -> None:
    def last() -> None:
        world.now += 2.0

    world.collector.on_collect = last
    world.grow(IDLE_GROWTH)
    assert world.tick(busy=0.0)
    world.grow(IDLE_GROWTH)
    assert not world.tick(busy=1.0)
    for _ in range(int(2.0 * IDLE_FACTOR / TICK_SECONDS) - 1):
        assert not world.tick(busy=0.0)
    assert world.tick(busy=0.0)


def test_collections_that_find_little_become_rarer(world: World) -> None:
    world.collector.freed = FORCED_GROWTH // GARBAGE_SHARE - 1
    for times in (1, 2, PATIENCE_MAX, PATIENCE_MAX):
        world.grow(times * FORCED_GROWTH - 5 * YOUNG_MAX)
        assert not world.tick(busy=1.0)
        world.grow(times * FORCED_GROWTH)
        assert world.tick(busy=1.0)
    world.collector.freed = PATIENCE_MAX * FORCED_GROWTH // GARBAGE_SHARE
    world.grow(PATIENCE_MAX * FORCED_GROWTH)
    assert world.tick(busy=1.0)
    world.grow(FORCED_GROWTH)
    assert world.tick(busy=1.0), "it has found much: the next one is as early as the first"


def test_garbage_that_was_frozen_is_freed() -> None:
    class Cycle:
        def __init__(self) -> None:
            self.self = self

    threshold = gc.get_threshold()
    collections = GarbageCollections(processor_seconds=lambda: 0.0)
    collections.begin()
    try:
        cycle = Cycle()
        found = weakref.ref(cycle)
        gc.collect(1)
        del cycle
        gc.collect()
        assert found() is not None, "it is frozen"
        collections.growth = IDLE_GROWTH
        collections.tick()
        assert found() is None
        assert collections.growth == 0
    finally:
        collections.end()
        gc.freeze()  # as it was: other tests collect their own objects only
        gc.set_threshold(*threshold)


def test_watch_ticks_until_it_is_cancelled(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: list[int] = []

    async def live() -> None:
        watching = asyncio.create_task(world.collections.watch())

        def tick() -> None:
            ticks.append(1)
            watching.cancel()

        monkeypatch.setattr(world.collections, "tick", tick)
        monkeypatch.setattr("pybroker.broker.app.garbage.TICK_SECONDS", 0.0)
        with pytest.raises(asyncio.CancelledError):
            await watching

    asyncio.run(live())
    assert ticks == [1]
