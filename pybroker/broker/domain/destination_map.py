"""Values by pattern and by name: finds those that cover a name, or are covered by a pattern, without comparing each.

Both maps are trees, with one level of a name in each node:

```text
patterns  A.*.C -> 1   A.> -> 2   A.B.C -> 3           root -- A (open: 2) -- * -- C (exact: 1)
                                                                           -- B -- C (exact: 3)
```

A final `>` is no level but marks the node before it, whose values cover everything from there on. A look-up follows the
levels of its name, and `*`. Results are in the order in which the values were added, as subscribers have turns in the
order of their subscriptions. `matches` in `domain.destination` defines what a pattern covers.
"""

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from pybroker.broker.domain.destination import Destination, DestinationType, pattern_levels

ValueT = TypeVar("ValueT")


class PatternMap(Generic[ValueT]):
    """Values by destination or pattern: a name's values are those of all patterns that cover it.

    A pattern may have several values, and a value several patterns. Values are hashable, and compared by `==`.
    """

    __slots__ = ("_roots", "_sequence")

    def __init__(self) -> None:
        self._roots: dict[DestinationType, _PatternNode[ValueT]] = {}
        self._sequence = 0

    def add(self, pattern: Destination, value: ValueT) -> None:
        """Add a value behind all others; do nothing if the pattern has it."""
        node = self._roots.get(pattern.type)
        if node is None:
            node = self._roots[pattern.type] = _PatternNode()
        names, is_open = pattern_levels(pattern.name)
        for name in names:
            child = node.children.get(name)
            if child is None:
                child = node.children[name] = _PatternNode()
            node = child
        values = node.open if is_open else node.exact
        if value not in values:
            self._sequence += 1
            values[value] = self._sequence

    def remove(self, pattern: Destination, value: ValueT) -> None:
        """Remove a value; do nothing if the pattern does not have it."""
        node = self._roots.get(pattern.type)
        names, is_open = pattern_levels(pattern.name)
        path: list[tuple[_PatternNode[ValueT], str]] = []
        for name in names:
            if node is None:
                return
            path.append((node, name))
            node = node.children.get(name)
        if node is None:
            return
        (node.open if is_open else node.exact).pop(value, None)
        for parent, name in reversed(path):
            child = parent.children[name]
            if child.children or child.exact or child.open:
                break
            del parent.children[name]

    def covering(self, destination: Destination) -> list[ValueT]:
        """Return the values of a destination, and of all patterns that cover its name, each once."""
        found: dict[ValueT, int] = {}
        for values in self._covering(destination):
            _collect(values, found)
        return list(found) if len(found) < 2 else sorted(found, key=found.__getitem__)

    def covering_pattern(self, pattern: Destination) -> list[ValueT]:
        """Return the values of all patterns that cover all names which this one covers, see `covers`, each once."""
        names, is_open = pattern_levels(pattern.name)
        found: dict[ValueT, int] = {}
        for values in self._covering_levels(pattern.type, names, is_open=is_open):
            _collect(values, found)
        return list(found) if len(found) < 2 else sorted(found, key=found.__getitem__)

    def count(self, destination: Destination) -> int:
        """Return the number of values of a destination, where one of several patterns counts for each of them."""
        return sum([len(values) for values in self._covering(destination)])

    def covers(self, destination: Destination) -> bool:
        """Return True if a destination, or a pattern that covers its name, has a value."""
        return any(self._covering(destination))

    def overlapping(self, pattern: Destination) -> Iterator[ValueT]:
        """Yield the values of the patterns that cover a name which this one covers too; a value may come repeatedly."""
        root = self._roots.get(pattern.type)
        if root is None:
            return
        names, is_open = pattern_levels(pattern.name)
        found = [(root, 0)]
        while found:
            node, depth = found.pop()
            yield from node.open
            if depth == len(names):
                yield from node.exact
                if is_open:
                    found.extend([(child, depth) for child in node.children.values()])
            elif names[depth] == "*":
                found.extend([(child, depth + 1) for child in node.children.values()])
            else:
                for name in (names[depth], "*"):
                    child = node.children.get(name)
                    if child is not None:
                        found.append((child, depth + 1))

    def _covering(self, destination: Destination) -> Iterator[dict[ValueT, int]]:
        """Yield the values of the patterns that cover a name, with their numbers; some have none."""
        return self._covering_levels(destination.type, destination.name.split("."), is_open=False)

    def _covering_levels(
        self, kind: DestinationType, names: Sequence[str], *, is_open: bool
    ) -> Iterator[dict[ValueT, int]]:
        root = self._roots.get(kind)
        if root is None:
            return
        nodes = [root]
        for name in names:
            following: list[_PatternNode[ValueT]] = []
            for node in nodes:
                yield node.open
                child = node.children.get(name)
                if child is not None:
                    following.append(child)
                if name != "*":
                    child = node.children.get("*")
                    if child is not None:
                        following.append(child)
            nodes = following
        for node in nodes:
            yield node.open
            if not is_open:
                yield node.exact


