"""LIKE patterns: `_` stands for one character, `%` for any number of them, everything else for itself.

A pattern is split at its `%` into segments of fixed lengths. The first one begins the text, the last one ends it, and
the others are searched from left to right, each behind the one before. The leftmost place of a segment is final: a
later one would only leave less text for the rest. A segment without `_` is searched by `str.find`, in linear time.

No linear algorithm is known for a segment such as `a_b_c`, so its search is bounded instead. Some places are compared
one by one, which is enough for nearly all texts. Others are searched by bit masks of thousands of places at a time:

```text
text      a b a c a b      the pattern `a_a` stands where `a` stands, and 2 further on again
a         1 0 1 0 1 0
a >> 2    1 0 1 0
and       1 0 1 0          at the places 0 and 2
```

Each search is charged to the `WorkLimit` of the evaluation. When that is used up, LIKE is UNKNOWN.
"""

from collections.abc import Callable, Sequence
from typing import Final

from pybroker.errors import PybrokerError

STEPS_MAX: Final = 4_000_000
"""Steps that all LIKEs of one evaluation may take together; a step is a character searched, one to three nanoseconds.
Without a limit, a selector of 400 LIKEs takes half a second for one message with a text of 1 MB."""

_ANY_NUMBER: Final = "%"
_ANY_ONE: Final = "_"

_PLACES_MIN: Final = 1_024
_PLACES_MAX: Final = 32_768
"""Places that the bit masks of a round cover, four times as many in each round; the largest fit in the cache."""

_COMPARED_MAX: Final = 256
"""Comparisons of literals before a search changes to bit masks."""

_STEPS_PER_COMPARISON: Final = 64
"""Steps in the time that it takes to compare the text at one place with one literal."""

_STEPS_PER_BYTE: Final = 4
"""Steps that it takes to make the bit masks of one byte of text."""

_PLACES_PER_STEP: Final = 32
"""Places that a shift and an AND of bit masks examine in the time of a step."""

_SOUGHT_FIRST: Final = 16
"""Characters of a segment that are looked for before bit masks are made: where one is missing, the segment is too."""

_ASCII_ZERO: Final = b"0"
_ASCII_ONE: Final = b"1"


class WorkLimit:
    """The steps that the LIKEs of an evaluation, and its comparisons of strings, may take.

    Attributes:
        is_needed: True if there is one that may take many; others are not charged.
        steps: steps left, `STEPS_MAX` when an evaluation begins; below 0: used up.
    """

    __slots__ = ("is_needed", "steps")

    def __init__(self) -> None:
        self.is_needed = False
        self.steps = STEPS_MAX

    def charge(self, steps: int) -> bool:
        """Subtract steps; return False if too few were left."""
        self.steps -= steps
        return self.steps >= 0


class _WorkDone(PybrokerError):
    """The work limit is used up within a search."""


def matcher(pattern: str, escape: str, limit: WorkLimit) -> Callable[[str], bool | None]:
    """Return a function that matches a whole string with the pattern; None: `limit` was used up before this was known.

    Args:
        pattern: the text between the quotes, with `''` already made `'`.
        escape: one character that takes the special meaning from a following `_`, `%` or itself, or none. Before
            any other character it stands for itself, as in ActiveMQ.
        limit: the work that the match is charged to, if it has to search the text.
    """
    first, *others = _segments(pattern, escape)
    if not others:
        return _whole(first)
    *searched, last = others
    if not searched:
        return _ends(first, last)
    limit.is_needed = True
    if len(searched) == 1 and searched[0].is_literal and not first.size and not last.size:
        return _part(searched[0].literal, limit)
    size_min = first.size + sum(segment.size for segment in searched) + last.size

    def is_like(text: str) -> bool | None:
        size = len(text)
        if size < size_min or not first.is_at(text, 0) or not last.is_at(text, size - last.size):
            return False
        if not limit.charge(size):
            return None
        place, end = first.size, size - last.size
        try:
            for segment in searched:
                place = segment.find(text, place, end, limit)
                if place < 0:
                    return False
                place += segment.size
        except _WorkDone:
            return None
        return True

    return is_like


def _whole(segment: "_PatternSegment") -> Callable[[str], bool]:
    if segment.is_literal:
        return segment.literal.__eq__
    return lambda text: len(text) == segment.size and segment.is_at(text, 0)


def _ends(first: "_PatternSegment", last: "_PatternSegment") -> Callable[[str], bool]:
    size_min = first.size + last.size
    if first.is_literal and last.is_literal:
        prefix, suffix = first.literal, last.literal
        return lambda text: len(text) >= size_min and text.startswith(prefix) and text.endswith(suffix)
    return lambda text: len(text) >= size_min and first.is_at(text, 0) and last.is_at(text, len(text) - last.size)


def _part(literal: str, limit: WorkLimit) -> Callable[[str], bool | None]:
    def is_like(text: str) -> bool | None:
        limit.steps -= len(text)
        return literal in text if limit.steps >= 0 else None

    return is_like


