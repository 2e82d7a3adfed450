# mypy: disable-error-code="misc, method-assign"
"""A search's table: every state with every event, and the moves of queues that live through a long history."""

import random
from collections import Counter
from typing import ClassVar
from unittest import mock

import pytest

from pybroker.broker.core import queue as queue_module
from pybroker.broker.core.consumer import BrokerConsumer
from pybroker.broker.core.queue import Queue
from pybroker.broker.core.reference import Reference
from pybroker.broker.core.search import TRANSITIONS, Search, SearchEvent
from pybroker.broker.domain.states import ImpossibleEvent
from tests.compiled import interpreted
from tests.matrices import pairs
from tests.unit.core import backlogs, test_paging
from tests.unit.core.test_paging import SIZE, Failing, PagedWorld, _compare, _thrown

PAIRS = list(
    pairs(
        """
                ASK          ASK_FOR_ANY  FINISH     STOP        YIELD     TURN
    IDLE        SEARCHING    IDLE         -          UNFINISHED  IN_TURNS  IDLE
    IN_TURNS    PAUSED       IN_TURNS     -          -           IN_TURNS  IDLE
    SEARCHING   ASKED_AGAIN  ASKED_AGAIN  IDLE       UNFINISHED  -         -
    ASKED_AGAIN ASKED_AGAIN  ASKED_AGAIN  SEARCHING  UNFINISHED  -         -
    PAUSED      PAUSED       IN_TURNS     -          -           PAUSED    UNFINISHED
    UNFINISHED  SEARCHING    IDLE         IDLE       -           PAUSED    UNFINISHED
    """,
        Search,
        SearchEvent,
    )
)

ARROWS = {(state, after) for state, _, after in PAIRS if after not in (None, state)}


@pytest.mark.parametrize(("state", "event", "after"), PAIRS)
def test_table_has_every_pair(state: Search, event: SearchEvent, after: Search | None) -> None:
    if after is None:
        with pytest.raises(ImpossibleEvent, match=f"{event.name} cannot happen while {state.name}"):
            TRANSITIONS.after(state, event)
    else:
        assert TRANSITIONS.after(state, event) is after


# ---------------------------------------------------------------- in a queue


class Watched(Queue):
    """A queue that records each move, and is searched again from within every third delivery of a search."""

    __slots__ = ("_at",)

    moves: ClassVar[Counter[tuple[Search, Search]]] = Counter()

    @property
    def _progress(self) -> Search:
        return self._at

    @_progress.setter
    def _progress(self, state: Search) -> None:
        before = getattr(self, "_at", state)
        self._at = state
        if before is not state:
            self.moves[before, state] += 1

    def _deliver(self, reference: Reference, consumer: BrokerConsumer) -> None:
        super()._deliver(reference, consumer)
        if self._at is Search.SEARCHING and reference.sequence % 3 == 0:
            self.dispatch(consumer)


@interpreted
def test_queues_make_every_move_of_the_table_and_no_other() -> None:
    Watched.moves.clear()
    with (
        mock.patch.object(backlogs, "Queue", Watched),
        mock.patch.object(test_paging, "Queue", Watched),
        mock.patch.object(queue_module, "PAGE_BYTES_MAX", SIZE // 2),
    ):
        for seed in range(12):
            dice = random.Random(seed)
            steps = [_thrown(dice) for _ in range(300)]
            _compare(steps, prioritized=seed & 1, grouped=seed % 3 == 0, has_loop=True, exact_max=10, piece_max=500)
        away = PagedWorld()
        away.store = away.disk = Failing()
        away.restart(crash=True)
        away.put(*map(str, range(20)))
        away.disk.is_away = True
        away.consume(prefetch=10)
    assert Watched.moves.keys() == ARROWS
