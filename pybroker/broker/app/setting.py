"""Declarations of settings: reader, default, bounds and description; the readers; and tables made of settings.

A value is text from the command line and the environment, or has one of TOML's types. Readers raise `ValueError` for an
invalid value, with a text that follows the setting's name. The errors of a table name the path to the value.
"""

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit

from pybroker.broker.domain.addresses import in_url
from pybroker.broker.domain.destination import Destination, DestinationType, checked
from pybroker.broker.domain.errors import ConfigError, InvalidDestination, InvalidSelector
from pybroker.security.accounts import NAME_MAX
from pybroker.units import format_duration, format_size
from pybroker.units import parse_duration as duration
from pybroker.units import parse_size as size

Read = Callable[[object], Any]
"""Returns a setting's value.

Raises:
    ValueError: the value is not valid.
"""

_MEMBER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_BROKER_NAME = re.compile(r"[A-Za-z0-9._:-]{1,100}")
_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_PORT_MAX = 65_535
_YES, _NO = ("true", "t", "yes", "y", "on", "1"), ("false", "f", "no", "n", "off", "0")


_BOUND_FORMATS: Mapping[Read, Callable[[Any], str]] = {duration: format_duration, size: format_size}
"""Formats of bounds by reader, if not `str`."""

_INVALID = (ValueError, ConfigError, InvalidDestination, InvalidSelector)
"""The errors of readers and tables."""


def _inside(name: str, error: Exception) -> ConfigError:
    """Return an error with a name before its path."""
    if isinstance(error, ConfigError):
        return ConfigError(error.reason, setting=f"{name}.{error.setting}" if error.setting else name)
    return ConfigError(str(error), setting=name)


class Setting(NamedTuple):
    """One setting, or one attribute of a table.

    Attributes:
        read: reads a value.
        default: its value if it is not set. If that is None, None may be set too. Those of attributes are the core's.
        description: one or more sentences for the documents.
        least: the lowest value.
        above: the lower bound, itself not allowed.
        most: the highest value.
        is_secret: the value may hold a password, and is not shown.
        is_required: it must be set.
    """

    read: Read
    default: Any = None
    description: str = ""
    least: float | None = None
    above: float | None = None
    most: float | None = None
    is_secret: bool = False
    is_required: bool = False

    def value(self, given: object) -> Any:
        """Return the value of a given text or TOML value.

        Raises:
            ValueError: it is not valid.
        """
        if given is None and self.default is None:
            return None
        found = self.read(given)
        if found is not None and not self._allows(found):
            raise ValueError(f"it must be {self._range()}; given was {given!r}")
        return found

    def _allows(self, value: float) -> bool:
        """Return True for a value within the bounds; NaN is outside any."""
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
        )

    def _range(self) -> str:
        bounds = (("at least", self.least), ("above", self.above), ("at most", self.most))
        shown = _BOUND_FORMATS.get(self.read, str)
        return " and ".join(f"{relation} {shown(bound)}" for relation, bound in bounds if bound is not None)


declared = cast("Callable[..., Any]", Setting)
"""Declares a setting, whose attribute has the type that its reader returns."""


def read_values(
    settings: Mapping[str, Setting], given: Mapping[str, object], unknown: Callable[[str], str]
) -> dict[str, Any]:
    """Return the values of given settings.

    Args:
        settings: the settings by name.
        given: their texts or TOML values.
        unknown: returns the error's text for a name that is not in `settings`.

    Raises:
        ConfigError: a value is not valid, or there is no such setting.
    """
    for name in given:
        if name not in settings:
            raise ConfigError(unknown(name), setting=name)
    found: dict[str, Any] = {}
    for name, setting in settings.items():
        if name in given:
            try:
                found[name] = setting.value(given[name])
            except _INVALID as error:
                raise _inside(name, error) from error
        elif setting.is_required:
            raise ConfigError("it must be set", setting=name)
    return found


def nearest(name: str, known: Collection[str]) -> str | None:
    """Return the known name that is most like a name; None if none is."""
    import difflib  # only after a mistake

    return next(iter(difflib.get_close_matches(name, known, n=1)), None)


# ---------------------------------------------------------------- tables

T_co = TypeVar("T_co", covariant=True)


class Table(NamedTuple, Generic[T_co]):
    """A kind of table.

    Attributes:
        make: returns the core's value, given the attributes that are set.
        attributes: the attributes by name.
        not_served: the attributes of ActiveMQ that are not supported.
    """

    make: Callable[..., T_co]
    attributes: Mapping[str, Setting] = {}
    not_served: Collection[str] = ()

    def read(self, value: object) -> T_co:
        """Return the core's value of a table.

        Raises:
            ConfigError: an attribute is not valid; names it.
            ValueError, InvalidDestination, InvalidSelector: the table is not valid.
        """
        return self.make(**read_values(self.attributes, _table(value), self._unknown))

    def _unknown(self, name: str) -> str:
        snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
        if snake in self.not_served:
            return "it is an attribute of ActiveMQ that pybroker does not have; leave it out"
        near = nearest(snake, self.attributes)
        remedy = f"did you mean {near}?" if near else f"known are {', '.join(sorted(self.attributes)) or 'none'}"
        return f"there is no such attribute; {remedy}"


