"""Findings about a file: what has no effect, what differs, and what keeps the broker from being started from it."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from pybroker.activemq_xml.elements import XmlElement

_NAMES = ("name", "queue", "topic", "physicalName")
"""Attributes that tell elements of a kind apart."""


class FindingKind(Enum):
    """What follows from a finding."""

    SAME = "same"
    """Nothing: it asks for what pybroker does anyway."""
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
        at: the place: `element`, `element[name]`, `element@attribute`, or the name of an option of a URL.
        why: a sentence, with the remedy if there is one. It has no value that may be a secret.
        line: the line of the element, from 1.
    """

    kind: FindingKind
    at: str
    why: str
    line: int

    def __str__(self) -> str:
        """Return the finding without its kind."""
        return f"line {self.line}: {self.at}: {self.why}"


class Findings:
    """Collects the findings about a file."""

    def __init__(self) -> None:
        self._found: list[ConfigurationFinding] = []
        self._refused: set[tuple[str, int]] = set()
        """The places that are refused, with their lines: each attribute of a file is looked up here."""

    def __iter__(self) -> Iterator[ConfigurationFinding]:
        """Return the findings in the order of the file, each once."""
        return iter(sorted(dict.fromkeys(self._found), key=lambda each: each.line))

    def is_refused(self, element: XmlElement, attribute: str = "") -> bool:
        """Return True if an element, or an attribute of it, is refused already."""
        return (place(element, attribute), element.line) in self._refused

    def add(self, found: ConfigurationFinding) -> None:
        """Add a finding."""
        self._found.append(found)
        if found.kind is FindingKind.REFUSED:
            self._refused.add((found.at, found.line))

    def same(self, element: XmlElement, attribute: str = "") -> None:
        """Add that something asks for what pybroker does anyway; arguments are those of `ignore`."""
        self._add(FindingKind.SAME, element, "this is what pybroker does", attribute, "")

    def ignore(self, element: XmlElement, why: str, attribute: str = "", *, at: str = "") -> None:
        """Add that something has no effect.

        Args:
            element: the element that it is about, or that has it.
            why: see `ConfigurationFinding`.
            attribute: the attribute, if it is about one.
            at: the place, if it is neither: an option of a URL, for example.
        """
        self._add(FindingKind.IGNORED, element, why, attribute, at)

    def warn(self, element: XmlElement, why: str, attribute: str = "", *, at: str = "") -> None:
        """Add that something differs; arguments are those of `ignore`."""
        self._add(FindingKind.WARNING, element, why, attribute, at)

    def refuse(self, element: XmlElement, why: str, attribute: str = "", *, at: str = "") -> None:
        """Add that the broker must not start; arguments are those of `ignore`."""
        self._add(FindingKind.REFUSED, element, why, attribute, at)

    def _add(self, kind: FindingKind, element: XmlElement, why: str, attribute: str, at: str) -> None:
        self.add(ConfigurationFinding(kind, at or place(element, attribute), why, element.line))


def place(element: XmlElement, attribute: str = "") -> str:
    """Return the text that names an element, or one of its attributes."""
    name = next((element.attributes[each] for each in _NAMES if element.attributes.get(each)), "")
    shown = f"{element.name}[{name}]" if name else element.name
    return f"{shown}@{attribute}" if attribute else shown