class _PatternSegment:
    """A part of a pattern between two `%`: literals at fixed distances.

    Attributes:
        size: characters that it stands for.
        literal: its longest literal.
        is_literal: True if it is this literal and nothing else.
    """

    __slots__ = ("_characters", "_distance", "_literals", "is_literal", "literal", "size")

    def __init__(self, literals: Sequence[tuple[int, str]], size: int) -> None:
        """Create a segment of `literals`, each at its distance from the beginning; all else is wildcards."""
        self.size = size
        self._literals = literals
        self._distance, self.literal = max(reversed(literals), key=_literal_size) if literals else (0, "")
        self.is_literal = len(self.literal) == size
        self._characters: list[tuple[int, str]] | None = (
            None  # with their distances; made for the first search by masks
        )

    def is_at(self, text: str, place: int) -> bool:
        """Return True if the segment, which must not reach beyond the text, stands at a place."""
        for distance, literal in self._literals:
            if not text.startswith(literal, place + distance):
                break
        else:
            return True
        return False

    def find(self, text: str, start: int, end: int, limit: WorkLimit) -> int:
        """Return the first place from `start` on where the segment stands and ends before `end`, -1 if there is none.

        Raises:
            _WorkDone: the limit was used up before.
        """
        if len(self._literals) <= 1:
            return self._next(text, start, end)
        comparisons = len(self._literals)
        for _ in range(1 + _COMPARED_MAX // comparisons):
            place = self._next(text, start, end)
            if place < 0 or self.is_at(text, place):
                return place
            start = place + 1
            if not limit.charge(_STEPS_PER_COMPARISON * comparisons):
                raise _WorkDone
        places = max(_PLACES_MIN, min(self.size, _PLACES_MAX))
        while start <= end - self.size:
            place = self._search_by_masks(text[start : min(start + places + self.size - 1, end)], limit)
            if place >= 0:
                return start + place
            start += places
            places = min(4 * places, _PLACES_MAX)
        return -1

    def _next(self, text: str, start: int, end: int) -> int:
        """Return the first place from `start` on that has the longest literal, -1 if there is none."""
        distance = self._distance
        place = text.find(self.literal, start + distance, end - self.size + distance + len(self.literal))
        return place if place < 0 else place - distance

    def _search_by_masks(self, text: str, limit: WorkLimit) -> int:
        """Return the first place of the segment in a short text, -1 if there is none. Raises `_WorkDone`."""
        if self._characters is None:
            self._characters = _distinct_first(self._literals)
        for _, character in self._characters[:_SOUGHT_FIRST]:
            if character not in text:
                return -1
        planes = _planes(text)
        masks: dict[str, int] = {}
        places = (1 << len(text) - self.size + 1) - 1
        for distance, character in self._characters:
            mask = masks.get(character)
            if mask is None:
                if not limit.charge(_STEPS_PER_BYTE * len(text) * len(planes)):
                    raise _WorkDone
                mask = masks[character] = _mask(character, planes)
            elif not limit.charge(len(text) // _PLACES_PER_STEP):
                raise _WorkDone
            places &= mask >> distance
            if not places:
                return -1
        return (places & -places).bit_length() - 1


def _segments(pattern: str, escape: str) -> list[_PatternSegment]:
    """Return the segments before, between and behind the `%`; only the first and the last one may be empty."""
    segments: list[_PatternSegment] = []
    literals: list[tuple[int, str]] = []
    literal: list[str] = []
    size = index = 0

    def end_literal() -> None:
        if literal:
            literals.append((size - len(literal), "".join(literal)))
            literal.clear()

    while index < len(pattern):
        character = pattern[index]
        following = pattern[index + 1 : index + 2]
        index += 1
        if character == escape and following and following in (_ANY_ONE, _ANY_NUMBER, escape):
            literal.append(following)
            index += 1
            size += 1
        elif character == _ANY_NUMBER:
            end_literal()
            if size or not segments:  # the same for several in a row as for one
                segments.append(_PatternSegment(literals, size))
            literals, size = [], 0
        elif character == _ANY_ONE:
            end_literal()
            size += 1
        else:
            literal.append(character)
            size += 1
    end_literal()
    return [*segments, _PatternSegment(literals, size)]


def _literal_size(literal: tuple[int, str]) -> int:
    return len(literal[1])


def _distinct_first(literals: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return the characters of literals with their distances, one of each before all others: some may be rare."""
    first: dict[str, int] = {}
    others: list[tuple[int, str]] = []
    for distance, literal in literals:
        for offset, character in enumerate(literal, distance):
            if first.setdefault(character, offset) != offset:
                others.append((offset, character))
    return [*((offset, character) for character, offset in first.items()), *others]


def _planes(text: str) -> list[bytes]:
    """Return the text, its end first, as a byte for each character; as three, the lowest first, if one is too few."""
    try:
        return [text.encode("latin-1")[::-1]]
    except UnicodeEncodeError:
        encoded = text.encode("utf-32-be", "surrogatepass")[::-1]
        return [encoded[plane::4] for plane in range(3)]


def _mask(character: str, planes: Sequence[bytes]) -> int:
    """Return the places of a character as bits, that of the first place lowest."""
    code = ord(character)
    mask = -1
    for plane in planes:
        table = bytearray(_ASCII_ZERO * 256)
        table[code & 0xFF : (code & 0xFF) + 1] = _ASCII_ONE
        mask &= int(plane.translate(table), 2)
        code >>= 8
    return 0 if code else mask
