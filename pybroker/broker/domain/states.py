"""State machines as tables: the state that each event leads to, and the diagram of it for the documents."""

import enum
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar


class Named(enum.Enum):
    """A state or an event of a machine. Found in its table by what it is: to hash a name takes a call."""

    __hash__ = object.__hash__


S = TypeVar("S", bound=Named)
E = TypeVar("E", bound=Named)


class ImpossibleEvent(AssertionError):
    """An event that cannot happen in the state it happened in: a mistake in the broker, never of a peer."""


class Transitions(Generic[S, E]):
    """The transitions of one state machine, which begins in the first of its states."""

    def __init__(self, table: Mapping[tuple[S, E], S]) -> None:
        """Take the whole table: a pair that is not in it cannot happen."""
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
        """Yield the lines of a Mermaid diagram, and of a list of what the states and events mean."""
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
