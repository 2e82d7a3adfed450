"""The interface between protocol and socket: a session speaks the protocol, a link moves its bytes.

One session serves one connection. It is sans-I/O: it takes chunks, calls the broker, and passes bytes and requests
(`close`, `wake_at`) to its link. The only asyncio implementation of `Link` is in `connection`; tests use a fake.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from pybroker.broker.domain.errors import BrokerError
from pybroker.broker.domain.ports import Throttle

INPUT_WAIT_SECONDS: Final = 1.0
"""The time after which a session looks again whether a peer has begun, if its input waits for a slice."""


class Link(Throttle, Protocol):
    """A connection, as its session sees it."""

    @property
    def certificate(self) -> str | None:
        """The subject of the peer's certificate, which was verified; empty without one, None without TLS."""
        ...

    @property
    def reading_since(self) -> float | None:
        """The time since which the peer is read without a break, by `time`; None while it is not read."""
        ...

    @property
    def is_input_waiting(self) -> bool:
        """True while received input waits for a slice; see `fair_queue`."""
        ...

    @property
    def ending(self) -> str:
        """A description of how the connection ended; empty before, and if the session closed it."""
        ...

    def write(self, data: bytes | memoryview) -> None:
        """Queue bytes; they leave in one write at the end of the loop's turn, or sooner if there are many."""
        ...

    def write_pieces(self, pieces: Sequence[bytes]) -> None:
        """Queue one frame that is in pieces, without joining them; all others are written whole."""
        ...

    def close(self) -> None:
        """Close after the output has left. Nothing is received from now on."""
        ...

    def time(self) -> float:
        """Monotonic seconds."""
        ...

    def is_slice_over(self) -> bool:
        """Return True if other connections should go first; asked between frames, see `fair_queue`."""
        ...

    def wake_at(self, when: float | None) -> None:
        """Call `Session.on_timer` at that monotonic time, which replaces an earlier one; None: never."""
        ...

    def reserve_frame(self, size: int, received: int) -> None:
        """Reserve memory for a large frame of which only a part has come; the peer is not read on until it is there.

        Args:
            size: bytes of the whole frame.
            received: bytes that have come.
        """
        ...

    def release_frame(self) -> None:
        """Release what was reserved, as the frame is complete."""
        ...

    def in_thread(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Run work of long duration in a thread, and then call `done` here, unless the server has closed by then.

        The work must not raise an exception, nor touch what the event loop uses. The interpreter must be free most of
        the time: it may run code that releases its lock, and short pieces of other code.
        """
        ...


class Session(Protocol):
    """A conversation with one peer."""

    @property
    def is_connected(self) -> bool:
        """True while the peer is a client that the broker has admitted."""
        ...

    def receive(self, chunk: bytes) -> bool:
        """Process received bytes. For a violation the peer gets an error, and the link closes.

        Returns:
            True if complete frames may be left, because the slice is over: then `proceed` follows, before other bytes.
        """
        ...

    def proceed(self) -> bool:
        """Continue with the frames that are left, if any; returns as `receive`."""
        ...

    def written(self) -> None:
        """React to all output having left the process: delivery may go on."""
        ...

    def handed_over(self) -> None:
        """Count all output so far as possibly received by the peer, although not all has left the process."""
        ...

    def pause_writing(self) -> None:
        """Pause delivery, as the peer reads too slowly; `written` ends the pause."""
        ...

    def hold(self) -> None:
        """Carry out no frame behind the present one until `release`; the link passes no bytes on meanwhile."""
        ...

    def release(self) -> None:
        """Carry out frames again; `proceed` follows."""
        ...

    def on_timer(self) -> None:
        """React to the time that was passed to `Link.wake_at`."""
        ...

    def stopping(self) -> None:
        """Write what is due to a peer whose connection closes next, because the broker stops."""
        ...

    def give_up(self, error: BrokerError) -> None:
        """Close with an error that no command of the peer brings about."""
        ...

    def lost(self) -> None:
        """React to the end of the connection. Called once, last."""
        ...
