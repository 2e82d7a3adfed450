r"""Regular expressions for names of destinations, in time that is proportional to the name.

Python's expressions, and Java's, try one way after the other: `(a+)+b` takes years for a name of a hundred times `a`,
and names are made by clients. These keep all ways at once. So they have only what that allows, which is all that
expressions for names use:

```text
a  \.  .  [a-z_]  [^.]  \d \w \s and \D \W \S     one character
xy  x|y  (x)  (?:x)                                 sequence, choice, group
x*  x+  x?  x{2}  x{2,}  x{2,4}, and with a ?       repetition
^ at the begin, $ at the end                        without effect: the whole name must match
```

They mean what they mean in Java. Anything else is refused.

Source: Ken Thompson, "Regular Expression Search Algorithm", 1968; Java's `Pattern`.
"""

import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

STATES_MAX: Final = 200
"""The states of one expression: so many characters, repeated ones as often as they are repeated at least."""

_LENGTH_MAX: Final = 500
_DEPTH_MAX: Final = 20

_LINE_ENDS: Final = frozenset("\n\r\u0085\u2028\u2029")
_CLASSES: Final = {
    "d": frozenset(string.digits),
    "w": frozenset(string.ascii_letters + string.digits + "_"),
    "s": frozenset(" \t\n\x0b\f\r"),
}
_SPECIAL: Final = frozenset("\\^$.|?*+()[]{}")
_NO_LIMIT: Final = -1


@dataclass(frozen=True, slots=True)
class _Set:
    """A set of characters: single ones and ranges, or all others."""

    characters: frozenset[str] = frozenset()
    ranges: tuple[tuple[str, str], ...] = ()
    is_negated: bool = False
    others: tuple["_Set", ...] = ()

    def has(self, character: str) -> bool:
        is_in = (
            character in self.characters
            or any([first <= character <= last for first, last in self.ranges])
            or any([each.has(character) for each in self.others])
        )
        return is_in is not self.is_negated


@dataclass(frozen=True, slots=True)
class _Sequence:
    parts: Sequence["_Node"]


@dataclass(frozen=True, slots=True)
class _Choice:
    branches: Sequence["_Node"]


@dataclass(frozen=True, slots=True)
class _Repeat:
    part: "_Node"
    least: int
    most: int


_Node = _Set | _Sequence | _Choice | _Repeat


@dataclass(slots=True)
class _State:
    """A state: reads a character of the set and goes to the next ones; without a set it is at them at once."""

    characters: _Set | None
    next: list[int]


class NamePattern:
    """One expression."""

    __slots__ = ("_built", "_end", "_start", "_states", "text")

    def __init__(self, text: str) -> None:
        """Read an expression.

        Raises:
            ValueError: it is wrong, too large, or has something that is not supported.
        """
        self.text = text
        self._states: list[_State] = []
        self._built = 0
        self._end = self._add(None)
        self._start = self._build(_NamePatternParser(text).parse(), self._end)

    def matches(self, name: str) -> bool:
        """Return True if the whole name matches."""
        states = self._states
        current = self._reached([self._start])
        for character in name:
            following: list[int] = []
            for index in current:
                state = states[index]
                if state.characters is not None and state.characters.has(character):
                    following += state.next
            if not following:
                return False
            current = self._reached(following)
        return self._end in current

    def _reached(self, indexes: list[int]) -> set[int]:
        """Return some states, and all that are reached from them without a character."""
        found: set[int] = set()
        while indexes:
            if (index := indexes.pop()) not in found:
                found.add(index)
                if self._states[index].characters is None:
                    indexes += self._states[index].next
        return found

    def _too_large(self) -> ValueError:
        return ValueError(f"{self.text!r} is too large: it has more than {STATES_MAX} states")

    def _add(self, characters: _Set | None, *following: int) -> int:
        if len(self._states) > STATES_MAX:
            raise self._too_large()
        self._states.append(_State(characters, [*following]))
        return len(self._states) - 1

    def _build(self, node: _Node, following: int) -> int:
        """Add the states of a part, from which the following one is reached; return the first one."""
        self._built += 1
        if self._built > 10 * STATES_MAX:  # parts that are repeated may have no states
            raise self._too_large()
        match node:
            case _Set():
                return self._add(node, following)
            case _Sequence(parts):
                for part in reversed(parts):
                    following = self._build(part, following)
                return following
            case _Choice(branches):
                return self._add(None, *[self._build(branch, following) for branch in branches])
            case _Repeat(part, least, most):
                return self._build_repeat(part, least, most, following)

    def _build_repeat(self, part: _Node, least: int, most: int, following: int) -> int:
        first = following
        if most == _NO_LIMIT:
            first = self._add(None, following)
            self._states[first].next.append(self._build(part, first))
        else:
            for _ in range(most - least):
                first = self._add(None, self._build(part, first), following)
        for _ in range(least):
            first = self._build(part, first)
        return first


