r"""Regular expressions for texts that clients choose, matched in time that grows with the length of the text.

The texts are the subjects of certificates, and names of destinations.

The module `re` backtracks: `([a-z]+ ?)+, O=x` takes seconds for a text of 26 letters that does not match, twice as
long with each further letter, and holds the interpreter's lock (GIL) meanwhile, so that no thread could help. Here an
expression becomes an automaton whose states are its characters (Glushkov's construction); a match follows all of its
states at once, one step for each character of the text.

```text
x  .  \.  [a-z_]  [^,]  \d \D \w \W \s \S               one character
(…)  (?:…)  (?<name>…)  …|…                          groups, alternatives
*  +  ?  {2}  {2,}  {2,5}, also with ? behind        repetitions
^…  …$  (?i)…                                        no effect; no difference between A-Z and a-z
```

What an automaton cannot do, such as references to groups, looking ahead or behind and possessive repetitions, is not
valid, nor is what this module does not know: an expression never means something else than in Java.

Source: Java 11, `java.util.regex.Pattern`; V. M. Glushkov, "The abstract theory of automata", 1961.
"""

import re
from dataclasses import dataclass
from typing import Final, NoReturn

TEXT_MAX: Final = 1024
"""The limit to the characters of a text. Subjects of certificates have some hundred at most."""

STATES_MAX: Final = 500
"""The limit to the states of an expression: with a text of `TEXT_MAX`, a match takes 0.05 s at the worst."""

_DEPTH_MAX: Final = 20
"""The limit to groups inside one another."""

_LAST: Final = 0x10FFFF
_Ranges = tuple[tuple[int, int], ...]
"""A set of characters, as ranges of code points, both ends included."""


class LinearExpression:
    """One expression, ready to match whole texts."""

    def __init__(self, text: str) -> None:
        """Build the automaton.

        Raises:
            ValueError: the text is not valid; the message has the place in it.
        """
        tree = _ExpressionParser(text).parse()
        if tree.size > STATES_MAX:
            raise ValueError(f"it has {tree.size} characters with repetitions, at most {STATES_MAX} are allowed")
        self._follow: list[int] = []
        """The transitions: for each state of the automaton the bit set of its successors."""
        self._states_of: dict[_Ranges, int] = {}
        """The transitions by their labels: the bit set of the states that a character class leads to."""
        self._by_ascii: dict[str, int] = {}
        self._is_nullable, self._first, self._last = self._build(tree)

    def matches(self, text: str) -> bool:
        """Return True if the expression matches the whole text, and that is not longer than `TEXT_MAX`."""
        if len(text) > TEXT_MAX:
            return False
        if not text:
            return self._is_nullable
        reachable, current = self._first, 0
        for character in text:
            current = reachable & self._taking(character)
            if not current:
                return False
            reachable = 0
            for state in _bits(current):
                reachable |= self._follow[state]
        return bool(current & self._last)

    def _taking(self, character: str) -> int:
        states = self._by_ascii.get(character)
        if states is None:
            point = ord(character)
            states = 0
            for ranges, taking in self._states_of.items():
                if any(first <= point <= last for first, last in ranges):
                    states |= taking
            if point < 128:
                self._by_ascii[character] = states
        return states

    def _build(self, tree: "_Tree") -> tuple[bool, int, int]:
        """Return whether a tree matches the empty text, and its first and its last states."""
        match tree:
            case _Characters():
                state = 1 << len(self._follow)
                self._follow.append(0)
                self._states_of[tree.ranges] = self._states_of.get(tree.ranges, 0) | state
                return False, state, state
            case _Succession():
                return self._in_sequence([self._build(each) for each in tree.items])
            case _Alternatives():
                built = [self._build(each) for each in tree.items]
                first = last = 0
                for _, its_first, its_last in built:
                    first, last = first | its_first, last | its_last
                return any(each[0] for each in built), first, last
            case _Repetition():
                return self._in_sequence(self._repeated(tree))

    def _in_sequence(self, parts: list[tuple[bool, int, int]]) -> tuple[bool, int, int]:
        is_nullable, first, last = True, 0, 0
        for its_nullable, its_first, its_last in parts:
            self._link(last, its_first)
            first |= its_first if is_nullable else 0
            last = its_last | (last if its_nullable else 0)
            is_nullable &= its_nullable
        return is_nullable, first, last

    def _repeated(self, tree: "_Repetition") -> list[tuple[bool, int, int]]:
        """Build a copy for each repetition; those beyond the least may be left out, and the last may loop."""
        parts: list[tuple[bool, int, int]] = []
        for number in range(max(tree.least, 1) if tree.most is None else tree.most):
            is_nullable, first, last = self._build(tree.item)
            parts.append((is_nullable or number >= tree.least, first, last))
        if tree.most is None:
            self._link(parts[-1][2], parts[-1][1])
        return parts

    def _link(self, before: int, after: int) -> None:
        for state in _bits(before):
            self._follow[state] |= after


