"""The seam between a protocol and the socket: a session converses, a link moves its bytes.

One session serves one connection. It is sans-I/O: it takes chunks, calls the broker, and gives bytes and wishes
(close, wake me at) to its link. The only asyncio implementation of `Link` is in `connection`; tests use a fake.
"""

from typing import Protocol

from pybroker.broker.domain.ports import Throttle


class Link(Throttle, Protocol):
    """What a session may do to its connection."""

    @property
    def peer(self) -> str:
        """The other end, for logs, such as `127.0.0.1:50312`."""
        ...

    @property
    def reading_since(self) -> float | None:
        """Since when the peer is read without a break, in the seconds of `time`; None while it is not read."""
        ...

    @property
    def ending(self) -> str:
        """How the connection ended, in words, once it has and if it was not the session that closed it."""
        ...

    def write(self, data: bytes) -> None:
        """Queue bytes; they leave in one write at the end of this turn of the loop, or sooner when there are many."""
        ...

    def close(self) -> None:
        """Close once what was written has left. Nothing is received from now on."""
        ...

    def time(self) -> float:
        """Monotonic seconds."""
        ...

    def wake_at(self, when: float | None) -> None:
        """Have `Session.on_timer` called at that monotonic time, instead of the time asked for before; None: never."""
        ...


class Session(Protocol):
    """A conversation with one peer."""

    def receive(self, chunk: bytes) -> None:
        """Take bytes as they came. Raises nothing on account of the peer: it is told and the link closed."""
        ...

    def written(self) -> None:
        """Learn that everything queued so far has left the process, and that delivery may go on."""
        ...

    def handed_over(self) -> None:
        """Learn that the peer may get some of what was queued so far, and all of it, though not all has left yet."""
        ...

    def pause_writing(self) -> None:
        """Learn that the peer does not read as fast as it is written to; `written` ends the pause."""
        ...

    def on_timer(self) -> None:
        """Learn that the time given to `Link.wake_at` has come."""
        ...

    def lost(self) -> None:
        """Learn that the connection is gone. Called once, last."""
        ...
