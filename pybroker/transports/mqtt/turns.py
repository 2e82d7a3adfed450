"""Carries out what one packet asks for many times over several turns of the event loop, so that others are served.

A SUBSCRIBE has up to a thousand topic filters, and a session ten times as many: two seconds for a session that is
continued. The core does what takes a connection longer in pieces (`ConnectionPort.work_off`); a pause is such work that
does nothing.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from pybroker.broker.domain.errors import BrokerError
from pybroker.broker.domain.ports import ConnectionPort

PIECE: Final = 32
"""Subscriptions that begin or end in one turn: about five milliseconds."""

_PAUSE_COST: Final = 1 << 30
"""The cost of a step that no other follows in the same turn."""


def in_turns(
    connection: ConnectionPort,
    acts: Iterator[Callable[[], None]],
    done: Callable[[], None],
    give_up: Callable[[BrokerError], None],
) -> None:
    """Carry out acts, some in each turn; call back after the last one. Without an event loop, all is done at once.

    What one act has begun in the core is complete before the next one.

    Args:
        connection: whose turns they are. If it closes meanwhile, the acts are carried out all the same.
        acts: what is to be done.
        done: called then.
        give_up: called with the error of an act in a later turn than the first; the others are not carried out.

    Raises:
        BrokerError: raised by an act in the first turn.
    """
    for count, act in enumerate(acts, 1):
        act()
        if count == PIECE:
            connection.work_off(iter((_PAUSE_COST,)))
        pause = _Pause()
        connection.when_carried_out(pause.end)
        if not pause.is_over:
            pause.then = partial(_continue, connection, acts, done, give_up)
            return
    done()


def _continue(
    connection: ConnectionPort,
    acts: Iterator[Callable[[], None]],
    done: Callable[[], None],
    give_up: Callable[[BrokerError], None],
) -> None:
    try:
        in_turns(connection, acts, done, give_up)
    except BrokerError as error:
        give_up(error)


class Countdown:
    """A callback for several events, which calls another one at the last of them."""

    __slots__ = ("_left", "_then")

    def __init__(self, count: int, then: Callable[[], None]) -> None:
        """Begin.

        Args:
            count: the number of events, at least one.
            then: called at the last one.
        """
        self._left = count
        self._then = then

    def __call__(self) -> None:
        """Count an event."""
        self._left -= 1
        if not self._left:
            self._then()


class _Pause:
    """The end of a turn.

    Attributes:
        is_over: True in the next turn.
        then: called at its begin.
    """

    def __init__(self) -> None:
        self.is_over = False
        self.then: Callable[[], None] | None = None

    def end(self) -> None:
        self.is_over = True
        if self.then is not None:
            self.then()
