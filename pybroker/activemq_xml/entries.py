"""Reads attributes into an entry of a table, such as `[[policies]]`.

A table's fields have the names of ActiveMQ's attributes in snake case.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from pybroker.activemq_xml.elements import XmlElement
from pybroker.activemq_xml.reading import Reading, Rule, Rules
from pybroker.activemq_xml.values import whole

INT_MAX: Final = 2**31 - 1

Convert = Callable[[str], object]
"""Returns the value of a field for the text of an attribute.

Raises:
    ValueError: it is not valid.
"""

Fields = Mapping[str, Convert]
"""The attributes that are fields, with what converts their values."""


def snake_case(name: str) -> str:
    """Return the name of the field for an attribute: `queue_prefetch` for `queuePrefetch`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def into(entry: dict[str, Any], fields: Fields) -> Rules:
    """Return rules that put attributes into an entry."""
    return {name: _field(entry, convert) for name, convert in fields.items()}


def _field(entry: dict[str, Any], convert: Convert) -> Rule:
    def read(_reading: Reading, element: XmlElement, name: str) -> None:
        entry[snake_case(name)] = convert(element.attributes[name])

    return read


def between(least: int, most: int = INT_MAX) -> Callable[[str], int]:
    """Return the conversion of a whole number within bounds."""

    def convert(value: str) -> int:
        number = whole(value)
        if not least <= number <= most:
            raise ValueError(f"pybroker allows {least} to {most}")
        return number

    return convert
