"""Which tasks a worker of Celery returns that ends: those that wait, of its pool too, while threads change its sets."""

import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import celery.worker.state
import pytest
from celery.concurrency import thread
from celery.worker.request import Request
from kombu.asynchronous import timer as timers
from kombu.utils import limits

from pybroker.kombu.worker import ReturnWaitingTasks

state: Any = celery.worker.state
Timer: Any = timers.Timer
TokenBucket: Any = limits.TokenBucket


class Waiting(Request):  # type: ignore[misc]
    """A request without a message."""

    def __init__(self, number: int) -> None:
        self.id = str(number)
        self.name = "task"

    def on_accepted(self, pid: int, time_accepted: float) -> None:
        """Begin."""
        state.task_accepted(self)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    state.reset_state()


@pytest.fixture
def consumer() -> Any:
    """What the step needs of a consumer."""
    return SimpleNamespace(timer=SimpleNamespace(schedule=(timer := Timer()), cancel=timer.cancel), task_buckets={})


@pytest.fixture
def step() -> Any:
    """The step in a worker with another pool."""
    return ReturnWaitingTasks(SimpleNamespace(pool=None))


def test_threads_may_begin_and_end_tasks_meanwhile(consumer: Any, step: Any) -> None:
    """An iteration over Celery's set of requests fails then, and with it the shutdown."""
    requests = [Waiting(number) for number in range(200)]
    for request in requests[100:]:
        state.task_reserved(request)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            for request in requests[:100]:
                state.task_reserved(request)
                request.on_accepted(0, 0.0)
            for request in requests[:100]:
                state.task_ready(request)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    working = threading.Thread(target=work)
    working.start()
    try:
        found = [set(step._waiting(consumer)) for _ in range(100)]
    finally:
        stop.set()
        working.join()
        sys.setswitchinterval(interval)
    assert all(each >= set(requests[100:]) for each in found)


def test_what_a_pool_of_threads_has_not_begun_is_returned_and_does_not_begin(consumer: Any) -> None:
    pool = thread.TaskPool(1)
    begun, end, ran = threading.Event(), threading.Event(), list[int]()

    def run(number: int) -> None:
        ran.append(number)
        begun.set()
        end.wait()

    step: Any = ReturnWaitingTasks(SimpleNamespace(pool=pool))
    step.create(SimpleNamespace(pool=pool))
    requests = [Waiting(number) for number in range(4)]
    for number, request in enumerate(requests):
        state.task_reserved(request)
        request._apply_result = weakref.ref(pool.on_apply(run, (number,), accept_callback=request.on_accepted))
    begun.wait()
    assert list(step._waiting(consumer)) == requests[1:]
    end.set()
    pool.stop()
    assert ran == [0]


def test_a_task_that_has_failed_in_a_thread_is_forgotten() -> None:
    """Its future has the error, and so the frames of the call with the request."""

    def fail() -> None:
        raise ValueError

    pool = thread.TaskPool(1)
    step: Any = ReturnWaitingTasks(SimpleNamespace(pool=pool))
    step.create(SimpleNamespace(pool=pool))
    request = Waiting(0)
    with pytest.raises(ValueError):
        pool.on_apply(fail, (), accept_callback=request.on_accepted).get(timeout=60)
    pool.stop()
    gone = weakref.ref(request)
    state.task_ready(request)
    del request
    gc.collect()
    assert gone() is None


def test_what_waits_for_a_limit_that_was_changed_is_returned(consumer: Any, step: Any) -> None:
    """Celery has another bucket then, and the timer the former one."""
    former, present = TokenBucket(1), TokenBucket(2)
    requests = [Waiting(number) for number in range(3)]
    for bucket, request in zip((former, former, present), requests, strict=True):
        bucket.add((request, 1))
    consumer.task_buckets = {"task": present, "another": None}
    consumer.timer.schedule.call_after(60, print, (former,))
    consumer.timer.schedule.call_after(60, print, (present,))
    assert set(step._waiting(consumer)) == set(requests)
    assert not former.contents
    assert not present.contents
