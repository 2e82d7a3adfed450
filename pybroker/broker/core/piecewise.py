"""Work that one command multiplies, done in pieces: a long commit, many copies of a message, many acknowledgements.

```text
command -> first piece | other connections | piece | other connections | … | last piece -> when_done
           `-- the input of its connection is held, so that its later commands keep their order --'
```

The work is an iterator of steps. Each step yields its cost in usual operations; a piece ends after `PIECE_MAX` of them,
or `PIECE_SECONDS`. While more is unwritten than the store's limit, the next piece waits until the journal has it, so
that the records of all pieces together do not take more memory than the limit. While memory is full, it waits for what
is on its way to the spool.

Once begun, work is carried out to its end, also if its connection closes: steps that depend on the connection check it
themselves. A crash between two pieces leaves the first ones in the journal. So work that must take effect as a whole
appends its steps in a transaction, or has appended the record that decides it before the first step.

Without an event loop all of it is done at once.
"""

from abc import ABCMeta, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from pybroker.broker.core.containment import contain
from pybroker.broker.core.paging import PIECE_MAX, PIECE_SECONDS, Paging
from pybroker.broker.domain.openwire.portions import PORTION_BYTES

COST_PER_CLOCK: Final = 16
"""The cost after which the clock is read again."""

COPY_COST: Final = 10
"""A copy of a message, or a dead letter, takes as long as so many usual operations."""

STEP_BYTES: Final = 4096
"""The bytes of messages that cost as much as one usual operation."""

PORTION_COST: Final = PORTION_BYTES // STEP_BYTES
"""The cost of a step in which a large copy is made."""

Steps = Iterator[int]
"""Steps that are carried out when they are taken; each is the cost of what was done."""


def copy_cost(size: int) -> int:
    """Return the cost of making and sending a copy of a message of that many bytes."""
    return COPY_COST + size // STEP_BYTES


def carry_out(steps: Steps) -> None:
    """Carry out all steps at once."""
    for _ in steps:
        pass


def contained(steps: Steps, doing: str) -> Steps:
    """Return steps that end at the first one that fails: what follows them is carried out all the same.

    Args:
        steps: the steps.
        doing: for the log, such as `closing a connection`.
    """
    try:
        yield from steps
    except Exception as error:
        contain(error, doing)


class PiecewiseWork:
    """Work in progress.

    Attributes:
        is_done: True after the last step, or after one that failed.
        has_failed: True after a step that failed.
    """

    __slots__ = (
        "_callbacks",
        "_is_behind",
        "_is_running",
        "_paging",
        "_steps",
        "_when_caught_up",
        "has_failed",
        "is_done",
    )

    def __init__(
        self,
        steps: Steps,
        paging: Paging,
        *,
        is_behind: Callable[[], bool],
        when_caught_up: Callable[[Callable[[], None]], None],
    ) -> None:
        """Begin with no step carried out.

        Args:
            steps: the steps.
            paging: has the event loop and the clock.
            is_behind: returns True if more is unwritten than the limit.
            when_caught_up: calls back once that may have changed.
        """
        self._steps = steps
        self._paging = paging
        self._is_behind = is_behind
        self._when_caught_up = when_caught_up
        self._callbacks: list[Callable[[], object]] = []
        self._is_running = False
        self.has_failed = False
        self.is_done = False

    def proceed(self) -> None:
        """Carry out a piece, and continue in a later turn if more is left; do nothing if the work is done.

        Raises:
            Exception: raised by a step; the others are not carried out.
        """
        if self.is_done:
            return
        if self._paging.later is None:
            carry_out(self._steps)
            self._finish()
            return
        try:
            is_over = self._piece()
        except BaseException:
            self.has_failed = True
            self._finish()
            raise
        if is_over:
            self._wait()
        else:
            self._finish()

    def _piece(self) -> bool:
        """Carry out a piece; return True if its end was the reason to stop."""
        monotonic = self._paging.monotonic
        spent, read_at, ends_at = 0, COST_PER_CLOCK, monotonic() + PIECE_SECONDS
        self._is_running = True
        try:
            for step in self._steps:
                spent += step
                if spent >= read_at:
                    read_at = spent + COST_PER_CLOCK
                    if spent >= PIECE_MAX or monotonic() >= ends_at:
                        return True
        finally:
            self._is_running = False
        return False

    def finish(self) -> None:
        """Carry out the rest at once, as there will be no later turn."""
        if not self.is_done:
            carry_out(self._steps)
            self._finish()

    def rest(self) -> Steps:
        """Return the steps that are left, as a part of other work; this work is done with the last of them.

        There are none within a step of this work.
        """
        if not self.is_done and not self._is_running:
            yield from self._steps
            self._finish()

    def drop(self) -> None:
        """Carry out no further step, and make no callback: nothing may be changed any more."""
        self.is_done = True
        self._callbacks.clear()

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call back after the last step, in the order of the calls; at once if that was carried out."""
        if self.is_done:
            callback()
        else:
            self._callbacks.append(callback)

    def _wait(self) -> None:
        """Continue in a later turn, or once the journal has written what it has."""
        if self._is_behind():
            self._when_caught_up(self._continue_later)
        else:
            self._continue_later()

    def _continue_later(self) -> None:
        self._paging.defer(self.proceed)

    def _finish(self) -> None:
        self.is_done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class PiecewiseWorker(metaclass=ABCMeta):
    """Carries out work in pieces; what comes later from the same origin waits for it."""

    @abstractmethod
    def work_off(self, steps: Steps) -> None:
        """Carry out work in pieces.

        Raises:
            Exception: raised by a step of the first piece; the others are not carried out.
        """


class WorkQueue(PiecewiseWorker):
    """The work that the broker itself begins: one after the other, so that it keeps its order."""

    def __init__(self, begin: Callable[[Steps], PiecewiseWork]) -> None:
        """Begin without work; `begin` carries out the first piece of some."""
        self._begin = begin
        self._waiting: deque[Steps] = deque()
        self._work: PiecewiseWork | None = None
        self._is_beginning = False
        """True during a first piece, whose error is raised to the caller."""

    @property
    def is_busy(self) -> bool:
        """True while work is under way."""
        return self._work is not None and not self._work.is_done

    def work_off(self, steps: Steps) -> None:
        """Carry out work in pieces, after the work under way."""
        self._waiting.append(steps)
        if not self.is_busy:
            self._is_beginning = True
            try:
                self._work = self._begin(self._steps())
            finally:
                self._is_beginning = False

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call back once all work so far is done; at once if there is none."""
        if self._work is None:
            callback()
        else:
            self._work.when_done(callback)

    def _steps(self) -> Steps:
        while self._waiting:
            try:
                yield from self._waiting.popleft()
            except Exception as error:  # the others do not wait for the next work that comes
                if self._is_beginning:
                    raise
                contain(error, "carrying out work of the broker")
