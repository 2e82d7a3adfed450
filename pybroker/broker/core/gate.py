"""The gate before a destination: what was sent after a commit waits until that commit is on disk.

A transaction's messages must not be seen before their commit is safe, and nothing sent later may overtake them, or a
producer's order would be lost. Dispatch outside transactions does not wait for the disk: then the gate is open, and all
it costs is one look.
"""

from collections import deque
from collections.abc import Callable

from pybroker.broker.core.containment import contain
from pybroker.broker.domain.message import Message


class Gate:
    """Holds messages back behind commits that are not on disk yet, oldest first."""

    __slots__ = ("_deliver", "_waiting")

    def __init__(self, deliver: Callable[[Message], None]) -> None:
        self._deliver = deliver
        self._waiting: deque[Message | None] = deque()  # None: a commit, with its messages and later ones behind it

    def admit(self, message: Message) -> None:
        """Let a message through, or have it wait for the commit before it."""
        if self._waiting:
            self._waiting.append(message)
        else:
            self._deliver(message)

    def close(self) -> None:
        """Note a commit: what comes now waits for it."""
        self._waiting.append(None)

    def redirect(self, deliver: Callable[[Message], None]) -> None:
        """Give what comes from now on to somebody else: the destination is gone, and what waited for it with it."""
        self._deliver = deliver
        self._waiting = deque([None] * self._waiting.count(None))

    def open(self) -> None:
        """Let through what waited for the oldest commit, which is on disk now."""
        commit = self._waiting.popleft()
        assert commit is None, "commits reach the disk in their order"
        while self._waiting and (message := self._waiting[0]) is not None:
            self._waiting.popleft()
            try:
                self._deliver(message)
            except Exception as error:
                contain(error, "delivering after a commit", message)
