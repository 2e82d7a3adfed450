"""Connections that a forked child inherits: there they are marked, and their sockets are replaced.

A child has the parent's descriptors, but not the thread or loop that serves a connection. If it used the socket, it
would disturb the parent; if it only kept the socket open, the broker would not notice the end of the parent. So in the
child `/dev/null` takes the place of each socket. This sends nothing, and does not change the parent's descriptor.

The objects of an inherited connection are never freed in the child, because their finalizers are meant for the parent.
"""

import os
import weakref
from collections.abc import Iterable
from typing import Final, Protocol


class Inheritable(Protocol):
    """A connection that a forked child may inherit."""

    def mark_inherited(self) -> Iterable[int]:
        """Refuse use from now on, and return the descriptors of the sockets. Called in the child, without a lock."""
        ...


_open: Final[weakref.WeakSet[Inheritable]] = weakref.WeakSet()
"""The connections of this process."""

_inherited: Final[list[Inheritable]] = []
"""The connections of former processes, from which this one was forked."""


def register(connection: Inheritable) -> None:
    """Have a connection marked in each child that is forked from now on."""
    _open.add(connection)


def _mark_all() -> None:
    connections = list(_open)
    _inherited.extend(connections)
    _open.clear()
    descriptors = [descriptor for connection in connections for descriptor in connection.mark_inherited()]
    if not descriptors:
        return
    null = os.open(os.devnull, os.O_RDWR)
    try:
        for descriptor in descriptors:
            os.dup2(null, descriptor, inheritable=False)
    finally:
        os.close(null)


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_mark_all)