class _NamePatternParser:
    """Reads an expression from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def parse(self) -> _Node:
        """Return the expression. Raises `ValueError` if it is wrong."""
        if len(self._text) > _LENGTH_MAX:
            raise ValueError(f"an expression has at most {_LENGTH_MAX} characters")
        self._skip("^")
        node = self._choice()
        self._skip("$")
        if self._at < len(self._text):
            raise self._error(f"unexpected {self._text[self._at]!r}")
        return node

    @property
    def _next(self) -> str:
        """The next character; empty at the end."""
        return self._text[self._at : self._at + 1]

    def _skip(self, expected: str) -> bool:
        if not self._text.startswith(expected, self._at):
            return False
        self._at += len(expected)
        return True

    def _take(self) -> str:
        if not (found := self._next):
            raise self._error("it ends too early")
        self._at += 1
        return found

    def _error(self, what: str) -> ValueError:
        return ValueError(f"{self._text!r} is no expression that is supported: {what} at character {self._at + 1}")

    def _choice(self) -> _Node:
        branches = [self._sequence()]
        while self._skip("|"):
            branches.append(self._sequence())
        return branches[0] if len(branches) == 1 else _Choice(branches)

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while (found := self._next) and found not in "|)" and self._text[self._at :] != "$":
            parts.append(self._repeated(self._one()))
        return parts[0] if len(parts) == 1 else _Sequence(parts)

    def _one(self) -> _Node:
        if self._skip("("):
            return self._group()
        if self._skip("["):
            return self._set()
        if self._skip("."):
            return _Set(_LINE_ENDS, is_negated=True)
        if self._skip("\\"):
            return self._escaped()
        if self._next in _SPECIAL:
            raise self._error(f"unexpected {self._next!r}")
        return _Set(frozenset(self._take()))

    def _group(self) -> _Node:
        if not self._skip("?:") and self._next == "?":
            raise self._error("no group but (…) and (?:…)")
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self._error("too many groups in one another")
        node = self._choice()
        if not self._skip(")"):
            raise self._error("a group has no end")
        self._depth -= 1
        return node

    def _escaped(self) -> _Set:
        found = self._take()
        if found.lower() in _CLASSES:
            return _Set(_CLASSES[found.lower()], is_negated=found.isupper())
        if found.isascii() and found.isalnum():
            raise self._error(f"\\{found} is not supported,")
        return _Set(frozenset(found))

    def _set(self) -> _Set:
        is_negated = self._skip("^")
        characters: set[str] = set()
        ranges: list[tuple[str, str]] = []
        others: list[_Set] = []
        is_first = True
        while is_first or not self._skip("]"):
            is_first = False
            first = self._member()
            if isinstance(first, _Set):
                others.append(first)
            elif self._next == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                last = self._member()
                if isinstance(last, _Set) or last < first:
                    raise self._error("a range from high to low")
                ranges.append((first, last))
            else:
                characters.add(first)
        return _Set(frozenset(characters), tuple(ranges), is_negated, tuple(others))

    def _member(self) -> str | _Set:
        found = self._take()
        if found in "[]&":  # in Java these may be unions and intersections
            raise self._error(f"{found!r} in a set needs a backslash,")
        if found != "\\":
            return found
        escaped = self._escaped()
        return escaped if len(escaped.characters) != 1 or escaped.is_negated else next(iter(escaped.characters))

    def _repeated(self, node: _Node) -> _Node:
        if self._skip("*"):
            least, most = 0, _NO_LIMIT
        elif self._skip("+"):
            least, most = 1, _NO_LIMIT
        elif self._skip("?"):
            least, most = 0, 1
        elif self._skip("{"):
            least, most = self._counts()
        else:
            return node
        self._skip("?")  # which way is tried first does not matter, if the whole name must match
        if self._next and self._next in "*+?{":
            raise self._error("a repetition of a repetition")
        return _Repeat(node, least, most)

    def _counts(self) -> tuple[int, int]:
        text, _, rest = self._text[self._at :].partition("}")
        first, comma, last = text.partition(",")
        if not rest and not self._text.endswith("}"):
            raise self._error("a repetition has no end")
        numbers = (first, last) if last else (first,)
        if not all(number.isdecimal() and number.isascii() and len(number) <= 4 for number in numbers):
            raise self._error("no number of repetitions")
        least = int(first)
        most = least if not comma else int(last) if last else _NO_LIMIT
        if most not in (_NO_LIMIT,) and most < least:
            raise self._error("a repetition from high to low")
        self._at += len(text) + 1
        return least, most
