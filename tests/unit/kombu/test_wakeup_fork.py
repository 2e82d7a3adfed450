"""A flag after a fork: the child must not take the byte that the parent waits for."""

import os
import select
import threading

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