def _bits(states: int) -> list[int]:
    found: list[int] = []
    while states:
        lowest = states & -states
        found.append(lowest.bit_length() - 1)
        states ^= lowest
    return found


# ------------------------------------------------------------ the text of an expression


@dataclass(frozen=True, slots=True)
class _Characters:
    """One character of a set; `size` is the number of states of a tree, at least 1."""

    ranges: _Ranges
    size: int = 1


@dataclass(frozen=True, slots=True)
class _Succession:
    items: "tuple[_Tree, ...]"
    size: int


@dataclass(frozen=True, slots=True)
class _Alternatives:
    items: "tuple[_Tree, ...]"
    size: int


@dataclass(frozen=True, slots=True)
class _Repetition:
    item: "_Tree"
    least: int
    most: int | None
    size: int


_Tree = _Characters | _Succession | _Alternatives | _Repetition


def _points(characters: str) -> _Ranges:
    return tuple((ord(each), ord(each)) for each in characters)


def _without(ranges: _Ranges) -> _Ranges:
    """Return all other characters."""
    found: list[tuple[int, int]] = []
    begin = 0
    for first, last in sorted(ranges):
        if first > begin:
            found.append((begin, first - 1))
        begin = max(begin, last + 1)
    return (*found, (begin, _LAST)) if begin <= _LAST else tuple(found)


_DIGITS: Final[_Ranges] = ((48, 57),)
_WORD: Final[_Ranges] = (*_DIGITS, (65, 90), (95, 95), (97, 122))
_BLANKS: Final = _points(" \t\n\x0b\f\r")
_CLASSES: Final = {
    **{"d": _DIGITS, "w": _WORD, "s": _BLANKS},
    **{"D": _without(_DIGITS), "W": _without(_WORD), "S": _without(_BLANKS)},
}
_ANY: Final = _without(_points("\n\r\x85\u2028\u2029"))
_COUNTS: Final = re.compile(r"\{([0-9]{1,4})(,([0-9]{1,4})?)?\}")
_GROUP: Final = re.compile(r"\?(?::|<[A-Za-z][A-Za-z0-9]*>)")


