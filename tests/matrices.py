"""Transition tables as tests write them: a line per state, a column per event, `-` where an event cannot happen."""

import enum
from collections.abc import Iterator
from typing import TypeVar

S = TypeVar("S", bound=enum.Enum)
E = TypeVar("E", bound=enum.Enum)


def pairs(matrix: str, states: type[S], events: type[E]) -> Iterator[tuple[S, E, S | None]]:
    """Yield every state with every event and the state after it; None: it cannot happen. All of both must be there."""
    head, *lines = [line.split() for line in matrix.strip().splitlines()]
    assert [events[name] for name in head] == list(events)
    assert [states[line[0]] for line in lines] == list(states)
    for name, *cells in lines:
        for event, cell in zip(events, cells, strict=True):
            yield states[name], event, None if cell == "-" else states[cell]
