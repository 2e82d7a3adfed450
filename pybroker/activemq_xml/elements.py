"""Parses XML into elements that know their line, within limits, and without any document type or entity.

A document type is refused, and with it every entity of its own, internal or external: what a file says is in the file.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from xml.parsers import expat

from pybroker.broker.domain.errors import MalformedData

BYTES_MAX: Final = 1 << 20
"""Size of a file; those in use have some tens of kilobytes."""

DEPTH_MAX: Final = 64
"""Elements within one another."""

CORE: Final = "http://activemq.apache.org/schema/core"
BEANS: Final = "http://www.springframework.org/schema/beans"

_SEPARATOR: Final = " "  # no namespace and no name contains one


class MalformedXml(MalformedData):
    """A text that is not XML, or more than is read of one.

    Attributes:
        line: its line, from 1.
        column: its column, from 1.
    """

    def __init__(self, reason: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {reason}")
        self.line, self.column = line, column


@dataclass(slots=True)
class XmlElement:
    """One element. Its `repr` shows no value, as some are passwords.

    Attributes:
        name: its name, without a prefix.
        namespace: the URI of its namespace; empty if it has none.
        attributes: those without a namespace, by name.
        line: the line of its start tag, from 1.
        column: the column of its start tag, from 1.
        children: the elements in it, in their order.
        text: the text in it, without that of its children and without blanks around it.
        references: the names of the beans that attributes refer to, by attribute; see `references`.
    """

    name: str
    namespace: str
    attributes: dict[str, str] = field(repr=False)
    line: int
    column: int
    children: list["XmlElement"] = field(repr=False)
    text: str = field(default="", repr=False)
    references: dict[str, str] = field(default_factory=dict[str, str], repr=False)

    def __iter__(self) -> Iterator["XmlElement"]:
        """Return the element and all within it, in the order of their start tags."""
        waiting: list[XmlElement] = [self]
        while waiting:
            element = waiting.pop()
            yield element
            waiting.extend(reversed(element.children))


def parse(data: bytes) -> XmlElement:
    """Return the root element.

    Raises:
        MalformedXml: it is not well-formed, has a document type, or is too long or too deep.
    """
    if len(data) > BYTES_MAX:
        raise MalformedXml(f"the file has more than {BYTES_MAX >> 20} MiB", 1, 1)
    return _Builder().parsed(data)


class _Builder:
    """Makes the elements of one document."""

    def __init__(self) -> None:
        self._parser = parser = expat.ParserCreate(namespace_separator=_SEPARATOR)
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._add_text
        parser.StartDoctypeDeclHandler = self._refuse_document_type
        self._root: XmlElement | None = None
        self._open: list[tuple[XmlElement, list[str]]] = []

    def parsed(self, data: bytes) -> XmlElement:
        try:
            self._parser.Parse(data, True)
        except expat.ExpatError as error:
            raise MalformedXml(expat.ErrorString(error.code), error.lineno, error.offset + 1) from error
        except (LookupError, ValueError) as error:  # an encoding that Python does not know, or cannot use here
            raise self._malformed(f"the encoding cannot be read: {error}") from error
        assert self._root is not None, "a document without an element is not well-formed"
        return self._root

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._open) == DEPTH_MAX:
            raise self._malformed(f"elements are more than {DEPTH_MAX} deep")
        namespace, _, local = name.rpartition(_SEPARATOR)
        own = {key: value for key, value in attributes.items() if _SEPARATOR not in key}
        element = XmlElement(local, namespace, own, *self._position, children=[])
        if self._open:
            self._open[-1][0].children.append(element)
        else:
            self._root = element
        self._open.append((element, []))

    def _end(self, _name: str) -> None:
        element, texts = self._open.pop()
        element.text = "".join(texts).strip()

    def _add_text(self, text: str) -> None:
        self._open[-1][1].append(text)

    def _refuse_document_type(self, *_about: object) -> None:
        raise self._malformed("a document type (DOCTYPE) is not read, nor are entities: remove it")

    @property
    def _position(self) -> tuple[int, int]:
        return self._parser.CurrentLineNumber, self._parser.CurrentColumnNumber + 1

    def _malformed(self, reason: str) -> MalformedXml:
        return MalformedXml(reason, *self._position)
