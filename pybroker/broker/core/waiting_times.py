"""How long the messages of a backlog wait for a consumer: the times of those that were delivered, and the oldest's age.

A message has no time of its own, as there may be millions of them. Instead the backlog marks the time of the turn of
the event loop (`Effort.turn_at`) at which a sequence number began to wait, once in each turn. Of more than `MARKS_MAX`
marks every second one is dropped. A message then counts as one that began to wait with the mark before it: its time is
too long by as much as lies between two marks.

A message that is delivered in the turn in which it comes has not waited.

Source: ActiveMQ 5.17, `TimeStatisticImpl`: the shortest time is that of messages that have waited.
"""

from bisect import bisect_right
from typing import Final

from pybroker.broker.domain.effort import EFFORT

MARKS_MAX: Final = 256

_NO_SEQUENCES: Final[list[int]] = []
_NO_TIMES: Final[list[float]] = []
"""Shared by all backlogs without marks, of which there may be very many."""


class WaitingTimes:
    """The waiting times of one backlog, in seconds.

    Attributes:
        total: the sum of the times of the messages that were delivered.
        longest: the longest of them.
        shortest: the shortest of them that is not 0; 0 if there is none.
    """

    __slots__ = ("_sequences", "_times", "longest", "shortest", "total")

    def __init__(self) -> None:
        self.total = 0.0
        self.longest = 0.0
        self.shortest = 0.0
        self._sequences = _NO_SEQUENCES
        self._times = _NO_TIMES

    def begin(self, sequence: int, *, is_first: bool) -> None:
        """Mark that a message waits, whose sequence number is higher than all that were marked.

        Args:
            sequence: its sequence number.
            is_first: True if no other message waits.
        """
        times, now = self._times, EFFORT.turn_at
        if is_first and len(times) == 1:  # usual where consumers keep up
            times[0] = now
            self._sequences[0] = sequence
        elif is_first or not times:
            self._times, self._sequences = [now], [sequence]
        elif times[-1] != now:
            times.append(now)
            self._sequences.append(sequence)
            if len(times) > MARKS_MAX:
                self._times = times[::2]
                self._sequences = self._sequences[::2]

    def begin_again(self, sequence: int, *, is_first: bool) -> None:
        """Mark that messages wait again, with this sequence number or higher ones.

        Their time begins again, unless they had come before others that have waited since.
        """
        if is_first or not self._sequences or sequence > self._sequences[-1]:
            self.begin(sequence, is_first=is_first)

    def end(self, sequence: int) -> None:
        """Count the time of a message that is delivered."""
        sequences = self._sequences
        if not sequences:
            return
        if sequence >= sequences[-1]:
            place = -1
        elif (place := bisect_right(sequences, sequence) - 1) < 0:
            return  # an earlier master's
        seconds = EFFORT.turn_at - self._times[place]
        if seconds > 0.0:
            self.total += seconds
            if seconds > self.longest:
                self.longest = seconds
            if seconds < self.shortest or not self.shortest:
                self.shortest = seconds

    def begun_at(self, sequence: int, now: float) -> float:
        """Return when a waiting message began to wait; of one that came back before the first mark, that mark's time.

        It is `now` if nothing was marked.
        """
        if not self._times:
            return now
        return self._times[max(0, bisect_right(self._sequences, sequence) - 1)]
