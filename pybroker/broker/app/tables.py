"""The base class and readers of the configuration's tables.

A table has only the attributes that are set: every default is the core's. An error is a `ValueError` that names the
table and the attribute, which the settings raise as a `ConfigError`.
"""

import difflib
import re
from collections.abc import Callable, Collection
from typing import Annotated, Any, ClassVar, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator

from pybroker.broker.app.units import parse_duration, parse_size
from pybroker.broker.domain.destination import Destination, DestinationType, checked
from pybroker.broker.domain.errors import InvalidDestination, InvalidSelector


class SettingsTable(BaseModel):
    """A frozen table that refuses unknown names. A field's default only marks it as optional; see `given`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    not_served: ClassVar[Collection[str]] = ()
    """The attributes of ActiveMQ that are not supported."""

    @model_validator(mode="before")
    @classmethod
    def _names_are_known(cls, values: object) -> object:
        for name in cast("dict[str, object]", values) if isinstance(values, dict) else ():
            if name not in cls.model_fields:
                raise ValueError(_unknown(name, cls.model_fields, cls.not_served))
        return values  # pyright: ignore[reportUnknownVariableType]

    def given(self, *without: str) -> dict[str, Any]:
        """Return the attributes that are set."""
        return {name: getattr(self, name) for name in self.model_fields_set if name not in without}


TableT = TypeVar("TableT", bound=SettingsTable)


def tables(kind: type[TableT], setting: str) -> Callable[[object], tuple[TableT, ...]]:
    """Return a reader of `[[setting]]` tables."""

    def read(value: object) -> tuple[TableT, ...]:
        if not isinstance(value, list | tuple):
            raise ValueError(f"it is made of tables: write [[{setting}]] in the configuration file")
        listed = cast("list[object]", value)
        return tuple(table(kind, one, f"table {number}: ") for number, one in enumerate(listed, 1))

    return read


def table(kind: type[TableT], value: object, place: str = "") -> TableT:
    """Read one table; `place` begins its error texts."""
    if isinstance(value, kind):
        return value
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise ValueError(place + _explained(error)) from error


def milliseconds(value: object) -> int:
    """Read a duration."""
    if not isinstance(value, str | int | float):
        raise ValueError(f"{value!r} is not a duration: write for example 500ms, 30s, 5min or 1h")
    return round(parse_duration(value) * 1000)


def size(value: object) -> int:
    """Read a size in bytes."""
    if not isinstance(value, str | int):
        raise ValueError(f"{value!r} is not a size: write for example 65536, 512kb, 64mb or 2gb")
    return parse_size(value)


def typed(value: object) -> object:
    """Expand `"discarding"` to `{ type = "discarding" }`."""
    return {"type": value} if isinstance(value, str) else value


Milliseconds = Annotated[int, BeforeValidator(milliseconds)]
Size = Annotated[int, BeforeValidator(size)]


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


def attempt(make: Callable[[], object]) -> None:
    """Call a function, and convert its errors to the form that pydantic reports."""
    try:
        make()
    except (InvalidDestination, InvalidSelector) as error:
        raise ValueError(str(error)) from error


def _unknown(name: str, known: Collection[str], not_served: Collection[str]) -> str:
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    if snake in not_served:
        return f"{name} is an attribute of ActiveMQ that pybroker does not have; leave it out"
    near = [snake] if snake in known else difflib.get_close_matches(snake, known, n=1)
    remedy = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
    return f"there is no attribute {name}; {remedy}"


def _explained(error: ValidationError) -> str:
    """Return the first error: the path of the attribute, and the expected value."""
    first = error.errors()[0]
    path = ".".join(str(part) for part in first["loc"])
    message = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] in ("union_tag_invalid", "union_tag_not_found"):
        message = f"write as its type one of {first.get('ctx', {}).get('expected_tags') or 'those in docs/policies.md'}"
    return f"{path}: {message}" if path else message
