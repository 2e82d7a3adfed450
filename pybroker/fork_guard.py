"""Closes descriptors that hold locks in every forked child, so that no lock outlives its holder.

A child that is forked without exec shares its parent's open files and sockets, and with them file locks and database
sessions.
"""

import os
import weakref
from typing import Protocol


class InheritedSession(Protocol):
    """A connection whose descriptor a library owns."""

    def close_inherited(self) -> None:
        """Close the descriptor in a forked child, without sending anything."""
        ...


_descriptors: set[int] = set()
_sessions: "weakref.WeakSet[InheritedSession]" = weakref.WeakSet()


def guard(fd: int) -> None:
    """Have forked children close a descriptor, until `close`."""
    _descriptors.add(fd)


def is_guarded(fd: int) -> bool:
    """Report if this process itself has guarded the descriptor; False in a forked child."""
    return fd in _descriptors


def close(fd: int) -> None:
    """Close a guarded descriptor."""
    _descriptors.discard(fd)  # before the close: afterwards the number may belong to another thread
    os.close(fd)


def guard_session(session: InheritedSession) -> None:
    """Have forked children close a session's descriptor, until `release_session`."""
    _sessions.add(session)


def release_session(session: InheritedSession) -> None:
    """End the guard of a session. May be repeated."""
    _sessions.discard(session)


def _close_in_child() -> None:
    for fd in _descriptors:
        os.close(fd)
    _descriptors.clear()
    for session in list(_sessions):
        session.close_inherited()
    _sessions.clear()


os.register_at_fork(after_in_child=_close_in_child)