class NameMap(Generic[ValueT]):
    """Values by the names of destinations: a pattern's values are those of all names that it covers."""

    __slots__ = ("_roots", "_sequence")

    def __init__(self) -> None:
        self._roots: dict[DestinationType, _NameNode[ValueT]] = {}
        self._sequence = 0

    def add(self, destination: Destination, value: ValueT) -> None:
        """Set the value of a destination, which has none yet, behind all others."""
        node = self._roots.get(destination.type)
        if node is None:
            node = self._roots[destination.type] = _NameNode()
        for name in destination.name.split("."):
            if node.children is None:
                node.children = {}
            child = node.children.get(name)
            if child is None:
                child = node.children[name] = _NameNode()
            node = child
        self._sequence += 1
        node.number = self._sequence
        node.value = value

    def remove(self, destination: Destination) -> None:
        """Remove the value of a destination; do nothing if it has none."""
        node = self._roots.get(destination.type)
        path: list[tuple[_NameNode[ValueT], str]] = []
        for name in destination.name.split("."):
            if node is None or node.children is None:
                return
            path.append((node, name))
            node = node.children.get(name)
        if node is None:
            return
        node.value = None
        for parent, name in reversed(path):
            assert parent.children is not None, "it has the child that was just visited"
            child = parent.children[name]
            if child.children or child.value is not None:
                break
            del parent.children[name]

    def covered_by(self, pattern: Destination) -> list[ValueT]:
        """Return the values of all names that a pattern covers; of a destination that is no pattern, its own."""
        root = self._roots.get(pattern.type)
        if root is None:
            return []
        names, is_open = pattern_levels(pattern.name)
        nodes = [root]
        for name in names:
            following: list[_NameNode[ValueT]] = []
            for node in nodes:
                if node.children is None:
                    continue
                if name == "*":
                    following.extend(node.children.values())
                else:
                    child = node.children.get(name)
                    if child is not None:
                        following.append(child)
            nodes = following
        found: list[tuple[int, ValueT]] = []
        while nodes:
            node = nodes.pop()
            if node.value is not None:
                found.append((node.number, node.value))
            if is_open and node.children is not None:
                nodes.extend(node.children.values())
        found.sort(key=_number)
        return [value for _, value in found]


class _PatternNode(Generic[ValueT]):
    """A level of patterns: the patterns that end here, and those that continue; a value has its number."""

    __slots__ = ("children", "exact", "open")

    def __init__(self) -> None:
        self.children: dict[str, _PatternNode[ValueT]] = {}
        self.exact: dict[ValueT, int] = {}
        self.open: dict[ValueT, int] = {}


class _NameNode(Generic[ValueT]):
    """A level of names: the value of the name that ends here, and the names that continue."""

    __slots__ = ("children", "number", "value")

    def __init__(self) -> None:
        self.children: dict[str, _NameNode[ValueT]] | None = None
        self.value: ValueT | None = None
        self.number = 0


def _collect(values: dict[ValueT, int], found: dict[ValueT, int]) -> None:
    """Add values to those found; one that was found before keeps its lowest number."""
    for value, number in values.items():
        found[value] = min(number, found.get(value, number))


def _number(found: "tuple[int, object]") -> int:
    return found[0]
