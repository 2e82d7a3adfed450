"""One operation of an operator, carried out in pieces between which the broker serves its clients.

```text
begin -> later turn -> piece -> later turn -> piece -> … -> last piece -> ended
                         `-> waits: for the journal, for a page, for memory -> piece
```

It is an iterator of steps. A step yields its cost in usual operations, as in `piecewise`, or a `Wait`, which calls back
once the operation can go on. Unlike the work of a client's command, which is always carried out to its end, an
operation may be ended early: then `is_ending` is True, and its steps must end before they change anything else. They
end what they have begun: a transaction is committed or rolled back.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from pybroker.broker.core.containment import contain
from pybroker.broker.core.paging import PIECE_MAX, PIECE_SECONDS, Paging
from pybroker.broker.core.piecewise import COST_PER_CLOCK
from pybroker.broker.domain.errors import BrokerError
from pybroker.broker.domain.operations import OperationInterrupted

Wait = Callable[[Callable[[], None]], None]
"""Calls back once, now or later, when an operation can go on."""

OperationSteps = Iterator[int | Wait]
"""The steps of an operation."""

STOPPING: Final = "The broker is stopping, or is no longer master: repeat the operation at the present master."


class SteppedOperation:
    """An operation under way; implements the port `RunningOperation`.

    Attributes:
        affected: messages that were counted, shown, removed, moved or copied.
        examined: messages that were looked at.
        skipped: messages that were selected and stay as they are.
        is_cancelled: True once `cancel` was called before its end.
        is_interrupted: True once the broker has ended it.
        is_change: True if it changes something, and so ends once that is on disk.
        is_decided: True if its steps are carried out to the end, whatever happens.
        is_done: True once the caller was called back.
    """

    def __init__(
        self,
        paging: Paging,
        *,
        pace: Wait,
        ended: Callable[["SteppedOperation", BrokerError | None], None],
    ) -> None:
        """Create an operation without steps; see `begin`.

        Args:
            paging: has the event loop and the clock.
            pace: calls back once the store is not behind.
            ended: called once after the last step, with the error that has ended it.
        """
        self.affected = 0
        self.examined = 0
        self.skipped = 0
        self.is_cancelled = False
        self.is_interrupted = False
        self.is_change = False
        self.is_decided = False
        self.is_done = False
        self._paging = paging
        self._pace = pace
        self._ended = ended
        self._steps: OperationSteps | None = None
        self._is_running = False
        self._wait_count = 0
        """The number of the present wait; callbacks of earlier ones are ignored."""
        self._is_waiting = False

    @property
    def is_ending(self) -> bool:
        """True if no further message may be touched."""
        return self.is_cancelled or self.is_interrupted

    def begin(self, steps: OperationSteps, *, at_once: bool = False) -> None:
        """Carry out these steps in later turns; the first piece in this one if it is to be done at once."""
        self._steps = steps
        if at_once:
            self._proceed()
        else:
            self._wait_for(self._later)

    def cancel(self) -> None:
        """End the operation before its next message."""
        if self._steps is not None:
            self.is_cancelled = True
            if self._is_waiting:
                self._wait_for(self._later)

    def interrupt(self) -> None:
        """End the operation now, as the broker stops; what it has begun is carried out."""
        self.is_interrupted = True
        while self._steps is not None and not self._is_running:
            self._is_waiting = False
            self._piece(is_bounded=False)

    def drop(self) -> None:
        """End the operation now without another step: nothing may be changed any more."""
        self.is_interrupted = True
        if self._steps is not None:
            self._end(None)

    # ------------------------------------------------------------ private

    def _proceed(self) -> None:
        self._is_waiting = False
        if self._steps is not None and not self._is_running:
            self._piece(is_bounded=self._paging.later is not None)

    def _piece(self, *, is_bounded: bool) -> None:
        """Carry out a piece, or if it is not bounded all steps up to the next wait."""
        steps = self._steps
        assert steps is not None, "an operation that has ended has no piece"
        monotonic = self._paging.monotonic
        spent, read_at, ends_at = 0, COST_PER_CLOCK, monotonic() + PIECE_SECONDS
        self._is_running = True
        try:
            for step in steps:
                if self._steps is None:  # dropped within the step
                    return
                if not isinstance(step, int):
                    self._is_running = False
                    self._wait_for(step)
                    return
                spent += step
                if is_bounded and spent >= read_at:
                    read_at = spent + COST_PER_CLOCK
                    if spent >= PIECE_MAX or monotonic() >= ends_at:
                        self._is_running = False
                        self._wait_for(self._next_turn)
                        return
        except BrokerError as error:
            self._end(error)
            return
        except Exception as error:
            self._end(OperationInterrupted(f"The operation has failed, see the broker's log: {error!r}"))
            contain(error, "carrying out an operation")
            return
        finally:
            self._is_running = False
        if self._steps is not None:
            self._end(None)

    def _next_turn(self, callback: Callable[[], None]) -> None:
        """Call back in a later turn, and once the store has written what it has."""
        self._pace(partial(self._later, callback))

    def _later(self, callback: Callable[[], None]) -> None:
        if not self._paging.defer(callback):
            callback()

    def _wait_for(self, wait: Wait) -> None:
        self._is_waiting = True
        self._wait_count += 1
        wait(partial(self._go_on, self._wait_count))

    def _go_on(self, number: int) -> None:
        if number == self._wait_count and self._is_waiting:
            self._proceed()

    def _end(self, error: BrokerError | None) -> None:
        self._steps = None
        self._is_waiting = False
        self._ended(self, error)
