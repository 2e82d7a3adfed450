"""Forked children close the descriptors that hold locks; the parent keeps them."""

import os
from collections.abc import Callable

from pybroker import fork_guard


class Session:
    """A session whose descriptor a library owns."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def close_inherited(self) -> None:
        os.close(self.fd)


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def in_child(question: Callable[[], bool]) -> bool:
    """Return a forked child's answer."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if question() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_guarded_descriptor_is_closed_in_child_only() -> None:
    fd = os.open(os.devnull, os.O_RDONLY)
    assert in_child(lambda: is_open(fd))

    fork_guard.guard(fd)

    assert in_child(lambda: not is_open(fd) and not fork_guard.is_guarded(fd))
    assert is_open(fd)
    assert fork_guard.is_guarded(fd)
    fork_guard.close(fd)
    assert not is_open(fd)
    assert not fork_guard.is_guarded(fd)


def test_guarded_session_is_closed_in_child_until_released() -> None:
    session = Session(os.open(os.devnull, os.O_RDONLY))
    fork_guard.guard_session(session)
    assert in_child(lambda: not is_open(session.fd))
    assert is_open(session.fd)

    fork_guard.release_session(session)

    assert in_child(lambda: is_open(session.fd))
    os.close(session.fd)
