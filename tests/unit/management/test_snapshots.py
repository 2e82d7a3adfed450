"""Values that are computed once for all who ask, and asked for again behind a stale one."""

import asyncio

import pytest

from pybroker.management.snapshots import Shared


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def turns() -> None:
    """Let tasks run that wait for nothing."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_value_is_fresh_then_stale_then_old() -> None:
    clock, computed = Clock(), [0]

    async def compute() -> int:
        computed[0] += 1
        return computed[0]

    async def run() -> None:
        shared = Shared(compute, 1.0, 5.0, clock)
        first = asyncio.create_task(shared.get())
        assert [await each for each in (first, asyncio.create_task(shared.get()))] == [1, 1]
        clock.now = 0.9
        assert await shared.get() == 1
        clock.now = 4.0
        assert await shared.get() == 1  # and it is computed again behind this
        await turns()
        assert await shared.get() == 2
        clock.now = 9.5
        assert await shared.get() == 3

    asyncio.run(run())


def test_an_error_is_told_and_not_kept() -> None:
    clock, answers = Clock(), ["a", None, "b"]

    async def compute() -> str:
        answer = answers.pop(0)
        if answer is None:
            raise ValueError("it failed")
        return answer

    async def run() -> None:
        shared = Shared(compute, 1.0, 5.0, clock)
        assert await shared.get() == "a"
        clock.now = 2.0
        assert await shared.get() == "a"
        await turns()
        assert await shared.get() == "b"  # the cached value was discarded
        answers.insert(0, None)
        clock.now = 20.0
        with pytest.raises(ValueError, match="it failed"):
            await shared.get()

    asyncio.run(run())


def test_one_who_waits_may_leave() -> None:
    began, may_end = asyncio.Event(), asyncio.Event()

    async def compute() -> str:
        began.set()
        await may_end.wait()
        return "a"

    async def run() -> None:
        shared = Shared(compute)
        leaving, staying = asyncio.create_task(shared.get()), asyncio.create_task(shared.get())
        await began.wait()
        leaving.cancel()
        may_end.set()
        assert await staying == "a"

    asyncio.run(run())


def test_a_value_that_was_forgotten_is_computed_anew() -> None:
    may_end = [asyncio.Event(), asyncio.Event()]
    computed: list[int] = []

    async def compute() -> int:
        number = len(computed)
        computed.append(number)
        await may_end[number].wait()
        return number

    async def run() -> None:
        shared = Shared(compute)
        before = asyncio.create_task(shared.get())
        await turns()
        shared.forget()
        after = asyncio.create_task(shared.get())
        await turns()
        may_end[1].set()
        assert await after == 1
        may_end[0].set()
        assert await before == 0
        assert await shared.get() == 1
        assert computed == [0, 1]

    asyncio.run(run())
