"""What a setting is: a default, how a value is read, what it must be, and the sentence that explains it.

A value comes as it was written: text from the command line and the environment, TOML's own types from a file. Reading
raises `ValueError` for what cannot be used, in words that follow the setting's name.

This is done by hand, and the tables of a configuration file with pydantic (`tables`): every start reads settings, few
read tables, and pydantic with its models took a third of what a start imports.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pybroker.broker.app.units import parse_duration, parse_size

Read = Callable[[object], Any]
"""Returns what a value means.

Raises:
    ValueError: nothing, of this kind.
"""

_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_PORT_MAX = 65_535
_YES, _NO = ("true", "t", "yes", "y", "on", "1"), ("false", "f", "no", "n", "off", "0")


class Setting(NamedTuple):
    """One setting.

    Attributes:
        default: its value when nobody sets it. Where that is None, None may be set too.
        read: reads a value.
        description: a sentence or more, for people.
        least: the lowest value.
        above: what the value must be higher than.
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
        """Return what somebody gave means here.

        Raises:
            ValueError: it cannot be used.
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
    """Read text."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text: write it in quotes")
    return value


def path(value: object) -> Path:
    """Read the name of a file."""
    return value if isinstance(value, Path) else Path(text(value))


def yes_or_no(value: object) -> bool:
    """Read a word or digit for yes or no."""
    word = str(value).lower()
    if word not in _YES + _NO:
        raise ValueError(f"{value!r} is neither true nor false")
    return word in _YES


def whole(value: object) -> int:
    """Read a whole number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str) or not _WHOLE.fullmatch(value.strip()):
        raise ValueError(f"{value!r} is not a whole number")
    return int(value)


def port(value: object) -> int | None:
    """Read a port, or `off` for None."""
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
    """Read a size in bytes."""
    return parse_size(value if isinstance(value, str) else str(value))


def duration(value: object) -> float:
    """Read a duration in seconds."""
    return parse_duration(value if isinstance(value, str) else str(value))


def choice(*names: str) -> Read:
    """Return a reader of one of some names."""
    *others, last = map(repr, names)
    listed = f"{', '.join(others)} or {last}"

    def read(value: object) -> str:
        if value not in names:
            raise ValueError(f"it must be {listed}; given was {value!r}")
        return str(value)

    return read
