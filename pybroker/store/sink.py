"""What a group commit stands between: a source of changes, a sink that makes them last, and a replica."""

from typing import Protocol, TypeVar

from pybroker.store.runtime import Callback

C_co = TypeVar("C_co", covariant=True)
C_contra = TypeVar("C_contra", contravariant=True)


class Source(Protocol[C_co]):
    """Where changes gather, on the loop."""

    @property
    def open_bytes(self) -> int:
        """The size of what has gathered."""
        ...

    def take(self) -> C_co:
        """Return what has gathered, and begin anew."""
        ...


class Sink(Protocol[C_contra]):
    """Where batches go. Used by one thread at a time, and blocks, but for what says otherwise."""

    @property
    def is_full(self) -> bool:
        """True while there is no room for more than what makes room. Anybody may look."""
        ...

    def begin(self) -> None:
        """Do what comes before the first batch."""
        ...

    def write(self, batch: C_contra) -> float:
        """Make a batch last, and ask the fence; return how many seconds that took, waiting for room apart.

        Raises:
            Exception: it may not have become part of what lasts: the writer stops.
        """
        ...

    def rest(self) -> float | None:
        """Do what is due between two batches; return in how many seconds something will be, None for nothing."""
        ...

    def sync(self) -> None:
        """Make last what was written so far."""
        ...

    def fence(self) -> None:
        """Make sure that what was written is still this master's.

        Raises:
            LockNotHeld: it is not.
        """
        ...

    def hurry(self) -> None:
        """Wait for room no longer. Called on the loop."""
        ...

    def interrupt(self) -> None:
        """Cut short what is under way, if that can be done. Called on the loop."""
        ...

    def explain(self, error: Exception) -> Exception:
        """Return what to report for an error."""
        ...

    def close(self, *, in_order: bool) -> None:
        """Let go; out of order, of everything as it is."""
        ...


class InlineSink(Protocol[C_contra]):
    """A sink whose short batches the loop may write itself."""

    def may_write_inline(self, batch: C_contra) -> bool:
        """Return True if nothing but the write itself would take time."""
        ...

    def write_inline(self, batch: C_contra) -> float | None:
        """Do what `Sink.write` does; None: there is no room, nothing was written, and the thread has to wait for it."""
        ...


class Replica(Protocol[C_contra]):
    """Who takes each batch before it is written, and says when it has it too. Called on the loop.

    Replication sits here: it sends a batch while this disk writes it, and nothing waits for the one before.
    """

    def take(self, number: int, batch: C_contra) -> None:
        """Take a batch; the numbers follow one another from 1 on."""
        ...

    def when_confirmed(self, number: int, callback: Callback) -> None:
        """Call back, on the loop, once everything up to that batch is confirmed; at once when it is."""
        ...
