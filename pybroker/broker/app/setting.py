"""Declarations of settings: default, reader, bounds and description, and the readers.

A value is text from the command line and the environment, or has one of TOML's types. Readers raise `ValueError` for an
invalid value, with a text that follows the setting's name.

Only the tables of a configuration file use pydantic (`tables`), because every start reads settings and few read tables,
and pydantic takes a third of the time for imports.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pybroker.broker.app.units import parse_duration, parse_size

Read = Callable[[object], Any]
"""Returns a setting's value.

Raises:
    ValueError: the value is not valid.
"""

_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_PORT_MAX = 65_535
_YES, _NO = ("true", "t", "yes", "y", "on", "1"), ("false", "f", "no", "n", "off", "0")


class Setting(NamedTuple):
    """One setting.

    Attributes:
        default: its value if it is not set. If that is None, None may be set too.
        read: reads a value.
        description: one or more sentences for the documents.
        least: the lowest value.
        above: the lower bound, itself not allowed.
        most: the highest value.
        is_secret: the value may hold a password, and is not shown.
    """

    default: Any
    read: Read
    description: str
    least: float | None = None
    above: float | None = None
    most: float | None = None
    is_secret: bool = False

    def value(self, given: object) -> Any:
        """Return the value of a given text or TOML value.

        Raises:
            ValueError: it is not valid.
        """
        if given is None and self.default is None:
            return None
        found = self.read(given)
        if found is not None:
            self._demand("greater than or equal to", self.least, given, self.least is None or found >= self.least)
            self._demand("greater than", self.above, given, self.above is None or found > self.above)
            self._demand("less than or equal to", self.most, given, self.most is None or found <= self.most)
        return found

    def _demand(self, relation: str, bound: float | None, given: object, holds: bool) -> None:
        if not holds:
            raise ValueError(f"it must be {relation} {bound}; given was {given!r}")


def text(value: object) -> str:
    """Return text."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text: write it in quotes")
    return value


def path(value: object) -> Path:
    """Return the path of a file."""
    return value if isinstance(value, Path) else Path(text(value))


def yes_or_no(value: object) -> bool:
    """Return True or False for a word or digit."""
    word = str(value).lower()
    if word not in _YES + _NO:
        raise ValueError(f"{value!r} is neither true nor false")
    return word in _YES


def whole(value: object) -> int:
    """Return a whole number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str) or not _WHOLE.fullmatch(value.strip()):
        raise ValueError(f"{value!r} is not a whole number")
    return int(value)


def port(value: object) -> int | None:
    """Return a port, or None for `off`."""
    if value is None or (isinstance(value, str) and value.strip().lower() == "off"):
        return None
    try:
        number = whole(value)
    except ValueError as error:
        raise ValueError(f"{value!r} is neither a port number nor `off`") from error
    if not 0 <= number <= _PORT_MAX:
        raise ValueError(f"{value!r} is no port: the highest is {_PORT_MAX}")
    return number


def size(value: object) -> int:
    """Return a size in bytes."""
    return parse_size(value if isinstance(value, str) else str(value))


def duration(value: object) -> float:
    """Return a duration in seconds."""
    return parse_duration(value if isinstance(value, str) else str(value))


def choice(*names: str) -> Read:
    """Return a reader that allows some names only."""
    *others, last = map(repr, names)
    listed = f"{', '.join(others)} or {last}"

    def read(value: object) -> str:
        if value not in names:
            raise ValueError(f"it must be {listed}; given was {value!r}")
        return str(value)

    return read
