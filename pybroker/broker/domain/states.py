"""State machines as tables of transitions, and their diagrams for the documents."""

import enum
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from pybroker.errors import PybrokerError


class IdentityEnum(enum.Enum):
    """Base class of states and events. It is hashed by identity, which is faster than the hash of an enum's name."""

    __hash__ = object.__hash__


S = TypeVar("S", bound=IdentityEnum)
E = TypeVar("E", bound=IdentityEnum)


class ImpossibleEvent(PybrokerError, AssertionError):
    """An event in a state in which it cannot occur: an error in the broker's code, never caused by a peer."""


class Transitions(Generic[S, E]):
    """The transitions of one state machine, whose initial state is the first member of its enum."""

    def __init__(self, table: Mapping[tuple[S, E], S]) -> None:
        """Create the machine from its whole table; a pair of state and event that is missing cannot occur."""
        self._table = dict(table)

    def after(self, state: S, event: E) -> S:
        """Return the state that an event leads to.

        Raises:
            ImpossibleEvent: the table has no such transition.
        """
        after = self._table.get((state, event))
        if after is None:
            raise ImpossibleEvent(f"{event.name} cannot happen while {state.name} ({state.value})")
        return after

    def drawn(self) -> Iterator[str]:
        """Yield the lines of a Mermaid diagram, and of tables that describe the states and events."""
        states = list(type(next(iter(self._table))[0]))
        events = list(type(next(iter(self._table))[1]))
        yield "```mermaid"
        yield "stateDiagram-v2"
        yield f"    [*] --> {states[0].name}"
        for state in states:
            arrows: dict[S, list[str]] = {}
            for event in events:
                if (after := self._table.get((state, event))) is not None:
                    arrows.setdefault(after, []).append(event.name)
            for after, names in arrows.items():
                yield f"    {state.name} --> {after.name}: {', '.join(names)}"
            if not arrows.keys() - {state}:
                yield f"    {state.name} --> [*]"
        yield "```"
        for heading, members in (("state", states), ("event", events)):
            yield ""
            yield f"| {heading} | |"
            yield "|---|---|"
            yield from (f"| `{member.name}` | {member.value} |" for member in members)