def _table(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{value!r} is not a table: write its attributes in braces, or below a line with its name")
    return cast("Mapping[str, object]", value)


def one_of(kinds: Mapping[str, Table[Any]]) -> Read:
    """Return a reader of a table whose `type` chooses its kind; text is a type without attributes."""

    def read(value: object) -> Any:
        given = dict(_table({"type": value} if isinstance(value, str) else value))
        kind = given.pop("type", None)
        if not isinstance(kind, str) or kind not in kinds:
            raise ValueError(f"write as its type one of {', '.join(map(repr, kinds))}")
        try:
            return kinds[kind].read(given)
        except _INVALID as error:
            raise _inside(kind, error) from error

    return read


def listed(read: Callable[[object], T_co], item: str, remedy: str) -> Callable[[object], tuple[T_co, ...]]:
    """Return a reader of a list.

    Args:
        read: reads an item.
        item: the word for an item, which error texts name with its number.
        remedy: the error's text for a value that is no list.
    """

    def read_list(value: object) -> tuple[T_co, ...]:
        if not isinstance(value, list | tuple):
            raise ValueError(remedy)
        found: list[T_co] = []
        for number, one in enumerate(cast("list[object]", value), 1):
            try:
                found.append(read(one))
            except _INVALID as error:
                raise ValueError(f"{item} {number}: {error}") from error
        return tuple(found)

    return read_list


def tables(table: Table[T_co], setting: str) -> Callable[[object], tuple[T_co, ...]]:
    """Return a reader of `[[setting]]` tables."""
    return listed(table.read, "table", f"it is made of tables: write [[{setting}]] in the configuration file")


# ---------------------------------------------------------------- readers


def text(value: object) -> str:
    """Return text."""
    if not isinstance(value, str):
        how = "write the entries in one text, with commas" if isinstance(value, list) else "write it in quotes"
        raise ValueError(f"{value!r} is not text: {how}")
    return value


def member_name(value: object) -> str:
    """Return the name of a member."""
    name = text(value)
    if not _MEMBER_NAME.fullmatch(name):
        raise ValueError("a name has 1 to 100 letters, digits, `.`, `_` or `-`, and begins with a letter or digit")
    return name


def broker_name(value: object) -> str:
    """Return the name of a broker."""
    name = text(value)
    if not _BROKER_NAME.fullmatch(name):
        raise ValueError("a broker's name has 1 to 100 letters, digits, `.`, `_`, `-` or `:`, as in ActiveMQ")
    return name


def header_value(value: object) -> str:
    """Return the value of a STOMP header."""
    header = text(value)
    if not header.strip() or not header.isprintable():
        raise ValueError("a header has at least one character, and neither line ends nor other control characters")
    return header


def user_name(value: object) -> str:
    """Return the name of a user or a group."""
    name = text(value)
    if not name or len(name) > NAME_MAX or not name.isprintable() or name != name.strip():
        raise ValueError(f"a name has 1 to {NAME_MAX} characters, no control characters, and no blanks around it")
    return name


def user_names(value: object) -> str:
    """Return a comma list of names of users or groups, without blanks around them."""
    return ",".join([user_name(each.strip()) for each in text(value).split(",") if each.strip()])


def web_address(value: object) -> str:
    """Return the URL of a web server."""
    url = text(value)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it is no URL of a web server: write https://HOST/PATH or http://HOST:PORT/PATH")
    return url


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


class ListenAddress(NamedTuple):
    """An address to listen on.

    Attributes:
        host: the host; None: that of another setting.
        port: the port; 0: any free one.
    """

    host: str | None
    port: int

    def __str__(self) -> str:
        """Return `host:port`, as it is written."""
        host = "" if self.host is None else f"{in_url(self.host)}:"
        return f"{host}{self.port}"


def address(value: object) -> ListenAddress | None:
    """Return an address, `HOST:PORT`, `[IPv6]:PORT` or `PORT`; None for `off`."""
    host, _, number = value.strip().rpartition(":") if isinstance(value, str) else ("", "", value)
    try:
        found = port(number)
    except ValueError as error:
        raise ValueError(f"{error}: write HOST:PORT, such as 127.0.0.1:8161, or PORT") from error
    return None if found is None else ListenAddress(host.strip("[]") or None, found)


def number(value: object) -> float:
    """Return a number."""
    try:
        return float(str(value))
    except ValueError as error:
        raise ValueError(f"{value!r} is not a number") from error


def milliseconds(value: object) -> int:
    """Return a duration in milliseconds."""
    return round(duration(value) * 1000)


def choice(*names: str) -> Read:
    """Return a reader that allows some names only."""
    *others, last = map(repr, names)
    listed = f"{', '.join(others)} or {last}"

    def read(value: object) -> str:
        if value not in names:
            raise ValueError(f"it must be {listed}; given was {value!r}")
        return str(value)

    return read


def named(kind: DestinationType, name: str) -> Destination:
    """Return one destination or pattern of a kind."""
    destination = checked(kind, name)
    if destination.is_composite:
        raise InvalidDestination(f"{name!r} has a comma: write a table for each name")
    return destination


def single(destination: Destination) -> Destination:
    """Return the destination, if it is neither a pattern nor composite."""
    if destination.is_pattern or destination.is_composite:
        raise InvalidDestination(f"{destination} must be one destination: no wildcards, no comma")
    return destination
