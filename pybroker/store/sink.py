"""Ports of a group commit: a source of changes, a sink that makes them durable, and a replica."""

from typing import Protocol, TypeVar

from pybroker.store.runtime import Callback

C_co = TypeVar("C_co", covariant=True)
C_contra = TypeVar("C_contra", contravariant=True)


class Source(Protocol[C_co]):
    """A buffer of changes, on the event loop."""

    @property
    def open_bytes(self) -> int:
        """The size of the gathered changes."""
        ...

    def take(self) -> C_co:
        """Return the gathered changes, and begin with none."""
        ...


class Sink(Protocol[C_contra]):
    """A destination of batches. Used by one thread at a time; methods block unless documented otherwise."""

    @property
    def is_full(self) -> bool:
        """True while there is space only for acknowledgements. May be read in any thread."""
        ...

    def begin(self) -> None:
        """Prepare for the first batch."""
        ...

    def write(self, batch: C_contra) -> float:
        """Make a batch durable, and call the fence; return the seconds it took without waiting for space.

        Raises:
            Exception: the batch may not be durable; the writer stops.
        """
        ...

    def rest(self) -> float | None:
        """Do the work due between two batches; return the seconds until the next call, or None."""
        ...

    def sync(self) -> None:
        """Make everything written so far durable."""
        ...

    def fence(self) -> None:
        """Check that everything written is still this master's.

        Raises:
            LockNotHeld: it is not.
        """
        ...

    def hurry(self) -> None:
        """Stop waiting for space. Called on the loop."""
        ...

    def interrupt(self) -> None:
        """Interrupt a running write if possible. Called on the loop."""
        ...

    def explain(self, error: Exception) -> Exception:
        """Return the error to report for one that was caught."""
        ...

    def close(self, *, in_order: bool) -> None:
        """Close; not in order leaves everything as it is."""
        ...


class InlineSink(Protocol[C_contra]):
    """A sink whose short batches the loop may write itself."""

    def may_write_inline(self, batch: C_contra) -> bool:
        """Return True if only the write itself would take time."""
        ...

    def write_inline(self, batch: C_contra) -> float | None:
        """Write as `Sink.write` does; None if there is no space: nothing was written, and the thread has to wait."""
        ...


class Replica(Protocol[C_contra]):
    """A second receiver of each batch, which confirms it too. Called on the loop; in `write_now` by its caller.

    Replication implements it: it sends a batch while this disk writes it, without waiting for the previous one.
    """

    def take(self, number: int, batch: C_contra) -> None:
        """Accept a batch; batches are numbered from 1 without gaps."""
        ...

    def when_confirmed(self, number: int, callback: Callback) -> None:
        """The sink has a batch: call back, on the loop, once everything up to it is confirmed; at once when it is."""
        ...
