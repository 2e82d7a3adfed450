"""Fills in the placeholders of a value: `${name}`, and `${name:default}` with what counts where the name is not known.

A name may itself have placeholders, `${port.${kind}}`, and so may a value that is filled in. Text such as `$x`, `$}` or
an open `${` stays as it is.

Source: Spring's `PropertyPlaceholderHelper`, as ActiveMQ 5.17 uses it for `activemq.xml`.
"""

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Final

from pybroker.broker.domain.errors import MalformedData

LENGTH_MAX: Final = 1 << 16
"""Characters of a filled-in value: values that name others twice would double with each step."""

DEPTH_MAX: Final = 20
"""Placeholders within one another, or in the values of one another."""

COUNT_MAX: Final = 1000
"""Placeholders that are filled in for one value, with those in the values of others: ten values that name ten others
each would lead through ten thousand millions."""

_BEGIN: Final = "${"

_SHOWN_MAX: Final = 100
"""Characters of a name in a message: a name may be all of a value, with placeholders within one another."""


class UnresolvedPlaceholder(MalformedData):
    """A placeholder that has no value.

    Attributes:
        name: the name in it, of which the beginning if it is long.
        is_unknown: nothing has that name; otherwise its value cannot be filled in.
    """

    def __init__(self, name: str, reason: str, *, is_unknown: bool = False) -> None:
        shown = name if len(name) <= _SHOWN_MAX else f"{name[:_SHOWN_MAX]}…"
        super().__init__(f"placeholder ${{{shown}}} {reason}")
        self.name, self.is_unknown = shown, is_unknown


def filled_in(text: str, properties: Mapping[str, str]) -> str:
    """Return a text with its placeholders filled in.

    Raises:
        UnresolvedPlaceholder: a name is unknown and has no default, its value contains it, or the text gets too long
            or has too many.
    """
    return _filled_in(text, properties, (), count(1))


def _filled_in(text: str, properties: Mapping[str, str], within: tuple[str, ...], numbers: Iterator[int]) -> str:
    parts: list[str] = []
    place = 0
    while (begin := text.find(_BEGIN, place)) >= 0 and (end := _end(text, begin)) >= 0:
        parts.append(text[place:begin])
        parts.append(_value(text[begin + len(_BEGIN) : end], properties, within, numbers))
        place = end + 1
    filled = "".join(parts) + text[place:]
    if len(filled) > LENGTH_MAX:
        raise UnresolvedPlaceholder(within[0] if within else text, f"has more than {LENGTH_MAX} characters")
    return filled


def _value(inner: str, properties: Mapping[str, str], within: tuple[str, ...], numbers: Iterator[int]) -> str:
    if next(numbers) > COUNT_MAX:
        raise UnresolvedPlaceholder(within[0] if within else inner, f"leads through more than {COUNT_MAX} others")
    if len(within) == DEPTH_MAX:
        raise UnresolvedPlaceholder(within[0], f"leads through more than {DEPTH_MAX} others")
    key = _filled_in(inner, properties, (*within, inner), numbers)
    value = properties.get(key)
    if value is None:
        key, separator, default = key.partition(":")
        value = properties.get(key)
        if value is None and separator:
            value = default
    if value is None:
        raise UnresolvedPlaceholder(key, "has no value", is_unknown=True)
    if key in within:
        raise UnresolvedPlaceholder(key, "has a value that contains it")
    return _filled_in(value, properties, (*within, key), numbers)


def _end(text: str, begin: int) -> int:
    """Return the place of the `}` of a placeholder, -1 if it has none."""
    depth, place = 0, begin
    while place < len(text):
        if text.startswith(_BEGIN, place):
            depth, place = depth + 1, place + len(_BEGIN)
            continue
        if text[place] == "}":
            depth -= 1
            if not depth:
                return place
        place += 1
    return -1
