"""The waiting messages of a queue that an operation of an operator is about, found in pieces.

A condition needs their bodies, which are read; without one, ids and positions are enough, which memory holds of every
message. Messages that have expired and are found by a condition are left to the queue, which expires them.
"""

from collections.abc import Callable, Sequence
from typing import Final

from pybroker.broker.core.backlog_walk import BacklogWalk, Waiting, has_id, id_of
from pybroker.broker.core.matcher import Matcher, matcher
from pybroker.broker.core.operation import OperationSteps, SteppedOperation, Wait
from pybroker.broker.core.paging import CLOCK_MASK, PIECE_SECONDS
from pybroker.broker.core.queue import Queue
from pybroker.broker.core.reference import Reference
from pybroker.broker.domain.errors import NotReadYet
from pybroker.broker.domain.operations import MessageSelection

_READ_COST: Final = 4
"""Reading a message takes as long as so many usual operations."""

Act = Callable[[Sequence[Waiting]], OperationSteps]
"""Acts on selected messages, which wait at its first step."""


class SelectedMessages:
    """The selected messages of one queue.

    Attributes:
        walk: the walk through the queue. An action that could not do all sets its position back.
    """

    def __init__(
        self, operation: SteppedOperation, queue: Queue, selection: MessageSelection, *, reads_all: bool = False
    ) -> None:
        """Begin with the oldest message.

        Args:
            operation: the operation of which it is the work.
            queue: the queue.
            selection: which messages.
            reads_all: True if all that are found will be read: many at a time are read in less time.

        Raises:
            InvalidSelector: the selector cannot be parsed.
        """
        self.walk = BacklogWalk(queue)
        self._operation = operation
        self._queue = queue
        self._matches: Matcher | None = matcher(selection.selector)
        self._ids = selection.message_ids
        self._reads_all = reads_all and self._ids is None
        limits = [
            each for each in (selection.maximum, None if self._ids is None else len(self._ids)) if each is not None
        ]
        self._maximum = min(limits, default=None)

    def steps(self, act: Act) -> OperationSteps:
        """Return the steps that look for messages, and act on those that are found."""
        operation, walk = self._operation, self.walk
        while not operation.is_ending and not walk.is_over and self._left != 0:
            try:
                found, cost = self._next()
            except NotReadYet:
                yield self.when_readable
                continue
            if (left := self._left) is not None and len(found) > left:
                found = found[:left]
                walk.position = found[-1].sequence  # the action may leave some, and then others are wanted
            if found:
                yield from act(found)
            yield cost

    @property
    def when_readable(self) -> Wait:
        """Calls back once the store may be readable."""
        return self._wait_until_readable

    def _wait_until_readable(self, callback: Callable[[], None]) -> None:
        self._queue.paging.waiting[callback] = None

    def load(self, found: Sequence[Waiting]) -> list[Reference]:
        """Return selected messages with their bodies, but for those that the store has lost.

        Raises:
            StoreUnavailable: they cannot be read now.
        """
        loaded: list[Reference] = []
        for each in found:
            if isinstance(each, Reference):
                loaded.append(each)
            elif (reference := self.walk.load(each)) is not None:
                loaded.append(reference)
        return loaded

    @property
    def _left(self) -> int | None:
        """The number of messages that may still be selected; None: any."""
        return None if self._maximum is None else max(0, self._maximum - self._operation.affected)

    def _next(self) -> tuple[Sequence[Waiting], int]:
        """Return the next messages that are selected, and the cost of finding them."""
        if self._matches is not None:
            return self._matching(self._matches)
        before, ids = self.walk.position, self._ids
        passed: Sequence[Waiting] = self.walk.read() if self._reads_all else self.walk.unread()
        if ids is not None and not all(map(has_id, passed)):
            self.walk.position = before
            passed = self.walk.read()
        self._operation.examined += len(passed)
        return passed if ids is None else [each for each in passed if id_of(each) in ids], len(passed)

    def _matching(self, matches: Matcher) -> tuple[Sequence[Waiting], int]:
        """Return those of the next messages that match, as many as there is time for."""
        queue, walk, ids = self._queue, self.walk, self._ids
        monotonic = queue.paging.monotonic
        found: list[Reference] = []
        references, ends_at = walk.read(), monotonic() + PIECE_SECONDS
        count = 0
        for reference in references:
            count += 1
            message = reference.message
            if (
                (ids is None or message.message_id in ids)
                and not queue.is_expired(message)
                and matches(message, reference.redelivery_count)
            ):
                found.append(reference)
            if not count & CLOCK_MASK and count < len(references) and monotonic() >= ends_at:
                walk.position = reference.sequence
                break
        self._operation.examined += count
        return found, _READ_COST * count
