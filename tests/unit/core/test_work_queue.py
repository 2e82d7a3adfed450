"""The work that the broker itself begins: one after the other, also behind one that fails."""

from collections.abc import Callable, Iterator

import pytest

from pybroker.broker.core.paging import PIECE_MAX
from pybroker.broker.core.piecewise import WorkQueue
from pybroker.broker.domain.errors import InvalidDestination
from tests.unit.core.test_piecewise import work


def begin(later: list[Callable[[], None]]) -> WorkQueue:
    return WorkQueue(lambda steps: work(steps, later))


def steps(done: list[str], name: str, *, fails_at: int = 9) -> Iterator[int]:
    for number in range(3):
        if number == fails_at:
            raise InvalidDestination(name)
        done.append(name)
        yield PIECE_MAX


def test_a_later_step_that_fails_keeps_no_other_work_waiting() -> None:
    later, done = list[Callable[[], None]](), list[str]()
    queue_of_work = begin(later)
    queue_of_work.work_off(steps(done, "a", fails_at=2))
    queue_of_work.work_off(steps(done, "b"))
    queue_of_work.when_done(lambda: done.append("done"))
    while later:
        later.pop(0)()
    assert done == ["a", "a", "b", "b", "b", "done"]


def test_a_first_step_that_fails_is_the_callers() -> None:
    later, done = list[Callable[[], None]](), list[str]()
    queue_of_work = begin(later)
    with pytest.raises(InvalidDestination):
        queue_of_work.work_off(steps(done, "a", fails_at=0))
    assert not queue_of_work.is_busy
    queue_of_work.work_off(steps(done, "b"))
    while later:
        later.pop(0)()
    assert done == ["b", "b", "b"]
