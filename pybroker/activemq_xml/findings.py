"""Findings about a file: what has no effect, what differs, and what keeps the broker from being started from it."""

from dataclasses import dataclass
from enum import Enum

from pybroker.activemq_xml.elements import XmlElement

_NAMES = ("name", "queue", "topic", "physicalName")
"""Attributes that tell elements of a kind apart."""


class FindingKind(Enum):
    """What follows from a finding."""

    IGNORED = "ignored"
    """Nothing: clients see no difference."""
    WARNING = "warning"
    """The broker starts, and something differs."""
    REFUSED = "refused"
    """The broker does not start, unless its operator accepts the difference."""


@dataclass(frozen=True, slots=True)
class ConfigurationFinding:
    """One finding.

    Attributes:
        kind: what follows from it.
        at: the place: `element`, `element[name]`, `element@attribute`.
        why: a sentence, with the remedy if there is one.
        line: the line of the element, from 1.
    """

    kind: FindingKind
    at: str
    why: str
    line: int


def place(element: XmlElement, attribute: str = "") -> str:
    """Return the text that names an element, or one of its attributes."""
    name = next((element.attributes[each] for each in _NAMES if element.attributes.get(each)), "")
    shown = f"{element.name}[{name}]" if name else element.name
    return f"{shown}@{attribute}" if attribute else shown
