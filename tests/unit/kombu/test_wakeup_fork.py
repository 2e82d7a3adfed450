"""A flag after a fork: the child must not take the byte that the parent waits for."""

import os
import select
import signal
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from pybroker.client import ConnectionClosed
from pybroker.kombu.transport import Transport
from pybroker.kombu.wakeup import Wakeup


def test_a_child_that_clears_the_flag_leaves_the_parents_descriptor_readable() -> None:
    wakeup = Wakeup()
    descriptor = wakeup.fileno()
    wakeup.set()
    child = os.fork()
    if child == 0:
        try:
            wakeup.clear()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    readable, _, _ = select.select([descriptor], [], [], 0)
    assert readable == [descriptor]
    clearing = threading.Thread(target=wakeup.clear, daemon=True)
    clearing.start()
    clearing.join(10)
    assert not clearing.is_alive()
    wakeup.close()


def test_a_closed_flag_has_no_descriptor_any_more() -> None:
    """Otherwise the second one would never be closed."""
    wakeup = Wakeup()
    wakeup.fileno()
    wakeup.close()
    before = os.open(os.devnull, os.O_RDONLY)
    os.close(before)
    with pytest.raises(ValueError, match="closed"):
        wakeup.fileno()
    after = os.open(os.devnull, os.O_RDONLY)
    os.close(after)
    assert after == before
    wakeup.set()  # as the client's thread may still do
    assert wakeup.wait(0)


def test_a_thread_that_waits_for_a_flag_ends_when_it_is_closed() -> None:
    wakeup = Wakeup()
    waiting = threading.Thread(target=wakeup.wait, args=[None], daemon=True)
    waiting.start()
    wakeup.close()
    waiting.join(20)
    assert not waiting.is_alive()


def in_child(work: Any) -> int:
    """Run a function in a forked child; return its status, which is not 0 after an error or a deadlock."""
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1]


def test_a_child_closes_a_flag_whose_lock_another_thread_had() -> None:
    wakeup = Wakeup()
    wakeup.fileno()
    with wakeup._lock:
        assert in_child(wakeup.close) == 0
    wakeup.close()


class Loop:
    """An event loop of Celery, which counts what is removed."""

    def __init__(self) -> None:
        self.removed: list[int] = []

    def add_reader(self, descriptor: int, *_: Any) -> None:
        pass

    def remove_reader(self, descriptor: int) -> None:
        self.removed.append(descriptor)


def test_a_child_leaves_the_parents_event_loop_alone() -> None:
    """It shares the loop's epoll: what it removes there, its parent does not hear of any more."""
    transport = Transport(SimpleNamespace(transport_options={}))
    transport._process = os.getpid()
    loop = Loop()
    transport.register_with_event_loop(transport, loop)

    def collect() -> None:
        transport._collect(transport)
        assert loop.removed == []

    assert in_child(collect) == 0
    transport._collect(transport)
    assert len(loop.removed) == 1


def test_draining_after_the_end_is_an_error() -> None:
    transport = Transport(SimpleNamespace(transport_options={}))
    with pytest.raises(ConnectionClosed):
        transport.drain_events(transport, timeout=0)


def test_a_handler_of_a_signal_may_set_the_flag_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sets what its own thread is setting; afterwards the descriptor is readable once."""
    wakeup = Wakeup()
    descriptor = wakeup.fileno()
    set_event, handled = wakeup._event.set, list[None]()

    def set_during_signal() -> None:
        if not handled:
            handled.append(None)
            wakeup.set()
        set_event()

    monkeypatch.setattr(wakeup._event, "set", set_during_signal)
    setting = threading.Thread(target=wakeup.set, daemon=True)
    setting.start()
    setting.join(10)
    assert not setting.is_alive()
    assert select.select([descriptor], [], [], 0)[0] == [descriptor]
    wakeup.clear()
    assert select.select([descriptor], [], [], 0)[0] == []
    wakeup.close()
