"""The worker thread: in order, called back in the loop's thread, and quiet after its end."""

import threading

from pybroker.transports.work_thread import WorkThread

PATIENCE_SECONDS = 30.0


class Loop:
    """Collects what other threads post."""

    def __init__(self) -> None:
        self.posted: list[object] = []
        self.arrived = threading.Semaphore(0)

    def post(self, callback: object) -> None:
        self.posted.append(callback)
        self.arrived.release()


def unexpected() -> None:
    raise AssertionError("only the loop calls it")


def test_work_is_done_in_order_and_in_another_thread() -> None:
    loop, threads, order = Loop(), [], []
    worker = WorkThread(loop.post)

    def work(name: str) -> None:
        threads.append(threading.current_thread())
        order.append(name)

    for name in ("a", "b", "c"):
        worker.run(lambda name=name: work(name), unexpected)  # type: ignore[misc]
    for _ in range(3):
        assert loop.arrived.acquire(timeout=PATIENCE_SECONDS)
    worker.close()
    assert order == ["a", "b", "c"]
    assert loop.posted == [unexpected] * 3
    assert len(set(threads)) == 1
    assert threads[0] is not threading.current_thread()


def test_nothing_is_posted_after_the_end() -> None:
    loop, begun, may_end, ended = Loop(), threading.Event(), threading.Event(), threading.Event()
    worker = WorkThread(loop.post)

    def work() -> None:
        begun.set()
        may_end.wait(PATIENCE_SECONDS)
        ended.set()

    worker.run(work, unexpected)
    worker.run(work, unexpected)
    assert begun.wait(PATIENCE_SECONDS)
    worker.close()
    worker.run(work, unexpected)
    may_end.set()
    assert ended.wait(PATIENCE_SECONDS)
    assert worker._executor is not None
    worker._executor.shutdown()  # waits for the thread
    assert loop.posted == []
