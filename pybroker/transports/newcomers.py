"""Connections that may be left by the broker for newer ones, in order of arrival.

It is looked up only near a limit which of them have become what they began for, so that a connection costs an entry of
a dict.
"""

from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from pybroker.broker.domain.errors import BrokerError

YOUNG_SECONDS: Final = 1.0
"""The age below which no connection is idle: a client on a busy machine takes so long for its next frame."""

_LOOK_SECONDS: Final = 0.1
"""The time between two looks at all of them."""


class Newcomer(Protocol):
    """A connection, as its admission sees it."""

    @property
    def peer(self) -> str:
        """The other end: its address, a colon and its port."""
        ...

    @property
    def is_connected(self) -> bool:
        """True once its client was admitted by the broker."""
        ...

    @property
    def is_in_handshake(self) -> bool:
        """True until a TLS handshake is over."""
        ...

    @property
    def is_idle(self) -> bool:
        """True if nothing that it has sent is being processed, such as its login."""
        ...

    def give_up(self, error: BrokerError) -> None:
        """Close with an error that no command of the peer brings about."""
        ...


NewcomerT = TypeVar("NewcomerT", bound=Newcomer)


class Newcomers(Generic[NewcomerT]):
    """Connections of one kind, until they are over with what makes them newcomers."""

    __slots__ = ("_is_over", "_looked_at", "_since")

    def __init__(self, is_over: Callable[[NewcomerT], bool]) -> None:
        """Begin without connections.

        Args:
            is_over: returns True for a connection that is a newcomer no longer.
        """
        self._is_over = is_over
        self._since: dict[NewcomerT, float] = {}
        self._looked_at = float("-inf")

    def add(self, newcomer: NewcomerT, now: float) -> None:
        """Add a connection at a time, in monotonic seconds."""
        self._since[newcomer] = now

    def remove(self, newcomer: NewcomerT) -> None:
        """Remove a connection, if it is still one of these."""
        self._since.pop(newcomer, None)

    def has_space(self, limit: int, now: float, more: int = 0) -> bool:
        """Return True if one can be added, besides `more` that come before it."""
        if len(self._since) + more >= limit:
            self._look(now)
        return len(self._since) + more < limit

    def oldest_idle(self, now: float) -> NewcomerT | None:
        """Return the oldest connection that is idle.

        Those that are busy count as new from now on: a flood asks at each connection, and hundreds may be busy.
        """
        self._look(now)
        found: NewcomerT | None = None
        busy: list[NewcomerT] = []
        for each, since in self._since.items():
            if now - since < YOUNG_SECONDS:
                break
            if not each.is_idle:
                busy.append(each)
            elif not self._is_over(each):
                found = each
                break
        for each in busy:
            del self._since[each]  # to put it behind the others, by time
            self._since[each] = now
        return found

    def _look(self, now: float) -> None:
        """Drop those that are newcomers no longer, unless that was done just now."""
        if now - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = now
            self._since = {each: since for each, since in self._since.items() if not self._is_over(each)}