class _ExpressionParser:
    """Reads the text of an expression from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._ignores_case = False

    def parse(self) -> _Tree:
        """Return the whole expression.

        Raises:
            ValueError: see `LinearExpression`.
        """
        self._ignores_case = self._skip("(?i)")
        tree = self._choice(0)
        if self._at < len(self._text):
            self._fail("a ) without its (")
        return tree

    def _choice(self, depth: int) -> _Tree:
        if depth > _DEPTH_MAX:
            self._fail(f"more than {_DEPTH_MAX} groups inside one another")
        items = [self._sequence(depth)]
        while self._skip("|"):
            items.append(self._sequence(depth))
        return items[0] if len(items) == 1 else _Alternatives(tuple(items), sum(each.size for each in items))

    def _sequence(self, depth: int) -> _Tree:
        items: list[_Tree] = []
        if depth == 0:
            self._skip("^")
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            if depth == 0 and self._text[self._at] == "$" and self._text[self._at + 1 : self._at + 2] in ("", "|"):
                self._at += 1
                break
            items.append(self._repeated(self._atom(depth)))
        return _Succession(tuple(items), max(1, sum(each.size for each in items)))

    def _atom(self, depth: int) -> _Tree:
        character = self._next()
        if character == "(":
            if self._text.startswith("?", self._at):
                found = _GROUP.match(self._text, self._at)
                if found is None:
                    self._fail("of groups with (? there are (?:…) and (?<name>…) alone, and (?i) at the beginning")
                self._at = found.end()
            tree = self._choice(depth + 1)
            if not self._skip(")"):
                self._fail("a ( without its )")
            return tree
        if character in "*+?{":
            self._fail(f"nothing that {character} could repeat, or a possessive repetition")
        if character in "^$":
            self._fail(f"a {character} that is neither at the beginning nor at the end: write \\{character}")
        if character == ".":
            return _Characters(_ANY)
        if character == "[":
            return _Characters(self._set())
        return _Characters(self._in_both_cases(self._escape() if character == "\\" else _points(character)))

    def _repeated(self, tree: _Tree) -> _Tree:
        least: int = 1
        most: int | None = 1
        counts = _COUNTS.match(self._text, self._at)
        if counts is not None:
            self._at = counts.end()
            least = int(counts[1])
            most = least if counts[2] is None else None if counts[3] is None else int(counts[3])
        elif self._skip("*"):
            least, most = 0, None
        elif self._skip("+"):
            most = None
        elif self._skip("?"):
            least = 0
        else:
            return tree
        if most is not None and most < least:
            self._fail("a repetition whose least is more than its most")
        self._skip("?")  # as few as possible: for a match of the whole there is no difference
        return _Repetition(tree, least, most, tree.size * max(least, most or 0, 1))

    def _set(self) -> _Ranges:
        is_negated = self._skip("^")
        ranges: list[tuple[int, int]] = []
        while not self._skip("]"):
            first = self._of_set()
            is_range = self._text.startswith("-", self._at) and self._text[self._at + 1 : self._at + 2] not in ("]", "")
            if not is_range:
                ranges.extend(first)
                continue
            self._at += 1
            last = self._of_set()
            if len(first) != 1 or len(last) != 1 or first[0][0] > last[0][0] or first[0][0] != first[0][1]:
                self._fail("a range that has no beginning or no end")
            ranges.append((first[0][0], last[0][1]))
        if not ranges:
            self._fail("a set without characters")
        found = self._in_both_cases(tuple(ranges))
        return _without(found) if is_negated else found

    def _of_set(self) -> _Ranges:
        character = self._next()
        if character in "[]^" or self._text.startswith("&&", self._at - 1):
            self._fail(f"a {character} within a set: write \\{character}")
        return self._escape() if character == "\\" else _points(character)

    def _escape(self) -> _Ranges:
        character = self._next()
        if character in _CLASSES:
            return _CLASSES[character]
        if character.isalnum():
            self._fail(f"\\{character} is not supported")
        return _points(character)

    def _in_both_cases(self, ranges: _Ranges) -> _Ranges:
        if not self._ignores_case:
            return ranges
        others: list[tuple[int, int]] = []
        for first, last in ranges:
            for begin, end, distance in ((65, 90, 32), (97, 122, -32)):
                if max(first, begin) <= min(last, end):
                    others.append((max(first, begin) + distance, min(last, end) + distance))
        return (*ranges, *others)

    def _skip(self, text: str) -> bool:
        has_it = self._text.startswith(text, self._at)
        self._at += len(text) * has_it
        return has_it

    def _next(self) -> str:
        if self._at == len(self._text):
            self._fail("something is missing")
        self._at += 1
        return self._text[self._at - 1]

    def _fail(self, why: str) -> NoReturn:
        raise ValueError(f"at character {max(self._at, 1)}: {why}")
